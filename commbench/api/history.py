"""The history of runs from Python, as `commbench.history`: add, list, show, export, forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.api.runs import ignore, load_rows
from commbench.errors import CommbenchError, RecordsError, UsageError

if TYPE_CHECKING:
    from commbench.answers.history.history import Trend
    from commbench.answers.history.records import Added, HistoryRun
    from commbench.answers.history.run_list import RunsOfHistory
    from commbench.answers.history.store import History
    from commbench.api.runs import AnyRun

__all__ = ["add", "export", "forget", "list_", "show"]


def __dir__() -> list[str]:
    return __all__


def _open(db: str | Path | None, is_written: bool = False) -> History:
    from commbench.answers.history.store import HISTORY, History

    return History(Path(db) if db else HISTORY, is_written)


def add(
    *runs: AnyRun,
    node: str | None = None,
    db: str | Path | None = None,
    notify: Callable[[str], None] = ignore,
) -> list[Added]:
    """Add runs to a history, which is made where it does not exist; each in one transaction.

    A run is a Run, a path or a label; or a folder with run folders, of which those that cannot be
    added are left out, and `notify` gets a line for each. `node` is the name of the node or the
    cluster in the history, by default the hosts of the run. Raises UsageError for a run that is
    incomplete or has no valid row, RecordsError where the history cannot be written.
    """
    added = []
    with _open(db, is_written=True) as history:
        for run, is_one_of_many in _expand(runs):
            try:
                added.append(history.add(load_rows(run, notify=notify), node or ""))
            except CommbenchError as error:
                if not is_one_of_many or _is_about(error, history):
                    raise
                notify(f"left out: {error.message}")
                continue
            notify(f"{added[-1].outcome}: {run if isinstance(run, (str, Path)) else run.name}")
    return added


def _is_about(error: CommbenchError, history: History) -> bool:
    """Whether an error is that of the history, and not of a run."""
    return str(history.path) in error.message


def _expand(runs: tuple[AnyRun, ...]) -> Iterator[tuple[AnyRun, bool]]:
    """Each run, and whether it comes from a folder of runs."""
    from commbench.results.files import is_folder
    from commbench.results.run_folder import holds_run

    for run in runs:
        if isinstance(run, (str, Path)) and is_folder(run) and not holds_run(Path(run)):
            found = sorted(filter(holds_run, Path(run).iterdir()))
            if not found:
                raise RecordsError(f"{run} has no run folders", "name runs, or a folder of runs")
            yield from ((each, True) for each in found)
        else:
            yield run, False


def list_(*, node: str | None = None, db: str | Path | None = None) -> RunsOfHistory:
    """The runs of a history in their order in time."""
    from commbench.answers.history.run_list import RunsOfHistory

    with _open(db) as history:
        return RunsOfHistory(str(history.path), (*history.runs(node or ""),))


def show(
    *,
    op: str | None = None,
    size: str | None = None,
    node: str | None = None,
    tolerance: str | float = "2%",
    db: str | Path | None = None,
) -> Trend:
    """What became slower or faster over the runs of a history, when, and what changed then.

    `op`, `size` ("1M" or "1M,4M") and `node` choose rows. A level that changes by at most
    `tolerance` has no step. Raises UsageError where no row is chosen.
    """
    from commbench.answers.history.history import find_trend
    from commbench.units import parse_tolerance

    within = parse_tolerance(tolerance)
    with _open(db) as history:
        found = find_trend(history, _operation(op), _sizes(size), node or "", within)
        if not found.series:
            raise UsageError(f"no row of {history.path} is chosen", _known(history))
        return found


def export(
    format: str = "csv",
    *,
    op: str | None = None,
    size: str | None = None,
    node: str | None = None,
    db: str | Path | None = None,
) -> str:
    """All points of the rows that are chosen as `show` does, in SI units: csv or json."""
    from commbench.answers.history.run_list import POINTS, ExportedPoints
    from commbench.validation import choose

    choose("format", format, dict.fromkeys(("csv", "json")))
    with _open(db) as history:
        series = [*history.series(_operation(op), _sizes(size), node or "")]
    return POINTS.write(ExportedPoints(series), format)


def forget(
    *runs: str | int, node: str | None = None, db: str | Path | None = None
) -> list[HistoryRun]:
    """Remove runs from a history: by their number or label, or all of a `node`. Returns them."""
    if bool(runs) == bool(node):
        raise UsageError("which runs are forgotten?", "name runs, or one --node")
    with _open(db) as history:
        known = history.runs(node or "")
        found = {} if runs else {run.id: run for run in known}
        for name in map(str, runs):
            own = [run for run in known if str(run.id) == name]
            if not (own := own or [run for run in known if run.label == name]):
                raise UsageError(
                    f"{history.path} has no run {name!r}", "see `commbench history list`"
                )
            found |= {run.id: run for run in own}
        if not found:
            raise UsageError(f"{history.path} has no run of {node!r}", _known(history))
        history.forget([*found.values()])
        return [*found.values()]


def _operation(op: str | None) -> str:
    from commbench.plan.operations import find_operation

    return find_operation(op).name if op else ""


def _sizes(size: str | None) -> tuple[int, ...]:
    from commbench.units import parse_sizes

    return parse_sizes(size) if size else ()


def _known(history: History) -> str:
    """A hint with the nodes of a history."""
    from commbench.output.paragraphs import list_some

    nodes = dict.fromkeys(run.system.node for run in history.runs())
    return f"its nodes: {list_some([*nodes], 8)}" if nodes else "it has no runs: add some"
