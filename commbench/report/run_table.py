"""The tables of a run, at most 80 columns wide, each with a summary, and the notes below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commbench.analysis.curve import CurveSummary, summarise_curve
from commbench.analysis.pair_values import outside_matrix
from commbench.analysis.peak import find_peak_fraction
from commbench.analysis.rows import ResultRow, make_rows, worst_alone
from commbench.output.paragraphs import fill, wrapped
from commbench.output.table import (
    BOLD,
    RED,
    TableColumn,
    align_decimals,
    clean,
    fitting_table,
    shared_columns,
    style,
    table,
)
from commbench.report import run_notes
from commbench.report.overlap_table import overlap_text, without_overlaps
from commbench.report.pairs_table import pairs_text
from commbench.report.plan_table import MOST_ROWS, left_out_text, list_missing, not_measured_text
from commbench.report.replay_text import replay_text
from commbench.report.shape_text import shape_lines
from commbench.results.schema import CUT_OFF, OK, Run
from commbench.spec.dimensions import IN_TITLE
from commbench.spec.timing_modes import describe_timing
from commbench.units import (
    format_about,
    format_bytes,
    format_known_GBps,
    format_known_time,
    format_percent,
)

if TYPE_CHECKING:
    from commbench.spec.links import Peak


def run_text(
    run: Run,
    peak: Peak | None = None,
    *,
    is_condensed: bool = False,
    most_warnings: int | None = run_notes.MOST_WARNINGS,
    has_calls: bool = False,
) -> str:
    """A run: a table for each kind of case with a row per size, and the notes.

    With a peak, a column shows the fraction of it that the bus bandwidth reached. `is_condensed`
    makes one table of a run with many rows. None for `most_warnings` gives all of them, explained.
    `has_calls`: a replay has also the tables of its single calls.
    """
    rows = make_rows(run)
    replay = replay_text(run, rows, peak)
    timed = timed_kinds(rows if most_warnings is None else without_overlaps(rows))
    if replay and not has_calls:
        name = run_notes.typed_name(run)
        tables = [fill(f"`commbench show {name} --calls` prints also the tables of single calls.")]
    elif is_condensed and len(timed) > 1 and len(rows) > MOST_ROWS:
        tables = [_condensed_text(list(timed.values()), run_notes.typed_name(run))]
    else:
        name = run_notes.typed_name(run)
        columns = shared_columns([(table_columns(peak, rows), rows) for rows in timed.values()])
        tables = [
            _kind_text(title, found, shown, name)
            for (title, found), shown in zip(timed.items(), columns, strict=True)
        ]
    times = "once" if run.resumed == 1 else f"{run.resumed} times"
    shared = "Ranks share a GPU: these times do not measure performance."
    parts = (
        _head(run),
        shared if run.header.gpu_shared else "",
        pairs_text(run),
        replay,
        *tables,
        _not_measured_text(rows),
        left_out_text(run.header.plan),
        run_notes.timing_modes_text(rows),
        run_notes.forms_text(rows),
        overlap_text(rows),
        run_notes.warnings_text(rows, most=most_warnings, name=run_notes.typed_name(run)),
        run_notes.slow_links_text(run.header),
        run_notes.interfaces_text(run.header),
        "" if most_warnings is not None else run_notes.start_up_text(run.header),
        run_notes.peak_text(rows, peak) if peak else "",
        f"This run was cut off and resumed {times}." if run.resumed else "",
        fill(run_notes.run_end_text(run), rest="  "),
    )
    return "\n\n".join(filter(None, parts))


def timed_kinds(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    """The rows that were timed, by the title of their case; of groups that were measured alone, the
    slowest of each dimension."""
    kinds: dict[str, list[ResultRow]] = {}
    for row in worst_alone(outside_matrix(rows)):
        if row.time:
            kinds.setdefault(row.measurement.case.title_without("group_ranks"), []).append(row)
    return kinds


def _head(run: Run) -> str:
    where, _, how = describe_run(run).partition("; ")
    return f"{clean(run.name)}\n{fill(where)}\n{fill(how)}"


def describe_run(run: Run) -> str:
    """One line: how many ranks of which backend, where, and how they were timed."""
    plan = run.header.plan
    done = f"{run.launches} of " if run.incomplete and run.launches < plan.launches else ""
    launches = f"; {done}{plan.launches} launches" if plan.launches > 1 else ""
    statistics = {m.reported.statistic for m in run.measurements if m.reported}
    how = "; ".join(sorted(statistics)) or describe_timing(plan.timing).summary
    return f"{run.header.describe_ranks()}; {how}{launches}"


def _kind_text(title: str, rows: list[ResultRow], columns: Sequence[TableColumn], name: str) -> str:
    lines = fitting_table(columns, rows)
    head = len(lines) - len(rows)
    body = [
        style(line, RED) if row.measurement.status != OK else line
        for line, row in zip(lines[head:], rows, strict=True)
    ]
    found = curve_text(summarise_curve(rows)) if len(rows) > 1 else ""
    summary = [wrapped(found, margin=2)] if found else []
    notes = [fill(line, "  ", "  ") for line in shape_lines(rows, name)]
    for line in run_notes.expectation_lines(rows):
        notes.append(fill(line, "  ", "  ", break_on_hyphens=False, break_long_words=False))
    return "\n".join([style(clean(title), BOLD), *lines[:head], *body, *summary, *notes])


def table_columns(peak: Peak | None, rows: Sequence[ResultRow] = ()) -> list[TableColumn]:
    """The columns of the table of a run; with a peak, one for the fraction of it, and for rows of
    groups two about the slowest group."""
    more = []
    if any(len(row.header.plan.groups_of(row.measurement.case)) > 1 for row in rows) or any(
        row.measurement.case.group_ranks for row in rows
    ):
        more.append(TableColumn("slowest\ngroup", lambda row: row.worst_group, 8))
    if any(row.group_interference for row in rows):
        more.append(TableColumn("inter-\nference", _interference, 8, is_decimal=True))
    if peak:
        more.append(TableColumn("of\npeak", lambda row: _peak_cell(row, peak), 6))
    references = {row.reference.measurement.case.form for row in rows if row.reference}
    columns = [
        column._replace(heading=f"over\n{'/'.join(sorted(references))}")
        if column is _OVER and references
        else column
        for column in COLUMNS
    ]
    return [*columns[:-1], *more, columns[-1]]


def _interference(row: ResultRow) -> str:
    found = row.group_interference.get(row.worst_group)
    return "" if found is None else f"{found.value:.2f}"


def curve_figures(curve: CurveSummary) -> list[tuple[str, str, str]]:
    """The same figures as `curve_text`: for each its name, its value, and a note."""
    figures = []
    if curve.peak:
        name, at = "peak bus bandwidth", f"at {_size(curve.peak)}"
        figures.append((name, f"{_busbw(curve.peak)} GB/s", at))
        if curve.half_bytes is not None:
            half = _half_text(curve).removeprefix("at ")
            figures.append(("half-bandwidth size", half, "size that reaches half the peak"))
    if curve.smallest:
        name = "latency" if _has_latency(curve) else "time of the smallest size"
        figures.append((name, _time(curve.smallest), _size(curve.smallest)))
    return figures


LARGEST_LATENCY = 8 << 10
"""Bytes up to which the time of a call is called its latency; beyond, bandwidth is a part of it."""


def _has_latency(curve: CurveSummary) -> bool:
    """Whether the smallest size is so small that its time is a latency."""
    small = curve.smallest
    return small is not None and small.measurement.case.size_bytes <= LARGEST_LATENCY


def summary_meanings(kinds: Sequence[Sequence[ResultRow]]) -> dict[str, str]:
    """What the figures of the curves of these kinds mean."""
    return {
        _smallest_heading(kinds): "The time of the smallest size.",
        "peak busbw": "The highest bus bandwidth of all sizes, and its size.",
        "half of peak at": "The size that reaches half of the peak. If the peak is at the largest "
        "size, larger sizes may have a higher peak, and then this size is larger, too.",
    }


def _smallest_heading(kinds: Sequence[Sequence[ResultRow]]) -> str:
    """What the time of the smallest size is called: `latency` if it is one for all kinds."""
    curves = [curve for rows in kinds if (curve := summarise_curve(rows)).smallest]
    return "latency" if all(map(_has_latency, curves)) else "smallest size"


def curve_text(curve: CurveSummary) -> str:
    """One line: the peak bus bandwidth, the half-bandwidth size and the latency."""
    parts = []
    if curve.peak:
        half = "" if curve.half_bytes is None else f", half {_half_text(curve)}"
        parts.append(f"peak busbw {_busbw(curve.peak)} GB/s ({_size(curve.peak)}){half}")
    if curve.smallest:
        size, time = _size(curve.smallest), _time(curve.smallest)
        if _has_latency(curve):
            parts.append(f"latency {time}" + (f" ({size})" if size else ""))
        else:
            parts.append(f"{size} takes {time}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _half_text(curve: CurveSummary) -> str:
    assert curve.half_bytes is not None
    if curve.is_below:
        return f"below {format_bytes(round(curve.half_bytes))}"
    return f"at about {format_about(curve.half_bytes)}"


def _condensed_text(kinds: Sequence[Sequence[ResultRow]], name: str) -> str:
    headings, cells, left = condensed_table(kinds)
    sizes = sorted({row.measurement.case.size_bytes for rows in kinds for row in rows} - {0})
    extent = f" from {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}" if sizes else ""
    note = (
        f"One row for each kind of call{extent}; the column `{_smallest_heading(kinds)}` is the "
        "time of the smallest size. "
        f"`commbench show {name}` prints a table with every size for each kind."
    )
    return "\n".join([*table(headings, cells, ",".join(left)), fill(clean(note), "  ", "  ")])


def condensed_table(
    kinds: Sequence[Sequence[ResultRow]],
) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """A table with a row for each kind: latency, peak bus bandwidth, half-bandwidth size. Returns
    its headings, its rows, and the headings of its columns of text."""
    firsts = [rows[0].measurement.case for rows in kinds]
    # A dimension that has one value per operation is left out.
    shown = [
        dimension
        for dimension in IN_TITLE
        if len({(case.operation, getattr(case, dimension.field)) for case in firsts})
        > len({case.operation for case in firsts})
        or dimension.field == "operation"
    ]
    headings = [dimension.word for dimension in shown]
    headings += [
        _smallest_heading(kinds),
        "peak busbw\nGB/s",
        "at size",
        "half of\npeak at",
        "wrong",
    ]
    cells = []
    for rows, case in zip(kinds, firsts, strict=True):
        curve = summarise_curve(rows)
        texts = [d.title(getattr(case, d.field)) if d.title else "" for d in shown]
        wrong = [row.measurement.wrong for row in rows if row.measurement.wrong is not None]
        cells.append(
            (
                *texts,
                _time(curve.smallest) if curve.smallest else "",
                _busbw(curve.peak) if curve.peak else "",
                _size(curve.peak) if curve.peak else "",
                _half_text(curve).removeprefix("at ").removeprefix("about ")
                if curve.half_bytes is not None
                else "",
                str(sum(wrong)) if wrong else "",
            )
        )
    busbw = len(shown) + 1
    aligned = align_decimals([row[busbw] for row in cells])
    cells = [
        (*row[:busbw], text, *row[busbw + 1 :]) for row, text in zip(cells, aligned, strict=True)
    ]
    return headings, cells, headings[: len(shown)]


def _not_measured_text(rows: Sequence[ResultRow]) -> str:
    return not_measured_text(describe_missing(rows))


def describe_missing(rows: Sequence[ResultRow]) -> list[str]:
    """What was not measured, and why: a line for each reason."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        measurement = row.measurement
        why = "" if row.time else measurement.outcome
        kinds.setdefault(measurement.case.title, []).append((measurement.case.name, why))
    return list_missing(kinds)


