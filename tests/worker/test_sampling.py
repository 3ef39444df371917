"""How many iterations a case gets, in which order cases are measured and what rank 0 decides:
driven with durations and results that are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy
import pytest
from commands import Commbench
from gloo_ranks import on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_pairs import Speed, pairs_batch, pairs_header, pairs_plan
from synthetic_rows import batches, plan

from commbench.analysis.statistics import median_ci, summarise
from commbench.plan.case import FINISHED, Case
from commbench.plan.pairs import BACK
from commbench.plan.plan import ORDERS, Plan
from commbench.results.records import WrongElement
from commbench.results.schema import Batch, Measurement, RunHeader
from commbench.worker import sampling
from commbench.worker.coordinator import combine_checks, seed_offset
from commbench.worker.recorder import RunCollector
from commbench.worker.sampling import CHECK, MEASURE, WARM_UP, Command, SampleSchedule
from commbench.worker.scheduler import LOOKED, Scheduler
from commbench.worker.verify import CheckResult

LOOK = sampling.LOOK_ITERATIONS
quick = settings(deadline=None, max_examples=60)


def schedule(checked_s: float = 0.0, **wishes: Any) -> SampleSchedule:
    asked = plan(**wishes)
    return SampleSchedule(asked, asked.cases()[0], checked_s)


class Course(NamedTuple):
    """What a schedule asked for, in order, and why it stopped."""

    blocks: list[Command]
    batches: list[list[float]]
    """Seconds per call of each timed iteration."""
    reason: str

    @property
    def warmup(self) -> list[int]:
        """Untimed blocks before the first timed call."""
        first = next(i for i, block in enumerate(self.blocks) if block.what == MEASURE)
        alone = [block.iterations for block in self.blocks[:first]]
        return alone + [self.blocks[first].untimed] * bool(self.blocks[first].untimed)

    @property
    def timed(self) -> list[int]:
        return [block.iterations for block in self.blocks if block.what == MEASURE]

    @property
    def samples(self) -> list[float]:
        return list(chain.from_iterable(self.batches))


def follow(planned: SampleSchedule, durations: Iterator[float], aligning_s: float = 0) -> Course:
    """Do what the schedule says, every call taking the next of these durations, and every iteration
    that much more besides."""
    blocks: list[Command] = []
    batches: list[list[float]] = []
    while block := planned.next():
        assert planned.next() == block
        blocks.append(block)
        for _ in range(block.untimed):
            next(durations)
        taken = [
            sum(next(durations) for _ in range(block.calls)) / block.calls
            for _ in range(block.iterations)
        ]
        if block.what == MEASURE:
            batches.append(taken)
        elapsed_s = sum(taken) * block.calls + len(taken) * aligning_s
        batch = Batch(tuple(taken), calls=block.calls, elapsed_s=elapsed_s)
        planned.record(batch if block.what == MEASURE else taken)
    return Course(blocks, batches, planned.stop_reason)


@quick
@given(
    st.integers(1, 3000), st.none() | st.integers(0, 20),
    st.lists(st.floats(1e-7, 0.5), min_size=1, max_size=20), st.floats(0, 1),
    st.sampled_from(["isolated", "pipelined"]),
)  # fmt: skip
def test_a_fixed_number_is_exact_whatever_the_durations_are(
    asked: int, warmup: int | None, durations: list[float], checked_s: float, timing: str
) -> None:
    planned = schedule(checked_s, iterations=asked, warmup=warmup, timing=timing)
    course = follow(planned, cycle(durations))
    assert sum(course.timed) == asked
    assert all(block.iterations > 0 for block in course.blocks)
    assert course.reason == "fixed"


def test_on_a_device_the_time_counts_in_which_it_aligns_the_ranks() -> None:
    noisy = [3e-6, 30e-6] * 50_000
    on_cpu = follow(schedule(), iter(noisy), 0.5e-3)
    on_gpu = follow(schedule(device="cuda"), iter(noisy), 0.5e-3)
    assert len(on_cpu.samples) >= 4000
    assert on_gpu.reason == "budget"
    assert max(on_gpu.timed) <= 20e-3 / 0.3e-3
    assert max(on_gpu.timed[1:]) <= 20e-3 / 0.5e-3
    assert 0.2 <= 0.5e-3 * len(on_gpu.samples) < 0.25
    fixed = follow(schedule(device="cuda", iterations=1000, warmup=0), iter(noisy), 0.5e-3)
    assert len(fixed.samples) == 1000


def test_the_first_batch_begins_with_a_warm_up_on_which_nothing_depends() -> None:
    fixed = follow(schedule(iterations=20, warmup=3), repeat(1e-3)).blocks
    assert [(block.what, block.untimed) for block in fixed] == [(MEASURE, 3), (MEASURE, 1)]
    for wishes in ({"iterations": 20}, {"warmup": 3}, {"warmup": 3, "timing": "pipelined"}):
        first = follow(schedule(**wishes), repeat(1e-3)).blocks[0]
        assert first.what == WARM_UP and not first.untimed


@pytest.mark.parametrize(
    ("duration", "unchecked", "checked"),
    [(1e-6, [1, 5], [5]), (1e-3, [1, 5], [5]), (9.9e-3, [1, 5], [5]), (11e-3, [1, 4], [4]),
     (16e-3, [1, 3], [3]), (31e-3, [1, 1], [1]), (51e-3, [1], []), (1.0, [1], [])],
)  # fmt: skip
def test_steady_calls_warm_up_with_five_or_fewer_slow_ones_and_the_checked_one_counts(
    duration: float, unchecked: list[int], checked: list[int]
) -> None:
    assert sampling.WARMUP_CALLS == 5
    assert follow(schedule(), repeat(duration)).warmup == unchecked
    assert follow(schedule(duration), repeat(duration)).warmup == checked
    assert follow(schedule(duration, iterations=20), repeat(duration)).warmup == checked


@pytest.mark.parametrize("falling", [0, 1, 2, 5, 17])
def test_warm_up_goes_on_while_times_fall_and_ends_when_they_are_stable(falling: int) -> None:
    # Each block of five takes a tenth less than the one before, the first than the checked call.
    levels = [100e-6 * 0.9**block for block in range(1, falling + 1)]
    blocks = chain.from_iterable(repeat(level, 5) for level in levels)
    course = follow(schedule(100e-6), chain(blocks, repeat(100e-6 * 0.9**falling)))
    # One block more than fell: the one that showed that nothing falls any more.
    assert course.warmup == [5] * (falling + 1)


@quick
@given(st.lists(st.floats(1e-7, 0.2), min_size=1, max_size=30), st.floats(1e-7, 0.2))
def test_warm_up_is_bounded_for_any_durations(durations: list[float], checked_s: float) -> None:
    course = follow(schedule(checked_s), cycle(durations))
    assert sum(course.warmup) <= sampling.MAX_WARMUP_CALLS
    took = cycle(durations)
    spent = [sum(next(took) for _ in range(block)) for block in course.warmup]
    assert sum(spent[:-1]) < sampling.WARMUP_S


@pytest.mark.parametrize(
    ("duration", "first", "batches"),
    [
        # A batch lasts about 20 ms, and of fast calls there are five.
        (1e-7, 4000, 5), (1e-6, 4000, 5), (4e-6, 4000, 5), (10e-6, 2000, 5), (30e-6, 667, 5),
        (1e-3, 20, 5), (4e-3, 5, 5), (4.9e-3, 4, 5),
        # Of slow ones two of four; where six calls use up the budget, two of three.
        (5.1e-3, 4, 2), (6e-3, 4, 2), (20e-3, 4, 2), (33e-3, 4, 2),
        (34e-3, 3, 2), (0.2, 3, 2), (1.0, 3, 2), (3.0, 3, 2),
    ],
)  # fmt: skip
def test_calls_alike_stop_when_precise(duration: float, first: int, batches: int) -> None:
    course = follow(schedule(), repeat(duration))
    assert course.timed[0] == pytest.approx(first, abs=1 if first > 4 else 0)
    assert len(course.batches) == batches
    assert len(course.samples) >= (sampling.MIN_ITERATIONS if batches == 5 else 2 * first)
    assert course.reason == "precision"


@quick
@given(
    st.lists(st.floats(1e-7, 2.0), min_size=1, max_size=30), st.floats(0, 1),
    st.sampled_from([0.01, 0.05, 0.3]), st.sampled_from([0.01, 0.2, 1.0]),
)  # fmt: skip
def test_sampling_ends_with_enough_samples_and_a_reason_that_is_true(
    durations: list[float], checked_s: float, precision: float, budget_s: float
) -> None:
    planned = schedule(checked_s, precision=precision, budget_s=budget_s)
    course = follow(planned, cycle(durations))
    summary = summarise(course.batches)
    slow = summary.median > sampling.SLOW_S
    over_budget = summary.median * sampling.MIN_ITERATIONS_OVER_BUDGET >= budget_s
    least = sampling.MIN_ITERATIONS_OVER_BUDGET if over_budget else sampling.MIN_ITERATIONS_SLOW
    assert len(course.samples) >= (least if slow else sampling.MIN_ITERATIONS)
    assert len(course.batches) >= (sampling.MIN_BATCHES_SLOW if slow else sampling.MIN_BATCHES)
    assert len(course.samples) <= sampling.MAX_ITERATIONS * (1 + 1 / sampling.MIN_BATCHES)
    assert all(block.iterations > 0 for block in course.blocks)
    assert summary.precision is not None
    assert {
        "precision": summary.precision <= precision + 1e-9,
        "budget": sum(sorted(course.samples)) >= budget_s,
        "cap": len(course.samples) >= sampling.MAX_ITERATIONS,
    }[course.reason]


@pytest.mark.parametrize(
    ("launches", "batches", "reason"),
    [
        (1, [], ""), (1, [[1e-3] * 100], ""), (1, [[1e-3] * 25] * 4, ""), (1, [[1e-3]] * 9, ""),
        (1, [[1e-3] * 2] * 5, "precision"), (1, [[1e-3]] * 10, "precision"),
        (1, [[6e-3] * 8], ""), (1, [[6e-3] * 4, [6e-3] * 3], ""),
        (1, [[6e-3] * 4] * 2, "precision"), (1, [[34e-3] * 6], ""),
        (1, [[34e-3] * 3, [34e-3] * 2], ""), (1, [[34e-3] * 3] * 2, "precision"),
        (1, [[33e-3] * 3] * 2, ""),
        # Ten samples: the second and the ninth bound the median.
        (1, [[0.951e-3, 1e-3]] + [[1e-3] * 2] * 3 + [[1.049e-3] * 2], "precision"),
        (1, [[0.9e-3, 1e-3]] * 2 + [[1e-3] * 2] + [[1e-3, 1.1e-3]] * 2, ""),
        (1, [[20e-3, 60e-3]] * 5, "budget"),
        (1, [[5e-6, 7e-6] * 2000] * 5, "cap"), (1, [[5e-6, 7e-6] * 1999] * 5, ""),
        # A third, rounded up, of ten iterations in five batches; of eight in two; of six in two.
        (3, [[1e-3] * 2] * 2, ""), (3, [[1e-3] * 3], ""),
        (3, [[20e-3, 70e-3], [20e-3, 70e-3]], "budget"), (3, [[6e-3] * 2], ""),
        (3, [[20e-3, 50e-3, 20e-3]], "budget"), (3, [[40e-3]], ""), (3, [[40e-3] * 2], "budget"),
        (1, [[40e-3] * 2], ""),
        # And a third of the budget of 0.2 s, in batches enough.
        (3, [[5e-4, 15e-4] * 16] * 2, ""), (3, [[5e-4, 15e-4] * 17] * 2, "budget"),
        (1, [[5e-4, 15e-4] * 17] * 2, ""),
    ],
)  # fmt: skip
def test_samples_are_enough_for_a_reason_of_which_launches_share_the_limits(
    launches: int, batches: list[list[float]], reason: str
) -> None:
    found, part = sampling.evaluate(plan(launches=launches), batches)
    assert found == reason
    assert (part == 1) >= (reason in ("budget", "cap"))


@pytest.mark.parametrize(
    ("batches", "part"),
    [
        # Of 0.2 s, of 20,000, and of six or eight iterations in two batches.
        ([], 0.0), ([[1e-3] * 20], 0.1), ([[1e-3] * 20] * 4, 0.4), ([[1e-6] * 2000], 0.1),
        ([[1e-6] * 4000] * 4, 0.8), ([[1e-3] * 2] * 4, 0.04), ([[20e-3] * 4], 0.4),
        ([[40e-3] * 3], 0.5), ([[4.0] * 4], 0.5), ([[30e-3] * 2, [32e-3] * 4], 0.75),
        ([[40e-3] * 2, [40e-3] * 3], 5 / 6), ([[40e-3] * 4] * 2, 1.0),
    ],
)  # fmt: skip
def test_the_part_done_is_of_what_is_furthest(batches: list[list[float]], part: float) -> None:
    assert sampling.evaluate(plan(), batches)[1] == pytest.approx(part)


def test_batches_that_differ_are_not_precise_though_all_samples_together_would_be() -> None:
    batches = [[1e-3 * (1 + 0.03 * (batch % 3))] * 20 for batch in range(6)]
    assert median_ci([sorted(chain.from_iterable(batches))]) == (1.03e-3, 1.03e-3)
    low, high = median_ci(batches)
    assert (low, high) == (1e-3, pytest.approx(1.06e-3))
    assert sampling.evaluate(plan(precision=0.02), batches)[0] == ""
    assert sampling.evaluate(plan(precision=0.03), batches)[0] == "precision"


def simulated(chance: numpy.random.Generator, middle_s: float, sigma: float) -> Course:
    """The course of a case whose calls are lognormal around `middle_s`."""

    def durations() -> Iterator[float]:
        while True:
            yield from (middle_s * numpy.exp(sigma * chance.standard_normal(500))).tolist()

    return follow(schedule(3 * middle_s), durations())


# Looking after each batch and stopping when the interval is narrow could make it too confident.
@pytest.mark.parametrize("sigma", [0.05, 0.2])
@pytest.mark.parametrize("middle_s", [0.5e-3, 2e-3, 6e-3, 20e-3, 33e-3, 50e-3])
@pytest.mark.parametrize("cases", [400, pytest.param(1000, marks=pytest.mark.full)])
def test_the_interval_at_the_end_of_a_schedule_covers_the_true_median_in_95_percent_of_cases(
    middle_s: float, sigma: float, cases: int
) -> None:
    chance = numpy.random.default_rng(4)
    held = 0
    for _ in range(cases):
        low, high = median_ci(simulated(chance, middle_s, sigma).batches)
        assert low is not None and high is not None
        held += low <= middle_s <= high
    # Of few samples the interval is one of a few: 96.9 % of six, 99.2 % of eight.
    most = 0.98 if middle_s < sampling.SLOW_S + 2e-3 else 0.99
    assert 0.92 <= held / cases <= most


cases = st.sets(st.integers(0, 50), min_size=1, max_size=12)


def measured_order(
    seed: int, unfinished: Collection[int], progress: Callable[[int], float] = lambda _: 0.0
) -> Iterator[int]:
    """The cases that are measured one after another, while the caller takes out finished ones."""
    following = sampling.CaseOrder("shuffled", seed)
    while (case := following.next(unfinished, progress)) is not None:
        yield case


@quick
@given(cases, st.integers(0, 2**40))
def test_each_round_measures_each_unfinished_case_once(unfinished: set[int], seed: int) -> None:
    order = measured_order(seed, unfinished)
    for _ in range(5):
        assert sorted(islice(order, len(unfinished))) == sorted(unfinished)


@quick
@given(st.dictionaries(st.integers(0, 50), st.integers(1, 6), max_size=10), st.integers(0, 99))
def test_a_finished_case_drops_out_and_all_others_go_on(needs: dict[int, int], seed: int) -> None:
    unfinished, found = dict(needs), []
    for case in measured_order(seed, unfinished):
        found.append(case)
        unfinished[case] -= 1
        if not unfinished[case]:
            del unfinished[case]
    for done in range(max(needs.values(), default=0)):
        wanted = {case for case, need in needs.items() if need > done}
        assert {*found[: len(wanted)]} == wanted
        found = found[len(wanted) :]
    assert found == []


@quick
@given(st.dictionaries(st.integers(0, 50), st.integers(1, 40), min_size=1, max_size=10))
def test_the_batches_of_every_case_are_spread_over_the_run(needs: dict[int, int]) -> None:
    had = dict.fromkeys(needs, 0)
    unfinished = set(needs)

    def done(case: int) -> float:
        return had[case] / needs[case]

    for case in measured_order(0, unfinished, done):
        lead = sampling.MAX_LEAD + max(1 / need for need in needs.values())
        assert done(case) < min(map(done, unfinished)) + lead
        had[case] += 1
        if had[case] == needs[case]:
            unfinished.remove(case)
    assert had == needs


CALL_S = 50e-3
"""Six calls use up the budget of 0.2 s: each case gets two batches of three."""


class Sink(RunCollector):
    """Keeps what the scheduler hands on; some batches were made before, or by a launch that was
    cut off."""

    def __init__(
        self, before: dict[int, tuple[Batch, ...]] | None = None, cut_off: Sink | None = None
    ) -> None:
        super().__init__(RunHeader(plan(), "made-up", "", "local"))
        self._before = before or (cut_off.batches() if cut_off else {})
        self.ended_before = set(cut_off.ended()) if cut_off else set()
        self.done: list[float] = []

    def advanced(self, done: float) -> None:
        self.done.append(done)

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        return self._before.get(case.index, ())

    def batches(self) -> dict[int, tuple[Batch, ...]]:
        """The batches of each case, also of those that have not ended."""
        ended = {index: found.batches for index, found in self.ended().items()}
        return ended | {index: tuple(found) for index, found in self._batches.items()}

    def ended(self) -> dict[int, Measurement]:
        return {found.case.index: found for found in self._measurements}


def decide(
    of: Plan, checks: dict[int, CheckResult] | None = None,
    before: dict[int, tuple[Batch, ...]] | None = None,
) -> tuple[list[Command], dict[int, Measurement]]:  # fmt: skip
    """All commands of a scheduler, and what it records, where every call takes CALL_S."""
    scheduler = Scheduler(of, of.cases(), sink := Sink(before), 0)
    commands = []
    while command := scheduler.next():
        commands.append(command)
        result: Any = (checks or {}).get(command.case, CheckResult(wrong=0, seconds=CALL_S))
        if command.what != CHECK:
            result = (CALL_S,) * command.iterations
        scheduler.record(Batch(samples_s=result) if command.what == MEASURE else result)
    return commands, sink.ended()


def of_case(commands: list[Command], case: int) -> list[tuple[int, int]]:
    return [(found.what, found.iterations) for found in commands if found.case == case]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_all_cases_are_checked_first_the_smallest_before_larger_ones(order: str, seed: int) -> None:
    asked = plan(
        operations=("all_gather", "all_reduce"), sizes=(1 << 30, 1024, 1 << 20), order=order,
        seed=seed,
    )  # fmt: skip
    commands, _ = decide(asked)
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
def test_a_smaller_rate_bounds_a_check(program: Commbench, tmp_path: Path, order: str) -> None:
    path = tmp_path / "rates"
    options = ("--sizes", "64M,1M", "--order", order, "--seed", "2", "--iters", "2", "--no-plots")
    program(NOTED_RATES.format(path=str(path)), *options).good()
    rates = [float(rate) for rate in path.read_text().split()]
    assert len(rates) >= 2 and min(rates) > 0  # on both ranks, as 1 MiB was checked before


def checks_of(asked: Plan, call_s: float, check_s: float) -> list[tuple[int, float]]:
    """Of a case with these times, the calls of each check and the part of the budget that batches
    had taken before it."""
    scheduler = Scheduler(asked, asked.cases(), sink := Sink(), 0)
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
    assert sink.ended()[0].stop_reason == "budget"
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


def test_every_check_of_a_case_has_other_data() -> None:
    asked = plan(sizes=(1024, 2048))
    offsets = {seed_offset(asked, case, n) for case in asked.cases() for n in range(100)}
    assert len(offsets) == 200


def test_a_case_without_memory_ends_alone() -> None:
    commands, found = decide(plan(sizes=(1024, 2048)), {1: CheckResult(failed="out of memory")})
    assert of_case(commands, 1) == [(CHECK, 1)]
    assert (found[1].status, found[1].reason, found[1].batches) == ("failed", "out of memory", ())
    assert found[0].status == "ok"


def test_batches_from_before_a_launch_was_resumed_count() -> None:
    earlier = batches([CALL_S] * 3)
    commands, found = decide(plan(sizes=(1024, 2048)), before={0: earlier, 1: earlier * 2})
    assert of_case(commands, 0) == [(CHECK, 1), (WARM_UP, 1), (MEASURE, 3), (CHECK, 1)]
    assert of_case(commands, 1) == [(CHECK, 1)]
    assert found[1].stop_reason == "precision"


def test_wrong_elements_of_all_ranks_are_counted_and_the_lowest_ranks_first_is_kept() -> None:
    def check(rank: int) -> CheckResult:
        first = WrongElement(rank, 10 * rank, "0", str(rank)) if rank in (2, 4) else None
        return CheckResult(wrong=rank if first else 0, first=first, seconds=0.25 * rank)

    first, *_ = on_ranks(5, lambda comm: combine_checks(comm, check(comm.rank)))
    which = {"wrong_ranks": (2, 4), "wrong_elements": (2, 4)}
    assert first == CheckResult(wrong=6, first=WrongElement(2, 20, "0", "2"), seconds=1.0, **which)
    clean = on_ranks(5, lambda comm: combine_checks(comm, CheckResult(wrong=0, seconds=0.5)))
    assert clean == [CheckResult(wrong=0, seconds=0.5)] * 5


def test_the_lowest_rank_without_memory_gives_the_reason_on_all() -> None:
    def check(rank: int) -> CheckResult:
        failed = f"out of memory on rank {rank}" if rank in (1, 3) else ""
        return CheckResult(failed=failed, wrong=9, seconds=0.5)

    found = on_ranks(4, lambda comm: combine_checks(comm, check(comm.rank)))
    assert found == [CheckResult(failed="out of memory on rank 1")] * 4


def sound(*_: int) -> float:
    return 1.0


def slow_rank(*pair: int) -> float:
    return 0.5 if 3 in pair else 1.0


def search(
    asked: Plan, speed: Speed, sink: Sink, stop_after: int = -1, seed: int = 7
) -> Counter[int]:
    """How many iterations of each case were measured, until all has ended, or so many commands were
    given."""
    cases = tuple(
        case._replace(status=FINISHED) if case.index in sink.ended_before else case
        for case in asked.cases()
    )
    quick, chance = sampling.QuickSearch(pairs_header(asked), cases), Random(seed)
    scheduler = Scheduler(asked, cases, sink, 0, quick)
    measured: Counter[int] = Counter()
    commands = 0
    while commands != stop_after and (command := scheduler.next()):
        commands += 1
        if command.what == CHECK:
            scheduler.record(CheckResult(wrong=0, seconds=1e-2))
        elif command.what == MEASURE:
            measured[command.case] += command.iterations
            case = cases[command.case]
            scheduler.record(pairs_batch(asked, case, command.iterations, speed, chance))
        else:
            scheduler.record((1e-2,) * command.iterations)
    return measured


def rounds_of(asked: Plan, indices: Iterable[int]) -> set[str]:
    cases = asked.cases()
    return {cases[index].pairs.removesuffix(BACK) for index in indices}


def test_of_few_sound_ranks_every_pair_is_looked_at_once() -> None:
    asked = pairs_plan(pairs=("quick",), world_size=8)
    sink = Sink()
    measured = search(asked, sound, sink)
    assert measured == dict.fromkeys(range(len(asked.cases())), LOOK)
    assert {found.stop_reason for found in sink.ended().values()} == {LOOKED}
    assert sink.done == sorted(sink.done)


def test_the_rounds_of_suspects_are_measured_in_full() -> None:
    asked = pairs_plan(pairs=("quick",), world_size=8)
    sink = Sink()
    measured = search(asked, slow_rank, sink)
    full = {index for index, iterations in measured.items() if iterations == 10}
    assert set(measured.values()) == {LOOK, 10}
    assert 1 <= len(rounds_of(asked, full)) <= sampling.most_rounds(8) == 2
    assert {asked.cases()[index].operation for index in full} == {"stream"}
    ended = sink.ended()
    assert ended.keys() == measured.keys()
    assert {ended[index].stop_reason for index in full} == {"fixed"}
    assert all(len(found.samples_s) == measured[index] for index, found in ended.items())


def test_of_many_ranks_the_halves_and_some_rounds_are_looked_at() -> None:
    asked = pairs_plan(pairs=("quick",), world_size=40)
    measured = search(asked, sound, sink := Sink())
    assert len(rounds_of(asked, measured)) == sampling.SAMPLED_ROUNDS + 1
    assert "halves" in rounds_of(asked, measured)
    assert sink.ended().keys() == measured.keys()
    suspected = search(asked, slow_rank, Sink())
    added = len(rounds_of(asked, suspected)) - sampling.SAMPLED_ROUNDS - 1
    assert 1 <= added <= sampling.most_rounds(40) == 4
    other = search(pairs_plan(pairs=("quick",), world_size=40, seed=1), sound, Sink())
    assert rounds_of(asked, other) != rounds_of(asked, measured)


@pytest.mark.parametrize("stop_after", [3, 40, 58])
def test_a_search_that_was_cut_off_goes_on_where_it_was(stop_after: int) -> None:
    asked = pairs_plan(pairs=("quick",), world_size=8)
    first = Sink()
    before = search(asked, slow_rank, first, stop_after)
    second = Sink(cut_off=first)
    after = search(asked, slow_rank, second, seed=8)
    whole = search(asked, slow_rank, Sink())
    assert (before + after).keys() == whole.keys()
    assert first.ended().keys() | second.ended().keys() == whole.keys()
    assert not first.ended().keys() & second.ended().keys()
    # Times of ranks are recorded when a case ends, so a look that had not ended is made again.
    again = first.batches().keys() - first.ended().keys()
    for index, number in (before + after).items():
        assert number - LOOK * (index in again) in (LOOK, 10)


@pytest.mark.parametrize("rows", [150, pytest.param(2000, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("call_s", "noise", "effect"),
    [(2e-3, 0.2, 0.0), (2e-3, 0.2, 0.05), (2e-3, 0.5, 0.1), (2e-4, 0.2, 0.05), (2e-4, 0.5, 0.1)],
)
def test_an_interval_at_which_sampling_stops_covers_the_true_median(
    call_s: float, noise: float, effect: float, rows: int
) -> None:
    """Rows of 3 launches that differ by 4 %, with batches that differ by `effect`, each sampled
    until the rule ends it."""
    asked, held = plan(launches=3, budget_s=0.2, precision=0.05), 0
    chance = numpy.random.default_rng([int(call_s * 1e6), int(noise * 100), int(effect * 100)])
    for _ in range(rows):
        launches: list[list[list[float]]] = [[], [], []]
        for batches_ in launches:
            shift = 0.04 * chance.standard_normal()
            while not sampling.evaluate(asked, batches_)[0]:
                logs = noise * chance.standard_normal(int(sampling.BATCH_S / call_s))
                logs += shift + effect * chance.standard_normal()
                batches_.append((call_s * numpy.exp(logs)).tolist())
        every = [*chain.from_iterable(launches)]
        found = summarise(every, [sorted(chain.from_iterable(own)) for own in launches], 0.04)
        held += (found.low or 0.0) <= call_s <= (found.high or 0.0)
    assert held >= 0.9 * rows
