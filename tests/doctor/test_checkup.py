"""The course of a check: the order of launches, what ends it, and what is kept then."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from synthetic_hosts import SOUND, ceilings, checkup, trials

from commbench.doctor import checkup as course
from commbench.doctor import mode_trials as modes
from commbench.doctor.checkup import examine
from commbench.doctor.mode_trials import MODES, SIZES, Trial, order_trials, try_modes
from commbench.doctor.report import DoctorOptions
from commbench.errors import Interrupted, RankError, UnavailableError, UsageError
from commbench.spec.plan import CPU_MODES, Plan


def test_each_round_measures_each_mode_once_and_the_first_begins_with_plain() -> None:
    order = order_trials(rounds=4, seed=0)
    assert order[0] == (0, "plain")
    assert Counter(order) == Counter((number, mode) for number in range(4) for mode in CPU_MODES)
    rounds = [[mode for n, mode in order if n == number] for number in range(4)]
    assert len({tuple(modes) for modes in rounds}) > 1
    assert order_trials(4, 0) == order != order_trials(4, 1)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Plans that would have been launched; realtime is refused."""
    found: list[Plan] = []

    def launch(what: Plan) -> tuple[Any, ...]:
        found.append(what)
        if what.cpu_mode == "realtime":
            raise UnavailableError("this user may not", "use another")
        return trials({what.cpu_mode: (1e-6,)})[0].points

    monkeypatch.setattr(modes, "_launch", launch)
    return found


def test_a_mode_that_is_refused_is_not_tried_again(launched: list[Plan]) -> None:
    said: list[str] = []
    found = list(try_modes(2, 3, 0, time.monotonic() + 60, said.append))
    assert Counter(trial.mode for trial in found) == {
        "plain": 3, "quiet": 3, "batch": 3, "pinned": 3, "realtime": 1,
    }  # fmt: skip
    assert [trial.mode for trial in found if trial.trouble] == ["realtime"]
    assert said[0] == "[1/15] round 1 of 3, plain"
    assert {plan.sizes for plan in launched} == {SIZES}
    assert len({plan.budget_s for plan in launched}) == 1


def test_where_the_time_is_up_there_is_one_launch_all_the_same(launched: list[Plan]) -> None:
    found = list(try_modes(2, 3, 0, time.monotonic() - 1, lambda _: None))
    assert [trial.mode for trial in found] == ["plain"] == [plan.cpu_mode for plan in launched]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "read_facts", lambda: SOUND)
    monkeypatch.setattr(course, "measure_host_bandwidth", lambda *_: ceilings())


REQUEST = DoctorOptions(ranks=2, rounds=1, seconds=30.0)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted("stopped by SIGINT", "", 2)])
@pytest.mark.usefixtures("quick")
def test_an_interrupted_check_keeps_what_it_knows(
    monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    def trials_until_stopped(*_: Any) -> Any:
        yield trials({"plain": (1e-6,)})[0]
        raise stop

    monkeypatch.setattr(course, "try_modes", trials_until_stopped)
    found = examine(REQUEST, time.monotonic(), lambda _: None)
    assert found.facts == SOUND and found.ceilings and len(found.trials) == 1
    assert found.findings == ()
    assert isinstance(found.trouble, Interrupted)
    assert (found.trouble.message, found.trouble.exit_code) == ("stopped by SIGINT", 130)


@pytest.mark.usefixtures("quick")
def test_a_torch_without_gloo_ends_the_check_after_what_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from commbench.launch import devices as places

    empty = places.Capabilities(backends=(), devices={"cpu": 1})
    monkeypatch.setattr(places, "detect_capabilities", lambda: empty)
    found = examine(REQUEST, time.monotonic(), lambda _: None)
    assert found.ceilings and not found.trials
    assert isinstance(found.trouble, UnavailableError)


REFUSED = UnavailableError("this user may not", "")
DIED = RankError("rank 1 was killed by SIGKILL", "")
GOOD = trials({"plain": (1e-6,)})[0]


@pytest.mark.parametrize(
    ("tried", "trouble"),
    [
        ((), None),
        ((GOOD, Trial(0, "realtime", trouble=REFUSED)), None),
        ((Trial(0, "realtime", trouble=REFUSED),), REFUSED),
        ((GOOD, Trial(0, "realtime", trouble=REFUSED), Trial(0, "batch", trouble=DIED)), DIED),
    ],
)
def test_a_refused_mode_is_no_trouble_but_a_dead_rank_is(
    tried: tuple[Trial, ...], trouble: object
) -> None:
    assert checkup(trials=tried).trouble is trouble


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"ranks": 1}, "--nproc-per-node is 1"),
        ({"rounds": 0}, "--rounds is 0"),
        ({"seconds": 0.0}, "--seconds 0 is not between 0 and 86400, a day"),
        ({"seconds": float("nan")}, "--seconds nan is not between 0 and 86400, a day"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        DoctorOptions(**{"ranks": 2, "rounds": 1, "seconds": 30.0} | wish)
    assert refused.value.message == message and refused.value.hint


def test_every_mode_of_the_plan_is_tried() -> None:
    assert sorted(MODES) == sorted(CPU_MODES)
