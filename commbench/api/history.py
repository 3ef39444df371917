"""The history of runs from Python, as `commbench.history`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.analysis.load import LoadedRun
from commbench.analysis.row_names import named_bytes
from commbench.answers.check.rules import Rule
from commbench.answers.history.baseline import find_baseline
from commbench.answers.history.document import RunsOfHistory
from commbench.answers.history.history import Trend, find_trend
from commbench.answers.history.records import Added, HistoryRun, System, points_csv
from commbench.answers.history.store import HISTORY, History, Keep, db_option, open_history
from commbench.api.runs import ignore, load_rows, require_some
from commbench.errors import CommbenchError, RecordsError, UsageError
from commbench.output.text import list_some
from commbench.plan.case import Case
from commbench.plan.operations import find_operation
from commbench.results.run_folder import runs_within
from commbench.runner.option import parse_size_list
from commbench.units import format_sizes, parse_tolerance
from commbench.validation import with_known_keywords

if TYPE_CHECKING:
    from commbench.api.runs import AnyRun

__all__ = ["accept", "add", "export", "forget", "list_", "show"]


def __dir__() -> list[str]:
    return __all__


@with_known_keywords
def add(
    *runs: AnyRun,
    node: str | None = None,
    db: str | Path | None = None,
    notify: Callable[[str], None] = ignore,
) -> list[Added]:
    """Add runs to a history, which is made where it does not exist; each in one transaction.

    A run is a Run, a path or a label; or a folder of runs, of which those that cannot be
    added are left out, and `notify` gets a line for each. `node` is the name of the node or the
    cluster in the history, by default the hosts of the run. Raises UsageError for a run that is
    incomplete or has no valid row, RecordsError where the history cannot be written, or no run of a
    folder is added.
    """
    added: list[Added] = []
    require_some(runs, "add")
    with History(db, is_written=True) as history:
        for given in runs:
            inner = runs_within(Path(given)) if isinstance(given, (str, Path)) else []
            every: Sequence[AnyRun] = inner or [given]
            before = len(added)
            for run in every:
                try:
                    found = history.add(load_rows(run, notify=notify), node or "")
                except CommbenchError as error:
                    if not inner or str(history.path) in error.message:
                        raise
                    notify(f"left out: {error.message}")
                else:
                    added.append(found)
                    name = run if isinstance(run, (str, Path)) else run.name
                    notify(f"{found.outcome}: {name}")
            if len(added) == before:
                raise RecordsError(f"no run in {given} can be added", "add complete runs")
    return added


@with_known_keywords
def list_(*, node: str | None = None, db: str | Path | None = None) -> RunsOfHistory:
    """The runs of a history, the newest first."""
    with History(db) as history:
        runs, begins = history.runs(node or ""), history.accepted()
        accepted = frozenset(run.id for run in runs if run.placed == begins.get(run.system))
        return RunsOfHistory(str(history.path), (*runs[::-1],), history.waited(), accepted)


@with_known_keywords
def show(
    *,
    op: str | None = None,
    size: str | int | Sequence[int | str] | None = None,
    node: str | None = None,
    tolerance: str | float = "2%",
    db: str | Path | None = None,
) -> Trend:
    """What became slower or faster over the runs of a history, when, and what changed then.

    `op`, `size` (16384, "1M" or "1M,4M") and `node` choose rows. A level that changes by at most
    `tolerance` has no step. Raises UsageError where no row is chosen.
    """
    chosen, within = _chosen(op, size, node), parse_tolerance(tolerance)
    with History(db) as history:
        found = find_trend(history, chosen, within)
        if not found.series:
            asked = {"operation": op, "size": size, "node": node}
            given = ", ".join(f"{word} {value}" for word, value in asked.items() if value)
            why = f"{history.path} has no row{f' of {given}' * bool(given)}"
            raise UsageError(why, _known(history, with_rows=bool(op or size)))
        return found


@with_known_keywords
def export(
    *,
    op: str | None = None,
    size: str | int | Sequence[int | str] | None = None,
    node: str | None = None,
    db: str | Path | None = None,
) -> str:
    """All points of the rows that are chosen as `show` does, as CSV in SI units."""
    with History(db) as history:
        return points_csv(history.series(_chosen(op, size, node)))


@with_known_keywords
def accept(run: str | int, *, db: str | Path | None = None) -> HistoryRun:
    """Let the usual level begin with a run, by its number or label: a check against the history
    compares with it and later runs of the same system. The first run of a system undoes that.
    Returns the run."""
    with History(db) as history:
        found = _named(history, history.runs(), str(run))
        if found[1:]:
            numbers = list_some([str(each.id) for each in found], 8)
            raise UsageError(f"{len(found)} runs are called {run!r}", f"name a number: {numbers}")
        if not any(point.counts for _, point in history.points_of(found[0])):
            why = f"no row of run {found[0].id} counts: its ranks waited for a core"
            raise UsageError(why, "accept the next run whose ranks did not wait")
        history.accept(found[0])
        return found[0]


@with_known_keywords
def forget(
    *runs: str | int,
    node: str | None = None,
    db: str | Path | None = None,
    notify: Callable[[str], None] = ignore,
) -> list[HistoryRun]:
    """Remove runs from a history: by their number or label, or all of a `node`. Returns them.
    `notify` gets a line for each that someone had accepted."""
    if bool(runs) == bool(node):
        trouble = "takes no runs beside --node" if runs else "needs the runs, or a --node"
        hint = "`commbench history list` names them"
        raise UsageError(f"forget {trouble}", "leave out one of both" if runs else hint)
    with History(db) as history:
        known = history.runs(node or "")
        found = {} if runs else {run.id: run for run in known}
        for name in map(str, runs):
            found |= {run.id: run for run in _named(history, known, name)}
        if not found:
            raise RecordsError(f"{history.path} has no run of {node!r}", _known(history))
        begins = history.accepted()
        history.forget([*found.values()])
        left = {run.system for run in history.runs()}
        for run in found.values():
            if run.system in left and run.placed == begins.get(run.system):
                gone = f"run {run.id} was accepted, and its level is gone"
                notify(f"{gone}: usual is again the shortest time that lasted in the other runs")
        return [*found.values()]


def _named(history: History, runs: Sequence[HistoryRun], name: str) -> list[HistoryRun]:
    """The run with this number, or the runs with this label; at least one."""
    found = [run for run in runs if str(run.id) == name]
    if not (found := found or [run for run in runs if run.label == name]):
        hint = f"`commbench history list{db_option(history.path)}` has them"
        raise RecordsError(f"{history.path} has no run {name!r}", hint)
    return found


def _chosen(op: str | None, size: str | int | Sequence[int | str] | None, node: str | None) -> Keep:
    """What chooses series."""
    operation = find_operation(op).name if op else ""
    sizes = () if size is None else parse_size_list(size)

    def keep(system: System, case: Case) -> bool:
        is_named = operation in ("", case.operation) and (not node or node == system.node)
        return is_named and (not sizes or named_bytes(case) in sizes)

    return keep


def _known(history: History, with_rows: bool = False) -> str:
    """A hint with the nodes of a history; `with_rows`, also the operations and sizes."""
    nodes = dict.fromkeys(run.system.node for run in history.runs())
    if not nodes:
        return "it has no runs: add some"
    names = f"choose one of its nodes: {list_some([*nodes], 8)}"
    if with_rows:
        cases = [series.case for series in history.series()]
        names += f"; operations: {', '.join(dict.fromkeys(case.operation for case in cases))}"
        sizes = sorted({named_bytes(case) for case in cases} - {0})
        names += f"; sizes: {format_sizes(tuple(sizes))}" * bool(sizes)
    return names


def as_baseline(
    run: LoadedRun, rules: Sequence[Rule], node: str | None, db: str | Path | None
) -> tuple[list[Rule], LoadedRun]:
    """The rules, which also tell what the history lacks, and the level of the history as a run."""
    with open_history(db) as history:
        if node and history and not history.runs(node):
            raise UsageError(f"{history.path} has no run of {node!r}", _known(history))

        def covers(case: Any) -> bool:
            return any(rule.covers(case) for rule in rules)

        baseline, notes = find_baseline(history, run, node or "", Path(db or HISTORY), covers)
    return [
        rule._replace(remarks=tuple(notes)) if rule.limit.needs_baseline else rule for rule in rules
    ], baseline
