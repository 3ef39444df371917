"""What rank 0 decides, driven with made-up results; and how the checks of ranks are combined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import Commbench
from gloo_ranks import on_ranks
from synthetic_rows import batches, plan

from commbench.results.schema import Batch, Measurement, WrongElement
from commbench.spec.case import Case
from commbench.spec.plan import ORDERS, Plan
from commbench.worker.coordinator import combine_checks, seed_offset
from commbench.worker.recorder import RunCollector
from commbench.worker.scheduler import CHECK, MEASURE, WARM_UP, Command, Scheduler
from commbench.worker.verify import CheckResult

CALL_S = 50e-3
"""Six calls use up the budget of 0.2 s: each case gets two batches of three."""


class Sink(RunCollector):
    """Keeps what the scheduler hands on; some batches were made before."""

    def __init__(self, before: dict[int, tuple[Batch, ...]]) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nobody asks for the run
        self._before = before
        self.done: list[float] = []

    def advanced(self, done: float) -> None:
        self.done.append(done)

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        return self._before.get(case.index, ())

    def measurements(self) -> dict[int, Measurement]:
        return {found.case.index: found for found in self._measurements}


def follow(
    of: Plan,
    checks: dict[int, CheckResult] | None = None,
    before: dict[int, tuple[Batch, ...]] | None = None,
    launch: int = 0,
    sink: Sink | None = None,
) -> tuple[list[Command], dict[int, Measurement]]:
    """All commands of a scheduler, and what it records, where every call takes CALL_S."""
    sink = sink or Sink(before or {})
    scheduler = Scheduler(of, of.cases(), sink, launch)
    commands = []
    while command := scheduler.next():
        commands.append(command)
        result: Any = (checks or {}).get(command.case, CheckResult(wrong=0, seconds=CALL_S))
        if command.what != CHECK:
            result = (CALL_S,) * command.iterations
        scheduler.record(Batch(samples_s=result) if command.what == MEASURE else result)
    return commands, sink.measurements()


def of_case(commands: list[Command], case: int) -> list[tuple[int, int]]:
    return [(found.what, found.iterations) for found in commands if found.case == case]


def test_the_work_that_is_done_grows_with_every_batch_to_all_of_it() -> None:
    sink = Sink({})
    follow(plan(sizes=(1024, 2048)), sink=sink)
    assert sink.done == sorted(sink.done)
    assert {0.25, 0.5, 0.75, 1.0} <= {round(done, 6) for done in sink.done}
    assert sink.done[-1] == 1.0


def test_each_case_is_checked_warmed_up_and_measured_in_batches() -> None:
    commands, found = follow(plan(sizes=(1024, 2048)))
    for case in (0, 1):
        assert of_case(commands, case) == [
            (CHECK, 1), (WARM_UP, 1), (MEASURE, 3), (MEASURE, 3), (CHECK, 1)
        ]  # fmt: skip
        assert [len(batch.samples_s) for batch in found[case].batches] == [3, 3]
        assert [batch.warmup for batch in found[case].batches] == [1, 0]
        assert (found[case].status, found[case].wrong) == ("ok", 0)
        assert found[case].stop_reason == "precision"


def test_cases_take_turns_by_batches() -> None:
    commands, _ = follow(plan(sizes=(1024, 2048, 4096)))
    order = [found.case for found in commands if found.what == MEASURE]
    assert sorted(order[:3]) == sorted(order[3:]) == [0, 1, 2]
    ascending, _ = follow(plan(sizes=(1024, 2048, 4096), order="ascending"))
    assert [found.case for found in ascending if found.what == MEASURE] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_all_cases_are_checked_first_the_smallest_before_larger_ones(order: str, seed: int) -> None:
    asked = plan(
        operations=("all_gather", "all_reduce"), sizes=(1 << 30, 1024, 1 << 20), order=order,
        seed=seed,
    )  # fmt: skip
    commands, _ = follow(asked)
    checked = [command.case for command in commands[:6] if command.what == CHECK]
    sizes = [asked.cases()[case].size_bytes for case in checked]
    assert sizes == [1024, 1024, 1 << 20, 1 << 20, 1 << 30, 1 << 30]
    # What is timed first is as random as before.
    follow_ups = [command.case for command in commands if command.what == MEASURE]
    in_turn = {"shuffled": len(asked.cases()), "ascending": 1}[order]
    assert len(set(follow_ups[:in_turn])) == in_turn


NOTED_RATES = """
from commbench.worker import coordinator
bound = coordinator.longest_check_s
def note_rate(size_bytes, slowest_bps):
    if size_bytes == 64 << 20:
        open({path!r}, "a").write(f"{{slowest_bps}} ")
    return bound(size_bytes, slowest_bps)
