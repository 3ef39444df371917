from __future__ import annotations

import base64
import gzip
import random
import re
from functools import cache
from pathlib import Path

import pytest
from page import Page
from synthetic import plan, steady, synthetic_run
from synthetic_sweep import synthetic_sweep

import commbench
from commbench.views.document import Document, Folded, Section, Text, text_table
from commbench.views.html import html_text

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


@cache
def reference() -> str:
    return commbench.report(REFERENCE)


def test_the_report_of_a_run_is_one_page_that_needs_nothing_else() -> None:
    page = checked(reference())
    assert page.texts["title"][0] == "reference"
    assert "85 of 85 cases were measured" in " ".join(page.texts["p"])


def test_the_journal_is_in_the_page_as_it_was_read() -> None:
    page = checked(reference())
    (link,) = [a for a in page.named("a") if "download" in a]
    content = gzip.decompress(base64.b64decode(link["href"].partition(",")[2]))
    assert content == (REFERENCE / "run.jsonl").read_bytes()


def test_a_comparison_names_every_run_and_what_differs(tmp_path: Path) -> None:
    folders = [
        synthetic_run(
            tmp_path / name, name, lambda case, n=n: steady(case.size_bytes * 1e-9 * (1 + n)),
            environment={"variables": {"NCCL_ALGO": name.upper()}},
        )
        for n, name in enumerate(("ring", "tree", "chain"))
    ]  # fmt: skip
    page = checked(commbench.report(*folders))
    cells = page.texts["td"]
    assert {"RING", "TREE", "CHAIN"} <= set(cells)
    assert len([a for a in page.named("a") if "download" in a]) == 3
    note = "one launch each: by how much launches differ is assumed"
    assert sum(note in text for text in page.texts["li"]) == 2


def test_no_text_of_a_file_becomes_markup(tmp_path: Path) -> None:
    folder = synthetic_run(
        tmp_path / "run", HOSTILE, statuses={1024: "failed"},
        samples=lambda case: None if case.size_bytes == 1024 else steady(1e-3),
        environment={
            "kernel": HOSTILE,
            "processor": "\x1b[31m\u202e",
            "variables": {f"NCCL_{HOSTILE}": HOSTILE},
        },
    )  # fmt: skip
    text = commbench.report(folder)
    page = checked(text)
    assert page.texts["h1"] == [HOSTILE]
    assert HOSTILE in page.texts["dd"]
    assert f"NCCL_{HOSTILE}" in page.texts["dt"]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_check_against_a_baseline_draws_its_limit(tmp_path: Path) -> None:
    for name, seconds in (("old", 1e-3), ("new", 1.1e-3)):
        synthetic_run(tmp_path / name, name, lambda _, s=seconds: steady(s))
    runs = tmp_path / "new", tmp_path / "old"
    gate = commbench.check(runs[0], against=runs[1], max_slowdown="25%")
    page = commbench.report(gate)
    assert checked(page).drawings
    assert " A line marks the limit of the check: 1.25 times as long.</desc>" in page


def test_a_sweep_has_a_column_for_each_setting(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.9)[setting])
    page = checked(commbench.report(tmp_path))
    assert "quiet is the fastest at 1K-1M (plain takes 1.90 times as long)" in " ".join(
        page.texts["p"]
    )
    headings = [text.strip() for text in page.texts["th"]]
    assert {"quiet", "plain"} <= set(headings)
    assert "* 21.04 us" in page.texts["td"], "the mark is before the time"
    assert page.drawings
    assert len([a for a in page.named("a") if "download" in a]) == 6
    (command, *_) = [text for text in page.texts["code"] if text.startswith("commbench sweep")]
    assert "--vary=cpu-mode=quiet,plain --rounds=3 --op=all_reduce" in " ".join(
        command.replace("\\\n", " ").split()
    )
    assert "--cpu-mode" not in command


def test_wrong_results_are_never_called_correct(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "run", "mine", statuses={1024: "wrong"})
    page = checked(commbench.report(folder))
    assert "wrong" in page.texts["td"]
    assert [row.get("class") for row in page.named("tr")].count("bad") == 1
    verdict = "3 of 4 cases were measured, 1 wrong. Some results are wrong."
    assert verdict in page.texts["p"]


def test_a_journal_too_large_for_the_page_is_left_out_and_named(
    tmp_path: Path,
) -> None:
    chance = random.Random(0)
    asked = plan(sizes=(1 << 10, 1 << 20))
    folder = synthetic_run(
        tmp_path / "run", "large", asked=asked,
        samples=lambda _: [[chance.random() for _ in range(2500)] for _ in range(16)],
    )  # fmt: skip
    page = checked(commbench.report(folder))
    assert [a for a in page.named("a") if "download" in a] == []
    assert any(
        "Too large for this report" in text and "run.jsonl" in text for text in page.texts["p"]
    )


def test_blocks_within_blocks_have_ids_of_their_own() -> None:
    table = text_table("rows", ("name", "value\nus"), [("a", "1"), ("b", "2")])
    inner = Section("Same", [Folded("more", [table, table._replace()])])
    document = Document("t", ["s"], ["Yes."], [inner, Section("Same", [Text("x")])])
    page = checked(html_text(document))
    assert len(page.named("caption")) == 2


def test_every_rule_of_the_style_is_well_formed() -> None:
    style = re.sub(r"/\*.*?\*/", "", STYLE.read_text(), flags=re.DOTALL)
    style = re.sub(r"@media [^{]*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", r"\1", style)
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", style)
    assert "".join(f"{selector}{{{body}}}" for selector, body in rules) == style.rstrip()
    for selector, body in rules:
        assert re.fullmatch(r"(?:\s*(?:--)?[a-z-]+: [^:;]+;)+\s*", body), selector
        assert not re.search(r"\b[A-Z]", selector), selector
