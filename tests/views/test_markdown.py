from __future__ import annotations

from operator import itemgetter
from pathlib import Path

from synthetic import synthetic_run

import commbench
from commbench.views.cells import DECIMAL, TEXT, Column
from commbench.views.document import (
    BAD,
    Code,
    Document,
    Facts,
    Folded,
    Items,
    Section,
    Table,
    Text,
    text_table,
)
from commbench.views.markdown import MOST_CHARACTERS, markdown_text


def test_every_kind_of_block_has_its_markdown() -> None:
    blocks = [
        Text("a < b"), Items(["one", "two"]), Facts([("ranks", "2")]),
        Folded("more", [text_table("times", ("size", "time\nus"), [("1 KiB", "2.5")])]),
        Code("Type:", "commbench run `x`"),
    ]  # fmt: skip
    text = markdown_text(Document("T", ["now"], ["It is so."], [Section("S", blocks)]))
    lines = text.splitlines()
    assert lines[:5] == ["# T", "", "now", "", "**It is so.**"]
    assert "a &#60; b" in lines
    assert "| 1 KiB | 2.5 |" in lines
    assert "<details><summary>more</summary>" in lines
    assert "    commbench run `x`" in lines


def test_a_bad_row_is_bold_without_blanks_at_the_ends_of_its_cells() -> None:
    columns = Column("size", itemgetter(0), TEXT), Column("GB/s", itemgetter(1), DECIMAL)
    rows = [("1K", "2.5"), ("2K", "2.51"), ("4K", "")]
    table = Table("", columns, rows, tone=lambda row: BAD if row[0] != "2K" else "")
    lines = markdown_text(Document("T", (), (), [table])).splitlines()
    assert lines[-3:] == ["| **1K** | **2.5** |", "| 2K | 2.51 |", "| **4K** |  |"]


def test_the_markdown_of_a_run_shows_text_of_files_literally(tmp_path: Path) -> None:
    folder = synthetic_run(
        tmp_path / "run", "<b>*x*</b>", environment={"kernel": "a\n# b | c <script>"}
    )
    text = commbench.report(folder, format="markdown")
    assert "<script" not in text
    assert "<b>" not in text
    assert "\n# b" not in text


def test_a_report_has_what_nccl_selected_for_each_size(tmp_path: Path) -> None:
    selected = {"AllReduce 1024": [["RING", "LL128", "8"]]}
    folder = synthetic_run(tmp_path / "run", "mine", environment={"nccl_selections": selected})
    text = commbench.report(folder, format="markdown")
    assert [line for line in text.splitlines() if "RING LL128" in line and "1 KiB" in line]
    assert "nccl_selections" not in text


def test_the_name_of_the_file_decides_the_format(tmp_path: Path) -> None:
    run = commbench.load(synthetic_run(tmp_path / "run", "mine"))
    page, ticket = tmp_path / "a.html", tmp_path / "a.md"
    assert run.report(page) == page.read_text()
    assert page.read_text().startswith("<!doctype html>")
    assert run.report(ticket, "markdown") == ticket.read_text()
    assert ticket.read_text().startswith("# mine\n")
    assert run.report(format="markdown").startswith("# mine\n")


def test_a_long_report_is_shortened_until_it_fits_a_comment() -> None:
    rows = [(str(number), "x" * 50) for number in range(1000)]
    folded = Folded("a warning", [text_table("why", ("row", "text"), rows)])
    text = markdown_text(Document("T", (), (), [text_table("a", ("row", "text"), rows), folded]))
    assert len(text) <= MOST_CHARACTERS
    assert "more rows are in the HTML report" in text
    assert "a warning" in text
