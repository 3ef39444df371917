"""Records from JSON values: a value of another type is refused, none is made to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.distributed import ReduceOp

from commbench.validation import build, plain


class Named(NamedTuple):
    text: str
    number: int
    flag: bool = False
    ratio: float = 0.0
    maybe: float | None = None
    several: tuple[float, ...] = ()
    facts: dict[str, Any] = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True, slots=True)
class Frozen:
    names: tuple[str, ...]
    number: int | None = None


SOUND = {"text": "a", "number": 1}


def test_a_record_is_built_of_values_of_its_types() -> None:
    values = SOUND | {
        "flag": True, "ratio": 2, "maybe": 0.5, "several": [1, 2.5], "facts": {"a": None}
    }  # fmt: skip
    assert build(Named, values) == Named("a", 1, True, 2, 0.5, (1, 2.5), {"a": None})
    assert build(Named, SOUND) == Named("a", 1)
    assert build(Named, SOUND | {"maybe": None}).maybe is None
    assert build(Frozen, {"names": ["a", "b"]}) == Frozen(("a", "b"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", 5), ("text", None), ("text", ["a"]),
        ("number", "1"), ("number", 1.0), ("number", True), ("number", None),
        ("flag", 1), ("flag", "yes"), ("flag", None),
        ("ratio", "1"), ("ratio", True), ("ratio", None), ("ratio", float("nan")),
        ("ratio", float("inf")),
        ("maybe", "none"), ("maybe", float("nan")), ("maybe", [1.0]),
        ("several", 1.0), ("several", None), ("several", {"0": 1.0}), ("several", "12"),
        ("several", [1.0, "2"]), ("several", [float("inf")]), ("several", [None]),
        ("facts", None), ("facts", []), ("number", 2**53 + 1), ("number", -(10**400)),
        ("ratio", 10**400), ("several", [10**400]), ("text", "x" * 10_001),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is "):
        build(Named, SOUND | {name: value})


def test_a_missing_or_an_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError, match="number"):
        build(Named, {"text": "a"})
    with pytest.raises(TypeError, match="surprise"):
        build(Named, SOUND | {"surprise": 1})


def test_a_long_wrong_value_is_quoted_in_short() -> None:
    with pytest.raises(ValueError, match="number is ") as refused:
        build(Named, SOUND | {"number": "9" * 1000})
    assert len(str(refused.value)) < 80


def test_names_of_torch_and_numbers_of_numpy_are_plain() -> None:
    given = [torch.bfloat16, ReduceOp.SUM, ReduceOp.PRODUCT, torch.device("cuda:1"), np.int64(3)]
    assert plain([*given, "1K", (torch.int8,)]) == [
        "bfloat16", "sum", "prod", "cuda:1", 3, "1K", ("int8",)
    ]  # fmt: skip
    assert plain(np.array([1])).shape == (1,)
