"""Comparisons of replays: the rows of steps come first, and each has a sentence and a name."""

from __future__ import annotations

from pathlib import Path

import pytest
from commbench.compare.formats import FORMATS
from commbench.document.blocks import Section
from synthetic_replay import synthetic_replay

from commbench.analysis.load import open_run
from commbench.compare.comparison import Comparison, compare
from commbench.document.contents import comparison_contents
from commbench.output.table import width

pytestmark = pytest.mark.usefixtures("launches_alike")


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    """A replay whose steps became 1.3 times slower, and whose calls did not."""
    synthetic_replay(tmp_path / "old", "old")
    synthetic_replay(tmp_path / "new", "new", lambda case: 1.3 if case.step else 1.0, seed=1)
    return compare(open_run(tmp_path / "old"), open_run(tmp_path / "new"))


def test_steps_come_first_with_a_sentence_for_each_and_no_size(found: Comparison) -> None:
    assert [bool(row.a.step) for row in found.rows] == [True] * 4 + [False] * 3
    first, *others = found.sentences
    assert first.startswith("replay train calls: new takes 1.3")
    names = [text.partition(":")[0] for text in (first, *others)]
    assert names == [
        "replay train calls", "replay train bucket 1M", "replay train bucket 6M",
        "replay train reduce_scatter+all_gather", "all_reduce 1M-3M",
    ]  # fmt: skip
    assert "no difference" in others[-1]


def test_steps_share_a_table_that_fits_a_terminal(found: Comparison) -> None:
    text = FORMATS["table"]([found], True)
    lines = text.splitlines()
    named = [line for line in lines if line.startswith("  train ")]
    assert [line.split()[1] for line in named] == [
        "calls", "bucket", "bucket", "reduce_scatter+all_gather",
    ]  # fmt: skip
    assert lines.count("replay") == 1
    start = lines.index("replay")
    table = lines[start : lines.index("", start)]
    assert max(map(width, table)) <= 80
    assert sum("slower" in line for line in table) == 4


def test_all_forms_name_step_and_variant(found: Comparison) -> None:
    csv = FORMATS["csv"]([found]).splitlines()
    assert ",train,bucket:6M," in "\n".join(csv)
    assert "replay train bucket 6M" in FORMATS["markdown"]([found])
    assert '"variant": "bucket:6M"' in FORMATS["json"]([found])


def test_a_report_has_a_section_of_all_steps_first(found: Comparison) -> None:
    contents = comparison_contents([found])
    (results,) = (section for section in contents.results if section.title == "Results")
    titles = [section.title for section in results.blocks if isinstance(section, Section)]
    assert titles == ["replay", "all_reduce float32 sum in_place"]
