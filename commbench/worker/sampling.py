"""The rules of sampling: how many iterations a case gets, the order in which cases are measured,
and which rounds of all pairs a quick search for slow ranks and links measures.

Rank 0 follows a SampleSchedule for each case, and a CaseOrder and perhaps a QuickSearch for all of
them, and tells the other ranks what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from math import sqrt
from random import Random
from typing import NamedTuple

from commbench.analysis.statistics import median, median_ci
from commbench.answers.pairs.matrix import PairValues, find_peers, is_of_matrix
from commbench.answers.pairs.slow_parts import choose_rounds, find_suspects
from commbench.plan.case import FINISHED, READY, Case
from commbench.plan.dimensions import describe_timing
from commbench.plan.pairs import BACK, FEW_RANKS, HALVES, is_round
from commbench.plan.plan import SHUFFLED, Plan
from commbench.results.schema import PRECISION, Batch, RunHeader

MIN_ITERATIONS = 10
MIN_BATCHES = 5
MIN_ITERATIONS_SLOW = 8
MIN_ITERATIONS_OVER_BUDGET = 6
"""The fewest for which a distribution-free 95 % interval of the median exists: from the smallest to
the largest sample, with probability 1 - 2^(1-n) (Le Boudec 2010)."""
MIN_BATCHES_SLOW = 2
"""Fewest timed iterations and batches of a case: usually, where an iteration takes longer than
SLOW_S, and where that many iterations use up the budget of time. Launches share them, as they share
the budget."""
SLOW_S = 5e-3
MAX_ITERATIONS = 20_000
BATCH_S = 20e-3
"""A batch lasts about this long: long against agreeing on what comes next."""
ALIGNING_S = 0.3e-3
"""What an iteration on a device takes besides its timed part, until a batch has shown it: the
device waits for the host and aligns the ranks. On an H100 it took 0.2 to 0.4 ms. On a CPU the
alignment does not count, since it is about as long as the fastest operations."""
MIN_BATCH_ITERATIONS = 4
"""Iterations of a batch at least, where those that are needed have been measured."""
WARMUP_CALLS = 5
WARMUP_S = 50e-3
MAX_WARMUP_CALLS = 200
"""Warm-up goes on in blocks of WARMUP_CALLS until their median no longer falls, for at most that
many seconds and calls. Calls too slow for that need none but the one whose result was checked."""
STILL_FALLING = 0.95
FASTER_THAN_S = 30e-3
"""Calls faster than this get one untimed call each time their case is measured again."""
FIXED_BATCHES = 10
FIXED_ITERATIONS_PER_BATCH = 10


END, CHECK, WARM_UP, MEASURE, NUMERICS = range(5)


class Command(NamedTuple):
    """What all ranks do next."""

    what: int
    case: int = 0
    iterations: int = 0
    """Of CHECK the number of calls, each with data of its own."""
    calls: int = 1
    """Per iteration; of CHECK, in the graphs that were timed."""
    untimed: int = 0
    """Calls before the first iteration, to warm up again; nobody looks at their durations."""
    sent_ns: int = 0
    """When rank 0 sent it, by its own clock."""


class WarmUp:
    """The untimed calls before the first batch, in blocks, until their times no longer fall."""

    def __init__(self, requested: int | None, checked_s: float) -> None:
        self.estimate_s = checked_s
        """About how long one call takes; 0 while nothing was run."""
        self.least_s = checked_s
        """The shortest such estimate so far: a busy host makes calls longer, never shorter."""
        self._requested = requested
        self._calls, self._spent_s = 0, 0.0
        self.next_block = self._size_of_block() if checked_s else 1
        """Calls of the next block; 0: the warm-up is over."""
        if requested is not None:
            self.next_block = requested

    def record(self, durations: Sequence[float]) -> None:
        """Continue after the block that took these durations."""
        before, self.estimate_s = self.estimate_s, median(sorted(durations))
        self.least_s = min(self.least_s or self.estimate_s, self.estimate_s)
        if self._requested is not None:
            self.next_block = 0
            return
        if before:
            self._calls += len(durations)
            self._spent_s += sum(durations)
        is_falling = not before or self.estimate_s < STILL_FALLING * before
        self.next_block = self._size_of_block() if is_falling else 0

    def _size_of_block(self) -> int:
        if self._calls >= MAX_WARMUP_CALLS or self._spent_s >= WARMUP_S:
            return 0
        return min(WARMUP_CALLS, int((WARMUP_S - self._spent_s) / max(self.estimate_s, 1e-9)))


class SampleSchedule:
    """What one case still needs, by the rules of the plan and the limits above."""

    def __init__(
        self, plan: Plan, case: Case, checked_s: float = 0.0, before: Sequence[Batch] = ()
    ) -> None:
        """`checked_s` is how long the call took whose result was checked, 0 if there was none.
        Batches that were made `before`, in a launch that is resumed, count."""
        self.stop_reason = ""
        """Why it stopped: `fixed` (as many iterations as requested), `precision`, `budget` (of
        time) or `cap` (of iterations); empty while it goes on."""
        self.progress = 0.0
        """Which part of what the case needs has been measured, 0 to 1."""
        self._plan, self._timing = plan, describe_timing(case.timing)
        self._batches: list[Sequence[float]] = [batch.samples_s for batch in before]
        self._case, self._parts = case.index, case.parts
        self._calls = before[0].calls // self._parts if before else 0
        self._warm_up = WarmUp(plan.warmup, checked_s)
        self._median_s = 0.0
        self._is_on_device = plan.device != "cpu"
        self._aligning_s = ALIGNING_S if self._is_on_device else 0.0
        """What an iteration takes besides its timed part."""
        self._untimed = 0
        """Of the next batch: fast calls notice that other cases were measured since the last."""
        if before:
            self._learn_aligning(before[-1])
            self._evaluate_batches()

    def next(self) -> Command | None:
        """What all ranks do next; None: the case has all it needs."""
        if self.stop_reason:
            return None
        is_fixed = self._plan.warmup is not None and self._plan.iterations is not None
        if self._warm_up.next_block and is_fixed and self._timing.most_calls == 1:
            # Nothing depends on the times of these calls, so that the first batch may begin with
            # them: one command instead of two, which many ranks take long to agree on.
            self._untimed, self._warm_up.next_block = self._warm_up.next_block, 0
        if self._warm_up.next_block:
            return Command(WARM_UP, self._case, self._warm_up.next_block)
        if not self._calls:
            # Once for all batches: later ones have as many calls.
            self._calls = self._timing.calls_per_iteration(self._warm_up.least_s)
        return Command(MEASURE, self._case, self._next_iterations(), self._calls, self._untimed)

    def record(self, result: Sequence[float] | Batch) -> None:
        """Continue after a request: after a batch, or after untimed calls that took so many seconds
        on the slowest rank."""
        if not isinstance(result, Batch):
            self._warm_up.record(result)
            return
        self._untimed = int(self._estimate_s < FASTER_THAN_S and self._plan.warmup != 0)
        self._batches.append(result.samples_s)
        self._learn_aligning(result)
        self._evaluate_batches()

    def _learn_aligning(self, batch: Batch) -> None:
        if self._is_on_device and batch.elapsed_s:
            timed_s = sum(batch.samples_s) * batch.calls
            self._aligning_s = max(0.0, batch.elapsed_s - timed_s) / len(batch.samples_s)

    @property
    def _estimate_s(self) -> float:
        """About how long one call takes."""
        return self._median_s if self._batches else self._warm_up.estimate_s

    def _evaluate_batches(self) -> None:
        self._median_s = median(sorted(chain.from_iterable(self._batches))) * self._parts
        parts = self._calls * self._parts
        found = evaluate(self._plan, self._batches, parts, self._aligning_s)
        self.stop_reason, self.progress = found

    def _next_iterations(self) -> int:
        done, requested = sum(map(len, self._batches)), self._plan.iterations
        if requested is not None:
            batches = max(2, min(FIXED_BATCHES, requested // FIXED_ITERATIONS_PER_BATCH))
            return min(-(-requested // batches), requested - done)
        iteration_s = self._estimate_s * self._calls
        whole_s = iteration_s + self._aligning_s
        fitting = int(min(MAX_ITERATIONS, BATCH_S / whole_s)) if whole_s else MAX_ITERATIONS
        iterations, batches = _fewest(self._plan, iteration_s)
        missing = -(-(iterations - done) // max(1, batches - len(self._batches)))
        least = missing if missing > 0 else MIN_BATCH_ITERATIONS
        return max(least, min(fitting, MAX_ITERATIONS // MIN_BATCHES))


def evaluate(
    plan: Plan, batches: Sequence[Sequence[float]], calls: int = 1, aligning_s: float = 0.0
) -> tuple[str, float]:
    """Why these samples, one sequence a batch, are enough, empty when they are not; and which part
    of the most that they may become has been measured, 0 to 1. `aligning_s` is what an iteration
    takes besides its timed part, where that counts."""
    number = sum(map(len, batches))
    if plan.iterations is not None:
        return "fixed" if number >= plan.iterations else "", number / plan.iterations
    if not number:
        return "", 0.0
    ordered = sorted(chain.from_iterable(batches))
    middle, spent_s = median(ordered), sum(ordered) * calls + number * aligning_s
    fewest, fewest_batches = _fewest(plan, middle * calls)
    most = max(spent_s / plan.budget_s * plan.launches, number / MAX_ITERATIONS)
    progress = min(1.0, number / fewest, len(batches) / fewest_batches, most)
    if number < fewest or len(batches) < fewest_batches:
        return "", progress
    low, high = median_ci(batches)
    wanted = plan.precision * sqrt(plan.launches)  # that of all launches is narrower by the root
    if low is not None and high is not None and high - low <= 2 * wanted * middle:
        return PRECISION, progress
    if spent_s >= plan.budget_s / plan.launches:
        return "budget", progress
    return "cap" if number >= MAX_ITERATIONS else "", progress


def _fewest(plan: Plan, iteration_s: float) -> tuple[int, int]:
    """The fewest iterations and batches, in one launch, of a case whose iterations take this
    long."""
    if iteration_s <= SLOW_S:
        iterations, batches = MIN_ITERATIONS, MIN_BATCHES
    elif iteration_s * MIN_ITERATIONS_OVER_BUDGET >= plan.budget_s:
        iterations, batches = MIN_ITERATIONS_OVER_BUDGET, MIN_BATCHES_SLOW
    else:
        iterations, batches = MIN_ITERATIONS_SLOW, MIN_BATCHES_SLOW
    return -(-iterations // plan.launches), -(-batches // plan.launches)


MAX_LEAD = 0.1
"""How much further than the last case others may be in a round. Most cases need ten batches."""


class CaseOrder:
    """Which case is measured next.

    `shuffled`: rounds, each in a random order of its own that follows from the seed. Cases that
    need few batches are left out of some rounds, so that theirs are spread over the run like those
    of the others. `ascending`: one case until it is finished.
    """

    def __init__(self, order: str, seed: int) -> None:
        self._is_shuffled = order == SHUFFLED
        self._random = Random(seed)
        self._round: list[int] = []

    def next(self, unfinished: Collection[int], progress: Callable[[int], float]) -> int | None:
        """The case to measure next; None where none is unfinished. `progress` gives the part of
        what a case needs has been measured."""
        if not self._is_shuffled:
            return min(unfinished, default=None)
        while unfinished:
            if not self._round:
                last = min(map(progress, unfinished))
                self._round = [c for c in sorted(unfinished) if progress(c) < last + MAX_LEAD]
                self._random.shuffle(self._round)
            if (case := self._round.pop(0)) in unfinished:
                return case
        return None


SAMPLED_ROUNDS = 5
LOOK_ITERATIONS = 3
"""Iterations of a case in the first look."""


def most_rounds(ranks: int) -> int:
    """How many rounds are measured in full, for each kind of call. Of few ranks the first look has
    every pair, and all rounds in full are not many."""
    return 2 if ranks <= FEW_RANKS else 4


class QuickSearch:
    """Chooses the cases that rank 0 has measured, in a plan with pairs QUICK."""

    def __init__(self, header: RunHeader, cases: Sequence[Case]) -> None:
        self._header, self._seed = header, header.plan.seed
        self._cases = [c for c in cases if is_of_matrix(c) and c.status in (READY, FINISHED)]
        ranks = max((case.ranks for case in self._cases), default=0)
        rounds = list(dict.fromkeys(map(_round_of, self._cases)))
        first = set(rounds)
        if ranks > FEW_RANKS:
            others = sorted(name for name in rounds if is_round(name))
            first = {HALVES, *Random(self._seed).sample(others, min(SAMPLED_ROUNDS, len(others)))}
        self.looks = {case.index for case in self._cases if _round_of(case) in first}
        """The indices of the cases of the first look."""
        self.others = {case.index for case in self._cases} - self.looks
        """The indices of the cases that are measured only if they are chosen."""
        kinds_and_ways = {(_kind_of(c), c.pairs.endswith(BACK)) for c in self._cases}
        self._most_rounds = most_rounds(ranks)
        self.most_chosen = self._most_rounds * len(kinds_and_ways)
        self._values: dict[str, PairValues] = {}

    def record(self, case: Case, *batches: Batch) -> None:
        """Take the batches of a case."""
        if is_of_matrix(case):
            kind = _kind_of(case)
            values = self._values.setdefault(kind, PairValues(self._header, case))
            values.add(case, [(b.rank_medians_s, len(b.samples_s)) for b in batches])

    def choose(self) -> set[int]:
        """The indices of the cases that are measured in full after the first look; empty where no
        rank looks slow."""
        chosen: set[int] = set()
        for kind, values in self._values.items():
            if suspects := find_suspects(values.matrix()):
                cases = [case for case in self._cases if _kind_of(case) == kind]
                there = [case for case in cases if not case.pairs.endswith(BACK)]
                peers = {c.pairs: find_peers(self._header.plan, c, suspects) for c in there}
                # The rounds that say most about the suspects, both directions of each.
                best = choose_rounds(suspects, peers, self._most_rounds, self._seed)
                chosen |= {case.index for case in cases if _round_of(case) in best}
        return chosen


def _round_of(case: Case) -> str:
    return case.pairs.removesuffix(BACK)


def _kind_of(case: Case) -> str:
    return f"{case.title_without('pairs')} {case.size_bytes}"
