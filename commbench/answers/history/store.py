"""The history: an SQLite file with the rows of many runs, one series for each case of a system.

    with History(path) as history:
        history.series()      times of a case over the runs of a system
        history.runs()        the runs, by their order in time

A run is added in one transaction, with an exclusive lock that other writers wait for: it is there
as a whole or not at all, also if the process is killed or the disk is full. The journal of SQLite
is the rollback journal, which works on network file systems, and a commit waits for the disk.

Runs are in the order of their start as the host recorded it; a start later than the moment of
adding is a wrong clock, and that moment takes its place. Of equal times, the run that was added
first comes first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from math import exp
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from commbench.analysis.diagnostics import MOST_QUEUED, has_waited
from commbench.analysis.environment import Recorded, recorded_of
from commbench.analysis.load import LoadedRun
from commbench.answers.compare.host import host_logs
from commbench.answers.history import records
from commbench.answers.history.records import Added, HistoryRun, Point, Series, System
from commbench.errors import RecordsError, UsageError
from commbench.plan.case import Case
from commbench.results.files import is_file, make_folder, path_exists, require_new, why_unreadable
from commbench.results.run_folder import RESULTS
from commbench.results.schema import is_imported
from commbench.stats import Estimate, collect

HISTORY = RESULTS / "history.sqlite"
"""The history that is used unless another one is named."""
APPLICATION = 0x636D6268
"""SQLite's application_id of a history: `cmbh`."""
SCHEMA = 2
"""1, without `queued` of points, was never released."""
REMAKE_HINT = "it is damaged: `commbench history add results --db NEW.sqlite` makes it again"
WAIT_S = 60.0
"""How long a writer waits for others."""
TABLES = """
CREATE TABLE system (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
CREATE TABLE environment (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE);
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL UNIQUE, content TEXT NOT NULL,
    system INTEGER NOT NULL REFERENCES system, environment INTEGER NOT NULL REFERENCES environment,
    label TEXT NOT NULL, path TEXT NOT NULL, started TEXT NOT NULL, added TEXT NOT NULL,
    placed TEXT NOT NULL, link REAL);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, system INTEGER NOT NULL REFERENCES system, measured TEXT NOT NULL,
    UNIQUE (system, measured));
CREATE TABLE point (
    series INTEGER NOT NULL, run INTEGER NOT NULL, time REAL NOT NULL, low REAL, high REAL,
    queued REAL,
    PRIMARY KEY (series, run)) WITHOUT ROWID;
"""
LATER_TABLES = {
    "accepted": "system TEXT PRIMARY KEY, placed TEXT NOT NULL",
    "host": "run INTEGER NOT NULL, takes TEXT NOT NULL, time REAL NOT NULL",
}
"""Earlier versions have none of these, and read the rest."""
ADDED, REPLACED, KNOWN = "added", "replaced", "known"
_Made = TypeVar("_Made")
Keep: TypeAlias = Callable[[System, Case], bool]
"""Which series are wanted: by their system and case."""


def db_option(path: Path) -> str:
    """The option that names a history, where it is another one than by default."""
    return "" if path == HISTORY else f" --db {quote(str(path))}"


def _make_hint(path: Path) -> str:
    """How to make a history that does not exist, or has no run."""
    db = db_option(path)
    return f"`commbench history add RUN{db}` and `commbench run --history{db}` make it"


@contextmanager
def open_history(path: str | Path | None) -> Iterator[History | None]:
    """A history to read; None for one that has no run yet, or for that of HISTORY where it does not
    exist. Raises RecordsError for a path that does not exist."""
    found = Path(path) if path else HISTORY
    if not (path or path_exists(found)) or (is_file(found) and not found.stat().st_size):
        yield None
        return
    with History(found) as history:
        yield history


