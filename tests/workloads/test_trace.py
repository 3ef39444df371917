"""Traces with a known truth: transfer and waiting, exposed and hidden, groups and steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commbench.plan.workload import RECV, SEND, UNKNOWN_GROUP, make_workload, workload_values
from commbench.readers.trace_base import Call, RankTrace, TracedGroup, TracedStep
from commbench.workloads.document import VIEW
from commbench.workloads.trace import TraceAnalysis, analyse_traces, workload_totals

WORLD = {"0": TracedGroup((0, 1, 2, 3), "default_pg", 4)}
STEPS = (TracedStep("ProfilerStep#1", 100.0, 101.0), TracedStep("ProfilerStep#2", 101.0, 102.0))


def text_of(found: Any) -> str:
    return " ".join(VIEW.write(found, is_verbose=True).split())


def json_of(found: Any) -> Any:
    return json.loads(VIEW.write(found, "json"))


def call(operation: str, start: float, time: float | None, **values: Any) -> Call:
    given = {"group": "0", "dtype": "float32", "size_bytes": 1000, "ready_s": start - 0.01}
    return Call(operation, start_s=start, time_s=time, **(given | values))


def waits_of(analysis: TraceAnalysis) -> dict[int, tuple[float, int]]:
    """By rank how long it waits, and for whom most."""
    return {each.rank: (round(each.waiting_s, 4), each.for_rank) for each in analysis.waits}


def trace(rank: int, *calls: Call, **values: Any) -> RankTrace:
    given = {"groups": WORLD, "steps": STEPS, "world_size": 4}
    return RankTrace(f"rank{rank}.json", "torch.profiler", rank, calls=calls, **(given | values))


def late_rank_2() -> list[RankTrace]:
    """An all_reduce of 20 ms in both steps, to which rank 2 comes 80 ms late, and rank 1 30 ms."""
    late = {0: 0.0, 1: 0.03, 2: 0.08, 3: 0.0}
    return [
        trace(rank, *(
            call("all_reduce", step.start_s + 0.1 + late[rank], 0.1 - late[rank]) for step in STEPS
        ))
        for rank in range(4)
    ]  # fmt: skip


def test_the_shortest_time_is_the_transfer_and_the_rest_waits_for_the_last_rank() -> None:
    analysis = analyse_traces(late_rank_2())
    (row,) = analysis.totals
    assert (row.group, row.ranks, row.calls, row.size_bytes) == ("world", 4, 1, 1000)
    assert row.transfer_s == pytest.approx(0.02)
    assert row.waiting_s == pytest.approx((0.05 + 0.08) / 2)
    assert row.busbw == pytest.approx(1000 * 1.5 / 0.02)
    assert row.step_share == pytest.approx((0.07 + 0.1) / 2)
    assert waits_of(analysis) == {0: (0.08, 2), 3: (0.08, 2), 1: (0.05, 2), 2: (0, 2)}
    assert "Rank 0 waits 80.0 ms, all of it for rank 2" in text_of(analysis)


def test_ranks_on_hosts_with_other_clocks_are_compared_alike() -> None:
    shifted = [
        one._replace(
            steps=tuple(s._replace(start_s=s.start_s + 7e5 * n, end_s=s.end_s + 7e5 * n)
                        for s in one.steps),
            calls=tuple(c._replace(start_s=c.start_s + 7e5 * n, ready_s=c.ready_s + 7e5 * n)  # type: ignore[operator]
                        for c in one.calls),
        )
        for n, one in enumerate(late_rank_2())
    ]  # fmt: skip
    assert waits_of(analyse_traces(shifted)) == waits_of(analyse_traces(late_rank_2()))


def test_numbers_of_calls_decide_where_a_rank_lacks_the_first_ones() -> None:
    calls = [call("all_reduce", 100.1 + n / 10, 0.01 * (n + 1), sequence=n) for n in range(5)]
    analysis = analyse_traces([trace(0, *calls), trace(1, *calls[2:])])
    known = [one for one in analysis.calls if one.transfer_s is not None]
    assert sorted(one.sequence for one in known if one.sequence) == [2, 2, 3, 3, 4, 4]
    assert all(one.waiting_s == 0 for one in known)


def test_an_operation_with_a_root_does_not_say_who_is_waited_for() -> None:
    """The root 2 ends its broadcast before rank 1 begins, for which the others wait."""
    times = {0: (0.1, 0.08), 1: (0.17, 0.01), 2: (0.1, 0.001), 3: (0.1, 0.08)}
    broadcasts = {rank: call("broadcast", 100 + start, time, root=2)
                  for rank, (start, time) in times.items()}  # fmt: skip
    late = {0: 0.0, 1: 0.05, 2: 0.01, 3: 0.0}
    analysis = analyse_traces([
        trace(r, broadcasts[r], call("all_reduce", 100.3 + late[r], 0.1 - late[r]), steps=STEPS[:1])
        for r in range(4)
    ])  # fmt: skip
    assert {one.last_rank for one in analysis.calls if one.operation == "broadcast"} == {None}
    assert waits_of(analysis) == {0: (0.05, 1), 1: (0, 1), 2: (0.04, 1), 3: (0.05, 1)}
    assert "in a step, without operations with a root" in text_of(analysis)


def test_the_wait_of_a_rank_counts_overlapping_calls_once() -> None:
    """Rank 0 waits from 0.1 to 0.3 and from 0.2 to 0.4 for rank 1, and from 0.5 to 0.55 for 2."""
    begins = {0: (0.1, 0.2, 0.5), 1: (0.3, 0.4, 0.5), 2: (0.1, 0.2, 0.55)}
    groups = {"0": TracedGroup((0, 1, 2), "default_pg", 3)}

    def traced(rank: int) -> RankTrace:
        times = zip(begins[rank], (0.35, 0.45, 0.6), strict=True)
        calls = [call("all_reduce", 100 + begin, end - begin) for begin, end in times]
        return trace(rank, *calls, steps=STEPS[:1], groups=groups, world_size=3)

    analysis = analyse_traces([traced(rank) for rank in range(3)])
    waits = waits_of(analysis)
    assert (waits[0], waits[2]) == ((0.35, 1), (0.3, 1))
    (share,) = (each.for_rank_share for each in analysis.waits if each.rank == 0)
    assert share == pytest.approx(0.3 / 0.35)


def test_what_a_cut_trace_lacks_is_laid_to_its_cut_alone() -> None:
    lacking = call("all_reduce", 100.1, None, size_bytes=None, group="")
    whole = analyse_traces([trace(0, lacking)])
    assert sum("of 1 calls" in note for note in whole.workload.notes) == 3
    cut = analyse_traces([trace(0, lacking, is_cut=True, cut_step="ProfilerStep#3")])
    assert not any("of 1 calls" in note for note in cut.workload.notes)
    assert cut.workload.notes[0].startswith("rank0.json ends early, in ProfilerStep#3: this step")


def test_calls_that_differ_between_ranks_are_not_compared() -> None:
    analysis = analyse_traces(
        [trace(0, call("all_reduce", 100.1, 0.1)), trace(1, call("broadcast", 100.1, 0.2))]
    )
    assert analysis.waits == ()
    assert any(
        "the waiting of 2 calls, in which ranks differ" in note for note in analysis.workload.notes
    )
    assert any("traces of 2 of 4 ranks" in note for note in analysis.workload.notes)


def test_a_message_is_matched_by_its_ranks() -> None:
    sent = [call(SEND, 100.1, 0.05, peer=1), call(SEND, 100.3, 0.01, peer=1)]
    received = [call(RECV, 100.1, 0.03, peer=0), call(RECV, 100.2, 0.11, peer=0)]
    analysis = analyse_traces([trace(0, *sent), trace(1, *received)])
    assert [one.transfer_s for one in analysis.calls] == [0.03, 0.01, 0.03, 0.01]
    assert waits_of(analysis)[1] == (0.05, 0)
    programs = analysis.workload.steps[0].programs
    assert [program.ranks for program in programs] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("calls", "computing", "communication_s", "hidden_s", "computing_s"),
    [
        # Together 0.3 s; kernels 0.0-0.15 and 0.35-0.9.
        ([(0.1, 0.2), (0.2, 0.2)], (100.0, 100.15, 100.35, 100.9), 0.3, 0.05 + 0.05, 0.7),
        # A call that ends after its step is hidden by what is computed then.
        ([(0.9, 0.3)], (100.0, 100.5, 101.0, 101.1), 0.3, 0.1, 0.5),
    ],
)
def test_communication_is_hidden_where_computation_runs(
    calls: list[tuple[float, float]], computing: tuple[float, ...], communication_s: float,
    hidden_s: float, computing_s: float,
) -> None:  # fmt: skip
    made = [call("all_reduce", 100 + start, time) for start, time in calls]
    found = analyse_traces([trace(0, *made, computing=computing, steps=STEPS[:1])]).overlap
    assert found
    assert (found.communication_s, found.hidden_s, found.computing_s) == pytest.approx(
        (communication_s, hidden_s, computing_s)
    )


@pytest.mark.parametrize(
    ("has_kernels", "computed"), [(False, [0.09, 0.06, 0.65]), (True, [0.1, 0.05, 0.65])]
)
def test_a_rank_that_waits_does_not_compute(has_kernels: bool, computed: list[float]) -> None:
    """It waits from 0.15 to 0.35; a host makes each call 0.01 s before it begins."""
    calls = [call("all_reduce", 100.1, 0.2), call("all_reduce", 100.2, 0.2)]
    facts = {"computing": (100.0, 100.15, 100.35, 100.9), "has_kernels": has_kernels}
    analysis = analyse_traces([trace(0, *calls, steps=STEPS[:1], **facts)])
    first, last = analysis.workload.steps[0].programs[0].calls
    assert [first.compute_s, last.compute_s, last.compute_after_s] == pytest.approx(computed)
    assert first.compute_after_s is None


def test_steps_are_those_that_all_ranks_have_and_other_calls_are_left_out() -> None:
    first = trace(0, call("all_reduce", 100.1, 0.1), call("all_reduce", 101.1, 0.1),
                  call("all_reduce", 105.0, 0.1))  # fmt: skip
    second = trace(1, call("all_reduce", 100.1, 0.1), steps=STEPS[:1])
    analysis = analyse_traces([first, second])
    assert analysis.steps == ("ProfilerStep#1",)
    assert any("left out 2 calls: no whole step" in note for note in analysis.workload.notes)
    whole = analyse_traces([trace(0, call("barrier", 5.0, 1.0), steps=())])
    assert whole.step_s == pytest.approx(1.01)


def test_groups_of_one_kind_are_a_set_and_those_of_other_ranks_are_completed() -> None:
    mesh = WORLD | {"1": TracedGroup((0, 2), "mesh_dp", 2), "3": TracedGroup((0, 1), "mesh_tp", 2),
                    "9": TracedGroup((0, 3), "undefined", 2)}  # fmt: skip
    calls = [call("all_reduce", 100.1, 0.1, group=name) for name in ("0", "1", "3", "9", "odd")]
    sets = analyse_traces([trace(0, *calls, groups=mesh)]).sets
    assert sets.sets["dp"] == ((0, 2), (1, 3))
    assert sets.sets["tp"] == ((0, 1), (2, 3))
    assert sets.sets["world"] == ((0, 1, 2, 3),)
    assert sets.sets["2 ranks, every 3."] == ((0, 3),)
    assert {*sets.completed} == {"dp", "tp"}
    assert sets.names["odd"] == "group odd"


def test_steps_with_the_same_calls_are_one_with_medians() -> None:
    workload = analyse_traces(late_rank_2()).workload
    (step,) = workload.steps
    (program,) = step.programs
    assert (step.count, step.time_s, program.ranks) == (2, pytest.approx(1.0), (0, 1, 2, 3))
    (one,) = program.calls
    assert one.time_s == pytest.approx((0.1 + 0.07) / 2)
    assert one.transfer_s == pytest.approx(0.02)
    assert one.gap_before_s == pytest.approx((0.1 + 0.13) / 2)
    assert "world all_reduce 1 1000 B" in text_of(workload)


def test_a_step_that_is_slow_by_chance_does_not_change_the_figures() -> None:
    """Medians over the steps; sums over the calls of a step."""
    steps = tuple(TracedStep(f"ProfilerStep#{n}", 100.0 + n, 101.0 + n) for n in range(5))
    times = (0.1, 0.11, 0.9, 0.09, 0.1)
    calls = [
        call("all_reduce", step.start_s + at, at + time)
        for step, time in zip(steps, times, strict=True)
        for at in (0.01, 0.02)
    ]
    computing = tuple(t for s in steps for t in (s.start_s, s.start_s + 0.05))
    analysis = analyse_traces(
        [trace(r, *calls, steps=steps, world_size=2, computing=computing) for r in range(2)]
    )
    (row,) = analysis.totals
    assert (row.calls, row.time_s) == (2, pytest.approx(0.11 + 0.12))
    assert analysis.step_s == 1.0
    assert analysis.overlap is not None
    assert analysis.overlap.communication_s == pytest.approx(0.13)


def test_a_workload_has_the_figures_of_the_traces_that_it_was_made_of() -> None:
    analysis = analyse_traces(late_rank_2())
    read = make_workload(workload_values(analysis.workload))
    assert workload_totals(read, read.steps[0]) == analysis.totals
    assert json_of(read).items() <= json_of(analysis).items()


def test_steps_with_other_calls_stay_apart() -> None:
    calls = [call("all_reduce", 100.1, 0.1), call("broadcast", 101.1, 0.1, root=2)]
    workload = analyse_traces([trace(r, *calls) for r in range(4)]).workload
    assert [step.name for step in workload.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert workload.steps[1].programs[0].calls[0].root == 2
    assert "from ProfilerStep#2; 1 step of 1.00 s" in text_of(workload)


def test_many_different_steps_are_not_all_printed() -> None:
    steps = tuple(TracedStep(f"ProfilerStep#{n}", 100.0 + n, 101.0 + n) for n in range(7))
    calls = [
        call("all_reduce", s.start_s + 0.1, 0.1, size_bytes=8 * n) for n, s in enumerate(steps)
    ]
    analysis = analyse_traces([trace(0, *calls, steps=steps)])
    shown = VIEW.write(analysis)
    assert [f"from ProfilerStep#{n};" in shown for n in range(7)] == [True] * 4 + [False] * 3
    assert "3 steps more with other calls: --verbose prints all." in text_of(analysis)
    assert len(json_of(analysis)["operations"]) == 7


def test_waits_and_streams_are_positions_in_the_program() -> None:
    calls = [
        call("all_reduce", 100.1, 0.1, asynchronous=True, stream="a", waited_s=100.25),
        call("all_reduce", 100.2, 0.1, asynchronous=False, stream="b"),
        call("all_reduce", 100.4, 0.1, asynchronous=True, stream="a"),
    ]
    analysis = analyse_traces([trace(0, *calls)])
    found = analysis.workload.steps[0].programs[0].calls
    assert [c.waited_after for c in found] == [1, 1, None]
    assert [c.stream for c in found] == [0, 1, 0]
    assert [c.gap_before_s for c in found] == pytest.approx([0.1, 0.0, 0.1])


def test_a_call_without_a_group_is_shown_with_what_is_known() -> None:
    analysis = analyse_traces([trace(0, call("all_reduce", 100.1, 0.1, group=""))])
    assert analysis.totals[0].group == UNKNOWN_GROUP
    assert any("this trace names no groups" in note for note in analysis.workload.notes)
    assert analysis.workload.steps[0].programs[0].calls[0].group == UNKNOWN_GROUP
    assert json_of(analysis)["operations"][0]["ranks"] is None
