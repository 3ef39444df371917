"""Rows: bandwidth worked out by hand, every column of results.csv, and how sentences name rows."""

from __future__ import annotations

from typing import Any

import pytest
import synthetic
import synthetic_rows
from synthetic_rows import batches, written_row

from commbench.analysis.columns import COLUMNS
from commbench.analysis.row_names import format_range, name_rows
from commbench.analysis.rows import ResultRow, make_row
from commbench.plan.plan import Plan
from commbench.results.records import RankInfo
from commbench.results.schema import Batch, Measurement, ReportedTiming, RunHeader


def row(
    operation: str, ranks: int, size: int, samples: tuple[float, ...], dtype: str = "float32",
    **more: Any,
) -> ResultRow:  # fmt: skip
    asked = {"operations": (operation,), "sizes": (size,), "dtypes": (dtype,), "world_size": ranks}
    return synthetic_rows.row(*batches(samples, **more), **asked)


# S = 1 MiB = 1048576 B in 1 ms: algbw = 1.048576 GB/s; busbw is that times nccl-tests' factor.
@pytest.mark.parametrize(
    ("operation", "busbw"),
    [("all_reduce", (1.048576, 1.572864, 1.835008)),
     ("all_gather", (0.524288, 0.786432, 0.917504)),
     ("broadcast", (1.048576, 1.048576, 1.048576)),
     ("all_to_all_v", (0.524288, 0.786432, 0.917504))],
)  # fmt: skip
def test_bandwidths_of_a_mebibyte_in_a_millisecond(
    operation: str, busbw: tuple[float, float, float]
) -> None:
    for ranks, expected in zip((2, 4, 8), busbw, strict=True):
        columns = written_row(row(operation, ranks, 1 << 20, (1e-3,)))
        found = (columns["size_bytes"], columns["algbw_GBps"], columns["busbw_GBps"])
        assert found == (1 << 20, 1.048576, expected)


def test_a_factor_is_that_of_the_group_and_not_of_the_world() -> None:
    for operation, busbw in (("all_reduce", 1.572864), ("all_gather", 0.786432)):
        found = row(operation, 8, 1 << 20, (1e-3,))
        in_group = found.measurement._replace(case=found.case._replace(ranks=4))
        assert written_row(make_row(found.header, in_group))["busbw_GBps"] == busbw


# 1000000 B asked for. A block has floor(1000000 / element / n) elements.
@pytest.mark.parametrize(
    ("operation", "ranks", "dtype", "size_bytes", "count", "algbw", "busbw"),
    [("all_gather", 3, "float32", 999_996, 83_333, 0.999996, 0.666664),
     ("reduce_scatter", 3, "float32", 999_996, 83_333, 0.999996, 0.666664),
     ("all_to_all", 7, "float32", 999_992, 35_714, 0.999992, 0.857136),
     ("all_reduce", 3, "float32", 1_000_000, 250_000, 1.0, 1.333333),
     ("all_gather", 6, "bfloat16", 999_996, 83_333, 0.999996, 0.83333)],
)  # fmt: skip
def test_bandwidth_follows_from_the_rounded_size(
    operation: str, ranks: int, dtype: str, size_bytes: int, count: int, algbw: float, busbw: float
) -> None:
    columns = written_row(row(operation, ranks, 1_000_000, (1e-3,), dtype))
    found = [columns[name] for name in ("size_bytes", "count", "algbw_GBps", "busbw_GBps")]
    assert found == [size_bytes, count, algbw, busbw]


def test_a_barrier_has_a_time_and_no_bandwidth() -> None:
    columns = written_row(row("barrier", 8, 1024, (40e-6, 50e-6, 60e-6)))
    assert columns["time_us"] == 50
    assert [columns[name] for name in COLUMNS if "GBps" in name] == [None] * 7


def test_bandwidth_comes_from_the_median_time_and_is_not_averaged() -> None:
    # The mean of the three bandwidths would be 0.61 GB/s.
    columns = written_row(row("all_reduce", 2, 1_000_000, (1e-3, 2e-3, 3e-3)))
    assert (columns["time_us"], columns["algbw_GBps"], columns["busbw_GBps"]) == (2000, 0.5, 0.5)