class History:
    """A history that is open. RecordsError for a file that cannot be opened or is none; with
    `is_written` it is made where it does not exist, when the first run is added; a folder that does
    not exist, or cannot be written, is an error before that. Only results/ is made."""

    def __init__(self, db: str | Path | None = None, is_written: bool = False) -> None:
        path = self.path = Path(db or HISTORY)
        self._is_written = is_written
        self._opened: sqlite3.Connection | None = None
        if path_exists(path):
            if why := why_unreadable(path):
                raise self._error(why)
            with self._translating():
                self._open()
        elif not is_written:
            raise RecordsError(f"there is no history {path}", _make_hint(path))
        elif path != HISTORY or path_exists(RESULTS):
            require_new(path.with_name(f"{path.name}.{uuid4().hex}"))  # not the file of another

    def _open(self) -> sqlite3.Connection:
        if self._is_written:
            make_folder(self.path.parent)
        mode = "rwc" if self._is_written else "rw"  # `rw` can also undo what a killed writer left
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        self._opened = sqlite3.connect(uri, timeout=WAIT_S, isolation_level=None, uri=True)
        try:
            self._prepare()
        except BaseException:
            self._opened.close()
            raise
        return self._opened

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._opened or self._open()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened:
            self._opened.close()

    def add(self, run: LoadedRun, node: str = "", now: datetime | None = None) -> Added:
        """Add the valid rows of a complete run, in one transaction. One that is there already is
        left, or replaced where it has other rows than before: more launches. Raises UsageError for
        a run that is incomplete, has no valid row, or names no host where `node` is empty.
        """
        if run.incomplete:
            is_own = not run.header or not is_imported(run.header)
            hint = "complete it first" if is_own else "measure again: a history takes whole runs"
            raise UsageError(f"{run.path} is incomplete: {run.incomplete}", hint)
        rows = {records.case_text(row.case): row for row in run.rows if records.is_valid(row)}
        if not rows:
            raise UsageError(f"{run.path} has no valid row", "add another run")
        waited = sum(has_waited(row.queued_share) for row in rows.values())
        system = records.find_system(run, node)
        added = now or datetime.now(timezone.utc)
        started = records.started_at(run, added)
        content = records.digest(
            [(k, *row.time, row.queued_share) for k, row in sorted(rows.items())]
        )
        ranks = [(rank.host, rank.pid) for rank in run.header.ranks] if run.header else []
        identity = records.digest([started.isoformat(), ranks] if ranks else [system, content])
        values: dict[str, Any] = {
            "identity": identity, "content": content, "label": run.name,
            "path": str(run.path.absolute()), "link": records.slowest_link(run.header),
            "started": records.utc_text(started), "added": records.utc_text(added),
            "placed": records.utc_text(min(started, added)),
        }  # fmt: skip
        with self._translating(), self._transaction():
            outcome, values["id"] = self._forget_older(identity, content)
            if outcome == KNOWN:
                return Added(run, len(rows), KNOWN, waited)
            values["system"] = self._find("system", facts=json.dumps(system))
            environment = json.dumps(recorded_of(run), sort_keys=True)
            values["environment"] = self._find("environment", content=environment)
            own = self._insert("INSERT", "run", values).lastrowid
            for key, row in rows.items():
                series = self._find("series", measured=key, system=values["system"])
                point = (series, own, *row.time, row.queued_share)
                self._do("INSERT INTO point VALUES (?, ?, ?, ?, ?, ?)", point)
            for takes, logs in host_logs(run).items():
                self._do("INSERT INTO host VALUES (?, ?, ?)", (own, takes, exp(fmean(logs))))
        return Added(run, len(rows), outcome, waited)

    def runs(self, node: str = "") -> list[HistoryRun]:
        """The runs in their order, all or those of a node."""
        found = self._read(
            "SELECT run.id, facts, label, path, started, added, placed, link, environment "
            "FROM run JOIN system ON run.system = system.id ORDER BY placed, run.id"
        )
        host = collect((run, tuple(each)) for run, *each in self._later("host"))
        runs = [
            HistoryRun(own, self._made(records.system_of, text), *rest)._replace(
                host_s=(*host.get(own, ()),)
            )
            for own, text, *rest in found
        ]
        for run in runs:
            self._made(datetime.fromisoformat, run.placed)
        return [run for run in runs if node in ("", run.system.node)]

    def series(self, keep: Keep = lambda *_: True) -> Iterator[Series]:
        """The series that `keep` accepts, by default all. A system's series are together, and in
        the order of their cases."""
        runs = {run.id: run for run in self.runs()}
        known = self._read(
            "SELECT series.id, facts, measured FROM series JOIN system ON series.system = system.id"
        )
        found = [
            (self._made(records.system_of, s), self._made(records.case_of, m), own)
            for own, s, m in known
        ]
        found.sort(key=lambda each: (each[0], each[1].title, each[1].size_bytes))
        for system, case, own in found:
            if not keep(system, case):
                continue
            query = "SELECT run, time, low, high, queued FROM point WHERE series = ?"
            rows = ((runs[run], rest) for run, *rest in self._read(query, (own,)) if run in runs)
            points = [Point(run, Estimate(*time), queued) for run, (*time, queued) in rows]
            points.sort(key=lambda point: (point.run.placed, point.run.id))
            yield Series(system, case, tuple(points))

    def points_of(self, run: HistoryRun) -> list[tuple[Case, Point]]:
        """The cases of a run with their times."""
        found = self._read(
            "SELECT measured, time, low, high, queued FROM run JOIN series USING (system) "
            "JOIN point ON point.series = series.id AND point.run = run.id WHERE run.id = ?",
            (run.id,),
        )
        made = ((self._made(records.case_of, m), time, q) for m, *time, q in found)
        return [(case, Point(run, Estimate(*time), queued)) for case, time, queued in made]

    def _made(self, make: Callable[[str], _Made], text: str) -> _Made:
        """What a text of the file describes; RecordsError where it is damaged."""
        try:
            return make(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise RecordsError(f"{self.path} describes no run: {error}", REMAKE_HINT) from None

    def waited(self) -> dict[int, int]:
        """How many rows of a run, by its id, do not count: see Point.counts."""
        query = "SELECT run, count(*) FROM point WHERE queued > ? GROUP BY run"
        return dict(self._read(query, (MOST_QUEUED,)))

    def environments(self) -> dict[int, Recorded]:
        """The environments of runs, by their id."""
        found = self._read("SELECT id, content FROM environment")
        return {own: self._made(records.recorded_from, content) for own, content in found}

    def accept(self, run: HistoryRun) -> None:
        """Let the usual level of the run's system begin with this run, in place of one that was
        accepted; with its first run, nothing is accepted any more."""
        own = (each for each in self.runs() if each.system == run.system)
        is_first, system = run == next(own), json.dumps(run.system)
        with self._translating(), self._transaction():
            self._do("DELETE FROM accepted WHERE system = ?", (system,))
            if not is_first:
                self._do("INSERT INTO accepted VALUES (?, ?)", (system, run.placed))

    def accepted(self) -> dict[System, str]:
        """The place of the run with which the accepted level of a system begins."""
        return {self._made(records.system_of, s): at for s, at in self._later("accepted")}

    def forget(self, runs: Sequence[HistoryRun]) -> None:
        """Remove these runs with all that only they have, and that one was accepted, in one
        transaction."""
        accepted = self.accepted()
        with self._translating(), self._transaction():
            self._forget([run.id for run in runs])
            for system in {run.system for run in runs if accepted.get(run.system) == run.placed}:
                self._do("DELETE FROM accepted WHERE system = ?", (json.dumps(system),))
            for table, user in (("series", "point"), ("environment", "run"), ("system", "run")):
                self._do(f"DELETE FROM {table} WHERE id NOT IN (SELECT {table} FROM {user})")

    def _forget(self, ids: Sequence[int]) -> None:
        self._do("CREATE TEMP TABLE IF NOT EXISTS forgotten (id INTEGER PRIMARY KEY)")
        self._do("DELETE FROM forgotten")
        self._connection.executemany("INSERT INTO forgotten VALUES (?)", [(own,) for own in ids])
        for table, column in (("point", "run"), ("host", "run"), ("run", "id")):
            self._do(f"DELETE FROM {table} WHERE {column} IN (SELECT id FROM forgotten)")

    def _forget_older(self, identity: str, content: str) -> tuple[str, int | None]:
        """Remove the same run with other rows; the outcome of adding it, and its id if it has
        one."""
        found = self._do("SELECT id, content FROM run WHERE identity = ?", (identity,)).fetchone()
        if found is None:
            return ADDED, None
        if found[1] == content:
            return KNOWN, found[0]
        self._forget([found[0]])
        return REPLACED, found[0]

    def _insert(self, how: str, table: str, values: dict[str, Any]) -> sqlite3.Cursor:
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        return self._do(f"{how} INTO {table} ({names}) VALUES ({marks})", values)

    def _find(self, table: str, **values: str | int) -> int:
        """The id of a row with these values, which is made where there is none."""
        self._insert("INSERT OR IGNORE", table, values)
        where = " AND ".join(f"{name} = :{name}" for name in values)
        return int(self._do(f"SELECT id FROM {table} WHERE {where}", values).fetchone()[0])

    def _later(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of one of LATER_TABLES; none where the history has no such table."""
        is_there = self._read("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
        return self._read(f"SELECT * FROM {table}") if is_there else []

    def _read(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """All that a query finds."""
        with self._translating():
            return self._do(query, values).fetchall()

    def _do(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _pragma(self, name: str) -> int:
        return int(self._do(f"PRAGMA {name}").fetchone()[0])

    def _prepare(self) -> None:
        """Check whose file it is; make the tables of a new one."""
        if self._is_written:
            self._do("PRAGMA synchronous = EXTRA")
            with self._transaction():
                if self._is_empty():
                    for statement in filter(str.strip, TABLES.split(";")):
                        self._do(statement)
                    self._do(f"PRAGMA application_id = {APPLICATION}")
                    self._do(f"PRAGMA user_version = {SCHEMA}")
        elif self._is_empty():
            why = f"there is no run in the history {self.path}"
            raise RecordsError(why, _make_hint(self.path))
        if self._pragma("application_id") != APPLICATION:
            raise self._error("it is not a history of commbench")
        if (version := self._pragma("user_version")) != SCHEMA:
            why = f"{self.path} has schema {version}, which this version does not know"
            raise RecordsError(why, f"update commbench, which knows schemas up to {SCHEMA}")
        if self._is_written:
            with self._transaction():
                for table, columns in LATER_TABLES.items():
                    self._do(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")

    def _is_empty(self) -> bool:
        """Whether the file is new, or was left so by a process that was killed."""
        tables = self._do("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return not tables and not self._pragma("application_id")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """What is done within is done as a whole or not at all."""
        self._do("BEGIN IMMEDIATE")
        with self._connection:  # commits, or rolls back what SQLite itself has not
            yield

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Errors of SQLite as RecordsError."""
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise self._error(str(error)) from None

    def _error(self, why: str) -> RecordsError:
        hints = {
            "full": "free some space; nothing was lost, and no part of a run was added",
            "locked": "another process writes it for long; try again",
            "readonly": "make it writable, or name another one: --db FILE",
            "not a database": "name the file of a history: --db FILE",
            "not a history": "name the file of a history: --db FILE",
            **dict.fromkeys(("malformed", "decode", "no such"), REMAKE_HINT),
        }
        hint = next((hint for word, hint in hints.items() if word in why), "check --db FILE")
        return RecordsError(f"cannot use the history {self.path}: {why}", hint)
