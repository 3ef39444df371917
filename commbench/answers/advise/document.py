"""What a document of advice says: a sentence for each choice, then its figures, the lines to paste,
and what is missing for other choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from operator import attrgetter
from shlex import quote

from commbench.analysis.diagnostics import WAITED
from commbench.analysis.row_names import format_range
from commbench.answers.advise import simulation
from commbench.answers.advise.advice import DDP, Advice, AdviceReport, Missing, Question
from commbench.answers.advise.choices import ChoiceAdvice, RangeAdvice
from commbench.answers.advise.measured import LABEL, UNKNOWN, WIDE_SIZES
from commbench.answers.advise.simulation import BucketAdvice, BucketTime
from commbench.answers.cost.fit_document import crowd_text
from commbench.answers.show.run_notes import warnings_section
from commbench.errors import UnavailableError
from commbench.output.text import clean, join_words
from commbench.plan.call_forms import CALL_FORMS
from commbench.stats import CHANGE, KEEP, UNDECIDED, Estimate, ratio
from commbench.units import format_about, format_bytes, format_time
from commbench.views import cells, pictures
from commbench.views import document as doc
from commbench.views.cells import Column, Unit, times_text
from commbench.views.formats import View
from commbench.views.pictures import Axis, Curves, Look, Mark, Picture, Series, size_label

MOST_ROWS = 12
"""Rows of a curve that a terminal shows, unless all are asked for."""
_VERDICTS = {CHANGE: "change it", KEEP: "keep it", UNDECIDED: "not decided"}
_CHOSEN = {CHANGE: "recommended", UNDECIDED: "perhaps faster"}
"""The mark of what is recommended, by verdict; none where that in use is kept."""
_OVERLAP = "--overlap measures that"
MOST_PANELS = 6
BUCKETS = Axis(size_label, "bucket size; bucket_cap_mb is this in MiB")
MEMORY = Unit(format_about)


def document(report: AdviceReport) -> doc.Document:
    """All advice, and what is missing for more."""
    found = [*report.waited, *answers(report.advice, report.question)]
    found += [f"{m.subject}: {m.needs}." for m in report.missing if m.needs.startswith(UNKNOWN)]
    other = "`commbench compare` or the sweep's `show` says which run is faster."
    found = found or ["No advice yet: the table says what each choice needs."]
    found += [other] if not report.advice and report.may_compare else []
    blocks = [_section(each, report.question) for each in report.advice]
    runs = "; ".join(map(join_words, report.apart))
    text = "Devices or CPU modes differ: only the advice on the CPU mode compares these runs"
    apart = [f"{text}: {runs}"] if runs else []
    is_drawn = any(len(details.curve) > 1 for _, details in _simulated(report))
    return doc.Document(
        f"Advice from {', '.join(report.runs)}", apart, [*found, *crowd_text(report.crowd)],
        [warnings_section([("", w) for w in report.warnings]),
         *([doc.Pictures(lambda: [advice_picture(report)])] if is_drawn else []),
         *blocks, *_missing(report.missing), *_then(report)],
    )  # fmt: skip


def _then(report: AdviceReport) -> list[doc.Block]:
    """The command that advises from the runs that the commands above make, too."""
    asked = [each.command for each in report.missing if each.is_asked]
    commands = [*chain(*(each.measure for each in report.advice)), *asked]
    names = [quote(match[1]) for each in commands for match in LABEL.finditer(each)]
    runs = dict.fromkeys([*map(quote, report.sources), *names])
    line = " ".join(["commbench advise", *runs, report.question.options]).strip()
    return _code("Then, from all these runs:", [line]) if names else []


def _simulated(report: AdviceReport) -> list[tuple[Advice, BucketAdvice]]:
    """The advice on bucket sizes."""
    return [(a, a.details) for a in report.advice if isinstance(a.details, BucketAdvice)]


def answers(advice: Sequence[Advice], question: Question) -> list[str]:
    """A sentence about each piece of advice, which names its rows where others have its subject."""
    alike = Counter(each.subject for each in advice)
    return [
        f"{each.subject}{f' ({each.about})' * (alike[each.subject] > 1)}: "
        f"{_describe(each, question)[0]}."
        for each in advice
    ]


def _describe(advice: Advice, question: Question) -> tuple[str, list[doc.Block]]:
    """What to choose and what it gains; and the figures."""
    found, verdict = advice.details, advice.verdict
    if isinstance(found, BucketAdvice):
        return _buckets(found, verdict, question)
    return _choice_answer(found, verdict, question), _choices(found)


def _section(advice: Advice, question: Question) -> doc.Section:
    """The figures of a piece of advice."""
    blocks: list[doc.Block] = [doc.Text(advice.about), *_describe(advice, question)[1]]
    commands = [line for line in advice.measure if line.startswith("commbench ")]
    others = [each for each in advice.measure if each not in commands]
    runs = ["these:"] if commands else []
    blocks += _code(f"To {'choose' if advice.verdict == CHANGE else 'try'} it:", advice.paste)
    if advice.measure:
        text = f"To know more, measure {', or '.join([*others, *runs])}"
        blocks += _code(text, commands) or [doc.Text(f"{text}.")]
    return doc.Section(f"{advice.subject}: {_VERDICTS[advice.verdict]}", blocks)


def _code(text: str, lines: Sequence[str]) -> list[doc.Block]:
    return [doc.Code(text, "\n".join(map(clean, lines)))] if lines else []


def _missing(missing: Sequence[Missing]) -> list[doc.Block]:
    """What is missing, and the commands that measure it; first what is asked for."""
    columns = (
        Column("no advice about", attrgetter("subject"), cells.TEXT, 10),
        Column("what is missing", attrgetter("needs"), cells.TEXT, is_wrapped=True),
    )
    told = [each for each in missing if not each.needs.startswith(UNKNOWN)]  # not in the answer
    rows = sorted(told, key=lambda each: not each.is_asked)
    measure = [each.command for each in missing if each.command and each.is_asked]
    more = [each.command for each in missing if each.command and not each.is_asked]
    blocks = [
        doc.Table("", columns, rows, brief=[each for each in rows if each.is_asked]),
        *_code("What measures that:", measure),
    ]
    return [*blocks, *([doc.Folded("Commands for the others", _code("", more))] if more else [])]


def _decision(
    chosen: str, used: str, gain: Estimate, verdict: str, question: Question, reason: str,
    is_other: bool = True,
) -> str:  # fmt: skip
    """What to use; and why a gain is not decided: for a `reason`, or although its whole interval is
    above 1. `is_other`: whether what is chosen is not what is used."""
    gained = times_text(gain, "as fast")
    if verdict == CHANGE:
        return f"{chosen} instead of {used}, {gained}"
    if verdict == KEEP:
        return f"keep {used}; no other simulated size is more than {_percent(question)} faster"
    why, low = "", gain.ends[0]
    if reason:
        why = f", since {reason}"
    elif low > 1 + question.tolerance:
        why = ", but not with 95 % for all sizes and alternatives together (Bonferroni)"
    elif low > 1:
        why = f", perhaps less than the {_percent(question)} that count (--tolerance)"
    other, by = (chosen, f": {gained}") if is_other else ("another one", "")
    return f"the rows do not decide whether {other} is faster than {used}{by}{why}"


def _percent(question: Question) -> str:
    return f"{100 * question.tolerance:g} %"


# Simulated steps


def _buckets(found: BucketAdvice, verdict: str, question: Question) -> tuple[str, list[doc.Block]]:
    """The advice about bucket sizes. A terminal shows powers of two and those that are marked."""
    size, used = (format_bytes(p.bucket_bytes) for p in (found.recommended, found.now))
    used = f"torch's default of {used}" if question.bucket_bytes is None else used
    told = size, used, found.gain, verdict, question, WAITED * found.has_waited
    is_other = found.recommended != found.now
    answer = _decision(*told, is_other=is_other)
    if found.gain_in_turns and is_other and verdict != KEEP and not found.has_waited:
        perhaps, gains = "perhaps " * (verdict == UNDECIDED), (found.gain, found.gain_in_turns)
        best, least = (times_text(gain, "as fast") for gain in gains)
        answer = (
            f"{perhaps}{size} instead of {used}: {best} if computing and calls do not slow each "
            f"other, {least} if they only take turns; {_OVERLAP}"
        )
    elif found.gain_in_turns:
        answer += f", if computing and calls do not slow each other; {_OVERLAP}"
    elif run := found.slowdown.hides_nothing_in:
        answer += f". In {run} computation hides nothing of the communication"
        answer += ", so both are taken to take turns"
    elif found.slowdown.other_run:
        answer += f", if computing and calls slow each other as in {found.slowdown.other_run}"
    if verdict == KEEP and found.now.over_best.ends[1] > 1 + question.tolerance:
        over = cells.ratio_with_interval_text(found.now.over_best)
        answer += f". That is by medians, and not sure: {used} takes {over} times as long as the "
        answer += "size with the shortest median"
    if found.is_guess:
        most = format_bytes(found.table.largest)
        answer = f"not decided: the time of {used} is extrapolated far beyond the measured sizes"
        answer += f" (up to {most}), and not judged; the first command below measures larger ones"
    elif question.backward_s is None:
        assumed = format_time(found.step.backward_s)
        answer += f". A backward pass of {assumed} is assumed, as long as the communication: "
        answer += "measure yours without communication, and give --backward"
    now, chosen = found.now, found.recommended
    marks = {now: "now"}
    if chosen != now and verdict in _CHOSEN:
        marks[chosen] = _CHOSEN[verdict]

    def words(point: BucketTime) -> str:
        (low, high), most = point.over_best.ends, 1 + question.tolerance
        how = f"within {_percent(question)}" if high <= most else "slower" if low > most else ""
        if found.is_guess and found.now in (point, found.best):
            how = "not judged"  # the ratio to a guessed time
        elif point == found.best:
            how = "shortest median"
        times = point.largest_bytes / found.table.largest
        far = f" {int(times)} times" if times > simulation.FAR else ""
        between = "interpolated" * (point.largest_bytes not in found.table.sizes)
        kind = f"extrapolated{far}" if times > 1 else between
        return ", ".join(filter(None, (marks.get(point), kind, how or "not decided")))

    columns = (
        Column("bucket", attrgetter("bucket_bytes"), cells.BYTES),
        Column("number", attrgetter("buckets"), cells.NUMBER),
        Column("backward with\nall_reduce", attrgetter("time_s"), cells.TIME),
        Column("95 % interval", attrgetter("time_s"), cells.TIME_INTERVAL, 8),
        Column("", words, cells.TEXT, 7, is_wrapped=True),
    )
    rows = sorted({*found.curve, now}, key=attrgetter("bucket_bytes"))
    few = [p for p in rows if p in marks or p.bucket_bytes & (p.bucket_bytes - 1) == 0]
    table = doc.Table("", columns, rows, brief=few if len(rows) > MOST_ROWS + 1 else None)
    return answer, [table, doc.Facts([*_bucket_facts(found, verdict, question)])]


def _bucket_facts(
    found: BucketAdvice, verdict: str, question: Question
) -> Iterator[tuple[str, str]]:
    step, largest = found.step, found.table.largest
    low, high = found.good_bytes
    high = min(high, largest) if found.is_guess else high
    within = f", within {_percent(question)} of each other; sure where the table says so"
    if not (found.is_guess and found.best == found.now):
        yield (
            f"shortest median{'s' * (low < high)}",
            format_range(low, high) + within * (low < high),
        )
    if verdict == UNDECIDED and found.recommended != found.now:
        size = format_bytes(found.recommended.bucket_bytes)
        yield _CHOSEN[verdict], f"{size}, the middle of these; its gain is not sure"
    yield "gradients", format_about(step.gradient_bytes)
    speed = f"the gradients at the speed of {format_bytes(largest)}, the largest measured size"
    assumed = "" if question.backward_s else f", assumed: {speed}; the intervals are for this time"
    yield "backward alone", f"{format_time(step.backward_s)}{assumed}"
    sent = f"buckets of {format_bytes(found.recommended.bucket_bytes)}, one after another"
    alone = found.communication_s
    yield "all_reduce alone", f"{cells.time_with_interval_text(alone)}, {sent}"
    work, calls = map(cells.ratio_with_interval_text, found.slowdown.times)
    source, other = found.slowdown.source, found.slowdown.other_run
    times = f"calls take {calls} and {source} {work} times as long" + f", in {other}" * bool(other)
    turns = "they only take turns" * bool(found.slowdown.hides_nothing_in)
    yield "while both go on", turns or (times if source else "not measured: taken as no slower")
    if (least := simulation.least_size(step)) > found.table.smallest:
        smallest = format_about(min(least, found.curve[0].bucket_bytes))
        yield "not simulated", f"below {smallest}: more than {simulation.MOST_BUCKETS:,} buckets"
    if found.beyond:
        yield "not measured", f"buckets above {format_bytes(largest)}, which may be faster"
    if found.largest_sent > largest:
        sent = format_about(found.largest_sent)
        yield "extrapolated", f"a bucket of {sent}, along the two largest measured sizes"
    if not found.best.time_s.has_interval:
        yield "intervals", "not known: the medians alone decide"
    if (busy := found.table.busy) and busy.kind == simulation.ESTIMATED:
        yield "following calls", "estimated from single calls: several go on at once"
    elif busy:
        yield "following calls", f"as measured in {busy.kind}"


# Forms of calls, graphs, memory and settings


def _choice_answer(found: ChoiceAdvice, verdict: str, question: Question) -> str:
    names, decided = found.names, []
    for each in found.ranges:
        if each.verdict == verdict != KEEP and each.alternative and each.gain:
            sizes = format_range(each.low_bytes, each.high_bytes)
            default = names[found.default]
            default += " (no rank is bound to a core)" * (default == "plain")
            used = f"{default}{f' for {sizes}' if sizes else ''}"
            reason = "they did not run in turns" if each.is_apart else WAITED * each.has_waited
            told = names[each.alternative], used, each.gain, verdict, question, reason
            decided.append(_decision(*told) + _by_size(found, each))
    return "; ".join(decided) or f"keep {names[found.default]}"


def _by_size(found: ChoiceAdvice, each: RangeAdvice) -> str:
    """The gains at single sizes, where one is beyond the interval of that of all."""
    inside = (p for p in found.points if each.low_bytes <= p.size_bytes <= each.high_bytes)
    times = ({rank.setting: rank.time for rank in point.by_time} for point in inside)
    pair = found.default, each.alternative or found.default
    gains = [gain for own in times if (gain := ratio(*map(own.get, pair)))]
    low, high = each.gain.ends if each.gain else (0.0, inf)
    if all(low <= gain.value <= high for gain in gains):
        return ""
    return f", {cells.ratios_text(gains)} times by size"


def _choices(found: ChoiceAdvice) -> list[doc.Block]:
    names = found.names

    def others(each: RangeAdvice) -> str:
        left = [s for s in each.candidates if s not in (found.default, each.alternative)]
        said = {"": left, "not decided, ranks waited: ": each.undecided}
        return "; ".join(
            f"{how}{join_words([names[s] for s in of])}" for how, of in said.items() if of
        )

    alternatives = (
        Column("sizes", lambda each: format_range(each.low_bytes, each.high_bytes), cells.TEXT),
        Column("verdict", lambda each: _VERDICTS[each.verdict], cells.TEXT),
        Column(
            "alternative", lambda each: names.get(each.alternative), cells.TEXT, is_wrapped=True
        ),
        Column("times\nas fast", attrgetter("gain"), cells.RATIO),
        Column("95 %\ninterval", attrgetter("gain"), cells.RATIO_INTERVAL, 8),
        Column("may be\nas fast", others, cells.TEXT, 7, is_wrapped=True),
    )
    fallbacks = dict.fromkeys(names[each.fallback] for each in found.ranges if each.fallback)
    copies = f"Where the tensors are not one block of memory, use {' or '.join(fallbacks)}."
    blocks: list[doc.Block] = [
        doc.Table(f"Compared with {names[found.default]}", alternatives, found.ranges)
    ]
    every = [(found.default, r.alternative, *r.candidates, *r.undecided) for r in found.ranges]
    shown = [names[s] for s in dict.fromkeys(chain(*every)) if s]
    forms = [CALL_FORMS[name] for name in shown if name in CALL_FORMS]
    blocks += [doc.Facts([(form.name, form.summary) for form in forms])]
    blocks += [doc.Text(copies)] if fallbacks else []
    columns = (
        Column("faster below", lambda each: names[each.below], cells.TEXT, is_wrapped=True),
        Column("faster above", lambda each: names[each.above], cells.TEXT, is_wrapped=True),
        Column("crossover", attrgetter("at_bytes"), MEMORY),
        Column("measured\nbelow", attrgetter("measured_below_bytes"), cells.BYTES, 7),
        Column("measured\nabove", attrgetter("measured_above_bytes"), cells.BYTES, 7),
    )
    return [*blocks, doc.Table("", columns, found.crossings)]


# The picture of a backward pass over the bucket size.


def advice_picture(report: AdviceReport) -> Picture:
    """The backward pass over the bucket size, a panel for each group of ranks; UnavailableError,
    with the options or the command that help, where no size was simulated or only one."""
    simulated = _simulated(report)[:MOST_PANELS]
    drawable = [(advice, found) for advice, found in simulated if len(found.curve) > 1]
    if not drawable:
        missing = [each for each in report.missing if each.subject.startswith(DDP)]
        why = missing[0].needs if missing else "there is only one size to draw"
        commands = [each.command for each in missing] or simulated[0][0].measure
        known = next((line for line in commands if WIDE_SIZES in line), "")
        hint = known or "add --params 350M --backward 120ms; more of them make more sizes"
        raise UnavailableError(f"no plot of bucket sizes: {why}", hint)
    sentences = answers([advice for advice, _ in drawable], report.question)
    title = f"Backward pass over the bucket size: {report.runs[0]}"
    panels = [_panel(*pair) for pair in drawable]
    shown = sentences if len(panels) == 1 else []
    return Picture("buckets", title, " ".join(sentences), panels, shown)


def _panel(advice: Advice, found: BucketAdvice) -> Curves:
    sizes = [point.bucket_bytes for point in found.curve]
    low, high = max(found.good_bytes[0], sizes[0]), min(found.good_bytes[1], sizes[-1])
    good = Mark(
        Look(pictures.COLOURS[2], fill=0.18), low / 1.06, high * 1.06,
        f"medians within {100 * found.tolerance:g} % of the shortest", is_upright=True,
    )  # fmt: skip
    marks = [good] if low <= high and not found.is_open else []
    now, alone = found.now.time_s.value, found.step.backward_s
    others = (
        Mark(Look(pictures.COLOURS[1], dashes=(5, 2), width=1.3), now, name="buckets in use"),
        Mark(Look(pictures.GREY, dashes=(1.2, 1.2), width=1.0), alone, name="backward alone"),
    )
    values = [point.time_s.value for point in found.curve]
    # One that is far from the curve would take most of the panel.
    marks += [m for m in others if min(values) / 2 <= m.low <= max(values) * 2]
    points = [(point.bucket_bytes, point.time_s) for point in found.curve]
    series = [Series("simulated from measured times", pictures.nth_look(0), points)]
    if not found.is_open:
        best = (found.recommended.bucket_bytes, Estimate(found.recommended.time_s.value))
        name = "recommended" if advice.verdict != UNDECIDED else _CHOSEN[UNDECIDED]
        series.append(Series(name, Look(pictures.INK, "*", None, size=8), [best]))
    heading = f"Backward pass and all_reduce: {advice.about}"
    return Curves(heading, series, across=BUCKETS, marks=marks, inches=2.8)


VIEW = View(document, schema=4)
