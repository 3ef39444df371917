"""Which times of runs models are fitted to, and what is fitted apart."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import pytest
from published_curves import FOLDER
from synthetic import plan, steady, synthetic_run
from synthetic_rows import ranks

from commbench.analysis.load import LoadedRun, load
from commbench.analysis.statistics import launch_half_width
from commbench.answers.cost.cost_models import ACROSS, WITHIN, kind_of
from commbench.answers.cost.machine import Point
from commbench.answers.cost.observations import (
    Observation,
    group_observations,
    observe,
    read_published,
    table_columns,
)
from commbench.answers.cost.selection import (
    LeaveOut,
    choose_observations,
    find_crowd,
    mark_left_out,
    parse_leave_out,
)
from commbench.errors import CommbenchError, RecordsError, UsageError
from commbench.readers.source import ImportHints
from commbench.results.records import RankInfo
from commbench.results.schema import RunHeader

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
    shapes = {(kind_of(*each.point[:2]), *each.point[:2]) for each in found}
    # dp: one rank on each host; tp: four ranks of one host
    assert shapes == {(ACROSS, 2, 1), (WITHIN, 4, 4), (ACROSS, 8, 4)}


def test_rows_without_a_valid_time_are_counted_and_a_time_is_as_uncertain_as_its_interval(
    tmp_path: Path,
) -> None:
    run = loaded(tmp_path, statuses={1 << 10: "wrong", 1 << 14: "failed"})
    found, notes = observed(run)
    assert [each.point.size_bytes for each in found] == [1 << 18, 1 << 20]
    assert notes == ["run: 2 rows not used: without a valid time."]
    row = next(row for row in run.rows if row.size_bytes == 1 << 18)
    wider = max(row.time_ci_high_s / row.time_s, row.time_s / row.time_ci_low_s)
    half = max(log(wider), launch_half_width([0.0], 0.04))  # of a single launch
    assert found[0].point.uncertainty == pytest.approx(half / 1.96, rel=1e-4) != 0


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


@pytest.mark.parametrize(
    ("shapes", "variants"),
    [
        ([(2, 1), (4, 1), (16, 8), (32, 8)], ["1 rank per host", "8 ranks per host"]),
        ([(2, 1), (16, 8), (32, 8)], [""]),
    ],
)
def test_hosts_with_more_ranks_are_fitted_apart_where_each_was_measured_twice(
    shapes: list[tuple[int, int]], variants: list[str]
) -> None:
    assert [variant for _, _, variant in group_observations(points(*shapes))] == variants


def test_ranks_and_sizes_can_be_left_out() -> None:
    assert parse_leave_out("sizes=1M-,64K,-8") == [
        LeaveOut("sizes", 1 << 20, 1 << 50),
        LeaveOut("sizes", 1 << 16, 1 << 16),
        LeaveOut("sizes", 0, 8),
    ]
    marked = mark_left_out(points((2, 1), (4, 1), (8, 1)), parse_leave_out("ranks=3-4"))
    assert [each.point.is_left_out for each in marked] == [False, True, False]
    refused = {
        "ranks=16": "no measurement has ranks from 16 to 16",
        "ranks=2-": "leaves nothing to fit",
        **dict.fromkeys(("", "8", "nodes=2", "ranks", "ranks="), "says neither ranks nor sizes"),
        **dict.fromkeys(("ranks=-", "sizes=1KB", "sizes=1M-1K", "ranks=x"), "."),
    }
    for text, why in refused.items():
        with pytest.raises(UsageError, match=why):
            mark_left_out(points((2, 1)), parse_leave_out(text))


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


HEAD = "operation,world_size,ranks_per_node,size_bytes,time_us"


def table(folder: Path, *lines: str) -> Path:
    file = folder / "figures.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_time_is_given_or_follows_from_the_bus_bandwidth(tmp_path: Path) -> None:
    file = table(
        tmp_path, "# a source", "", HEAD + ",busbw_GBps,note", "all_reduce,16,8,1048576,100,,a",
        "all_reduce,16,8,1048576,,19.66080,b", "all_reduce,8, 8 ,8,5.5,,", "barrier,16,8,0,12,,",
    )  # fmt: skip
    assert table_columns(file)
    first, second, third, fourth = read_published(file)
    assert first.point[:4] == (16, 8, 1 << 20, pytest.approx(100e-6))
    # 2 (n-1)/n S / busbw
    assert second.point.time_s == pytest.approx(2 * 15 / 16 * (1 << 20) / 19.6608e9)
    assert (kind_of(*first.point[:2]), kind_of(*third.point[:2])) == (ACROSS, WITHIN)
    assert (third.operation, fourth.operation) == ("all_reduce", "barrier")
    assert fourth.point.size_bytes == 0


def test_the_interval_of_a_time_is_its_uncertainty(tmp_path: Path) -> None:
    head = HEAD + ",time_low_us,time_high_us"
    given = [f"all_reduce,4,4,8,100,{ends}" for ends in ("80,200", ",", "100,100")]
    found = [each.point.uncertainty for each in read_published(table(tmp_path, head, *given))]
    assert found == [pytest.approx(log(2) / 1.96, rel=1e-4), 0.0, 0.0]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["operation,world_size,size_bytes,time_us"], "has no column ranks_per_node"),
        (["operation,world_size,ranks_per_node,size_bytes"], "has no column time_us or busbw_GBps"),
        ([HEAD + ",time_us", "all_reduce,2,1,8,1,1"], "two columns of one name"),
        ([HEAD], "has no figures"),
        (["#"], "is empty"),
        ([HEAD, "all_reduce,2,1,8"], "line 2: it has 4 cells, and the header 5 columns"),
        (["# x", HEAD, "", "all_redcue,2,1,8,1"], "line 4: unknown operation 'all_redcue'"),
        ([HEAD, "all_reduce,1,1,8,1"], "line 2: world_size is '1', not a whole number from 2"),
        ([HEAD, "all_reduce,2,0,8,1"], "ranks_per_node is '0'"),
        ([HEAD, "all_reduce,2,1,1K,1"], "size_bytes is '1K'"),
        ([HEAD, "all_reduce,2,1,0,1"], "size_bytes is '0'"),
        ([HEAD, "all_reduce,2,1,8,0"], "time_us is '0', not a number above 0"),
        ([HEAD, "all_reduce,2,1,8,nan"], "time_us is 'nan'"),
        ([HEAD, "all_reduce,2,1,8,"], "all_reduce has no time"),
        ([HEAD + ",time_low_us,time_high_us", "all_reduce,2,1,8,5,6,7"],
         "line 2: the time 5 us is not in its interval 6 to 7 us"),
        ([HEAD + ",busbw_GBps", "barrier,2,1,0,,5"], "barrier has no time"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, lines: list[str], why: str) -> None:
    with pytest.raises(RecordsError) as refused:
        read_published(table(tmp_path, *lines))
    assert why in refused.value.message
    assert refused.value.hint


def test_other_files_are_no_tables(tmp_path: Path) -> None:
    assert not table_columns(tmp_path)
    for line in ("operation,size_bytes,status,dtype,world_size,time_us", "nThread 1 nGpus 1"):
        assert not table_columns(table(tmp_path, line))
    (tmp_path / "figures.csv").write_bytes(b"\xff" * 100)
    with pytest.raises(CommbenchError):
        read_published(tmp_path / "figures.csv")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.csv")), ids=lambda file: file.stem)
def test_the_curves_of_the_tests_name_their_source(file: Path) -> None:
    assert file.read_text().startswith("# ")
    assert len(read_published(file)) >= 9


def test_the_run_with_the_most_ranks_for_its_cores_is_named() -> None:
    def header(*cores: tuple[int, ...], device: str = "cpu") -> Any:
        asked = plan(sizes=(8,), device=device)
        return RunHeader(plan=asked, label="", started="", launcher="", ranks=ranks(*cores))

    pinned = header((0,), (1,), (0,), (1,))
    assert find_crowd([header((0,), (1,)), pinned]) == "4 ranks share 2 cores"
    assert find_crowd([header((0,), (0,)), header((0, 1), (0, 1), (0, 1))]) == (
        "2 ranks share 1 core"
    )
    assert not find_crowd([header((0,), (1,)), header((0,), (0,), device="cuda"), header(())])
