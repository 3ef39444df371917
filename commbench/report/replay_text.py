"""What the replay of a workload says: tables of its operations and of the whole step, what would be
saved, and a verdict. As text, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.replay import (
    StepReplay,
    VariantReplay,
    analyse_replay,
)
from commbench.output import markdown
from commbench.output.paragraphs import fill
from commbench.output.table import (
    BOLD,
    TableColumn,
    clean,
    fill_columns,
    fitting_table,
    style,
)
from commbench.report.replay_sentences import name_variant, savings, verdict
from commbench.report.workload_text import COLUMNS as TRACE_COLUMNS
from commbench.report.workload_text import SLOW, short_time
from commbench.results.schema import Run
from commbench.spec.replay import replayed_workload
from commbench.spec.workload import Workload
from commbench.stats.estimate import Estimate
from commbench.units import (
    GB,
    format_count,
    format_known_GBps,
    format_known_time,
    format_time,
)

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow
    from commbench.spec.links import Peak

FIGURES = "All figures are sums over the calls of one step of one rank"
MEANINGS = {
    "bytes": "bytes: the sizes S, by nccl-tests' convention.",
    "traced": "traced: in the trace, {}.",
    "waiting": "waiting: what it took longer on ranks that waited for others.",
    "here": "replay: the medians here, each call measured alone.",
    "peak": "peak: the least time that the peak allows.",
}
"""What a column means."""


def _interval(time: Estimate | None) -> str:
    """The ends of an interval over its value, which takes less room than two times: `±3 %`."""
    if time is None or time.low is None or time.high is None or not time.value:
        return ""
    ends = [100 * abs(end / time.value - 1) for end in (time.low, time.high)]
    down, up = (f"{end:.{0 if max(ends) >= 9.5 else 1}f}" for end in ends)
    return f"±{up} %" if down == up else f"-{down}/+{up} %"


def _time(time: Estimate | None) -> str:
    return format_known_time(*time)[0] if time else ""


def _of_trace(heading: str, importance: int) -> TableColumn:
    """A column of the table of `commbench workload show`."""
    column = next(each for each in TRACE_COLUMNS if each.heading == heading)
    return column._replace(cell=lambda one: column.cell(one.traced), importance=importance)


def _bandwidth(busbw: Estimate | None) -> str:
    if busbw is None:
        return ""
    return format_known_GBps(*busbw) if busbw.value >= SLOW else f"<{SLOW / GB:g}"


OPERATION_COLUMNS = (
    _of_trace("group", 11),
    _of_trace("ranks", 1),
    _of_trace("operation", 12),
    _of_trace("calls", 4),
    _of_trace("bytes", 6),
    TableColumn("traced\ntime", lambda one: short_time(one.traced_s), 9),
    _of_trace("waiting", 7),
    TableColumn("replay\ntime", lambda one: _time(one.replayed), 10),
    TableColumn("95 %\ninterval", lambda one: _interval(one.replayed), 8),
    TableColumn(
        "busbw\nGB/s", lambda one: _bandwidth(one.busbw), 3, is_decimal=True
    ),
    TableColumn("at\npeak", lambda one: short_time(one.peak_s), 5),
)  # fmt: skip


class WholeLine(NamedTuple):
    """A line of the table of the whole step."""

    name: str
    time: str
    interval: str = ""
    change: str = ""
    """Against the baseline: `+7 %`, with its interval."""


WHOLE_COLUMNS = (
    TableColumn("whole step", lambda line: line.name, 9, is_left=True),
    TableColumn("time", lambda line: line.time, 8),
    TableColumn("95 %\ninterval", lambda line: line.interval, 7),
    TableColumn("change", lambda line: line.change, 6),
)


def whole_lines(found: StepReplay) -> list[WholeLine]:
    """The step in the trace, and in each variant that was measured."""
    named = (
        ("trace: whole step", found.step.time_s),
        ("trace: communication", found.communication_s),
        ("trace: without waiting", found.transfer_s),
        ("trace: without computation", found.calls_only_s),
    )
    lines = [
        WholeLine(name, format_time(seconds)) for name, seconds in named if seconds is not None
    ]
    for each in found.variants:
        if each.time:
            change = _change_text(each.ratio) if each.ratio else ""
            time, interval = _time(each.time), _interval(each.time)
            lines.append(WholeLine(name_variant(each.variant), time, interval, change))
    return lines


def _change_text(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{100 * (ratio.value - 1):+.0f} %"
    decimals = 1 if ratio.high - ratio.low < 0.02 else 0
    ends = (ratio.value, ratio.low, ratio.high)
    change, low, high = (f"{100 * (end - 1):+.{decimals}f}" for end in ends)
    return f"{change} % ({low} … {high} %)"


def replay_text(run: Run, rows: Sequence[ResultRow] | None = None, peak: Peak | None = None) -> str:
    """The tables and sentences of each step that a run replays; empty for another run."""
    if not run.header.plan.workload:
        return ""
    workload = replayed_workload(run.header.plan)
    parts = ["\n".join(fill(clean(f"note: {note}.")) for note in workload.notes)]
    for found in analyse_replay(run, rows, peak):
        title = fill(step_title(workload, found), rest="  ").split("\n")
        lines = [style(line, BOLD) for line in title]
        lines += [*fitting_table(OPERATION_COLUMNS, found.operations), _fill(meanings(found))]
        if whole := whole_lines(found):
            lines += ["", *fitting_table(WHOLE_COLUMNS, whole)]
            lines += [_fill(text) for text in savings(found)]
        lines += ["", _fill(" ".join(verdict(workload, found)))]
        parts.append("\n".join(lines))
    return "\n\n".join(filter(None, parts))


def _fill(text: str) -> str:
    return fill(clean(text), "  ", "  ")


def step_title(workload: Workload, found: StepReplay) -> str:
    """The workload and its step, and how often the trace has it."""
    step = found.step
    parts = [workload.name, *([] if step.name == workload.name else [step.name])]
    if step.time_s is not None:
        parts.append(
            f"{format_count(step.count, 'step')} of {format_time(step.time_s)} in its trace"
        )
    return "; ".join(parts)


def meanings(found: StepReplay) -> str:
    """What the figures of the table of operations are."""
    several = ", means over the ranks" if len(found.step.programs) > 1 else ""
    is_known = all(one.traced.transfer_s is not None for one in found.operations)
    shown = {
        "bytes": True,
        "traced": any(one.traced_s is not None for one in found.operations),
        "waiting": any(one.traced.waiting_s for one in found.operations),
        "here": True,
        "peak": any(one.peak_s is not None for one in found.operations),
    }
    texts = [text for name, text in MEANINGS.items() if shown[name]]
    how = "without waiting for other ranks" if is_known else "with waiting for other ranks"
    return " ".join([f"{FIGURES}{several}.", *texts]).format(how)


def replay_json(run: Run, peak: Peak | None = None) -> dict[str, Any]:
    """The figures of a replay as plain JSON values, named as in results.csv; null for what is
    not known."""
    workload = replayed_workload(run.header.plan)
    return {
        "name": run.name,
        "workload": workload.name,
        "world_size": workload.world_size,
        "notes": list(workload.notes),
        "steps": [_step_json(workload, found) for found in analyse_replay(run, None, peak)],
    }


def _step_json(workload: Workload, found: StepReplay) -> dict[str, Any]:
    return {
        "name": found.step.name,
        "count": found.step.count,
        "traced_s": found.step.time_s,
        "communication_s": found.communication_s,
        "communication_without_waiting_s": found.transfer_s,
        "calls_only_s": found.calls_only_s,
        "calls_over_trace": _estimate_json(found.over_trace),
        "step_over_trace": _estimate_json(found.step_over_trace),
        "baseline": found.baseline,
        "operations": [
            {
                **{f"traced_{n}" if n.endswith("_s") else n: v
                   for n, v in one.traced._asdict().items() if n not in ("step", "busbw", "share")},
                "replayed_s": _estimate_json(one.replayed),
                "busbw_GBps": one.busbw and {
                    name: None if end is None else end / GB
                    for name, end in one.busbw._asdict().items()
                },
                "at_peak_s": one.peak_s,
            }
            for one in found.operations
        ],
        "variants": [_variant_json(each) for each in found.variants],
        "verdict": verdict(workload, found),
    }  # fmt: skip


def _variant_json(each: VariantReplay) -> dict[str, Any]:
    return {
        "variant": each.variant,
        "time_s": _estimate_json(each.time),
        "over_baseline": _estimate_json(each.ratio),
        "why_not_measured": each.why,
    }


def _estimate_json(found: Estimate | None) -> dict[str, float | None] | None:
    return found and found._asdict()


def as_table(
    columns: Sequence[TableColumn], things: Sequence[Any]
) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """The headings and the rows of a table, and the headings of its columns of text."""
    filled = fill_columns(columns, things)
    rows = list(zip(*([cell.strip() for cell in cells] for _, cells in filled), strict=True))
    left = [column.heading for column, _ in filled if column.is_left]
    return [column.heading for column, _ in filled], rows, left


def replay_markdown(run: Run, peak: Peak | None = None) -> str:
    """The tables and sentences of a replay in GitHub's Markdown."""
    workload = replayed_workload(run.header.plan)
    lines = [f"### {markdown.escape(run.name)}", ""]
    lines += [f"- {markdown.escape(note)}" for note in workload.notes]
    for found in analyse_replay(run, None, peak):
        lines += ["", f"#### {markdown.escape(step_title(workload, found))}", ""]
        lines += [markdown.escape(" ".join(verdict(workload, found))), ""]
        for columns, things in (
            (OPERATION_COLUMNS, found.operations),
            (WHOLE_COLUMNS, whole_lines(found)),
        ):
            headings, rows, left = as_table(columns, things)
            lines += [*markdown.table(headings, rows, ",".join(left)), ""]
        lines += [f"- {markdown.escape(text)}" for text in savings(found)]
    return "\n".join(lines).rstrip() + "\n"
