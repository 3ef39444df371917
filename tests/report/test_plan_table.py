"""The plan of a replay, as --dry-run prints it."""

from __future__ import annotations

from synthetic_replay import WORKLOAD, replay_plan

from commbench.output.table import width
from commbench.report.plan_table import plan_text


def test_the_plan_of_a_replay_names_its_workload_and_the_memory_of_steps() -> None:
    lines = plan_text(replay_plan(), "torchrun ...").splitlines()
    facts = dict(line.split(None, 1) for line in lines if line[:1].isalpha() and " " in line)
    assert facts["workload"] == "resnet: step train (3 calls of rank 0)"
    assert facts["variants"] == "all"
    assert not {"operations", "placement", "timing", "root", "concurrency"} & set(facts)
    (own,) = (line for line in lines if line.startswith("  replay train calls"))
    # The buffers of three calls under way at once, each of whole pages.
    assert own.split()[3:] == ["6168", "KiB"]
    assert "Cases: 7; a rank needs at most 6192 KiB for buffers." in lines
    assert max(map(width, lines)) <= 80


def test_what_is_unknown_of_a_workload_is_said() -> None:
    noted = WORKLOAD._replace(notes=("the trace has no start times",))
    text = plan_text(replay_plan(["calls"], noted), "torchrun ...")
    assert "Notes on the workload:\n  the trace has no start times" in text
