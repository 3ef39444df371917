"""Comparisons of replays: the rows of steps come first, and each has a sentence and a name."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_replay import synthetic_replay

from commbench.analysis.load import open_run
from commbench.compare.comparison import Comparison, compare
from commbench.compare.sentences import pooled_sentences

pytestmark = pytest.mark.usefixtures("launches_alike")


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    """A replay whose steps became 1.3 times slower, and whose calls did not."""
    synthetic_replay(tmp_path / "old", "old")
    synthetic_replay(tmp_path / "new", "new", lambda case: 1.3 if case.step else 1.0, seed=1)
    return compare(open_run(tmp_path / "old"), open_run(tmp_path / "new"))


def test_steps_come_first_with_a_sentence_for_each_and_no_size(found: Comparison) -> None:
    assert [bool(row.a.step) for row in found.rows] == [True] * 4 + [False] * 3
    first, *others = pooled_sentences(found)
    assert first.startswith("replay train calls: new takes 1.3")
    names = [text.partition(":")[0] for text in (first, *others)]
    assert names == [
        "replay train calls", "replay train bucket 1M", "replay train bucket 6M",
        "replay train reduce_scatter+all_gather", "all_reduce 1M-3M",
    ]  # fmt: skip
    assert "no difference" in others[-1]
