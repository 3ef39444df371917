"""FORMATS: advice as text for a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from commbench.advise.advice import Advice, AdviceReport, Missing
from commbench.advise.buckets import BucketAdvice, BucketTime
from commbench.advise.choices import ChoiceAdvice
from commbench.advise.fsdp import GroupingAdvice
from commbench.advise.moe import MoEAdvice
from commbench.advise.sentences import names_of, time_text
from commbench.output import markdown, table
from commbench.output.paragraphs import fill, wrapped
from commbench.output.table import BOLD, style
from commbench.stats.estimate import Estimate
from commbench.units import format_bytes, format_count, format_interval, format_memory

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings and rows."""


def advice_text(report: AdviceReport, verbose: bool = False) -> str:
    """All advice for a terminal: tables and commands are indented, sentences wrapped."""
    lines = [fill(f"Advice from {', '.join(report.runs)}."), ""]
    for each in report.advice:
        lines += [style(f"{each.subject}: {_VERDICTS[each.verdict]}", BOLD)]
        lines += [wrapped(text, margin=2) for text in (each.about, *each.sentences)]
        if found := _table(each):
            lines += ["", *table.table(*found)]
            lines += [""] if each.paste or each.measure else []
        lines += [f"      {table.clean(line)}" for line in each.paste]
        for command in each.measure:
            lines.append(_fill(f"To know more: {command}", "  ", "    "))
        lines.append("")
    missing, more = _missing(report, verbose)
    if missing:
        lines.append(style("No advice about", BOLD))
    for lacking in missing:
        lines.append(_fill(f"{lacking.subject}: {lacking.needs}", "  ", "    "))
        if lacking.command:
            lines.append(_fill(lacking.command, "      ", "        "))
    if more:
        lines += [*([""] if missing else []), fill(more)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _missing(report: AdviceReport, verbose: bool) -> tuple[list[Missing], str]:
    """The choices without advice whose needs are printed, and a sentence about the others."""
    shown = [each for each in report.missing if verbose or each.is_asked]
    more = len(report.missing) - len(shown)
    said = (
        f"No advice about {format_count(more, 'other choice')}: `--verbose` says what is missing."
    )
    return shown, said if more else ""


def _fill(text: str, first: str, rest: str) -> str:
    """A paragraph whose words stay whole, because they are those of a command."""
    return fill(text, first, rest, break_on_hyphens=False, break_long_words=False)


_VERDICTS = {"change": "change it", "keep": "keep it", "undecided": "not decided"}


def advice_markdown(report: AdviceReport, verbose: bool = False) -> str:
    """All advice for a page or a pull request."""
    lines = [f"Advice from {markdown.escape(', '.join(report.runs))}.", ""]
    for each in report.advice:
        lines += [f"### {markdown.escape(each.subject)}: {_VERDICTS[each.verdict]}", ""]
        lines += [markdown.escape(each.about), ""]
        lines += [f"* {markdown.escape(text)}" for text in each.sentences]
        lines += [f"* To know more: `{_code(command)}`" for command in each.measure]
        if each.paste:
            lines += ["", "```", *(_code(line) for line in each.paste), "```"]
        if found := _table(each):
            lines += ["", *markdown.table(*found)]
        lines.append("")
    missing, more = _missing(report, verbose)
    if missing:
        lines += ["### No advice about", ""]
    for lacking in missing:
        command = f": `{_code(lacking.command)}`" if lacking.command else ""
        lines.append(
            f"* {markdown.escape(lacking.subject)}: {markdown.escape(lacking.needs)}{command}"
        )
    if more:
        lines += [*([""] if missing else []), more]
    return "\n".join(lines).rstrip("\n") + "\n"


def _code(text: str) -> str:
    return table.clean(text).replace("`", "'")


def advice_json(report: AdviceReport, verbose: bool = False) -> str:  # noqa: ARG001
    """Everything that is known about each piece of advice; null is what is not known. Times are in
    seconds, sizes in bytes; a gain is the time now over the time as recommended."""
    document = {
        "schema": SCHEMA,
        "runs": report.runs,
        "advice": [_as_json(each) for each in report.advice],
        "missing": [each._asdict() for each in report.missing],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _as_json(each: Advice) -> dict[str, Any]:
    words = {name: value for name, value in each._asdict().items() if name != "details"}
    return words | _JSON[type(each.details)](each.details)


def _estimate(value: Estimate | None) -> dict[str, float | None]:
    names = ("value", "ci_low", "ci_high")
    return {
        n: None if v is None else float(f"{v:.7g}")
        for n, v in zip(names, value or (None,) * 3, strict=True)
    }


def _bucket_json(found: BucketAdvice) -> dict[str, Any]:
    return {
        "gain": _estimate(found.gain),
        "gradient_bytes": found.step.gradient_bytes,
        "backward_s": found.step.backward_s,
        "communication_s": found.communication_s,
        "slowdown": found.slowdown._asdict(),
        "best_bytes": found.best.bucket_bytes,
        "recommended_bytes": found.recommended.bucket_bytes,
        "good_bytes": found.good,
        "now": _point_json(found.now),
        "curve": [_point_json(point) for point in found.curve],
    }


def _point_json(point: BucketTime) -> dict[str, Any]:
    return {
        "bucket_bytes": point.bucket_bytes, "time_s": _estimate(point.time),
        "buckets": point.buckets,
    }  # fmt: skip


def _grouping_json(found: GroupingAdvice) -> dict[str, Any]:
    return {
        "gain": _estimate(found.gain),
        "gain_without_reshard": _estimate(found.kept),
        "recommended_blocks": found.recommended.blocks,
        "slowdown": found.slowdown._asdict(),
        **found.step._asdict(),
        "curve": [
            {
                "blocks": point.blocks, "time_s": _estimate(point.time),
                "gathered_bytes": point.gathered_bytes,
            }
            for point in found.curve
        ],
    }  # fmt: skip


def _moe_json(found: MoEAdvice) -> dict[str, Any]:
    return {
        "ranks": found.ranks,
        "copies": found.copies,
        **found.routing._asdict(),
        "crossover_tokens": found.crossing._asdict() if found.crossing else None,
        "curve": [
            {
                "tokens": point.tokens, "all_gather_reduce_scatter_s": _estimate(point.gathered),
                "all_to_all_s": _estimate(point.exchanged), "ratio": _estimate(point.ratio),
            }
            for point in found.curve
        ],
    }  # fmt: skip


def _choice_json(found: ChoiceAdvice) -> dict[str, Any]:
    names = names_of(found)
    return {
        "kind": found.kind,
        "now": names[found.default],
        "ranges": [
            {
                "low_bytes": each.low_bytes, "high_bytes": each.high_bytes,
                "verdict": each.verdict, "best": names[each.best],
                "candidates": [names[setting] for setting in each.candidates],
                "gain": _estimate(each.gain),
                "slower": names[each.slower] if each.slower else None,
            }
            for each in found.ranges
        ],
        "crossovers": [
            {
                "below": names[a], "above": names[b], "at_bytes": crossing.at,
                "ci_low_bytes": crossing.low, "ci_high_bytes": crossing.high,
                "measured_below_bytes": crossing.below, "measured_above_bytes": crossing.above,
            }
            for a, b, crossing in found.crossings
        ],
    }  # fmt: skip


_JSON: dict[type, Callable[[Any], dict[str, Any]]] = {
    BucketAdvice: _bucket_json,
    GroupingAdvice: _grouping_json,
    MoEAdvice: _moe_json,
    ChoiceAdvice: _choice_json,
}

MOST_ROWS = 12


def _table(each: Advice) -> Table | None:
    """The figures of a piece of advice as a table, without empty columns; None where the sentences
    have them."""
    if not (found := _all_columns(each)):
        return None
    headings, rows = found
    kept = [index for index in range(len(headings)) if any(row[index] for row in rows)]
    return [headings[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _all_columns(each: Advice) -> Table | None:
    found = each.details
    if isinstance(found, BucketAdvice):
        return _bucket_table(found, each.verdict)
    if isinstance(found, GroupingAdvice):
        best = min(found.curve, key=lambda point: point.time.value)
        rows = [
            (
                str(p.blocks), time_text(p.time), _interval(p.time),
                format_memory(p.gathered_bytes), _mark(p, found, best, each.verdict),
            )
            for p in found.curve
        ]  # fmt: skip
        return ("blocks in a\ngroup", "step", "95 % interval", "gathered\nat once", ""), rows
    if isinstance(found, MoEAdvice):
        headings = ("tokens of\na rank", "all_gather +\nreduce_scatter", "2 all_to_all", "ratio")
        return headings, [
            (str(p.tokens), time_text(p.gathered), time_text(p.exchanged), _ratio(p.ratio))
            for p in _spread(found.curve)
        ]
    return None


_CHOSEN = {"change": "recommended", "undecided": "not decided"}
"""The mark of what is recommended, by verdict; none where that in use is kept."""


def _mark(point: Any, found: BucketAdvice | GroupingAdvice, best: Any, verdict: str) -> str:
    """What a point of a curve is: `now, best`."""
    chosen = _CHOSEN.get(verdict, "") if found.recommended != found.now else ""
    marks = ((found.now, "now"), (best, "best"), (found.recommended, chosen))
    return ", ".join(word for marked, word in marks if word and point == marked)


def _bucket_table(found: BucketAdvice, verdict: str) -> Table:
    """The sizes, or powers of two and those that are marked; the size in use is the last line."""
    best = found.best.time.value

    def mark(point: BucketTime) -> str:
        return _mark(point, found, found.best, verdict)

    def cells(point: BucketTime) -> tuple[str, ...]:
        over = f"{point.time.value / best:.3f}"
        texts = time_text(point.time), _interval(point.time)
        unsure = "extrapolated" if point.largest > found.table.largest else ""
        words = ", ".join(filter(None, (mark(point), unsure)))
        return format_bytes(point.bucket_bytes), str(point.buckets), *texts, over, words

    others = [point for point in found.curve if point != found.now]
    shown = [
        point
        for point in others
        if len(others) <= MOST_ROWS
        or mark(point)
        or point.bucket_bytes & (point.bucket_bytes - 1) == 0
    ]
    rows = [cells(point) for point in (*shown, found.now)]
    return ("bucket", "number", "backward", "95 % interval", "over\nbest", ""), rows


def _spread(points: Sequence[Any]) -> Sequence[Any]:
    step = -(-len(points) // MOST_ROWS)
    return points[::step]


def _interval(time: Estimate) -> str:
    if time.low is None or time.high is None:
        return ""
    return format_interval(time.low, time.high, time.value)


def _ratio(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


FORMATS: dict[str, Callable[..., str]] = {
    "table": advice_text,
    "markdown": advice_markdown,
    "json": advice_json,
}
"""Each makes text of a report, which ends with a line feed. `verbose` adds what is missing for
advice about choices that nobody asked for; JSON always has it."""
