"""The file of a history: what is acknowledged stays, half a run never appears, and what is no
history is refused in two lines."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from history_writer import BEGIN, CASES, made_run
from test_write_faults import file_size

import commbench
from commbench.answers.history.store import (
    ADDED,
    APPLICATION,
    KNOWN,
    REPLACED,
    SCHEMA,
    History,
    open_history,
)
from commbench.api import history as api
from commbench.errors import RecordsError, UsageError
from commbench.results.schema import RunEnd

WRITERS = 8


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.fixture
def history(db: Path) -> Iterator[History]:
    with History(db, is_written=True) as made:
        yield made


def test_a_run_is_added_once_and_replaced_when_it_has_more_launches(history: History) -> None:
    assert history.add(made_run(0))[1:] == (CASES, ADDED, 0)
    assert history.add(made_run(0))[1:] == (CASES, KNOWN, 0)
    assert history.add(made_run(0, factor=1.01))[1:] == (CASES, REPLACED, 0)
    assert history.add(made_run(1))[1:] == (CASES, ADDED, 0)
    assert [run.label for run in history.runs()] == ["made-up"] * 2
    found = [*history.series(lambda _, case: case.size_bytes == 2048)]
    assert [len(series.points) for series in found] == [2]
    assert found[0].points[0].time.value == pytest.approx(2.02e-3)


def test_series_are_chosen_by_operation_size_and_node(db: Path, history: History) -> None:
    history.add(made_run(0))
    history.add(made_run(1), node="cluster")
    assert len([*history.series()]) == 2 * CASES
    assert len(api.show(op="all_reduce", node="cluster", db=db).series) == CASES
    with pytest.raises(UsageError, match="no row of"):
        api.show(op="broadcast", db=db)
    for size in ("1K", 1024, [1024], ["1K", 4 << 20]):
        found = api.show(size=size, db=db).series
        assert [each.case.size_bytes for each in found] == [1024, 1024], size
        assert api.export(size=size, db=db).count("\n") == 3
    with pytest.raises(UsageError, match=r"1\.5"):
        api.show(size=1.5, db=db)  # type: ignore[arg-type]


def test_forgetting_removes_all_that_only_these_runs_have(history: History) -> None:
    history.add(made_run(0))
    history.add(made_run(1), node="cluster")
    history.forget(history.runs("cluster"))
    assert [run.system.node for run in history.runs()] == ["node1"]
    assert len([*history.series()]) == CASES
    history.forget(history.runs())
    assert not history.runs() and not [*history.series()] and not history.environments()


def test_runs_without_an_end_or_a_host_or_a_valid_row_are_refused_and_make_no_file(
    history: History,
) -> None:
    run = made_run(0)
    rows = [row._replace(status="failed") for row in run.rows]
    for refused, problem in (
        (run._replace(run=None, end=RunEnd("interrupted")), "is incomplete: it was interrupted"),
        (run._replace(header=None), "does not say on which host"),
        (run._replace(rows=rows), "no valid row"),
    ):
        with pytest.raises(UsageError, match=problem):
            history.add(refused)
    with pytest.raises(RecordsError, match="there is no file, folder or run"):
        commbench.history.add("nosuch", db=history.path)
    assert not list(history.path.parent.iterdir())
    assert history.add(run._replace(header=None), node="a").outcome == ADDED
    assert history.add(run._replace(rows=[run.rows[0], *rows[1:]])).rows == 1


def test_runs_are_ordered_by_their_start_and_a_start_in_the_future_by_its_adding(
    history: History,
) -> None:
    now = BEGIN + timedelta(days=10)
    for number in (2, 0, 1, 400):
        history.add(made_run(number), now=now)
    runs = history.runs()
    assert [run.started[:10] for run in runs] == [
        "2026-09-01", "2026-09-02", "2026-09-03", "2027-10-06",
    ]  # fmt: skip
    assert [run.placed != run.started for run in runs] == [False] * 3 + [True]
    assert runs[-1].time == now


def test_other_files_are_refused_and_not_changed(tmp_path: Path) -> None:
    names = ("other", "older", "newer", "text", "empty")
    other, older, newer, text, empty = map(tmp_path.joinpath, names)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE run (id INTEGER)")
    for path, schema in ((older, SCHEMA - 1), (newer, SCHEMA + 1)):
        with History(path, is_written=True) as made:
            made.add(made_run(0))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {schema}")
    text.write_text("no database " * 100)
    empty.touch()
    problems = {
        other: "it is not a history of commbench", text: "not a database", tmp_path: "Is a dir",
        older: f"has schema {SCHEMA - 1}, which this version does not know",
        newer: f"has schema {SCHEMA + 1}, which this version does not know",
    }  # fmt: skip
    for path, problem in problems.items():
        before = None if path.is_dir() else path.read_bytes()
        for is_written in (False, True):
            with pytest.raises(RecordsError, match=problem):
                History(path, is_written)
        assert before is None or path.read_bytes() == before
    for path in (empty, tmp_path / "missing"):
        with pytest.raises(RecordsError, match="there is no"):
            History(path)
    with open_history(empty) as found:
        assert found is None
    with History(empty, is_written=True) as made:
        made.add(made_run(0))


def test_a_full_disk_leaves_the_history_as_it_was(db: Path) -> None:
    with History(db, is_written=True) as history:
        history.add(made_run(0))
    before = db.read_bytes()
    with file_size(len(before)), History(db, is_written=True) as history:
        with pytest.raises(RecordsError, match="cannot use the history"):
            history.add(made_run(1, cases=2000))
        assert len(history.runs()) == 1
    with History(db, is_written=True) as history:
        assert history.add(made_run(1, cases=50)).rows == 50
        assert len(history.runs()) == 2


def test_a_damaged_file_is_an_error_in_words(db: Path) -> None:
    with History(db, is_written=True) as history:
        history.add(made_run(0, cases=300))
    content = bytearray(db.read_bytes())
    content[4096:] = b"\x77" * (len(content) - 4096)
    db.write_bytes(content)
    with (
        pytest.raises(RecordsError, match="cannot use the history") as raised,
        History(db) as history,
    ):
        list(history.series())
    assert "`commbench history add results --db NEW.sqlite` makes it again" in raised.value.hint


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE system SET facts = '{'", "describes no run"),
        ("UPDATE series SET measured = '{}x' WHERE id = 1", "describes no run"),
        ("UPDATE run SET placed = '2026-13-01'", "describes no run"),
        ("UPDATE run SET label = CAST(x'ff' AS TEXT)", "cannot use the history"),
    ],
)
def test_damaged_values_are_errors_in_words(db: Path, statement: str, why: str) -> None:
    with History(db, is_written=True) as history:
        history.add(made_run(0, cases=3))
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(RecordsError, match=why) as raised, History(db) as history:
        list(history.series())
    assert "`commbench history add results --db NEW.sqlite` makes it again" in raised.value.hint


def start_writer(db: Path, label: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        command = [sys.executable, Path(__file__).parents[2] / "history_writer.py", db, label]
        return subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("kills", [WRITERS, pytest.param(100, marks=pytest.mark.full)])
def test_writers_that_are_killed_lose_nothing_acknowledged(
    db: Path, tmp_path: Path, kills: int
) -> None:
    chance, running, killed = random.Random(5), {}, 0
    labels = [f"writer-{number}" for number in range(max(kills, WRITERS))]
    waiting = labels[::-1]
    while killed < kills:
        while waiting and len(running) < min(WRITERS, kills - killed):
            label = waiting.pop()
            running[label] = start_writer(db, label, tmp_path / f"{label}.log")
        ready = [each for each in running if (tmp_path / f"{each}.log").stat().st_size]
        assert all(process.poll() is None for process in running.values())
        time.sleep(chance.uniform(0, 0.05))
        if ready and (len(ready) == len(running) or kills > WRITERS):
            victim = running.pop(chance.choice(ready))
            victim.kill()
            victim.wait()
            killed += 1
    told = {line for label in labels for line in _lines(tmp_path / f"{label}.log")}
    with History(db) as history:
        runs = history.runs()
        points = [point.run.id for series in history.series() for point in series.points]
        kept = {(run.label, run.started[:10]) for run in runs}
    days = {(label, (BEGIN + timedelta(days=int(n))).date().isoformat()) for label, n in told}
    print(f"{killed} kills, {len(told)} acknowledged, {len(runs)} kept")
    assert len(told) >= kills and days <= kept and len(kept) == len(runs)
    assert len(runs) - len(told) <= kills, "more than the runs that were being added"
    assert sorted(points) == sorted([run.id for run in runs] * CASES)
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA application_id").fetchall() == [(APPLICATION,)]


def _lines(log: Path) -> list[tuple[str, str]]:
    """What a writer acknowledged; its last line may be cut."""
    whole = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
    return [tuple(line.split()) for line in whole]  # type: ignore[misc]


@pytest.mark.full
def test_one_series_of_a_million_rows_is_there_in_a_second(db: Path) -> None:
    runs, cases = 2000, 500
    with History(db, is_written=True) as history:
        history.add(made_run(0, cases=cases))
        with history._transaction():
            history._do(
                "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                "INSERT INTO run SELECT i, i, i, 1, 1, 'made-up', '', started, added, "
                "strftime('%Y-%m-%dT%H:%M:%S+00:00', placed, i || ' hours'), NULL FROM n, run",
                (runs,),
            )
            history._do(
                "INSERT INTO point SELECT series, run.id, time * (1 + 0.03 * (abs(random()) % "
                "1000 / 1000.0)), low, high, queued FROM point, run WHERE run.id > 1"
            )
        assert history._do("SELECT count(*) FROM point").fetchone()[0] == runs * cases
    command = [sys.executable, "-m", "commbench", "history", "show", "--size", "2K", "--db", db]
    start = time.monotonic()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    took = time.monotonic() - start
    print(f"{took:.2f} s")
    assert "2000 runs" in out