def _peak_cell(row: ResultRow, peak: Peak) -> str:
    share = find_peak_fraction(row, peak)
    return format_percent(share.fraction) if share else ""


def _size(row: ResultRow) -> str:
    case = row.measurement.case
    return format_bytes(case.size_bytes) if case.dtype else ""


def _count(row: ResultRow) -> str:
    return str(row.measurement.case.count) if row.measurement.case.dtype else ""


def _time_and_interval(row: ResultRow) -> tuple[str, str]:
    assert row.time is not None
    return format_known_time(row.time.median, row.time.low, row.time.high)


def _time(row: ResultRow) -> str:
    return _time_and_interval(row)[0]


def _undisturbed(row: ResultRow) -> str:
    """The time of undisturbed calls, the 5th percentile; empty where it is not known."""
    if row.time is None or row.time.p5 is None:
        return ""
    return format_known_time(row.time.p5, row.time.p5_low, row.time.p5_high)[0]


def _algbw(row: ResultRow) -> str:
    assert row.time is not None
    return format_known_GBps(row.algbw, row.algbw_at(row.time.high), row.algbw_at(row.time.low))


def _busbw(row: ResultRow) -> str:
    assert row.time is not None
    return format_known_GBps(row.busbw, row.busbw_at(row.time.high), row.busbw_at(row.time.low))


