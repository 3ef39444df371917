"""Records from plain JSON values, refusing a value whose type is not what its field says."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeVar

T = TypeVar("T")

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "None": (type(None),),
}


def build(record: type[T], values: dict[str, Any]) -> T:
    """A record (named tuple or dataclass) of `values`; lists become tuples where it wants them.

    Checks the annotations made of str, int, bool, float (finite), None, tuple and dict, and
    leaves others alone. Raises ValueError for a wrong type, TypeError for a missing or unknown
    name.
    """
    arguments = {}
    for name, value in values.items():
        annotation = record.__annotations__.get(name, "")
        # As written: named tuples wrap the text.
        annotation = str(getattr(annotation, "__forward_arg__", annotation))
        if not _fits(value, annotation):
            raise ValueError(f"{name} is {value!r:.40}, not {annotation}")
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return record(**arguments)


def _fits(value: Any, annotation: str) -> bool:
    kinds = _KINDS.get(annotation)
    if kinds and type(value) in kinds:  # the usual case, fast
        return type(value) is not float or isfinite(value)
    return any(_fits_one(value, option) for option in annotation.split(" | "))


def _fits_one(value: Any, option: str) -> bool:
    if option.startswith("tuple["):
        inner = option[len("tuple[") :].split(",")[0]
        return isinstance(value, list | tuple) and all(_fits(item, inner) for item in value)
    if option.startswith("dict["):
        return isinstance(value, dict)
    if option not in _KINDS:
        return True
    return type(value) in _KINDS[option] and (option != "float" or isfinite(value))
