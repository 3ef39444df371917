"""The rounds of a sweep: their statuses merge to the worst, and every journal is read once."""

from pathlib import Path

import pytest
from synthetic import steady, synthetic_run

from commbench.errors import WrongResultError
from commbench.results.schema import FAILED, OK, WRONG
from commbench.sweep import runner, session
from commbench.sweep.ranking import make_points, rank_settings
from commbench.sweep.runner import SettingResult, Sweep, make_results, read_rounds
from commbench.sweep.settings import Setting
from commbench.sweep.text import sweep_text

FAST, SLOW = Setting((("A", "1"),)), Setting((("A", "2"),))
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20)


def results_of(
    folder: Path, statuses: dict[tuple[Setting, int], dict[int, str]], rounds: int = 3
) -> tuple[SettingResult, ...]:
    """The results of a synthetic sweep; `statuses` by setting and round, then by size."""
    sweep = Sweep((FAST, SLOW), ((), ()), ((), ()), rounds, 0, "")
    for setting, scale in ((FAST, 1e-9), (SLOW, 2e-9)):
        for number in range(1, rounds + 1):
            synthetic_run(
                folder / setting.slug / f"round-{number}", "r",
                lambda case, s=scale: steady(case.size_bytes * s + 1e-5),
                statuses=statuses.get((setting, number)),
            )  # fmt: skip
    return make_results(sweep, folder, read_rounds(sweep, folder))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_case_that_is_wrong_in_any_round_is_wrong_and_never_ranked(
    tmp_path: Path, number: int
) -> None:
    results = results_of(tmp_path, {(FAST, number): {1 << 14: WRONG}})
    assert results[0].run and results[1].run
    assert [m.status for m in results[0].run.measurements] == [OK, WRONG, OK, OK]
    assert [m.status for m in results[1].run.measurements] == [OK] * 4
    points = make_points(results, 0.05)
    assert [p.size_bytes for p in points if p.is_compared] == [
        1 << 10,
        1 << 18,
        1 << 20,
    ]
    assert rank_settings(points)[0].won == 3
    with pytest.raises(WrongResultError, match=r"under A=1 all_reduce.*16.* is wrong"):
        session._require_correct(results)


def test_a_case_that_failed_in_a_later_round_is_not_ranked_and_is_named(tmp_path: Path) -> None:
    results = results_of(tmp_path, {(SLOW, 3): {1 << 20: FAILED}})
    assert results[1].run
    assert [m.status for m in results[1].run.measurements] == [OK, OK, OK, FAILED]
    points = make_points(results, 0.05)
    assert [p.size_bytes for p in points if p.is_compared] == [
        1 << 10,
        1 << 14,
        1 << 18,
    ]
    session._require_correct(results)
    text = sweep_text(results, points, 0.05)
    assert "Not measured, or not in every round:\n  A=2: all_reduce" in text


def test_wrong_is_worse_than_failed_whichever_came_first(tmp_path: Path) -> None:
    rounds = {
        (FAST, 1): {1 << 10: FAILED, 1 << 14: WRONG},
        (FAST, 2): {1 << 10: WRONG, 1 << 14: FAILED},
    }
    results = results_of(tmp_path, rounds, rounds=2)
    assert results[0].run
    assert [m.status for m in results[0].run.measurements] == [WRONG, WRONG, OK, OK]


def test_batches_of_all_rounds_are_launches_of_one_run(tmp_path: Path) -> None:
    run = results_of(tmp_path, {})[1].run
    assert run and run.name == "A=2"
    for measurement in run.measurements:
        assert [batch.launch for batch in measurement.batches] == [0] * 10 + [1] * 10 + [2] * 10


def test_every_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results_of(tmp_path, {})
    runner.write_sweep(tmp_path, Sweep((FAST, SLOW), ((), ()), ((), ()), 3, 0, ""))
    read: list[Path] = []
    read_run = runner.read_run
    monkeypatch.setattr(runner, "read_run", lambda path: (read.append(path), read_run(path))[1])
    session.show(tmp_path)
    assert len(read) == len(set(read)) == 6
