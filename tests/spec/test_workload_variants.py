"""The variants of a step: gaps, buckets of other sizes, compositions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_workload import TWO_RANKS

from commbench.errors import UsageError
from commbench.spec.workload import Call, Program, Step
from commbench.spec.workload_variants import (
    expand_variants,
    parse_variant,
    variant_calls,
    why_no_variant,
)

MIB = 1 << 20


def step_of(*calls: Call, time_s: float | None = None) -> Step:
    return Step("train", (Program((0, 1), calls),), time_s=time_s)


def reduction(size: int, **facts: object) -> Call:
    values = {"reduce_op": "sum", "asynchronous": True, **facts}
    return Call("all_reduce", "world", "float32", size, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "normal"),
    [(" Calls ", "calls"), ("bucket:25600K", "bucket:25M"), ("bucket:1M", "bucket:1M")],
)
def test_a_variant_has_one_spelling(text: str, normal: str) -> None:
    assert parse_variant(text) == normal == parse_variant(normal)


@pytest.mark.parametrize("text", ["", "call", "bucket", "bucket:", "bucket:0", "gaps:1"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_variant(text)


def test_all_variants_are_those_that_differ() -> None:
    ddp = step_of(reduction(24 * MIB, start_s=0.0), reduction(10 * MIB, start_s=0.1))
    both = ("bucket:12M", "bucket:48M", "reduce_scatter+all_gather")
    assert expand_variants(["all"], ddp) == ("calls", "gaps", *both)
    small = step_of(reduction(MIB), reduction(MIB))
    assert expand_variants(["all"], small) == ("calls", "bucket:2M", "reduce_scatter+all_gather")
    assert expand_variants(["all"], step_of(reduction(24 * MIB))) == (
        "calls", "reduce_scatter+all_gather",
    )  # fmt: skip
    assert expand_variants(["all"], step_of(reduction(4096), reduction(4096))) == ("calls",)


def test_a_step_without_times_has_no_gaps_and_one_without_reductions_no_buckets() -> None:
    step = step_of(Call("barrier", size_bytes=0))
    assert why_no_variant("calls", step) == ""
    assert why_no_variant("gaps", step) == "its source says nothing about gaps"
    assert why_no_variant("bucket:1M", step) == "it has no all_reduce"


def test_buckets_that_would_be_too_many_are_refused() -> None:
    step = step_of(reduction(64 * MIB))
    assert why_no_variant("bucket:1", step) == "it would make 67108864 calls, more than 10000"
    assert why_no_variant("bucket:64K", step) == ""


def test_a_rank_computes_as_long_as_the_trace_says() -> None:
    calls = (
        reduction(8, start_s=1.0, time_s=3.0, compute_s=0.7),
        reduction(8, start_s=4.0, time_s=1.0, compute_s=0.2, compute_after_s=0.1),
    )
    timed, after_s = variant_calls(step_of(*calls, time_s=9.0), calls, "gaps")
    assert ([one.compute_s for one in timed], after_s) == ([0.7, 0.2], 0.1)


def test_a_rank_computes_from_the_end_of_its_wait_to_its_next_call() -> None:
    (step,) = TWO_RANKS.steps
    calls = step.programs[1].calls
    timed, after_s = variant_calls(step, calls, "gaps")
    # The first call is waited for behind the second one, which begins after 2 ms of computation.
    assert [one.compute_s for one in timed] == pytest.approx([2e-3, 2e-3, 1e-3])
    assert after_s == pytest.approx(3e-3)
    assert [one.compute_s for one in variant_calls(step, calls, "calls")[0]] == [0, 0, 0]


def test_a_bucket_begins_when_its_last_byte_is_ready_and_has_the_first_wait_of_its_calls() -> None:
    calls = (
        reduction(4, start_s=1.0, time_s=0.5, waited_after=2),
        reduction(4, start_s=2.0, time_s=0.5, waited_after=3),
        reduction(4, start_s=4.0, time_s=0.5, waited_after=3),
        Call("barrier", size_bytes=0, start_s=5.0, time_s=1.0),
    )
    timed, _ = variant_calls(step_of(*calls, time_s=7.0), calls, "bucket:8")
    assert [(one.size_bytes, one.waited_after) for one in timed] == [
        (8, 1), (4, 2), (0, 2),
    ]  # fmt: skip
    assert [one.compute_s for one in timed] == pytest.approx([2.0, 2.0, 1.0])


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 300), st.data())
def test_buckets_move_the_same_bytes_and_every_wait_is_possible(
    sizes: list[int], bucket: int, data: st.DataObject
) -> None:
    calls = tuple(
        reduction(size, waited_after=data.draw(st.integers(index, len(sizes) - 1)))
        for index, size in enumerate(sizes)
    )
    timed, _ = variant_calls(step_of(*calls), calls, f"bucket:{bucket}")
    found = [one.size_bytes or 0 for one in timed]
    assert sum(found) == sum(sizes)
    assert set(found[:-1]) <= {bucket} and found[-1] <= bucket
    for index, one in enumerate(timed):
        assert one.waited_after is not None
        assert index <= one.waited_after < len(timed)
