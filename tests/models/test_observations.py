"""Which times of runs models are fitted to, and what is fitted apart."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import pytest
from synthetic import plan, steady, synthetic_run
from synthetic_replay import synthetic_replay

from commbench.analysis.load import LoadedRun, load
from commbench.errors import UsageError
from commbench.importers.hints import ImportHints
from commbench.models.cost_models import ACROSS, WITHIN
from commbench.models.machine import Point
from commbench.models.observations import (
    LeaveOut,
    Observation,
    choose_observations,
    group_observations,
    mark_left_out,
    observe,
    parse_leave_out,
)
from commbench.results.schema import RankInfo

ON_TWO_HOSTS = tuple(RankInfo(rank, f"node{rank // 4}", 100 + rank, "cpu") for rank in range(8))


def loaded(folder: Path, **more: object) -> LoadedRun:
    return load(synthetic_run(folder / "run", "run", **more))  # type: ignore[arg-type]


def observed(run: LoadedRun) -> tuple[list[Observation], list[str]]:
    notes: list[str] = []
    return observe(run, None, notes), notes


def test_the_groups_of_a_mesh_are_within_or_across_the_hosts_of_their_ranks(tmp_path: Path) -> None:
    mesh = plan(world_size=8, mesh="dp=2,tp=4", over=("dp", "tp", "world"), sizes=(1024,))
    run = loaded(tmp_path, asked=mesh, ranks=ON_TWO_HOSTS, num_nodes=2)
    found, notes = observed(run)
    assert notes == []
    shapes = {(each.kind, *each.point[:2]) for each in found}
    # dp: one rank on each host; tp: four ranks of one host
    assert shapes == {(ACROSS, 2, 1), (WITHIN, 4, 4), (ACROSS, 8, 4)}


def test_a_time_is_as_uncertain_as_its_interval(tmp_path: Path) -> None:
    run = loaded(tmp_path)
    found, _ = observed(run)
    row = run.rows[0]
    wider = max(row.time_ci_high_s / row.time_s, row.time_s / row.time_ci_low_s)
    assert wider > 1
    assert found[0].point.uncertainty == pytest.approx(log(wider) / 1.96, rel=1e-4)


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    statuses = {1 << 10: "wrong", 1 << 14: "failed"}
    found, notes = observed(loaded(tmp_path, statuses=statuses))
    assert {each.point.size_bytes for each in found} == {1 << 18, 1 << 20}
    assert notes == ["run: 2 rows not used: without a valid time."]


def test_the_rows_of_a_results_csv_have_as_many_ranks_on_each_host(tmp_path: Path) -> None:
    folder = synthetic_run(
        tmp_path / "run", "run", asked=plan(world_size=8), ranks=ON_TWO_HOSTS, num_nodes=2
    )
    found, _ = observed(load(folder / "results.csv"))
    assert {each.point[:2] for each in found} == {(8, 4)}


def test_variants_are_fitted_apart_and_named_by_what_differs(tmp_path: Path) -> None:
    both = plan(dtypes=("float32", "bfloat16"), timing="both", sizes=(1024,))
    found, _ = observed(loaded(tmp_path, asked=both))
    assert [variant for _, _, variant in group_observations(found)] == [
        "float32, isolated", "float32, pipelined", "bfloat16, isolated", "bfloat16, pipelined",
    ]  # fmt: skip
    one, _ = observed(load(synthetic_run(tmp_path / "one", "one", lambda _: steady(1e-4))))
    assert list(group_observations(one)) == [("all_reduce", WITHIN, "")]


def points(*shapes: tuple[int, int]) -> list[Observation]:
    return [Observation("all_reduce", Point(n, per_node, 8, 1e-5)) for n, per_node in shapes]


def test_hosts_with_more_ranks_are_fitted_apart_where_each_was_measured_twice() -> None:
    several = group_observations(points((2, 1), (4, 1), (16, 8), (32, 8)))
    assert [variant for _, _, variant in several] == ["1 rank per host", "8 ranks per host"]
    assert [variant for _, _, variant in group_observations(points((2, 1), (16, 8), (32, 8)))] == [
        ""
    ]


def test_ranks_and_sizes_can_be_left_out() -> None:
    text = "sizes=1M-,64K,-8"
    assert parse_leave_out(text) == [
        LeaveOut("size_bytes", 1 << 20, 1 << 50),
        LeaveOut("size_bytes", 1 << 16, 1 << 16),
        LeaveOut("size_bytes", 0, 8),
    ]
    marked = mark_left_out(points((2, 1), (4, 1), (8, 1)), parse_leave_out("ranks=3-4"))
    assert [each.point.is_left_out for each in marked] == [False, True, False]


@pytest.mark.parametrize(
    "text",
    ["", "8", "nodes=2", "ranks", "ranks=", "ranks=-", "sizes=1KB", "sizes=1M-1K", "ranks=x"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_leave_out(text)


def test_operations_element_types_and_ranks_can_be_chosen(tmp_path: Path) -> None:
    asked = {"operations": ("all_reduce", "barrier"), "dtypes": ("float32", "bfloat16")}
    found, _ = observed(loaded(tmp_path, samples=lambda _: steady(1e-3), asked=plan(**asked)))

    def names(**chosen: Any) -> set[tuple[str, str]]:
        own = choose_observations(found, ImportHints(**chosen))
        return {(each.operation, each.dtype) for each in own}

    assert names(operation="barrier") == {("barrier", "")}
    assert names(dtype="bfloat16") == {("all_reduce", "bfloat16"), ("barrier", "")}
    assert names(ranks=2) == names()
    with pytest.raises(UsageError, match="no measured time has --ranks 4") as refused:
        names(operation="all_reduce", ranks=4)
    assert refused.value.hint == "measured: 2"


def test_leaving_out_nothing_or_everything_is_refused() -> None:
    with pytest.raises(UsageError, match="no measurement has ranks of 16"):
        mark_left_out(points((2, 1)), parse_leave_out("ranks=16"))
    with pytest.raises(UsageError, match="leaves nothing to fit"):
        mark_left_out(points((2, 1)), parse_leave_out("ranks=2-"))


def test_the_steps_of_a_replay_are_no_calls_to_fit(tmp_path: Path) -> None:
    found, notes = observed(load(synthetic_replay(tmp_path / "run", "run")))
    assert {each.operation for each in found} == {"all_reduce"}
    assert notes == ["run: 4 rows not used: steps of a workload, which are no single calls."]
