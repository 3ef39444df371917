"""Which format an answer has, and where it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commbench.errors import CommbenchError, UsageError
from commbench.views.document import Document
from commbench.views.formats import ENDINGS, VIEW_OF_DOCUMENT, View, choose_format, show

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
