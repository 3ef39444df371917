"""What the replay of a workload says: tables of its operations and of the whole step, what would be
saved, and a verdict. As text, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis.overlap import Estimate
from commbench.analysis.replay import (
    OperationReplay,
    StepReplay,
    VariantReplay,
    analyse_replay,
)
from commbench.analysis.workload import known_sum
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
from commbench.report.workload_text import COLUMNS as TRACE_COLUMNS
from commbench.report.workload_text import SLOW, short_time
from commbench.results.schema import Run
from commbench.spec.replay import MESSAGES, replayed_workload
from commbench.spec.workload import Workload
from commbench.spec.workload_fit import was_shrunk
from commbench.spec.workload_variants import BUCKET, CALLS, GAPS
from commbench.units import (
    GB,
    format_bytes,
    format_count,
    format_known_GBps,
    format_known_time,
    format_share,
    format_time,
    parse_size,
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
WHOLE = {CALLS: "all calls without gaps", GAPS: "all calls with gaps"}


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


def name_variant(variant: str) -> str:
    """A variant in words: `buckets of 50 MiB`."""
    name, _, size = variant.partition(":")
    if name == BUCKET:
        return f"buckets of {format_bytes(parse_size(size))}"
    return WHOLE.get(variant, variant.replace("+", " + "))


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
        title = style(clean(step_title(workload, found)), BOLD)
        lines = [title, *fitting_table(OPERATION_COLUMNS, found.operations), _fill(meanings(found))]
        if whole := whole_lines(found):
            lines += ["", *fitting_table(WHOLE_COLUMNS, whole)]
            lines += [_fill(text) for text in savings(found)]
        lines += ["", *(_fill(text) for text in verdict(workload, found))]
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


def savings(found: StepReplay) -> list[str]:
    """Sentences: how near the replay is to the trace, and what a step would save without waiting,
    and in its variants."""
    lines = []
    if ratio := found.step_over_trace:
        lines.append(
            f"With gaps, the replay takes {_times(ratio)} as long as the step of the trace."
        )
    if (waiting := found.waiting_s) is not None:
        share = f" ({format_share(waiting / found.step.time_s)} of it)" if found.step.time_s else ""
        lines.append(
            f"Without waiting, a step of the trace would be at most {format_time(waiting)}{share} "
            "shorter."
        )
    for each in found.variants:
        if each.ratio:
            lines.append(f"{_capital(name_variant(each.variant))}: {meaning_of(each.ratio)}.")
    compared = [each for each in found.variants if each.ratio]
    if compared:
        lines.append(f"Changes are against {WHOLE[found.baseline]}.")
    return lines


def meaning_of(ratio: Estimate) -> str:
    """What a ratio of two times means: `12 % less time`."""
    if ratio.low is None or ratio.high is None:
        return f"{_part(ratio.value)}, without an interval"
    if ratio.low <= 1 <= ratio.high:
        return "no difference that can be seen"
    return _part(ratio.value)


def _part(ratio: float) -> str:
    part = abs(ratio - 1)
    shown = f"{100 * part:.0f} %" if part >= 0.01 else f"{100 * part:.1g} %"
    return f"{shown} {'more' if ratio > 1 else 'less'} time"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].islower() and "_" not in text else text


def verdict(workload: Workload, found: StepReplay) -> list[str]:
    """One to three sentences: what takes most, how the network here is against that of the trace,
    and how much is waiting."""
    return [*_largest(found), *_against_trace(workload, found), *_waiting(found)]


def _largest(found: StepReplay) -> Iterator[str]:
    """Which operation takes most; sends and receives are messages, since each is both."""
    kinds: dict[str, list[OperationReplay]] = {}
    for one in found.operations:
        is_message = one.traced.operation in MESSAGES
        name = "messages" if is_message else one.traced.operation
        kinds.setdefault(f"{name} over {one.traced.group}", []).append(one)
    if len(kinds) == 1:
        yield f"All calls are {next(iter(kinds))}."
        return
    shares: dict[str, list[str]] = {}
    for where, seconds in (
        ("in the trace", lambda one: one.traced_s),
        ("here", lambda one: one.replayed and one.replayed.value),
    ):
        times = {name: known_sum(map(seconds, own)) for name, own in kinds.items()}
        if total := known_sum(times.values()):
            largest = max(times, key=lambda name: times[name] or 0.0)
            share = format_share((times[largest] or 0.0) / total)
            shares.setdefault(largest, []).append(f"{share} {where}")
    for name, parts in shares.items():
        takes = "take" if name.startswith("messages") else "takes"
        yield f"{name} {takes} most of the time of all calls: {', '.join(parts)}."


def _against_trace(workload: Workload, found: StepReplay) -> Iterator[str]:
    ratio = found.over_trace
    if ratio is None:
        return
    takes = f"The calls take {_times(ratio)} as long here as in the trace"
    if was_shrunk(workload):
        yield f"{takes}, which had more ranks: this does not compare the networks."
    elif ratio.low is None or ratio.high is None:
        yield f"{takes}; no interval is known."
    elif not ratio.low <= 1 <= ratio.high:
        yield f"{takes}: communication is {'slower' if ratio.value > 1 else 'faster'} here."
    else:
        yield f"{takes}: no difference that can be seen."


def _times(ratio: Estimate) -> str:
    """A ratio with its interval: `0.64 times (0.51-0.71)`."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} times"
    return f"{ratio.value:.2f} times ({ratio.low:.2f}-{ratio.high:.2f})"


def _waiting(found: StepReplay) -> Iterator[str]:
    if found.communication_s is None:
        return
    if found.waiting_s is None:
        yield "The trace does not say how much of it is waiting."
    elif found.communication_s:
        part = format_share(found.waiting_s / found.communication_s)
        yield f"{part} of the communication of the trace is waiting for slower ranks."


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
