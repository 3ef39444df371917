"""The tables of groups: each group's time, alone and together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import run_commbench
from synthetic import header, plan

from commbench.analysis.csv_file import write_run_folder
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.show.formats import texts
from commbench.answers.show.plan import left_out, plan_document
from commbench.answers.show.run_document import ShownRun, document
from commbench.answers.show.shapes import (
    GroupRow,
    group_rows,
    groups_blocks,
)
from commbench.results.run_folder import create_folder
from commbench.results.schema import Batch, Measurement, Run, RunEnd
from commbench.views.document import Items, Table

ALONE_US = {"0,1": 100.0, "2,3": 150.0}
TOGETHER_US = {"0,1": 110.0, "2,3": 300.0}


def grouped_run(label: str = "mine") -> Run:
    """Two groups: the second one is slower, and twice as slow beside the first."""
    asked = plan(world_size=4, mesh="dp=2,tp=2", over=("tp",), concurrency="both", sizes=(1 << 20,))
    measurements = []
    for case in asked.cases():
        us = [ALONE_US[case.group_ranks]] if case.group_ranks else [*TOGETHER_US.values()]
        medians = tuple(value * 1e-6 for value in us)
        batch = Batch((max(medians),) * 10, group_medians_s=medians if len(us) > 1 else ())
        found = Measurement(case, "ok", stop_reason="fixed", wrong=0, batches=(batch,) * 6)
        measurements.append(found)
    return Run(label, header(asked, label), tuple(measurements), RunEnd("complete"))


def groups_of(run: Run) -> dict[str, GroupRow]:
    """The rows of the groups by their ranks; there is one size."""
    return {group.ranks: group for group in group_rows(make_rows(run))}


def medians(row: ResultRow) -> dict[str, float]:
    return {ranks: time.value for ranks, time in row.group_times.items()}


def test_each_group_is_shown_alone_and_together() -> None:
    groups = groups_of(grouped_run())
    assert {group.title for group in groups.values()} == {"all_reduce float32 sum in_place over tp"}
    for ranks, group in groups.items():
        assert group.alone and group.alone.value == pytest.approx(ALONE_US[ranks] * 1e-6)
        assert group.together and group.together.value == pytest.approx(TOGETHER_US[ranks] * 1e-6)
        ratio = TOGETHER_US[ranks] / ALONE_US[ranks]
        assert group.interference and group.interference.value == pytest.approx(ratio)


def test_the_time_of_a_group_alone_is_that_of_its_row() -> None:
    run = grouped_run()
    together, *alone = run.measurements
    # The median of the batches' medians would be 100 us, and of all iterations it is 900 us.
    us = (Batch((100e-6,)), Batch((100e-6,)), Batch((900e-6,) * 20))
    run = run._replace(measurements=(together, alone[0]._replace(batches=us), alone[1]))
    rows = {row.measurement.case.group_ranks: row for row in make_rows(run)}
    assert rows["0,1"].time and rows["0,1"].time.median == 900e-6
    assert medians(rows["0,1"]) == {"0,1": 900e-6}
    alone = {ranks: found.value for ranks, found in rows[""].alone.items()}
    assert alone == {"0,1": 900e-6, "2,3": pytest.approx(150e-6)}
    found = groups_of(run)["0,1"]
    assert found.alone and found.alone.value == 900e-6
    assert found.interference and found.interference.value == pytest.approx(110 / 900)


def test_a_group_together_is_weighted_by_the_iterations_of_its_batches() -> None:
    run = grouped_run()
    together, *alone = run.measurements
    few = Batch((900e-6,) * 2, group_medians_s=(800e-6, 900e-6))
    many = Batch((300e-6,) * 20, group_medians_s=(200e-6, 300e-6))
    found = together._replace(batches=(few, few, many))
    row = make_rows(run._replace(measurements=(found, *alone)))[0]
    assert medians(row) == {"0,1": 200e-6, "2,3": 300e-6}


def test_the_time_of_a_group_together_is_its_median_over_iterations_with_an_interval() -> None:
    run = grouped_run()
    together, *alone = run.measurements
    other, last = (8e-4,) * 2, (9e-4,) * 2
    few = Batch(last, group_medians_s=(8e-4, 9e-4), group_samples_s=other + last)
    slow, fast = (3e-4,) * 20, (2.4e-4,) * 10 + (2.2e-4,) * 10
    many = Batch(slow, group_medians_s=(2.3e-4, 3e-4), group_samples_s=fast + slow)
    found = together._replace(batches=(few, few, many))
    run = run._replace(measurements=(found, *alone))
    row = make_rows(run)[0]
    assert medians(row) == {"0,1": 2.4e-4, "2,3": 3e-4}  # batches' medians: 2.3e-4
    ratio = row.group_interference["0,1"]
    assert ratio.value == pytest.approx(2.4)
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low < ratio.value <= ratio.high < 9
    assert groups_of(run)["2,3"].interference == row.group_interference["2,3"]
    _, notes = groups_blocks(make_rows(run))
    assert not {*texts("medians only")} & {*notes.texts}
    _, notes = groups_blocks(make_rows(grouped_run()))
    assert {*texts("medians only")} <= {*notes.texts}


def test_the_table_names_the_slowest_group_and_leaves_groups_alone_to_that_of_groups() -> None:
    run = grouped_run()
    found = document(ShownRun(run))
    every, groups = (
        next(b for b in found.blocks if isinstance(b, Table) and title in b.title)
        for title in ("Every row", "Time of each group")
    )
    assert [row.worst_group for row in every.rows] == ["2,3", "2,3"]
    assert [row.measurement.case.concurrency for row in every.brief or ()] == ["together"]
    assert [group.ranks for group in groups.rows] == ["0,1", "2,3"]


@pytest.mark.parametrize(
    ("layout", "ranks", "said"),
    [
        ({"groups": "0-1;2"}, 4, "Of one rank, so not measured: group 2. Ranks in no group: 3."),
        ({"groups": "0-1;4;5"}, 6, "Of one rank, so not measured: group 4, group 5. "
         "Ranks in no group: 2, 3."),
        ({"mesh": "pp=1,tp=2"}, 2, "Of one rank, so not measured: dimension pp."),
        ({"mesh": "pp=1,tp=2", "over": ("tp",)}, 2, ""),
        ({"mesh": "dp=2,tp=2"}, 4, ""),
        ({}, 4, ""),
    ],
)  # fmt: skip
def test_groups_of_one_rank_and_ranks_in_no_group_are_named(
    layout: dict[str, Any], ranks: int, said: str
) -> None:
    asked = plan(world_size=ranks, **layout)
    assert " ".join(left_out(asked)) == said
    run = Run("x", header(asked, "x"), (), None)
    for found in (plan_document(asked, "torchrun"), document(ShownRun(run))):
        assert Items(left_out(asked)) in found.blocks


def test_groups_of_other_sizes_are_not_compared_as_the_same(tmp_path: Path) -> None:
    for label, mesh in (("old", "dp=2,tp=2"), ("new", "dp=1,tp=4")):
        run = grouped_run(label)
        asked = plan(world_size=4, mesh=mesh, over=("tp",), sizes=(1 << 20,))
        found = tuple(m._replace(case=asked.cases()[0]) for m in run.measurements[:1])
        batches = tuple(b._replace(group_medians_s=()) for b in found[0].batches)
        found = (found[0]._replace(batches=batches),)
        folder = create_folder(tmp_path / label)
        write_run_folder(folder, run._replace(header=header(asked, label), measurements=found))
    compared = run_commbench(tmp_path, "compare", "old", "new")
    assert "ranks in a group of tp" in compared.out + compared.err
