from __future__ import annotations

import base64
import gzip
import random
import re
from pathlib import Path

import pytest
from page import Page
from synthetic import plan, steady, synthetic_run

import commbench
from commbench.views.document import Document, Folded, Section, Text, text_table
from commbench.views.html import write
from commbench.views.markdown import MOST_CHARACTERS
from commbench.views.markdown import write as write_markdown

pytestmark = pytest.mark.usefixtures("launches_alike")

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
STYLE = Path(commbench.__file__).parent / "views" / "page.css"
MEGABYTE = 1_000_000
HOSTILE = '</style><script>alert(1)</script><img src="http://example.com/x" onerror=alert(1)> & \'"'


def checked(text: str) -> Page:
    page = Page(text)
    page.require_accessible()
    page.require_closed()
    assert len(text) < MEGABYTE
    return page


def test_the_report_of_a_run_is_one_page_with_the_journal_and_needs_nothing_else() -> None:
    page = checked(commbench.report(REFERENCE))
    assert page.texts["title"][0] == "reference"
    assert "85 of 85 cases were measured" in " ".join(page.texts["p"])
    (link,) = [a for a in page.named("a") if "download" in a]
    content = gzip.decompress(base64.b64decode(link["href"].partition(",")[2]))
    assert content == (REFERENCE / "run.jsonl").read_bytes()


def test_no_text_of_a_file_becomes_markup(tmp_path: Path) -> None:
    folder = synthetic_run(
        tmp_path / "run", HOSTILE, statuses={1024: "failed"},
        samples=lambda case: None if case.size_bytes == 1024 else steady(1e-3),
        environment={"kernel": HOSTILE, "processor": "\x1b[31m\u202e",
                     "variables": {f"NCCL_{HOSTILE}": HOSTILE}},
    )  # fmt: skip
    text = commbench.report(folder)
    page = checked(text)
    assert page.texts["h1"] == [HOSTILE]
    assert HOSTILE in page.texts["dd"]
    assert f"NCCL_{HOSTILE}" in page.texts["dt"]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_journal_too_large_for_the_page_is_left_out_and_named(tmp_path: Path) -> None:
    chance = random.Random(0)
    asked = plan(sizes=(1 << 10, 1 << 20))
    folder = synthetic_run(
        tmp_path / "run", "large", asked=asked,
        samples=lambda _: [[chance.random() for _ in range(2500)] for _ in range(16)],
    )  # fmt: skip
    page = checked(commbench.report(folder))
    assert [a for a in page.named("a") if "download" in a] == []
    assert any(
        "too large for this report" in text and "run.jsonl" in text for text in page.texts["p"]
    )


def test_blocks_within_blocks_have_ids_of_their_own() -> None:
    table = text_table("rows", ("name", "value\nus"), [("a", "1"), ("b", "2")])
    inner = Section("Same", [Folded("more", [table, table._replace()])])
    document = Document("t", ["s"], ["Yes."], [inner, Section("Same", [Text("x")])])
    page = checked(write(document))
    assert len(page.named("caption")) == 2


def test_every_rule_of_the_style_is_well_formed() -> None:
    style = re.sub(r"/\*.*?\*/", "", STYLE.read_text(), flags=re.DOTALL)
    style = re.sub(r"@media [^{]*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", r"\1", style)
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", style)
    assert "".join(f"{selector}{{{body}}}" for selector, body in rules) == style.rstrip()
    for selector, body in rules:
        assert re.fullmatch(r"(?:\s*(?:--)?[a-z-]+: [^:;]+;)+\s*", body), selector
        assert not re.search(r"\b[A-Z]", selector), selector


def test_the_markdown_of_a_run_shows_text_of_files_literally_and_what_nccl_selected(
    tmp_path: Path,
) -> None:
    environment = {
        "kernel": "a\n# b | c <script>",
        "nccl_selections": {"AllReduce 1024": [["RING", "LL128", "8"]]},
    }
    folder = synthetic_run(tmp_path / "run", "<b>*x*</b>", environment=environment)
    text = commbench.report(folder, format="markdown")
    assert [line for line in text.splitlines() if "RING LL128" in line and "1 KiB" in line]
    assert "&#124; c &#60;script&#62;" in text
    assert not [part for part in ("<script", "<b>", "\n# b", "nccl_selections") if part in text]


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
    text = write_markdown(Document("T", (), (), [text_table("a", ("row", "text"), rows), folded]))
    assert len(text) <= MOST_CHARACTERS
    assert "more rows are in the HTML report" in text
    assert "a warning" in text