def _form_ratio(row: ResultRow) -> str:
    """The time over that of the direct call of the same bytes."""
    return run_notes.ratio_text(row.time, row.reference.time) if row.reference else ""


def _wrong(row: ResultRow) -> str:
    return "" if row.measurement.wrong is None else str(row.measurement.wrong)


def _note(row: ResultRow) -> str:
    """A word on a row that is not as the others: `cut off`, `wrong`."""
    measurement = row.measurement
    if measurement.status != OK:
        return measurement.status
    return CUT_OFF if row.stop_reason == CUT_OFF else ""


_OVER = TableColumn("over\ndirect", _form_ratio, 7, is_decimal=True)
"""Its heading names the form of the reference."""
COLUMNS = (
    TableColumn("size", _size, 9),
    TableColumn("count", _count, 1),
    TableColumn("time", _time, 9),
    TableColumn("95 % interval", lambda row: _time_and_interval(row)[1], 8),
    TableColumn("p5", _undisturbed, 6),
    TableColumn("NCCL", lambda row: " ".join(row.nccl_selection[:2]).strip(), 5, is_left=True),
    TableColumn("n", lambda row: str(row.time.iterations) if row.time else "", 4),
    TableColumn("algbw\nGB/s", _algbw, 3, is_decimal=True),
    TableColumn("busbw\nGB/s", _busbw, 8, is_decimal=True),
    _OVER,
    TableColumn("wrong", _wrong, 7),
    TableColumn("", _note, 9),
)
"""The columns of the table of a run, for rows that were timed."""
