"""Sweeps over the steps of a workload: a winner for each step and variant, and one setting to
use."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Commbench
from pictures import require_readable, texts
from synthetic_replay import SIZES, WORKLOAD, synthetic_replay_sweep

from commbench.analysis.nccl_log import SELECTIONS
from commbench.results.workload_file import read_workload, write_workload
from commbench.spec.case import Case
from commbench.sweep.document import VIEW, document
from commbench.sweep.nccl_tuning import make_tuner_ranges
from commbench.sweep.plot import sweep_pictures
from commbench.sweep.result import SweepResult, load_sweep
from commbench.views.document import Table

pytestmark = pytest.mark.usefixtures("launches_alike")

VARIANTS = ["calls", "bucket:1M", "bucket:6M", "reduce_scatter+all_gather"]


def steps_slower(setting: int, case: Case) -> float:
    """The second setting makes steps 1.5 times slower, and single calls twice as fast."""
    return 1.0 if not setting else 1.5 if case.step else 0.5


@pytest.fixture
def result(tmp_path: Path) -> SweepResult:
    synthetic_replay_sweep(tmp_path / "sweep", steps_slower, ["A=one,two"])
    return load_sweep(tmp_path / "sweep")


def test_each_step_and_variant_has_a_winner_before_the_single_calls(result: SweepResult) -> None:
    steps = [point for point in result.points if point.case.step]
    assert [point.case.variant for point in steps] == VARIANTS
    assert list(result.points[: len(steps)]) == steps
    assert [winner.best for winner in result.winners] == ["A=one"] * 4 + ["A=two"] * 3
    assert [winner.size_bytes for winner in result.winners[:4]] == [0] * 4


def test_the_answer_is_the_setting_for_the_step_as_it_is_made_and_a_faster_variant(
    result: SweepResult,
) -> None:
    (variant,) = result.faster_variants
    assert (variant.step, variant.setting.name, variant.variant) == ("train", "A=one", "bucket:6M")
    assert variant.ratio.value == pytest.approx(0.5, rel=0.02)
    step, faster = document(result).answer
    assert step == "For replay train calls, one is the fastest (two takes 1.50 times as long)."
    assert faster.startswith("With bucket 6M under one the step train takes 0.50")
    assert {found.verdict for found in result.ranges if found.points[0].case.step} == {"faster"}


def test_settings_that_are_alike_for_a_step_are_tied(tmp_path: Path) -> None:
    synthetic_replay_sweep(
        tmp_path, lambda i, case: (1.0, 1.0, 1.3)[i] if case.step else 1.0 + i, ["A=one,two,three"]
    )
    result = load_sweep(tmp_path)
    steps = [found for found in result.ranges if found.points[0].case.step]
    assert [found.verdict for found in steps] == ["same"] * len(VARIANTS)
    assert {setting.name for found in steps for setting in found.best} == {"A=one", "A=two"}
    assert "All steps together" in VIEW.write(result)


def test_one_picture_has_all_steps(result: SweepResult) -> None:
    first, *_ = sweep_pictures(result)
    assert first.name == "sweep-replay-map"
    words = {text.get_text() for text in texts(require_readable(first))}
    assert {"train calls", "train bucket 6M", "one", "two"} <= words


@pytest.mark.full
def test_a_sweep_keeps_the_workload_so_that_it_can_be_resumed(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_workload(tmp_path / "step.json", WORKLOAD)
    swept = commbench(
        "sweep", "--vary", "cpu-mode=plain,batch", "--rounds", "1", "--workload", "step.json",
        "--variant", "calls", "--iters", "2", "--output", "sweep", "--no-plots",
    )  # fmt: skip
    assert swept.code == 0, swept.err
    assert "  replay train calls " in swept.out
    assert read_workload(tmp_path / "sweep" / "workload.json") == WORKLOAD
    (tmp_path / "step.json").unlink()
    (tmp_path / "sweep" / "cpu-mode=batch" / "round-1" / "run.jsonl").unlink()
    again = commbench("sweep", "--resume", "sweep")
    assert again.code == 0, again.err
    assert "1 of them measured before" in again.err


def test_options_that_choose_calls_cannot_be_swept_beside_a_workload(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_workload(tmp_path / "step.json", WORKLOAD)
    refused = commbench("sweep", "--vary", "dtype=float32,int8", "--workload", "step.json")
    assert refused.code == 2
    assert "--dtype has no effect with --workload" in refused.err


def test_steps_have_a_table_of_their_own(result: SweepResult) -> None:
    steps, calls, *_ = [block for block in document(result).blocks if isinstance(block, Table)]
    assert [point.case.variant for point in steps.rows] == VARIANTS
    assert [point.kind for point in calls.rows] == ["all_reduce float32 sum in_place"] * 3


def test_steps_with_other_calls_under_each_setting_are_not_compared(tmp_path: Path) -> None:
    (step,) = WORKLOAD.steps
    (program,) = step.programs
    fewer = WORKLOAD._replace(
        steps=(step._replace(programs=(program._replace(calls=program.calls[:2]),)),)
    )
    synthetic_replay_sweep(
        tmp_path, lambda *_: 1.0, ["A=one,two"], workloads=[WORKLOAD, fewer], variants=["calls"]
    )
    result = load_sweep(tmp_path)
    assert document(result).answer == [
        "replay train: its calls differ between the settings; there is nothing to compare."
    ]
    assert {winner.kind for winner in result.winners} == {"all_reduce float32 sum in_place"}


def test_steps_on_other_numbers_of_ranks_are_not_compared(tmp_path: Path) -> None:
    larger = WORKLOAD._replace(
        world_size=3, groups={"world": ((0, 1, 2),)},
        steps=tuple(
            step._replace(programs=tuple(p._replace(ranks=(0, 1, 2)) for p in step.programs))
            for step in WORKLOAD.steps
        ),
    )  # fmt: skip
    synthetic_replay_sweep(
        tmp_path, lambda *_: 1.0, ["A=one,two"], workloads=[WORKLOAD, larger], variants=["calls"]
    )
    assert document(load_sweep(tmp_path)).answer == [
        "replay train: its groups have other ranks under each setting; there is nothing to compare."
    ]


def test_a_file_without_its_option_is_refused_with_the_option(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_workload(tmp_path / "step.json", WORKLOAD)
    refused = commbench("sweep", "--vary", "cpu-mode=plain,quiet", "step.json")
    assert refused.code == 2
    assert refused.err.splitlines() == [
        "error: there is one argument too many: step.json",
        "hint: write --workload before the file of a workload: --workload step.json",
    ]


def test_the_tuner_gets_the_selections_of_the_setting_that_is_best_for_the_step(
    result: SweepResult,
) -> None:
    one, two = result.sweep.settings  # single calls are faster under the second one
    selections = {
        setting: {SELECTIONS: {f"AllReduce {size}": [[algorithm, "LL", "2"]] for size in SIZES}}
        for setting, algorithm in ((one, "RING"), (two, "TREE"))
    }
    (found,) = make_tuner_ranges(result.points, selections)
    assert (found.operation, found.algorithm, found.high_bytes) == ("all_reduce", "ring", 3 << 20)
