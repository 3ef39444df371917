"""Checks the types and limits of values before they become fields of a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial, wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, Signature, signature
from math import isfinite
from numbers import Integral, Real
from os import PathLike
from reprlib import repr as shortened
from types import FunctionType
from typing import Any, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar

from commbench.errors import UsageError, closest, name_error, value_error

T = TypeVar("T")
P = ParamSpec("P")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)
_Check: TypeAlias = Callable[[Any], bool]

LONGEST_TEXT = 10_000
LARGEST_INTEGER = 1 << 53
"""Up to this, every integer is exact as a float, and all JSON parsers read it alike (RFC 8259)."""

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"), "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"), "bool": ((bool,), "true or false"),
    "None": ((type(None),), "null"), "dict": ((dict,), "an object"), "tuple": ((), "a list"),
}  # fmt: skip
"""The types of annotations, and how JSON calls them; a tuple is checked by what is in it."""


def build(record: type[T], values: dict[str, Any], **make: Callable[[Any], object]) -> T:
    """Make a record (named tuple or dataclass) of JSON `values`; lists become tuples. `make` has
    what makes the value of a field, or each value in its list, where these are records, too.

    Values are checked where the annotation consists of str (of limited length), int (up to 2**53),
    bool, float (finite), None, tuple and dict; others are taken as they are. Raises ValueError for
    a wrong type, TypeError for a missing or unknown field.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{record.__name__.lower()} is {brief(values)}, not an object")
    checks = _checks_of(record)  # type: ignore[arg-type]  # it is hashable
    for name in (name for name in make if values.get(name)):
        one, found = make[name], values[name]
        if not checks[name][0].startswith("tuple"):
            values = values | {name: one(found)}
        elif isinstance(found, list):
            values = values | {name: [one(each) for each in found]}
    arguments = dict(values)
    for name, value in values.items():
        if name not in checks:
            close = closest(name, list(checks))
            hint = f", did you mean {close}?" if close else ""
            raise TypeError(f"unknown key {brief(name)}{hint}")
        annotation, types, others = checks[name]
        if not _fits(value, types, others):
            is_long = isinstance(value, str) and len(value) > LONGEST_TEXT
            names = [each.partition("[")[0] for each in annotation.split(" | ")]
            kinds = [_KINDS[each][1] if each in _KINDS else each for each in names]
            wanted = f"at most {LONGEST_TEXT} characters" if is_long else " or ".join(kinds)
            raise ValueError(f"{name} is {brief(value)}, not {wanted}")
        if type(value) is list:
            arguments[name] = tuple(value)
    return record(**arguments)


@cache
def _checks_of(record: type) -> dict[str, tuple[str, frozenset[type], tuple[_Check, ...]]]:
    """The annotation of each field, and its parts."""
    return {name: (text, *_parse_annotation(text)) for name, text in texts_of(record).items()}


def texts_of(record: type) -> dict[str, str]:
    """The annotations of a record's fields as written; named tuples wrap the text."""
    found = record.__annotations__.items()
    return {name: str(getattr(text, "__forward_arg__", text)) for name, text in found}


@cache
def _parse_annotation(annotation: str) -> tuple[frozenset[type], tuple[_Check, ...]]:
    """The plain types of an annotation, and checks for its other options."""
    options = [option.partition("[") for option in annotation.split(" | ")]
    plain_types = {name: _KINDS.get(name, ((), ""))[0] for name, _, _ in options}
    kinds = frozenset(kind for types in plain_types.values() for kind in types)
    others = [(name, inner.split(",")[0]) for name, _, inner in options if not plain_types[name]]
    return kinds, tuple(
        partial(_is_tuple, inner) if name == "tuple" else lambda _: True for name, inner in others
    )


def _fits(value: Any, kinds: frozenset[type], others: tuple[_Check, ...]) -> bool:
    if (kind := type(value)) in kinds:
        return value is None or (isfinite(value) if kind is float else is_within_limits(value))
    for check in others:  # noqa: SIM110 - any() takes twice the time
        if check(value):
            return True
    return False


