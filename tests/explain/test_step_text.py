"""What a replayed step is made of."""

from __future__ import annotations

from pathlib import Path

from synthetic_replay import synthetic_replay

from commbench.analysis.load import open_run
from commbench.explain.run_text import explain_run
from commbench.spec.operations import OPERATIONS, REPLAY


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_step_has_its_calls_and_what_they_take_alone_but_no_bandwidth(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run"))
    text = words(explain_run(run, OPERATIONS[REPLAY]))
    first, *_, last = text.split("replay train ")[1:]
    assert "Step train of the workload resnet; variant calls:" in first
    assert "Rank 0 makes 3 calls of 6.0 MiB together: 3 all_reduce over world." in first
    # 20 us and 1 ns a byte for each of 1, 2 and 3 MiB: 6.35 ms; the step takes 1 ms.
    assert "One by one, these calls take 6.3" in first
    assert "the step takes 0.16 times that." in first
    assert "It takes 2.0" in last
    assert "times as long" in last
    assert "For another size" not in text
    assert not any(word in text for word in ("busbw", "Latency-bound", "moves no data", "peak"))


def test_the_short_explanation_says_the_same_of_each_variant(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run", variants=["calls", "bucket:1M"]))
    text = words(explain_run(run))
    assert "variant bucket 1M: its neighbouring all_reduces cut into others of 1M." in text
    assert "Rank 0 makes 6 calls of 6.0 MiB together" in text
    assert "It takes 1.0" in text
