"""What rank 0 decides in a soak, driven with durations, results and a clock that are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from synthetic_rows import plan

from commbench.plan.case import Case
from commbench.results.records import Check, WrongElement
from commbench.results.schema import Batch, Measurement, RunHeader
from commbench.worker import soak
from commbench.worker.recorder import RunCollector
from commbench.worker.sampling import CHECK, MEASURE
from commbench.worker.soak import SOAK_ITERATIONS, SoakScheduler
from commbench.worker.verify import CheckResult

OVERHEAD_S = 1e-3


class Sink(RunCollector):
    def __init__(self, before: dict[int, int], soaked_s: float) -> None:
        super().__init__(RunHeader(plan(), "made-up", "", "local"))
        self._before, self.soaked_s = before, soaked_s
        self.batches: list[tuple[int, Batch]] = []
        self.checks: list[Check] = []
        self.ended: list[Measurement] = []
        self.done: list[float] = []

    def batches_before(self, case: Case) -> tuple[Batch, ...]:
        last = self._before.get(case.index, 0)
        return tuple(Batch((1e-3,), cycle=n) for n in range(1, last + 1))

    def batch_done(self, case: Case, batch: Batch) -> None:
        self.batches.append((case.index, batch))

    def checked(self, check: Check) -> None:
        self.checks.append(check)

    def finished(self, measurement: Measurement) -> None:
        self.ended.append(measurement)

    def advanced(self, done: float) -> None:
        self.done.append(done)


def drive(
    monkeypatch: pytest.MonkeyPatch, call_s: Callable[[int], float] = lambda _case: 1e-3,
    check_s: Callable[[int], float] = lambda _case: 2e-3,
    is_wrong: Callable[[int], bool] = lambda _check: False,
    before: dict[int, int] | None = None, soaked_s: float = 0.0, **wishes: Any,
) -> Sink:  # fmt: skip
    """Do what the scheduler says until it is over."""
    now = [1000.0]
    monkeypatch.setattr(soak.time, "monotonic", lambda: now[0])
    asked = plan(**({"sizes": (1024, 4096, 1 << 20)} | wishes))
    sink = Sink(before or {}, soaked_s)
    scheduler = SoakScheduler(asked, asked.cases(), sink, 0)
    checked: Counter[int] = Counter()
    while command := scheduler.next():
        case, number = command.case, command.iterations
        now[0] += OVERHEAD_S
        if command.what == CHECK:
            spent = number * check_s(case)
            now[0] += spent
            wrong = [n for n in range(checked[case], checked[case] + number) if is_wrong(n)]
            checked[case] += number
            found = CheckResult(wrong=len(wrong), seconds=call_s(case))
            if wrong:
                first = WrongElement(1, 0, "0", "1")
                found = found._replace(first=first, wrong_ranks=(1,), wrong_elements=(len(wrong),))
            scheduler.record(found._replace(calls=number, elapsed_s=spent))
            continue
        now[0] += (command.untimed + number * command.calls) * call_s(case)
        samples = (call_s(case),) * number
        is_timed = command.what == MEASURE
        scheduler.record(Batch(samples, elapsed_s=number * call_s(case)) if is_timed else samples)
    return sink


def test_cycles_have_every_case_once_in_changing_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = drive(monkeypatch, cycles=30)
    by_cycle: dict[int, list[int]] = {}
    for case, batch in sink.batches:
        by_cycle.setdefault(batch.cycle, []).append(case)
    assert [*by_cycle] == list(range(1, 31))
    assert all(sorted(cases) == [0, 1, 2] for cases in by_cycle.values())
    assert len({*map(tuple, by_cycle.values())}) > 3
    assert [m.stop_reason for m in sink.ended] == ["cycles"] * 3
    assert sink.done == sorted(sink.done) and sink.done[-1] <= 1


@pytest.mark.parametrize("check_s", [1e-4, 2e-3, 0.05, 0.7])
@pytest.mark.parametrize("share", [None, 0.05, 0.6])
def test_checks_take_their_part_of_the_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch, share: float | None, check_s: float
) -> None:
    sink = drive(monkeypatch, check_s=lambda _: check_s, soak_s=150.0, check_share=share)
    elapsed_s = max(check.start_s + check.elapsed_s for check in sink.checks)
    found, wanted = sum(check.elapsed_s for check in sink.checks) / elapsed_s, share or 0.2
    assert found <= wanted + 3 * max(check_s, OVERHEAD_S) / elapsed_s
    assert found > 0.9 * wanted


def test_a_soak_ends_with_its_time_and_after_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = drive(monkeypatch, soak_s=60.0)
    assert 59.8 < max(batch.start_s or 0 for _, batch in sink.batches) < 60
    assert {m.stop_reason for m in sink.ended} == {"time"}
    slow = drive(monkeypatch, call_s=lambda _: 2.0, soak_s=1.0)
    assert sorted(case for case, _ in slow.batches) == [0, 1, 2]


def test_batches_are_as_long_as_the_soak_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for soak_s, batch_s in ((60.0, 20e-3), (3600.0, 100e-3), (7200.0, 100e-3)):
        assert soak.batch_s(plan(soak_s=soak_s)) == pytest.approx(batch_s)
    sink = drive(monkeypatch, call_s=lambda case: (1e-5, 1e-3, 0.3)[case], soak_s=60.0)
    timed = {case: len(batch.samples_s) for case, batch in sink.batches}
    assert timed == {0: SOAK_ITERATIONS, 1: pytest.approx(20, abs=1), 2: 4}
    last = {case: batch.warmup for case, batch in sink.batches}
    assert last[0] == pytest.approx(20e-3 / 1e-5 - SOAK_ITERATIONS, abs=1)


def test_wrong_results_are_counted_and_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = drive(monkeypatch, is_wrong=lambda check: check % 10 == 3, cycles=40)
    assert len(sink.batches) == 120
    assert sum(bool(check.wrong_ranks) for check in sink.checks) > 10
    by_case = Counter[int]()
    for check in sink.checks:
        by_case[check.case] += sum(check.wrong_elements)
    assert {m.case.index: m.wrong for m in sink.ended} == by_case
    assert {m.status for m in sink.ended} == {"wrong"}


def test_a_resumed_soak_ends_the_cycle_that_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = drive(monkeypatch, before={0: 5, 1: 4, 2: 5}, soaked_s=50.0, soak_s=60.0)
    assert next((case, batch.cycle) for case, batch in sink.batches) == (1, 5)
    assert sorted(case for case, batch in sink.batches if batch.cycle == 6) == [0, 1, 2]
    starts = [batch.start_s or 0 for _, batch in sink.batches]
    assert min(starts) >= 50 and max(starts) < 60


def test_without_checks_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = drive(monkeypatch, cycles=5, check=False)
    assert not sink.checks and len(sink.batches) == 15
