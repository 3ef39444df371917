"""The table of a run, at most 100 columns wide, with the notes under it."""

from __future__ import annotations

from commbench import units
from commbench.analysis.peak import find_peak_fraction
from commbench.analysis.rows import ResultRow, make_rows
from commbench.output.paragraphs import list_some
from commbench.output.table import BOLD, RED, clean, style, table
from commbench.report import run_notes
from commbench.results.schema import OK, Run
from commbench.spec.links import Peak
from commbench.spec.timing_modes import describe_timing

COLUMNS = ("size", "count", "time", "95 % interval", "n", "algbw\nGB/s", "busbw\nGB/s", "wrong")


def run_text(run: Run, peak: Peak | None = None) -> str:
    """A run: a table for each kind of case, one row per size, and the notes.

    With a peak, a column shows the fraction of it that the bus bandwidth reached.
    """
    header, rows = run.header, make_rows(run)
    kinds: dict[str, list[ResultRow]] = {}
    for row in rows:
        kinds.setdefault(row.measurement.case.title, []).append(row)
    times = "once" if run.resumed == 1 else f"{run.resumed} times"
    shared = "Ranks share a GPU: functional only, no measure of performance."
    parts = (
        _head(run),
        shared if header.gpu_shared else "",
        *(_kind_text(title, found, peak) for title, found in kinds.items()),
        run_notes.timing_modes_text(rows),
        run_notes.warnings_text(rows),
        run_notes.slow_links_text(header),
        run_notes.interfaces_text(header),
        run_notes.peak_text(rows, peak) if peak else "",
        f"This run was cut off and resumed {times}." if run.resumed else "",
        run_notes.run_end_text(run),
    )
    return "\n\n".join(filter(None, parts))


def _head(run: Run) -> str:
    plan, hosts = run.header.plan, run.header.hosts
    where = list_some(hosts, 3) or "hosts unknown"
    launches = f"; {plan.launches} launches" if plan.launches > 1 else ""
    statistics = {m.reported.statistic for m in run.measurements if m.reported}
    how = "; ".join(sorted(statistics)) or describe_timing(plan.timing).summary
    line = (
        f"{plan.world_size} {plan.backend} ranks on {where}, {plan.device}, "
        f"cpu mode {plan.cpu_mode}; {how}{launches}"
    )
    return f"{clean(run.name)}\n{clean(line)}"


def _kind_text(title: str, rows: list[ResultRow], peak: Peak | None) -> str:
    if all(row.time is None for row in rows):
        reasons = dict.fromkeys(
            f"{row.measurement.status}: {row.measurement.reason}" for row in rows
        )
        return "\n".join(clean(f"{title}: {reason}") for reason in reasons)
    columns: tuple[str, ...] = COLUMNS
    algbws, busbws = [row.algbw for row in rows], [row.busbw for row in rows]
    decimals = units.choose_decimals(algbws), units.choose_decimals(busbws)
    cells = [_cells(row, decimals) for row in rows]
    if peak:
        columns = (*COLUMNS, "of\npeak")
        cells = [(*found, _peak_cell(row, peak)) for found, row in zip(cells, rows, strict=True)]
    lines = table(columns, cells)
    head = len(lines) - len(rows)
    wrong = [row.measurement.status != OK and row.time is not None for row in rows]
    body = [
        style(line, RED) if bad else line for line, bad in zip(lines[head:], wrong, strict=True)
    ]
    return "\n".join([style(clean(title), BOLD), *lines[:head], *body])


def _peak_cell(row: ResultRow, peak: Peak) -> str:
    share = find_peak_fraction(row, peak)
    return units.format_percent(share.fraction) if share else ""


def _cells(row: ResultRow, decimals: tuple[int, int]) -> tuple[str, ...]:
    measurement, time = row.measurement, row.time
    case = measurement.case
    size, count = (units.format_bytes(case.size_bytes), str(case.count)) if case.dtype else ("", "")
    if time is None:
        return size, "", measurement.status, measurement.reason[:40], "", "", "", ""
    interval = ""
    if time.low is not None and time.high is not None:
        interval = units.format_interval(time.low, time.high, like=time.median)
    wrong = "" if measurement.wrong is None else str(measurement.wrong)
    return (
        size,
        count,
        units.format_time(time.median),
        interval,
        str(time.iterations),
        units.format_GBps(row.algbw, decimals[0]),
        units.format_GBps(row.busbw, decimals[1]),
        wrong,
    )
