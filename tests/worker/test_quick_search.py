"""Which rounds a quick search measures: driven with made-up times of pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from synthetic_pairs import Speed, pairs_batch, pairs_header, pairs_plan

from commbench.results.schema import Batch, Measurement
from commbench.spec.case import FINISHED, Case
from commbench.spec.pairs import BACK
from commbench.spec.plan import Plan
from commbench.worker.quick_search import (
    LOOK_ITERATIONS,
    SAMPLED_ROUNDS,
    make_quick_search,
    most_rounds,
)
from commbench.worker.recorder import RunCollector
from commbench.worker.scheduler import CHECK, LOOKED, MEASURE, Scheduler
from commbench.worker.verify import CheckResult


def sound(_first: int, _second: int) -> float:
    return 1.0


def slow_rank(first: int, second: int) -> float:
    return 0.5 if 3 in (first, second) else 1.0


def slow_way(first: int, second: int) -> float:
    return 0.5 if (first, second) == (5, 2) else 1.0


class Sink(RunCollector):
    """Keeps what is recorded, after a launch that was cut off."""

    def __init__(self, before: Sink | None = None) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nobody asks for the run
        self.before = before.batches() if before else {}
        self.ended_before = set(before.ended()) if before else set()
        self.done: list[float] = []

    def advanced(self, done: float) -> None:
        self.done.append(done)

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        return self.before.get(case.index, ())

    def batches(self) -> dict[int, tuple[Batch, ...]]:
        """The batches of each case, also of those that have not ended."""
        return {index: found.batches for index, found in self.ended().items()} | {
            index: tuple(batches) for index, batches in self._batches.items()
        }

    def ended(self) -> dict[int, Measurement]:
        return {found.case.index: found for found in self._measurements}


def search(
    asked: Plan, speed: Speed, sink: Sink, stop_after: int = -1, seed: int = 7
) -> Counter[int]:
    """How many iterations of each case were measured, until all has ended, or so many commands were
    given."""
    cases = tuple(
        case._replace(status=FINISHED) if case.index in sink.ended_before else case
        for case in asked.cases()
    )
    quick, chance = make_quick_search(pairs_header(asked), cases), Random(seed)
    assert quick
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
    assert measured == dict.fromkeys(range(len(asked.cases())), LOOK_ITERATIONS)
    assert {found.stop_reason for found in sink.ended().values()} == {LOOKED}
    assert sink.done == sorted(sink.done)


@pytest.mark.parametrize("speed", [slow_rank, slow_way])
def test_the_rounds_of_suspects_are_measured_in_full(speed: Speed) -> None:
    asked = pairs_plan(pairs=("quick",), world_size=8)
    sink = Sink()
    measured = search(asked, speed, sink)
    full = {index for index, iterations in measured.items() if iterations == 10}
    assert set(measured.values()) == {LOOK_ITERATIONS, 10}
    assert 1 <= len(rounds_of(asked, full)) <= most_rounds(8) == 2
    assert {asked.cases()[index].operation for index in full} == {"stream"}
    if speed is slow_way:
        assert f"round:{(5 + 2) % 7}" in rounds_of(asked, full)
    ended = sink.ended()
    assert ended.keys() == measured.keys()
    assert {ended[index].stop_reason for index in full} == {"fixed"}
    assert all(len(found.samples_s) == measured[index] for index, found in ended.items())


def test_of_many_ranks_the_halves_and_some_rounds_are_looked_at() -> None:
    asked = pairs_plan(pairs=("quick",), world_size=40)
    measured = search(asked, sound, sink := Sink())
    assert len(rounds_of(asked, measured)) == SAMPLED_ROUNDS + 1
    assert "halves" in rounds_of(asked, measured)
    assert sink.ended().keys() == measured.keys()
    suspected = search(asked, slow_rank, Sink())
    added = len(rounds_of(asked, suspected)) - SAMPLED_ROUNDS - 1
    assert 1 <= added <= most_rounds(40) == 4
    other = search(pairs_plan(pairs=("quick",), world_size=40, seed=1), sound, Sink())
    assert rounds_of(asked, other) != rounds_of(asked, measured)


@pytest.mark.parametrize("stop_after", [3, 40, 58])
def test_a_search_that_was_cut_off_goes_on_where_it_was(stop_after: int) -> None:
    asked = pairs_plan(pairs=("quick",), world_size=8)
    first = Sink()
    before = search(asked, slow_way, first, stop_after)
    second = Sink(first)
    after = search(asked, slow_way, second, seed=8)
    whole = search(asked, slow_way, Sink())
    assert (before + after).keys() == whole.keys()
    assert first.ended().keys() | second.ended().keys() == whole.keys()
    assert not first.ended().keys() & second.ended().keys()
    assert all(number in (LOOK_ITERATIONS, 10) for number in (before + after).values())


def test_a_plan_without_a_quick_search_has_none() -> None:
    asked = pairs_plan()
    assert make_quick_search(pairs_header(asked), asked.cases()) is None
