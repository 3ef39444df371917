"""T(b) from rows."""

from __future__ import annotations

import pytest
from planted_times import affine, run_of

from commbench.advise.time_table import ESTIMATED, interval, make_tables
from commbench.analysis.rows import make_rows
from commbench.spec.case import Case

SIZES = (1 << 12, 1 << 16, 1 << 20)


def seconds(case: Case) -> float:
    return 100e-6 + case.size_bytes * 1e-9


def test_between_two_sizes_a_straight_line_is_exact_and_outside_the_ends_are_kept() -> None:
    draw = affine(100e-6, 1e-9, SIZES).draw()
    for size in (1 << 12, 5000, 123_456, 1 << 20):
        assert draw.at(size)[0] == pytest.approx(100e-6 + size * 1e-9)
    assert draw.at(1)[0] == draw.at(1 << 12)[0]


@pytest.mark.parametrize(("beta", "expected"), [(1e-9, 1100e-6), (-1e-11, 100e-6 - 1e-11 * 2**19)])
def test_beyond_the_largest_size_times_continue_the_last_line_and_never_fall(
    beta: float, expected: float
) -> None:
    sizes = (1 << 12, 1 << 16, 1 << 19)
    found = affine(100e-6, beta, sizes, part=0.1).draw().at(1_000_000)
    assert found[0] == pytest.approx(expected)
    assert (found >= affine(100e-6, beta, sizes, part=0.1).draw().times[-1]).all()


def test_replicates_have_the_interval_of_the_rows() -> None:
    found = interval(affine(100e-6, 1e-9, SIZES, part=0.1).draw().at(1 << 16))
    middle = 100e-6 + (1 << 16) * 1e-9
    assert found.value == pytest.approx(middle)
    assert found.low == pytest.approx(middle * 0.9, rel=0.03)
    assert found.high == pytest.approx(middle * 1.1, rel=0.03)


def test_a_backend_that_sends_one_call_after_another_has_no_other_times() -> None:
    rows = make_rows(run_of(seconds, sizes=SIZES, backend="nccl", device="cuda"))
    table = make_tables(rows, "all_reduce")[""]
    assert table.sizes == SIZES and table.busy is None
    assert table.kind == "all_reduce float32 sum in_place"
    assert make_tables(rows, "broadcast") == {}


def test_back_to_back_calls_are_what_a_bucket_takes_after_another_one() -> None:
    run = run_of(
        lambda case: seconds(case) / (1 if case.timing == "isolated" else 2), noise=1e-6,
        sizes=SIZES, backend="nccl", device="cuda", timing="both",
    )  # fmt: skip
    draw = make_tables(make_rows(run), "all_reduce")[""].draw()
    assert draw.busy_at(1 << 16)[0] == pytest.approx(draw.at(1 << 16)[0] / 2, rel=1e-3)


def test_gloo_works_on_two_calls_at_once_that_share_the_link() -> None:
    table = make_tables(make_rows(run_of(seconds, noise=1e-6, sizes=SIZES)), "all_reduce")[""]
    assert table.busy and table.busy.kind == ESTIMATED
    draw = table.draw()
    assert draw.busy_at(1 << 12)[0] == pytest.approx(draw.at(1 << 12)[0] / 2, rel=1e-3)
    assert draw.busy_at(1 << 20)[0] == pytest.approx(draw.at(1 << 20)[0], rel=1e-3)


def test_calls_that_were_started_together_replace_the_estimate() -> None:
    run = run_of(
        lambda case: (0.7 * 4 if case.form == "async" else 1) * seconds(case), noise=1e-6,
        sizes=SIZES, tensors=("1", "4"), forms=("async",),
    )  # fmt: skip
    table = make_tables(make_rows(run), "all_reduce")[""]
    assert table.busy and table.busy.sizes == tuple(size // 4 for size in SIZES)
    expected = 0.7 * seconds(run.measurements[-1].case)
    assert table.draw().busy_at(SIZES[-1] // 4)[0] == pytest.approx(expected, rel=0.01)


def test_each_group_of_a_mesh_has_a_table() -> None:
    run = run_of(seconds, sizes=SIZES, world_size=4, mesh="dp=2,tp=2", over=("dp", "tp"))
    assert set(make_tables(make_rows(run), "all_reduce")) == {"dp", "tp"}


def test_rows_without_intervals_give_times_without_intervals() -> None:
    table = affine(100e-6, 1e-9, SIZES)
    bare = table._replace(times=tuple(time._replace(low=None, high=None) for time in table.times))
    assert interval(bare.draw().at(1 << 16))[1:] == (None, None)


def test_back_to_back_calls_count_where_no_call_was_timed_alone() -> None:
    run = run_of(seconds, sizes=SIZES, backend="nccl", device="cuda", timing="pipelined")
    table = make_tables(make_rows(run), "all_reduce")[""]
    assert (table.sizes, table.kind) == (SIZES, "all_reduce float32 sum in_place pipelined")