def test_the_slow_end_of_the_time_is_the_low_end_of_the_bandwidth() -> None:
    found = written_row(row("broadcast", 2, 1_000_000, (1e-3, 2e-3, 4e-3, 5e-3, 8e-3, 10e-3)))
    assert (found["time_ci_low_us"], found["time_ci_high_us"]) == (1000, 10_000)
    assert (found["busbw_ci_low_GBps"], found["busbw_ci_high_GBps"]) == (0.1, 1.0)


@pytest.mark.parametrize(
    ("known", "slowest"),
    [
        # Rank 0 takes longest because it comes first and waits; rank 2 keeps everybody waiting.
        ({"rank_medians_s": (9.0, 3.0, 2.0), "rank_behind_s": (0, 2, 7.0)}, 2),
        ({"rank_medians_s": (1.0, 3.0, 2.0)}, 1), ({}, None),
    ],
)  # fmt: skip
def test_the_slowest_rank_is_the_one_furthest_behind_else_that_of_the_largest_median(
    known: dict[str, Any], slowest: int | None
) -> None:
    assert row("barrier", 3, 8, (1.0,), **known).slowest_rank == slowest


def test_each_launch_has_its_median_and_all_of_them_one() -> None:
    first, second = batches((1e-6, 2e-6), (3e-6, 4e-6, 5e-6)), batches((8e-6, 9e-6), launch=1)
    found = synthetic_rows.row(*first, *second)
    assert found.launch_medians == (3e-6, 8.5e-6)
    columns = written_row(found)
    names = ("iterations", "batches", "launches", "launch_min_us", "launch_max_us", "time_us")
    assert [columns[name] for name in names] == [7, 3, 2, 3.0, 8.5, 6.5]


def test_the_interval_of_a_row_is_wider_where_its_batches_differ() -> None:
    samples = [1e-6 * i for i in range(1, 101)]
    mixed = [samples[start::10] for start in range(10)]
    apart = [samples[start : start + 10] for start in range(0, 100, 10)]
    for found, ends in ((mixed, [50.5, 40, 61]), (apart, [50.5, 10, 91])):
        columns = written_row(synthetic_rows.row(*batches(*found)))
        assert [columns[f"time_{name}us"] for name in ("", "ci_low_", "ci_high_")] == ends


def test_what_another_tool_reported_is_taken_as_it_is_and_nothing_else_is_claimed() -> None:
    reported = ReportedTiming(time_s=5e-6, statistic="mean over 20 iterations", iterations=20,
                        minimum_s=4e-6)  # fmt: skip
    columns = written_row(synthetic_rows.row(reported=reported))
    assert (columns["time_us"], columns["time_min_us"], columns["iterations"]) == (5, 4, 20)
    assert columns["algbw_GBps"] == 0.2048
    unknown = ("time_ci_low_us", "time_p95_us", "calls", "stalled_share", "slowest_rank")
    assert {columns[name] for name in unknown} == {None}
    assert (columns["batches"], columns["launches"], columns["warnings"]) == (0, 0, "")


