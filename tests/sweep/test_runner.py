"""The rounds of a sweep: their statuses merge to the worst, and every journal is read once."""

from pathlib import Path

import pytest
from synthetic_sweep import synthetic_sweep

from commbench.errors import WrongResultError
from commbench.results.schema import FAILED, OK, WRONG
from commbench.sweep import runner
from commbench.sweep.ranking import rank_settings
from commbench.sweep.result import SweepResult, load_sweep, require_correct


def result_of(
    folder: Path, statuses: dict[tuple[int, int], dict[int, str]], rounds: int = 3
) -> SweepResult:
    """The result of a made-up sweep; `statuses` by setting and round, then by size."""
    synthetic_sweep(
        folder, lambda setting, _: 1.0 + setting, ["A=1,2"], [], rounds=rounds, statuses=statuses
    )
    return load_sweep(folder)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_case_that_is_wrong_in_any_round_is_wrong_and_never_ranked(
    tmp_path: Path, number: int
) -> None:
    result = result_of(tmp_path, {(0, number): {1 << 14: WRONG}})
    assert result.settings[0].run and result.settings[1].run
    assert [m.status for m in result.settings[0].run.measurements] == [OK, WRONG, OK, OK]
    assert [m.status for m in result.settings[1].run.measurements] == [OK] * 4
    points = result.points
    assert [p.size_bytes for p in points if p.is_compared] == [
        1 << 10,
        1 << 18,
        1 << 20,
    ]
    assert rank_settings(points)[0].won == 3
    with pytest.raises(WrongResultError, match=r"under A=1 all_reduce.*16.* is wrong"):
        require_correct(result)


def test_a_case_that_failed_in_a_later_round_is_not_ranked_and_is_named(tmp_path: Path) -> None:
    result = result_of(tmp_path, {(1, 3): {1 << 20: FAILED}})
    assert result.settings[1].run
    assert [m.status for m in result.settings[1].run.measurements] == [OK, OK, OK, FAILED]
    points = result.points
    assert [p.size_bytes for p in points if p.is_compared] == [
        1 << 10,
        1 << 14,
        1 << 18,
    ]
    require_correct(result)
    assert [*result.failures] == ["A=2"]
    assert result.failures["A=2"].startswith("all_reduce")


def test_wrong_is_worse_than_failed_whichever_came_first(tmp_path: Path) -> None:
    rounds = {
        (0, 1): {1 << 10: FAILED, 1 << 14: WRONG},
        (0, 2): {1 << 10: WRONG, 1 << 14: FAILED},
    }
    result = result_of(tmp_path, rounds, rounds=2)
    assert result.settings[0].run
    assert [m.status for m in result.settings[0].run.measurements] == [WRONG, WRONG, OK, OK]


def test_batches_of_all_rounds_are_launches_of_one_run(tmp_path: Path) -> None:
    run = result_of(tmp_path, {}).settings[1].run
    assert run and run.name == "A=2"
    for measurement in run.measurements:
        assert [batch.launch for batch in measurement.batches] == [0] * 3 + [1] * 3 + [2] * 3


def test_a_round_that_is_missing_leaves_the_others_their_numbers(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, missing={(0, 2)})
    first, second = load_sweep(tmp_path).settings
    assert (first.rounds, second.rounds) == (2, 3)
    assert first.run and second.run
    launches = [{b.launch for b in each.run.measurements[0].batches} for each in (first, second)
                if each.run]  # fmt: skip
    assert launches == [{0, 2}, {0, 1, 2}]


def test_every_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_sweep(tmp_path)
    read: list[Path] = []
    read_run = runner.read_run
    monkeypatch.setattr(runner, "read_run", lambda path: (read.append(path), read_run(path))[1])
    load_sweep(tmp_path)
    assert len(read) == len(set(read)) == 6


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("rank 0 could not join a gloo group: [enforce fail at /__w/pytorch/pytorch/third_party/"
         "gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth7",
         "rank 0 could not join a gloo group: Unable to find address for: eth7"),
        ("[../torch/csrc/distributed/c10d/Socket.cpp:12] it failed", "it failed"),
        ("[enforce fail at /a/b.cc:8] ifa != nullptr.", "ifa != nullptr."),
        ("rank 1 was killed by SIGKILL", "rank 1 was killed by SIGKILL"),
    ],
)  # fmt: skip
def test_a_reason_is_shown_without_places_in_sources(message: str, plain: str) -> None:
    assert runner.plain_reason(message) == plain