def _is_tuple(inner: str, value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    kinds = {*map(type, value)}
    if inner == "float" and kinds == {float}:  # fast path; the sum of finite numbers may overflow
        return isfinite(sum(value)) or all(map(isfinite, value))
    return all(_fits(item, *_parse_annotation(inner)) for item in value)


def is_within_limits(value: Any) -> bool:
    """Whether a number is finite, an integer exact as a float, and a text not too long."""
    if isinstance(value, int):
        return -LARGEST_INTEGER <= value <= LARGEST_INTEGER
    if isinstance(value, float):
        return isfinite(value)
    return not isinstance(value, str) or len(value) <= LONGEST_TEXT


def brief(value: Any) -> str:
    """A value of any size and depth, shortened to at most 40 characters."""
    try:
        return shortened(value).partition("\n")[0][:40]
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "a number with too many digits"


def require_known(kind: str, names: tuple[str, ...], known: list[str]) -> None:
    """Raise UsageError unless there is at least one name, and all names are known."""
    if not names:
        raise UsageError(f"there is no {kind}", f"known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise name_error(kind, str(name), known)


_ARGUMENTS: dict[str, tuple[Any, str]] = {
    "str": (str, "a text"), "int": (Integral, "a whole number"), "float": (Real, "a number"),
    "bool": (Integral, "True or False"), "None": (type(None), ""), "Path": (PathLike, "a path"),
    "Sequence": (Sequence, "a list"), "Mapping": (Mapping, "a dict"),
    "Callable": (Callable, "a function"), "Workload": ("Workload", "a workload"),
}  # fmt: skip
"""The types of arguments that are checked, by how annotations begin, and how they are called. A
class that cannot be imported here is a name."""


_NAMED = ("dtype", "device", "RedOpType")
"""The classes of torch whose objects stand for their names."""


def with_known_keywords(function: Callable[P, T], module: str = "") -> Callable[P, T]:
    """The function as one of a `module`; UsageError for a call that it does not take: an unknown
    keyword, an argument that is missing, that has no name or has two values, and one of another
    type than _ARGUMENTS has for its annotation."""
    code, name, annotations = function.__code__, function.__name__, function.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    places = names[: code.co_argcount]
    known = [each for each in names if each != "self"]
    more = code.co_varnames[len(names)] if code.co_flags & CO_VARARGS else ""
    usual = {*places[len(places) - len(function.__defaults__ or ()) :]}
    usual |= {*(function.__kwdefaults__ or ())}
    takes_any, lists = code.co_flags & CO_VARKEYWORDS, f"help({_public_name(function)})"

    made = signature(function)
    options = {n: str(p.annotation) for n, p in made.parameters.items() if n not in annotations}

    def require_call(given: Sequence[Any], named: Mapping[str, Any]) -> None:
        for argument in named:
            if argument in places[: len(given)]:
                raise UsageError(f"{name} has two values of {argument}", "leave out one")
            if argument not in known and not takes_any:
                raise name_error("argument", argument, known, lists=lists)
        if len(given) > len(places) and not more:
            value, free = brief(given[len(places)]), names[len(places) :]
            if not free and not takes_any:
                raise UsageError(f"{name} has no argument for {value}", "leave it out")
            example = "op" if takes_any or "op" in free else free[0]
            hint = f"write {example}={value}, or another name: {lists} has them"
            raise UsageError(f"{name} takes {value} only with the name of its argument", hint)
        by_name = usual | (named.keys() - {*names[: code.co_posonlyargcount]})
        if lacking := [each for each in names[len(given) :] if each not in by_name]:
            needed = " and ".join(n if n in places else f"{n}=..." for n in lacking)
            needed += " (a path, a label or a Run)" * (annotations.get(lacking[0]) == "AnyRun")
            raise UsageError(f"{name} needs {lacking[0]}", f"give {needed}: see {lists}")

    @wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> T:
        require_call(given, named)
        values: Any = plain(given)
        others: Any = {each: plain(value) for each, value in named.items()}
        pairs = [*zip((*places, *[more] * len(given)), values, strict=False), *others.items()]
        for argument, value in pairs:
            kinds, about = str(annotations.get(argument, "Any")), f"; {lists} says what it is"
            allowed = _allowed(kinds)
            if None not in allowed and not any(_is_a(value, each[0]) for each in allowed if each):
                refuse_type(argument, value, kinds, about)
            if value is None and "None" not in (kinds_of := options.get(argument, "None")):
                refuse_type(argument, value, kinds_of, about)
        try:
            return function(*values, **others)
        except UsageError as error:
            error.name_option({f"--{each}".replace("_", "-"): v for each, v in pairs})
            raise

    checked.__module__ = module or function.__module__
    checked.__no_type_check__ = True  # type: ignore[attr-defined]  # they name what is not imported
    if "self" not in names and "__signature__" not in vars(function):
        kinds = readable(made.parameters.values())
        returned = Annotation(made.return_annotation)
        checked.__signature__ = Signature(kinds, return_annotation=returned)  # type: ignore[attr-defined]
    return checked


class Annotation(str):
    """An annotation that `help` prints without quotation marks."""

    __slots__ = ()
    __repr__ = str.__str__


def readable(parameters: Iterable[Parameter]) -> list[Parameter]:
    """The parameters with annotations that are printed so, and functions as their names."""
    return [
        each.replace(
            annotation=Annotation(each.annotation),
            default=Annotation(d.__name__) if isinstance(d := each.default, FunctionType) else d,
        )
        for each in parameters
    ]


def _public_name(function: Callable[..., Any]) -> str:
    """How a user names a function of commbench.api: `commbench.run`, `commbench.workload.ddp`."""
    module = function.__module__.rpartition(".")[2]
    inner = f".{module}" if module in ("history", "workload") else ""
    return f"commbench{inner}.{function.__qualname__}"


def refuse_type(name: str, value: Any, annotation: str, about: str) -> NoReturn:
    """Raise UsageError for a value that has none of the types of an annotation; the hint ends with
    what it is `about`."""
    *most, last = (each[1] for each in _allowed(annotation) if each and each[1])
    wanted = " or ".join(filter(None, (", ".join(most), last)))
    raise UsageError(f"{name} cannot be {brief(value)}", f"give {wanted}{about}")


def _allowed(annotation: str) -> list[tuple[Any, str] | None]:
    """The types of an annotation, and how they are called; a None for one without such words."""
    inner = r"\[[^][]*\]"
    options = re.sub(inner, "", re.sub(inner, "", annotation)).split(" | ")
    return [_ARGUMENTS.get(option.rpartition(".")[2]) for option in options]


def plain(value: Any) -> Any:
    """The name of a dtype, a device or a reduce operation of torch, and the number of a scalar of
    NumPy, also in a list; any other value is as it is."""
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    if not kind.__module__.startswith("torch") or kind.__name__ not in _NAMED:
        return value
    return str(value).rpartition(".")[2].lower().replace("product", "prod")


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(kind, str):
        return any(base.__name__ == kind for base in type(value).__mro__)
    is_bytes = kind is Sequence and isinstance(value, bytes)  # no list of anything
    return isinstance(value, kind) and not is_bytes


public = cache(with_known_keywords)
"""The same function each time, so that it can be pickled."""


def require_within(name: str, value: float | None, low: float, high: float) -> None:
    """Raise UsageError for a value outside of [low, high]; None passes."""
    if value is not None and not low <= value <= high:
        given = value if isinstance(value, int) else f"{value:.12g}"
        is_zero = not value > 0 and 0 < low < 1
        least = "above 0, for example 0.2" if is_zero else f"at least {low:.12g}"
        limit = f"at most {high:.12g}" if value > high else least
        raise value_error(name, f"is {given}", f"it must be {limit}")


def by_name(*entries: Entry) -> dict[str, Entry]:
    """The table of these entries, in their order."""
    return {entry.name: entry for entry in entries}


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of that name in a table; UsageError with the closest name for an unknown one."""
    if name not in table:
        raise name_error(kind, name, list(table))
    return table[name]
