"""Sweeps over the steps of a workload: a winner for each step and variant, and one setting to
use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Commbench
from pictures import legend_texts, require_readable, texts
from synthetic import in_memory, steady
from synthetic_replay import SIZES, WORKLOAD, synthetic_replay_sweep

from commbench.analysis.nccl_log import SELECTIONS
from commbench.analysis.rows import make_rows
from commbench.answers.sweep.document import VIEW, document
from commbench.answers.sweep.plot import sweep_pictures
from commbench.answers.sweep.ranking import SettingTime, make_points
from commbench.answers.sweep.result import SweepResult, load_sweep, make_tuner_ranges
from commbench.answers.sweep.runner import SettingResult, Sweep
from commbench.answers.sweep.settings import make_settings
from commbench.plan.case import Case
from commbench.results.files import read_workload, write_workload
from commbench.views.document import Table
from commbench.views.pictures import Curves, HeatMap, Picture

pytestmark = pytest.mark.usefixtures("launches_alike")

VARIANTS = ["calls", "bucket:1M", "bucket:6M", "reduce_scatter+all_gather"]


def steps_slower(setting: int, case: Case) -> float:
    """The second setting makes steps 1.5 times slower, and single calls twice as fast."""
    return 1.0 if not setting else 1.5 if case.step else 0.5


@pytest.fixture
def result(tmp_path: Path) -> SweepResult:
    synthetic_replay_sweep(tmp_path / "sweep", steps_slower, ["A=one,two"])
    return load_sweep(tmp_path / "sweep")


def test_steps_come_first_in_a_table_of_their_own_each_with_a_winner(result: SweepResult) -> None:
    assert [point.case.variant for point in result.points if point.case.step] == VARIANTS
    assert [bool(point.case.step) for point in result.points] == [True] * 4 + [False] * 3
    assert [(w.best, w.size_bytes > 0) for w in result.winners] == (
        [("A=one", False)] * 4 + [("A=two", True)] * 3
    )
    steps, calls, *_ = [block for block in document(result).blocks if isinstance(block, Table)]
    assert [point.case.variant for point, *_ in steps.rows[::2]] == VARIANTS
    assert {point.kind for point, *_ in calls.rows} == {"all_reduce float32 sum in_place"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("dtype=float32,int8 --workload step.json", "--dtype has no effect with --workload"),
        ("cpu-mode=plain,quiet step.json", "error: too many arguments: step.json\n"
         "hint: `commbench sweep --help` lists the options\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_swept_with_a_workload_is_refused(
    commbench: Commbench, tmp_path: Path, arguments: str, error: str
) -> None:
    write_workload(tmp_path / "step.json", WORKLOAD)
    refused = commbench("sweep", "--vary", *arguments.split())
    assert (refused.code, error in refused.err) == (2, True), refused.err


def test_the_answer_is_the_setting_for_the_step_as_it_is_made_and_a_faster_variant(
    result: SweepResult,
) -> None:
    (variant,) = result.faster_variants
    assert (variant.step, variant.setting.name, variant.variant) == ("train", "A=one", "bucket:6M")
    assert variant.ratio.value == pytest.approx(0.5, rel=0.02)
    step, faster = document(result).answer
    times = "two takes 1.499 (1.494 … 1.504) times as long"
    assert step == f"replay train calls: one is the fastest, {times}."
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
    assert "replay train calls" in swept.out
    assert read_workload(tmp_path / "sweep" / "workload.json") == WORKLOAD
    (tmp_path / "step.json").unlink()
    (tmp_path / "sweep" / "cpu-mode=batch" / "round-1" / "run.jsonl").unlink()
    again = commbench("sweep", "--resume", "sweep")
    assert again.code == 0, again.err
    assert "round 1 of 1: done" in again.err
    assert {path.name for path in tmp_path.glob("sweep/cpu-mode=plain/*")} == {
        "round-1", "round-1.2",  # the round is a turn
    }  # fmt: skip


def test_steps_with_other_calls_or_on_other_ranks_are_not_compared(tmp_path: Path) -> None:
    (step,) = WORKLOAD.steps
    (program,) = step.programs
    fewer = program._replace(calls=program.calls[:2])
    others = {
        "calls": WORKLOAD._replace(steps=(step._replace(programs=(fewer,)),)),
        "ranks": WORKLOAD._replace(
            world_size=3, groups={"world": ((0, 1, 2),)},
            steps=(step._replace(programs=(program._replace(ranks=(0, 1, 2)),)),),
        ),
    }  # fmt: skip
    for name, other in others.items():
        synthetic_replay_sweep(
            tmp_path / name, lambda *_: 1.0, ["A=one,two"], workloads=[WORKLOAD, other],
            variants=["calls"],
        )  # fmt: skip
        (answer,) = document(load_sweep(tmp_path / name)).answer
        assert answer == "replay train: nothing to compare: its calls differ."


def test_the_tuner_gets_the_selections_of_the_setting_that_is_best_for_the_step(
    result: SweepResult,
) -> None:
    def recorded(index: int, found: SettingTime) -> SettingTime:
        """What a run under a setting recorded: single calls are faster under the second one."""
        selected = [[("RING", "TREE")[index], "LL", "2"]]
        log = {SELECTIONS: {f"AllReduce {size}": selected for size in SIZES}}
        return found._replace(
            row=replace(found.row, header=found.row.header._replace(environment=log))
        )

    points = [
        point._replace(rows=tuple(recorded(n, each) for n, each in enumerate(point.rows) if each))
        for point in result.points
    ]
    (found,) = make_tuner_ranges(points)
    assert (found.operation, found.algorithm, found.high_bytes) == ("all_reduce", "ring", 3 << 20)


PLOT_SIZES = tuple(1 << k for k in range(10, 27))
KIND = "sweep-all-reduce-float32-sum-in-place"


def sweep(
    variables: Mapping[str, Sequence[str]], sizes: Sequence[int] = PLOT_SIZES, missing: int = -1
) -> SweepResult:
    """A sweep in which setting n takes 1 + n / 10 times as long as the first; the setting `missing`
    has no time."""
    settings = make_settings(variables, {})
    results = []
    for number, setting in enumerate(settings):
        run = in_memory(
            setting.name, [steady((1 + number / 10) * (1e-4 + s * 1e-9)) for s in sizes], sizes
        )
        rows = () if number == missing else make_rows(run)
        results.append(SettingResult(setting, run if rows else None, rows, 3, ""))
    number = len(settings)
    return SweepResult(
        path=Path("results/swept"),
        sweep=Sweep(settings, ((),) * number, ((),) * number, 3, 1, "swept"),
        settings=tuple(results),
        cases=make_points(results, 0.05),
    )


def drawn(result: SweepResult) -> dict[str, Picture]:
    pictures = sweep_pictures(result)
    for picture in pictures:
        require_readable(picture)
        assert picture.description == " ".join(document(result).answer)
    return {picture.name: picture for picture in pictures}


def maps(picture: Picture) -> list[HeatMap]:
    return [panel for panel in picture.panels if isinstance(panel, HeatMap)]


def numbers(panel: HeatMap) -> list[str]:
    """The numbers in the cells of a heat map, row by row."""
    return [cell.text for _, cell in sorted(panel.cells.items())]


def test_a_few_settings_of_one_variable_are_curves_and_ratios_to_the_first() -> None:
    (picture,) = drawn(sweep({"NCCL_ALGO": ("RING", "TREE", "PAT", "-")})).values()
    times, ratios = (panel for panel in picture.panels if isinstance(panel, Curves))
    assert [len(panel.series) for panel in (times, ratios)] == [4, 3]
    for number, series in enumerate(ratios.series, start=1):
        values = [estimate.value for _, estimate in series.known]
        assert values == pytest.approx([1 + number / 10] * len(PLOT_SIZES), rel=0.02)
    legend = [text.get_text() for text in legend_texts(require_readable(picture))]
    assert {"RING", "TREE", "PAT", "NCCL_ALGO unset"} < set(legend)


def test_two_variables_are_heat_maps_of_sizes_with_the_fastest_marked() -> None:
    found = drawn(sweep({"ALGO": ("RING", "TREE"), "PROTO": ("LL", "LL128", "Simple")}, missing=4))
    assert list(found) == [KIND, f"{KIND}-map"]
    panels = maps(found[f"{KIND}-map"])
    assert [panel.heading for panel in panels] == [
        "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB",
    ]  # fmt: skip
    for panel in panels:
        assert numbers(panel) == ["1.00", "1.100", "1.200", "1.300", "1.500"]
        assert [cell.is_bold for cell in panel.cells.values()].count(True) == 1
        assert panel.has_missing
    *_, rows, shown = found[f"{KIND}-map"].notes
    assert rows.startswith("Number: ")
    assert {(panel.down, panel.across) for panel in panels} == {("ALGO", "PROTO")}
    assert shown == "9 of 17 sizes are shown."


@pytest.mark.parametrize(
    ("variables", "rows"),
    [
        ({"NCCL_MIN_NCHANNELS": [str(1 << k) for k in range(10)]}, 10),
        ({"A_VERY_LONG_VARIABLE": list("1234"), "B": list("xy"), "C": list("pqrst")}, 24),
    ],
)
def test_many_settings_are_one_heat_map_with_a_column_for_each_size(
    variables: Mapping[str, Sequence[str]], rows: int
) -> None:
    sizes = PLOT_SIZES[::2]
    (picture,) = drawn(sweep(variables, sizes)).values()
    (panel,) = maps(picture)
    assert len(numbers(panel)) == rows * len(sizes)
    assert len(panel.rows) == rows


def test_a_single_size_is_a_heat_map_of_two_axes_and_a_time_for_each_setting_of_one() -> None:
    one = drawn(sweep({"A": ("a", "b"), "B": ("1", "2")}, PLOT_SIZES[:1]))
    assert [len(maps(picture)) for picture in one.values()] == [1]
    (single,) = drawn(sweep({"A": ("a", "b")}, PLOT_SIZES[:1])).values()
    (panel,) = single.panels
    assert [row.name for row in panel.rows] == ["a", "b"]
    assert all(bar.time.has_interval for row in panel.rows for bar in row.bars)
    assert [bar.key[0] for row in panel.rows for bar in row.bars] == ["shortest time", "slower"]


def test_long_values_stay_within_the_picture() -> None:
    long = ("an-interface-with-a-long-name0", "an-interface-with-a-long-name1")
    assert drawn(
        sweep({"IFNAME": long, "THREADS": [str(k) * 12 for k in range(1, 9)]}, PLOT_SIZES[::4])
    )
