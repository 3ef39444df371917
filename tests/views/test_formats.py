"""Which format an answer has, and where it goes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commbench.errors import CommbenchError, UsageError
from commbench.stats import Estimate
from commbench.views.document import Document
from commbench.views.formats import (
    ENDINGS,
    VIEW_OF_DOCUMENT,
    View,
    as_json,
    choose_format,
    fields_of,
    json_text,
    show,
)

VIEW = View(lambda name: Document(name, (), (), ()), schema=2, more={"csv": "a,{}\n".format})


def test_every_format_begins_as_it_should() -> None:
    begin = {
        "text": "T", "markdown": "# T\n", "html": "<!doctype html>", "json": '{\n "schema": 2',
        "csv": "a,",
    }  # fmt: skip
    assert [*VIEW.formats] == [*begin]
    for name, text in begin.items():
        result = {"name": "T"} if name == "json" else "T"
        assert VIEW.write(result, name).startswith(text)


@pytest.mark.parametrize("name", ["table", "jsn", ""])
def test_an_unknown_format_is_refused_with_those_that_are_known(name: str) -> None:
    for ask in (VIEW.require, lambda name: VIEW.write("T", name)):
        with pytest.raises(UsageError, match="unknown format") as refused:
            ask(name)
        assert "known: text, markdown, html, json, csv" in (refused.value.hint or "")


def test_a_document_alone_is_no_data() -> None:
    assert [*VIEW_OF_DOCUMENT.formats] == ["text", "markdown", "html"]


def test_the_ending_of_a_file_says_its_format() -> None:
    assert {choose_format(None, f"x{ending.upper()}") for ending in ENDINGS} <= {*VIEW.formats}
    assert choose_format(None, Path("a.b/x.md")) == "markdown"
    assert choose_format("json", "x.md") == "json"
    assert choose_format(None, None) == "text"
    for name, problem in (("x.pdf", "'.pdf' is no ending of a format"), ("x", "x has no ending")):
        with pytest.raises(UsageError, match=problem):
            choose_format(None, name)


def test_a_file_is_written_once_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.md"
    show(VIEW, "T", output=file)
    assert file.read_text() == "# T\n"
    assert capsys.readouterr().out == f"{file}\n"
    with pytest.raises(CommbenchError, match="exists"):
        show(VIEW, "U", output=file)
    assert file.read_text() == "# T\n"
    show(VIEW, "U")
    assert capsys.readouterr().out == "U\n"


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
