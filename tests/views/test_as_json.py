"""Results as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

from commbench.stats.estimate import Estimate
from commbench.views.as_json import as_json, fields_of, json_text


class Row(NamedTuple):
    size_bytes: int
    time_s: Estimate | None


@dataclass(frozen=True)
class Result:
    rows: tuple[Row, ...]
    _private: int = 0

    @property
    def count(self) -> int:
        return len(self.rows)


class Own(NamedTuple):
    a: int
    b: int

    def as_json(self) -> dict[str, Any]:
        return fields_of(self, "double", without=["a"])

    @property
    def double(self) -> Row:
        return Row(2 * self.b, None)


def test_fields_become_objects_and_private_ones_are_left_out() -> None:
    found = Result((Row(8, Estimate(1e-3, 0.9e-3, 1.1e-3)), Row(16, Estimate(2e-3))))
    assert as_json(found) == {
        "rows": [
            {"size_bytes": 8, "time_s": {"value": 1e-3, "low": 0.9e-3, "high": 1.1e-3}},
            {"size_bytes": 16, "time_s": {"value": 2e-3, "low": None, "high": None}},
        ]
    }
    assert fields_of(found, "count") == {"rows": found.rows, "count": 2}


def test_a_class_decides_what_is_said_of_it() -> None:
    assert as_json([Own(1, 3)]) == [{"b": 3, "double": {"size_bytes": 6, "time_s": None}}]


def test_numbers_have_seven_digits_and_what_is_no_number_is_null() -> None:
    assert as_json((1 / 3, 123456789, 12345678.9, inf, -inf, nan, None, True)) == [
        0.3333333, 123456789, 12345680.0, None, None, None, None, True
    ]  # fmt: skip


def test_keys_and_what_has_no_form_in_json_become_text() -> None:
    assert as_json({8: Path("a") / "b"}) == {"8": "a/b"}


def test_the_text_begins_with_the_number_of_the_schema() -> None:
    text = json_text(3, Result(()))
    assert text.endswith("\n")
    assert list(json.loads(text).items()) == [("schema", 3), ("rows", [])]