def test_a_row_has_every_column_in_the_documented_order() -> None:
    plan = Plan(
        operations=("all_gather",), sizes=(4096,), dtypes=("bfloat16",), backend="nccl",
        device="cuda", world_size=4, cpu_mode="plain", timing="pipelined",
    )  # fmt: skip
    ranks = tuple(RankInfo(r, f"host{r // 2}", 100 + r, "cuda:0") for r in range(4))
    header = RunHeader(
        plan, "ring", "", "srun", ranks=ranks, num_nodes=2, gpu_shared=True, resolution_s=5e-5
    )
    # In turn, so that both batches hold the same.
    odd, even = ([i * 1e-6 for i in range(start, 0, -2)] for start in (299, 300))
    alike = Batch(
        samples_s=(), calls=20, rank_medians_s=(1e-6, 2e-6, 4e-6, 3e-6), entry_skew_s=0.25e-6,
        operation_s=9e-6,
    )  # fmt: skip
    measurement = Measurement(
        case=plan.cases()[0],
        status="ok",
        stop_reason="cap",
        wrong=0,
        batches=(
            alike._replace(samples_s=tuple(odd), elapsed_s=0.5, queued_s=0.2, switches=50),
            alike._replace(
                samples_s=tuple(even), elapsed_s=0.3, queued_s=0.1, switches=10, launch=1
            ),
        ),
    )
    columns = written_row(make_row(header, measurement))
    # Of 300 the ranks are 133 and 168: the largest j with P(Binomial(300, 1/2) < j) <= 2.5 %.
    # The fastest tenth is up to 30 us; 1.5 ms over 20 calls make 105: 195 of 300 take longer.
    expected = {
        "label": "ring", "operation": "all_gather", "backend": "nccl", "device": "cuda",
        "world_size": 4, "num_nodes": 2, "dtype": "bfloat16", "placement": "out_of_place",
        "timing": "pipelined", "cpu_mode": "plain", "size_bytes": 4096, "count": 512,
        "iterations": 300, "stop_reason": "cap", "time_us": 150.5, "time_ci_low_us": 133.0,
        "time_ci_high_us": 168.0, "time_min_us": 1.0, "time_mean_us": 150.5, "time_p95_us": 285.0,
        "time_p99_us": 297.0, "time_max_us": 300.0, "algbw_GBps": 0.02721595,
        "busbw_GBps": 0.02041196, "busbw_ci_low_GBps": 0.01828571,
        "busbw_ci_high_GBps": 0.02309774, "entry_skew_us": 0.25, "wrong": 0, "status": "ok",
        "gpu_shared": 1, "calls": 20, "batches": 2, "launches": 2, "launch_min_us": 150.0,
        "launch_max_us": 151.0, "operation_us": 9.0, "stalled_share": 0.65,
        "queued_share": 0.3666667, "switches_per_iteration": 0.2, "warnings": "stalls imprecise",
        "time_p5_us": 15.0, "time_p5_ci_low_us": 8.0, "time_p5_ci_high_us": 24.0,
        "launch_mode": "eager", "buffers": "hot", "tensors": "1", "form": "direct",
        "memory": "default", "num_tensors": 1, "group_size": 4, "groups": 1,
    }  # fmt: skip
    known = {name: value for name, value in columns.items() if value not in ("", None)}
    assert known == expected
    assert tuple(columns) == tuple(COLUMNS)


def test_what_was_not_measured_is_nothing_and_never_a_made_up_zero() -> None:
    plan = Plan(operations=("all_reduce",), sizes=(2,), backend="gloo", device="cpu", world_size=2)
    header = RunHeader(plan=plan, label="", started="", launcher="local")
    (case,) = plan.cases()
    columns = written_row(
        make_row(header, Measurement(case=case, status="skipped", reason="small"))
    )
    unmeasured = [name for name in COLUMNS if "_us" in name or "GBps" in name]
    unmeasured += ["slowest_rank", "wrong", "calls", "stalled_share", "queued_share",
                   "switches_per_iteration"]  # fmt: skip
    assert {columns[name] for name in unmeasured} == {None}
    assert (columns["iterations"], columns["status"]) == (0, "skipped")
    assert (columns["batches"], columns["launches"], columns["warnings"]) == (0, 0, "")


def test_messages_of_all_groups_that_call_at_once_add_up() -> None:
    plan = Plan(
        operations=("stream",), sizes=(1024,), backend="gloo", device="cpu", world_size=8,
        mesh="dp=2,tp=4", over=("tp",),
    )  # fmt: skip
    header = RunHeader(plan=plan, label="x", started="", launcher="local")
    (case,) = plan.cases()
    row = make_row(header, Measurement(case, "ok", batches=(Batch((1e-3,) * 10),) * 6))
    # Two groups of four ranks: two pairs each, one message per pair in 1 ms.
    assert row.messages_per_s == pytest.approx(4000)


SIZES = tuple(1024 << i for i in range(6))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [((0, 0), ""), ((1024, 1024), "1K"), ((1024, 1 << 26), "1K-64M"), ((4, 1000), "4B-1000B")],
)
def test_sizes_of_a_range(sizes: tuple[int, int], text: str) -> None:
    assert format_range(*sizes) == text


def test_only_what_differs_within_an_operation_is_named() -> None:
    operations = ("all_gather", "all_reduce", "barrier")
    every = synthetic.plan(operations=operations, sizes=SIZES).cases()
    assert name_rows(every, every, 80) == "all_gather 1K-32K; all_reduce 1K-32K; barrier"
    two = synthetic.plan(operations=operations, sizes=SIZES, dtypes=("float32", "int8")).cases()
    assert name_rows(two[-2:], two, 80) == "all_reduce int8 32K; barrier"