coordinator.longest_check_s = note_rate
"""


@pytest.mark.parametrize("order", ORDERS)
def test_the_rate_of_a_smaller_size_bounds_the_check_of_the_largest(
    program: Commbench, tmp_path: Path, order: str
) -> None:
    path = tmp_path / "rates"
    options = ("--sizes", "64M,1M", "--order", order, "--seed", "2", "--iters", "2", "--no-plots")
    ended = program(NOTED_RATES.format(path=str(path)), *options)
    assert ended.code == 0, ended.err
    rates = [float(rate) for rate in path.read_text().split()]
    assert len(rates) >= 2 and min(rates) > 0  # on both ranks, as 1 MiB was checked before


def test_a_fast_case_begins_its_later_batches_with_an_untimed_call() -> None:
    asked = plan(iterations=20, warmup=2, check=False)
    scheduler = Scheduler(asked, asked.cases(), sink := Sink({}), 0)
    untimed = []
    while command := scheduler.next():
        durations = (1e-3,) * command.iterations
        untimed.append(command.untimed)
        scheduler.record(Batch(samples_s=durations) if command.what == MEASURE else durations)
    assert untimed == [2, 1]  # the first ones are the warm-up
    assert [batch.warmup for batch in sink.measurements()[0].batches] == [2, 1]


def test_a_wrong_result_is_recorded_and_measured_all_the_same() -> None:
    first = WrongElement(rank=1, element=7, expected="1", got="2")
    checks = {0: CheckResult(wrong=3, first=first, seconds=CALL_S)}
    _, found = follow(plan(), checks)
    assert (found[0].status, found[0].wrong, found[0].first_wrong) == ("wrong", 3, first)
    assert found[0].reason == "rank 1, element 7: expected 1, got 2"
    assert len(found[0].samples_s) == 6


def checks_of(asked: Plan, call_s: float, check_s: float) -> list[tuple[int, float]]:
    """Of a case with these times, the calls of each check and the part of the budget that batches
    had taken before it."""
    scheduler = Scheduler(asked, asked.cases(), sink := Sink({}), 0)
    checks, timed_s = [], 0.0
    while command := scheduler.next():
        if command.what == CHECK:
            checks.append((command.iterations, timed_s / asked.budget_s))
            elapsed_s = check_s * command.iterations
            scheduler.record(CheckResult("", 0, None, call_s, 0, command.iterations, elapsed_s))
        elif command.what == WARM_UP:
            scheduler.record((call_s,) * command.iterations)
        else:
            # No precision: calls take once or twice as long.
            samples = [call_s * (1 + number % 2) for number in range(command.iterations)]
            timed_s += sum(samples)
            scheduler.record(Batch(samples_s=tuple(samples)))
    assert sink.measurements()[0].stop_reason == "budget"
    return checks


def test_calls_are_checked_before_between_and_after_batches_in_5_percent_of_the_time() -> None:
    check_s = 250e-6
    every = [checks_of(plan(seed=seed), call_s=150e-6, check_s=check_s) for seed in range(8)]
    for checks in every:
        assert checks[:2] == [(1, 0.0), (20, 0.0)]
        assert checks[-1][1] >= 1 and checks[-1][0] >= 1
        further_s = check_s * sum(calls for calls, _ in checks[1:])
        assert 0.045 * 0.2 < further_s <= 0.05 * 0.25
    assert len({tuple(part for _, part in checks) for checks in every}) > 3  # at random moments
    assert every[0] == checks_of(plan(), call_s=150e-6, check_s=check_s)  # but by the seed alone


def test_a_call_is_checked_after_the_batches_even_if_there_is_no_time_for_it() -> None:
    assert [calls for calls, _ in checks_of(plan(), call_s=10e-3, check_s=1.0)] == [1, 1]
    commands, _ = follow(plan())  # with an unknown time of the check
    assert [found.what for found in commands] == [CHECK, WARM_UP, MEASURE, MEASURE, CHECK]


def test_the_first_check_that_finds_something_is_the_last_one() -> None:
    asked = plan(iterations=20, warmup=0)
    scheduler = Scheduler(asked, asked.cases(), sink := Sink({}), 0)
    first = WrongElement(rank=0, element=3, expected="1", got="nan")
    wrong = CheckResult("", 2, first, 1e-4, first_call=8, calls=20, elapsed_s=1e-2)
    results = iter((CheckResult("", 0, None, 1e-4, elapsed_s=2e-4), wrong))
    while command := scheduler.next():
        is_check = command.what == CHECK
        scheduler.record(next(results) if is_check else Batch((1e-4,) * command.iterations))
    found = sink.measurements()[0]
    assert (found.status, found.wrong, len(found.samples_s)) == ("wrong", 2, 20)
    assert found.reason == "rank 0, element 3: expected 1, got nan, in checked call 8"


def test_every_check_of_a_case_has_other_data() -> None:
    asked = plan(sizes=(1024, 2048))
    offsets = {seed_offset(asked, case, n) for case in asked.cases() for n in range(100)}
    assert len(offsets) == 200


def test_a_case_without_memory_ends_alone() -> None:
    commands, found = follow(plan(sizes=(1024, 2048)), {1: CheckResult(failed="out of memory")})
    assert of_case(commands, 1) == [(CHECK, 1)]
    assert (found[1].status, found[1].reason, found[1].batches) == ("failed", "out of memory", ())
    assert found[0].status == "ok"


def test_a_case_that_cannot_be_measured_is_recorded_without_a_command() -> None:
    commands, found = follow(plan(sizes=(2, 1024)))
    assert of_case(commands, 0) == []
    assert (found[0].status, found[0].reason) == ("skipped", "less than one float32")


def test_batches_from_before_a_launch_was_resumed_count() -> None:
    earlier = batches([CALL_S] * 3)
    commands, found = follow(plan(sizes=(1024, 2048)), before={0: earlier, 1: earlier * 2})
    assert of_case(commands, 0) == [(CHECK, 1), (WARM_UP, 1), (MEASURE, 3), (CHECK, 1)]
    assert of_case(commands, 1) == [(CHECK, 1)]
    assert found[1].stop_reason == "precision"


def test_batches_know_their_launch() -> None:
    _, found = follow(plan(), launch=2)
    assert {batch.launch for batch in found[0].batches} == {2}


def test_wrong_elements_of_all_ranks_are_counted_and_the_lowest_ranks_first_is_kept() -> None:
    def check(rank: int) -> CheckResult:
        first = WrongElement(rank, 10 * rank, "0", str(rank)) if rank in (2, 4) else None
        return CheckResult(wrong=rank if first else 0, first=first, seconds=0.25 * rank)

    first, *_ = on_ranks(5, lambda comm: combine_checks(comm, check(comm.rank)))
    assert first == CheckResult(wrong=6, first=WrongElement(2, 20, "0", "2"), seconds=1.0)
    clean = on_ranks(5, lambda comm: combine_checks(comm, CheckResult(wrong=0, seconds=0.5)))
    assert clean == [CheckResult(wrong=0, seconds=0.5)] * 5


def test_the_lowest_rank_without_memory_gives_the_reason_on_all() -> None:
    def check(rank: int) -> CheckResult:
        failed = f"out of memory on rank {rank}" if rank in (1, 3) else ""
        return CheckResult(failed=failed, wrong=9, seconds=0.5)

    found = on_ranks(4, lambda comm: combine_checks(comm, check(comm.rank)))
    assert found == [CheckResult(failed="out of memory on rank 1")] * 4
