"""The time of the calls of a traced step without computation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pictures import require_readable
from synthetic import noisy, steady
from synthetic_step import MIB, STEP, WORKLOAD, replay_run, without_times
from synthetic_workload import TWO_RANKS

from commbench.analysis.rows import make_rows
from commbench.answers.replay.document import replay_answer
from commbench.answers.replay.replay import StepReplay, analyse_replay
from commbench.answers.show.plots import run_pictures
from commbench.api.runs import Run
from commbench.plan.case import Case
from commbench.plan.links import parse_peak
from commbench.plan.workload import RECV, SEND, Call, Program, Step, Workload
from commbench.plan.workload_variants import calls_only_s
from commbench.results.schema import Run as Recorded
from commbench.views.pictures import Bars

pytestmark = pytest.mark.usefixtures("launches_alike")


def reduction(time_s: float | None, **facts: object) -> Call:
    return Call("all_reduce", "world", "float32", 8, time_s=time_s, **facts)  # type: ignore[arg-type]


FIRST = reduction(2.0, asynchronous=True, waited_after=1)
LATE, EARLY = reduction(1.0, transfer_s=1.0), reduction(9.0, transfer_s=1.0)
SENT, RECEIVED = (
    Call(kind, "world", "int8", 8, time_s=1.0, waited_after=0) for kind in (SEND, RECV)
)


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        # Calls of one stream follow one another, and those of two do not.
        ([(FIRST, reduction(3.0))] * 2, 5.0),
        ([(FIRST, reduction(3.0, stream=1))] * 2, 3.0),
        # Waiting for a rank that computes does not count.
        ([(LATE, EARLY), (EARLY, LATE)], 2.0),
        # A chain of messages takes as long as all its links.
        ([(SENT._replace(peer=1),), (RECEIVED._replace(peer=0), SENT._replace(peer=2)),
          (RECEIVED._replace(peer=1),)], 2.0),
        ([(reduction(None),)] * 2, None),
        # Two reductions of 1 ms in one stream; rank 1 waits for the first before its receive of
        # 1 ms, which begins with the second.
        ([program.calls for program in TWO_RANKS.steps[0].programs], pytest.approx(2e-3)),
    ],
)  # fmt: skip
def test_the_calls_of_a_step_without_computation(
    programs: list[tuple[Call, ...]], expected: float | None
) -> None:
    groups = TWO_RANKS.groups | {"world": (tuple(range(len(programs))),)}
    step = Step("train", tuple(Program((rank,), calls) for rank, calls in enumerate(programs)))
    assert calls_only_s(Workload("w", "", len(programs), groups, (step,)), step) == expected


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
    assert reduced.traced.seconds == pytest.approx(9e-3)
    assert reduced.traced.waiting_s == pytest.approx(0.5e-3)
    assert reduced.busbw is not None
    assert reduced.busbw.value == pytest.approx(12 * MIB / 12e-3)
    message = 1024 * 1e-3 / MIB
    for name in ("send", "recv"):
        assert by_name[name].traced.calls == 0.5
        assert by_name[name].replayed is not None
        assert by_name[name].replayed == pytest.approx((message / 2,) * 3, rel=0.02)


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", ""])
def test_a_trace_of_another_backend_is_named(backend: str) -> None:
    run = replay_run(WORKLOAD._replace(backend=backend), lambda case: steady(seconds(case)))
    said = " ".join(replay_answer(analyse_replay(run)))
    is_other = backend == "nccl"
    assert said.startswith("The trace is of nccl, this run of gloo: not the") == is_other
    assert ("cannot be compared, since the backends differ" in said) == is_other


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


def test_the_calls_are_compared_with_those_of_the_trace_without_computation() -> None:
    found = one_step()
    assert found.communication_s == pytest.approx((9e-3 + 9e-3) / 2)
    assert found.transfer_s == pytest.approx((8e-3 + 8e-3) / 2)
    assert found.waiting_s == pytest.approx(1e-3)
    assert found.calls_only_s == pytest.approx(10e-3)
    assert found.over_trace and found.over_trace.value == pytest.approx(8 / 10)
    assert found.step_over_trace and found.step_over_trace.value == pytest.approx(20 / 20)
    assert one_step(variants=("gaps",)).over_trace is None


def test_waiting_is_not_guessed_where_one_call_does_not_tell_it() -> None:
    first, second = STEP.programs
    calls = (first.calls[0]._replace(transfer_s=None), *first.calls[1:])
    step = STEP._replace(programs=(first._replace(calls=calls), second))
    run = replay_run(WORKLOAD._replace(steps=(step,)))
    assert "bytes transfer" in sentences(replay_run())
    assert "bytes time transfer" in sentences(run)
    (found,) = analyse_replay(run)
    assert (found.transfer_s, found.waiting_s) == (None, None)
    assert found.communication_s == pytest.approx(9e-3)
    by_name = {one.traced.operation: one for one in found.operations}
    assert by_name["all_reduce"].traced.seconds == by_name["all_reduce"].traced.time_s


def test_variants_are_compared_with_the_step_with_gaps_where_it_was_measured() -> None:
    found = one_step()
    assert found.baseline == "gaps"
    assert [each.variant for each in found.variants] == list(VARIANTS)
    ratios = {
        each.variant: each.over_baseline and each.over_baseline.value for each in found.variants
    }
    assert ratios == {
        "calls": None, "gaps": None, "bucket:4M": pytest.approx(0.9),
        "bucket:16M": pytest.approx(1.0), "reduce_scatter+all_gather": pytest.approx(1.25),
    }  # fmt: skip
    found = one_step(variants=("calls", "bucket:4M"))
    assert found.baseline == "calls"
    ratio = found.variants[1].over_baseline
    assert ratio and ratio.value == pytest.approx(18 / 8)


def test_a_generated_step_has_no_times_of_a_trace() -> None:
    workload = WORKLOAD._replace(steps=(without_times(STEP),))
    run = replay_run(workload, lambda case: steady(seconds(case)))
    (found,) = analyse_replay(run)
    assert (found.communication_s, found.transfer_s, found.over_trace) == (None, None, None)
    assert "gaps" not in [each.variant for each in found.variants]
    assert [one.traced.operation for one in found.operations] == ["all_reduce", "send", "recv"]
    text = sentences(run)
    assert "in its trace" not in text and "traced" not in text
    assert "over all calls" in text and "trace: " not in text
    assert "The calls, one after another, take 8.000 ms; " in text
    assert "all_reduce over world takes most here: 100 % of the time." in text


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
    assert [each.variant for each in found.variants if each.why_not_measured] == ["gaps"]
    assert found.variant("gaps") is None


def test_each_step_is_analysed_on_its_own() -> None:
    empty = Step("empty", (Program((0, 1), ()),), time_s=1.0)
    workload = WORKLOAD._replace(steps=(STEP, empty, without_times(STEP)._replace(name="other")))
    found = analyse_replay(run := replay_run(workload, lambda case: steady(seconds(case))))
    assert "The step train takes 20.00 ms here and 20.0 ms in the trace, " in sentences(run)
    assert [each.step.name for each in found] == ["train", "other"]
    assert [each.communication_s is None for each in found] == [False, True]
    assert found[0].operations[0].replayed == found[1].operations[0].replayed


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def sentences(run: Recorded) -> str:
    text = Run(*run).text()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


def test_a_long_name_of_a_step_is_wrapped_and_fits_the_picture() -> None:
    name = "a_long_name_of_a_step_of_a_model_with_many_layers " * 3
    long = WORKLOAD._replace(steps=(STEP._replace(name=name.strip()),))
    run = replay_run(long, lambda _: steady(1e-3))
    sentences(run)
    for picture in run_pictures([run]):
        require_readable(picture)


def test_a_trace_of_one_rank_says_nothing_of_waiting() -> None:
    calls = (Call("all_reduce", "world", "float32", MIB, start_s=1e-3, time_s=2e-3),)
    workload = WORKLOAD._replace(
        steps=(Step("s", (Program((0, 1), calls),), 2, 1e-2),),
        notes=("ranks without a trace are taken to make the same calls",),
    )
    text = sentences(replay_run(workload, lambda case: steady(seconds(case))))
    assert "Note: ranks without a trace are taken to make the same calls." in text
    assert "trace: without waiting" not in text
    assert "takes most" not in text, "there is one kind of call"


def test_a_step_on_fewer_ranks_is_not_compared_with_the_network_of_the_trace() -> None:
    calls = (Call("all_reduce", "world", "float32", MIB, start_s=1e-3, time_s=2e-3),)
    workload = WORKLOAD._replace(
        world_size=4, groups={"world": ((0, 1, 2, 3),)},
        steps=(Step("s", (Program((0, 1, 2, 3), calls),), 2, 1e-2),),
    )  # fmt: skip
    text = sentences(replay_run(workload, lambda case: steady(seconds(case)), ranks=2))
    assert "Note: ranks 0 to 1 of 4 are kept." in text
    assert "The networks cannot be compared, since the trace had more ranks: " in text
    assert "communication is slower" not in text and "communication is faster" not in text


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (lambda case: steady(seconds(case)) if not case.step else None,
         "Not measured: replay train calls"),
        (lambda case: steady(seconds(case)) if case.step else None, "buckets of 4 MiB 18.00 ms"),
        (lambda _: None, "Not measured"),
        (lambda case: noisy(seconds(case), case.index, noise=0.5, batches=2, each=3),
         "it is not known whether a variant of the step is faster."),
        (lambda case: [[seconds(case)]],
         "it is not known whether a variant of the step is faster."),
        (lambda case: steady(1.0 if case.pairs else seconds(case)),
         "all_reduce over world takes most in the trace: 90 % of the time. recv over pp takes most "
         "here: 49 % of the time."),
        (lambda case: steady(22e-3 if case.variant.startswith("bucket") else seconds(case)),
         "no variant of the step is faster."),
        (lambda case: steady(16e-3 if case.variant == "calls" else seconds(case)),
         "The step takes 20.00 ms here and 20.0 ms in the trace, 1.000 (0.997 … 1.003) times as "
         "long. Communication is slower than in the trace: the calls, one after another, take "
         "16.00 ms here and 10.0 ms in the trace, 1.600 (1.595 … 1.605) times as long; buckets of "
         "4 MiB would save most: 10"),
    ],
)  # fmt: skip
def test_the_answer_says_what_the_times_allow_also_of_a_run_that_was_cut_off(
    samples: Callable[[Case], list[list[float]] | None], expected: str
) -> None:
    assert expected in sentences(replay_run(samples=samples))


def test_the_picture_has_a_bar_for_the_trace_and_one_for_here() -> None:
    (picture,) = run_pictures([replay_run(samples=lambda case: steady(seconds(case)))])
    figure = require_readable(picture)
    assert picture.name == "replay"
    assert "most in the trace: 90 %" in picture.description
    operations, *_ = (panel for panel in picture.panels if isinstance(panel, Bars))
    assert [row.name for row in operations.rows] == ["all_reduce, world", "recv, pp", "send, pp"]
    trace, here = operations.rows[0].bars
    keys = (trace.key[0], trace.more_key[0], here.key[0])
    assert keys == ("in the trace", "waiting in the trace", "here")
    assert (trace.time.value, trace.more_s) == pytest.approx((9e-3, 5e-4))
    assert here.time.value == pytest.approx(12e-3)
    # A bar of two parts has both numbers.
    texts = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"9.00 ms + 500 us", "20.0 ms", "18.00 (17.94 … 18.06) ms"} <= texts
