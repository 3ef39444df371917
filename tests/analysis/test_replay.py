"""What a replay says: sums over the calls, the time of the trace, variants against a baseline."""

from __future__ import annotations

import pytest
from synthetic import noisy, steady
from synthetic_step import MIB, STEP, WORKLOAD, replay_run, without_times

from commbench.analysis.replay import StepReplay, analyse_replay
from commbench.analysis.rows import make_rows
from commbench.spec.case import Case
from commbench.spec.links import parse_peak
from commbench.spec.workload import Call, Program, Step

VARIANTS = {
    "calls": 8e-3, "gaps": 20e-3, "bucket:4M": 18e-3, "bucket:16M": 20e-3,
    "reduce_scatter+all_gather": 25e-3,
}  # fmt: skip


def seconds(case: Case) -> float:
    """A millisecond for each MiB, half of one for a message."""
    return VARIANTS.get(case.variant) or case.size_bytes * 1e-3 / MIB or 5e-4


def one_step(**wishes: object) -> StepReplay:
    (found,) = analyse_replay(replay_run(samples=lambda case: steady(seconds(case)), **wishes))
    return found


def test_operations_have_the_sum_of_the_medians_of_their_calls() -> None:
    found = one_step()
    by_name = {one.traced.operation: one for one in found.operations}
    assert list(by_name) == ["all_reduce", "recv", "send"]
    reduced = by_name["all_reduce"]
    assert reduced.replayed is not None
    assert reduced.replayed.value == pytest.approx(12e-3)
    assert reduced.traced.calls == 2
    assert reduced.traced_s == pytest.approx(9e-3)
    assert reduced.traced.waiting_s == pytest.approx(0.5e-3)
    assert reduced.busbw is not None
    assert reduced.busbw.value == pytest.approx(12 * MIB / 12e-3)
    message = 1024 * 1e-3 / MIB
    for name in ("send", "recv"):
        assert by_name[name].traced.calls == 0.5
        assert by_name[name].replayed is not None
        assert by_name[name].replayed == pytest.approx((message / 2,) * 3, rel=0.02)


def test_the_interval_of_a_sum_counts_the_calls_of_one_case_together() -> None:
    """The median of a case is as wrong for each of its calls; those of two cases are not."""
    calls = [Call("all_reduce", "world", "float32", size) for size in (MIB, MIB, MIB, 2 * MIB)]
    workload = WORKLOAD._replace(steps=(Step("s", (Program((0, 1), tuple(calls)),)),))
    run = replay_run(workload, lambda case: noisy(seconds(case), case.index, noise=0.2))
    (found,) = analyse_replay(run)
    (one,) = found.operations
    first, second = (case for case in run.header.plan.cases() if not case.step)
    assert (first.size_bytes, second.size_bytes) == (MIB, 2 * MIB)
    times = [row.time for row in make_rows(run)[:2] if row.time]
    assert one.replayed and one.replayed.high is not None
    up = [t.high - t.median for t in times if t.high is not None]
    expected = ((3 * up[0]) ** 2 + up[1] ** 2) ** 0.5
    assert one.replayed.value == pytest.approx(3 * times[0].median + times[1].median)
    assert one.replayed.high - one.replayed.value == pytest.approx(expected)


def test_the_communication_of_the_trace_is_the_union_of_the_calls_of_each_rank() -> None:
    found = one_step()
    assert found.communication_s == pytest.approx((9e-3 + 9e-3) / 2)
    assert found.transfer_s == pytest.approx((8e-3 + 8e-3) / 2)
    assert found.waiting_s == pytest.approx(1e-3)


def test_the_calls_are_compared_with_those_of_the_trace_without_computation() -> None:
    found = one_step()
    assert found.calls_only_s == pytest.approx(10e-3)
    assert found.over_trace and found.over_trace.value == pytest.approx(8 / 10)
    assert found.step_over_trace and found.step_over_trace.value == pytest.approx(20 / 20)
    sums = one_step(variants=("gaps",))
    assert sums.over_trace and sums.over_trace.value == pytest.approx(12e-3 / 10e-3, rel=1e-3)


def test_waiting_is_not_guessed_where_one_call_does_not_tell_it() -> None:
    first, second = STEP.programs
    calls = (first.calls[0]._replace(transfer_s=None), *first.calls[1:])
    step = STEP._replace(programs=(first._replace(calls=calls), second))
    (found,) = analyse_replay(replay_run(WORKLOAD._replace(steps=(step,))))
    assert (found.transfer_s, found.waiting_s) == (None, None)
    assert found.communication_s == pytest.approx(9e-3)
    by_name = {one.traced.operation: one for one in found.operations}
    assert by_name["all_reduce"].traced_s == by_name["all_reduce"].traced.time_s


def test_variants_are_compared_with_the_step_with_gaps_where_it_was_measured() -> None:
    found = one_step()
    assert found.baseline == "gaps"
    assert [each.variant for each in found.variants] == list(VARIANTS)
    ratios = {each.variant: each.ratio and each.ratio.value for each in found.variants}
    assert ratios == {
        "calls": None, "gaps": None, "bucket:4M": pytest.approx(0.9),
        "bucket:16M": pytest.approx(1.0), "reduce_scatter+all_gather": pytest.approx(1.25),
    }  # fmt: skip
    found = one_step(variants=("calls", "bucket:4M"))
    assert found.baseline == "calls"
    ratio = found.variants[1].ratio
    assert ratio and ratio.value == pytest.approx(18 / 8)


def test_a_generated_step_has_no_times_of_a_trace() -> None:
    workload = WORKLOAD._replace(steps=(without_times(STEP),))
    (found,) = analyse_replay(replay_run(workload, lambda case: steady(seconds(case))))
    assert (found.communication_s, found.transfer_s, found.over_trace) == (None, None, None)
    assert "gaps" not in [each.variant for each in found.variants]
    assert [one.traced.operation for one in found.operations] == ["all_reduce", "send", "recv"]


def test_a_peak_gives_the_least_time_of_the_calls_that_it_bounds() -> None:
    run = replay_run(samples=lambda case: steady(seconds(case)))
    (found,) = analyse_replay(run, peak=parse_peak("24GB/s"))
    assert found.operations[0].peak_s == pytest.approx(12 * MIB / 24e9)
    assert all(one.peak_s is None for one in one_step().operations)


def test_what_was_not_measured_has_no_sum_and_a_reason() -> None:
    run = replay_run(
        samples=lambda case: (
            None if case.size_bytes == 8 * MIB or case.variant == "gaps" else steady(seconds(case))
        )
    )
    (found,) = analyse_replay(run)
    by_name = {one.traced.operation: one for one in found.operations}
    assert by_name["all_reduce"].replayed is None and by_name["all_reduce"].busbw is None
    assert by_name["send"].replayed is not None
    assert found.baseline == "calls"
    assert [each.variant for each in found.variants if each.why] == ["gaps"]
    assert found.variant("gaps") is None


def test_each_step_is_analysed_on_its_own() -> None:
    empty = Step("empty", (Program((0, 1), ()),), time_s=1.0)
    workload = WORKLOAD._replace(steps=(STEP, empty, without_times(STEP)._replace(name="other")))
    found = analyse_replay(replay_run(workload, lambda case: steady(seconds(case))))
    assert [each.step.name for each in found] == ["train", "other"]
    assert [each.communication_s is None for each in found] == [False, True]
    assert found[0].operations[0].replayed == found[1].operations[0].replayed
