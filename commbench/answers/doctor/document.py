"""What a document of a check says: the problems, rates of the host, and the CPU modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from operator import attrgetter, itemgetter

from commbench.answers.doctor.checkup import DoctorReport
from commbench.answers.doctor.cpu_modes import FEWEST_LAUNCHES, ModeEffect
from commbench.answers.doctor.measure import REPEATS
from commbench.output.text import join_words
from commbench.stats import FASTER, SLOWER, UNDECIDED, Estimate, known, ratio
from commbench.units import format_bytes, format_count, format_rough_percent, format_share
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import BAD, GOOD, Block, Document, Facts, Folded, Items, Table
from commbench.views.formats import View, facts

RULE = (
    "A mode is faster or slower only if each of its launches is, compared with every launch of "
    "plain (quiet also of the best mode). Noise alone does that in {} of comparisons; a verdict "
    f"needs {FEWEST_LAUNCHES} launches of each."
)
TONES = {FASTER: GOOD, SLOWER: BAD}


def document(report: DoctorReport) -> Document:
    """The problems first, each with what to do, and what they rest on."""
    is_judged = report.trials and not (report.ended or report.unjudged)
    tone = BAD if report.findings else GOOD if is_judged else ""
    blocks = [*_rates(report), *_modes(report), *_facts(report)]
    return Document("What disturbs measurements on this host", (), [*_answer(report)], blocks, tone)


def _answer(report: DoctorReport) -> Iterator[str]:
    yield from (f"{found.message}. {found.advice}." for found in report.findings)
    done, planned = report.launches
    if not report.ended and report.unjudged:
        found = "" if report.findings else "No problem was found. "
        modes = join_words(report.unjudged)
        few = f"{done} of {planned} launches were made, too few to judge the CPU modes {modes}"
        yield f"{found}{few}: {_more_seconds(report)}."
    elif not report.findings and not report.ended:
        in_mode = " with --cpu-mode quiet, the default"
        yield f"No problems found{in_mode if report.trials else ', but no CPU mode was tried'}."
    if report.ended:
        yield f"Stopped after {done} of {planned} launches, so the CPU modes are not compared."
    yield from _mode_answers(report)
    if host := report.facts:
        cores = f"{len(host.cores)} of {host.host_cores} cores of {host.host}"
        yield f"{cores} may be used: enough for {format_count(host.ranks_fit, 'rank')}."


def _mode_answers(report: DoctorReport) -> Iterator[str]:
    """Which mode is the best, which are undecided, and what decides them."""
    modes, best, stalled = {effect.mode for effect in report.effects}, report.best, ""
    if best:
        if best.stalled_share is not None:
            stalled = f"; {format_share(best.stalled_share)} of them are interrupted"
        takes, name = best.takes("plain"), f"--cpu-mode {best.mode}"
        yield f"Best of {len(modes)} CPU modes: {name}. Small calls take {takes}{stalled}."
        told = {"quiet_slower", "quiet_undecided"} & {found.name for found in report.findings}
        if (quiet := next(iter(report.quiet), None)) and quiet.verdict == UNDECIDED and not told:
            yield f"With quiet, the default, they take {quiet.takes(best.mode)}: undecided."
        for each in report.small:
            if each.verdict == UNDECIDED and each.time_s.value < best.time_s.value:
                yield f"{each.mode} may be better still: {each.takes('plain')}."
    elif report.small and not report.unjudged:
        shares = (e.stalled_share for e in report.effects if e.stalled_share is not None)
        if least := min(shares, default=0.0):
            stalled = f", and calls are interrupted in each ({format_share(least)} or more)"
        yield f"No CPU mode is seen to make small calls faster than plain, beyond noise{stalled}."
        if large := [e.mode for e in report.effects if e.verdict == FASTER]:
            yield f"Large calls are faster in {join_words(large)}."
    unknown = [effect for effect in report.small if effect.verdict == UNDECIDED]
    if unknown and not report.unjudged:
        done, planned = report.launches
        what = _more_seconds(report) if done < planned else (
            "run `commbench doctor --rounds 12 --seconds 240` while nothing else runs"
        )  # fmt: skip
        plain = next(each for each in report.effects if each.mode == "plain")
        took = join_words([f"{cells.time_text(e.time_s)} in {e.mode}" for e in (*unknown, plain)])
        yield f"Small calls take {took}: which of these is fastest is undecided; {what}."


def _more_seconds(report: DoctorReport) -> str:
    """What makes all launches that were planned, and as many rounds as a verdict needs."""
    done, planned = report.launches
    rounds = max(report.request.rounds, FEWEST_LAUNCHES)
    seconds = 1.2 * report.request.seconds * planned / done  # a fifth for slower launches
    seconds *= rounds / report.request.rounds
    return f"run `commbench doctor --rounds {rounds} --seconds {ceil(seconds / 10) * 10}`"


RATE_COLUMNS = (
    Column("measured on this host", itemgetter(0), cells.TEXT),
    Column("GB/s", lambda row: row[1].value, cells.BANDWIDTH),
    Column("least … most", itemgetter(1), cells.BANDWIDTH_INTERVAL),
    Column("over the\nloopback", itemgetter(2), cells.RATIO),
)


def _rates(report: DoctorReport) -> Iterator[Block]:
    """What one connection and memory reached, and gloo in its best mode."""
    if not (found := report.bandwidth):
        return
    loopback, trip = found.loopback_bytes_per_s, found.round_trip_s
    rates = {
        "one loopback connection, one way": loopback,
        "memory copied by one core": found.copy_one_bytes_per_s,
        f"memory copied by {format_count(found.cores, 'core')} at once": found.copy_all_bytes_per_s,
    }
    if best := max(report.effects, key=lambda e: e.busbw_bytes_per_s or 0, default=None):
        rates[f"gloo, {best.mode}, {_sizes(best)}"] = known(best.busbw_bytes_per_s)
    rows = [(what, rate, ratio(rate, loopback)) for what, rate in rates.items() if rate]
    yield Table("", RATE_COLUMNS, rows)
    notes = [
        f"Medians of {REPEATS} repeats, no limits: with several connections at once, or at another "
        "time, ranks may be faster."
    ]
    if trip:
        text, repeats = cells.time_text(trip), cells.time_interval_text(trip)
        notes.append(f"A byte over the loopback and back: {text} (repeats: {repeats}).")
    if found.undisturbed:
        notes.append("All but the copies by all cores had SCHED_FIFO: other programs had to wait.")
    yield Items(notes)


def _sizes(effect: ModeEffect) -> str:
    largest = format_bytes(effect.sizes_bytes[-1])
    return f"to {largest}" if len(effect.sizes_bytes) > 1 else largest


def _range(found: Estimate | None) -> Estimate | None:
    """What several launches gave; None of one launch, which has no range."""
    return found if found and found.low != found.high else None


COLUMNS = (
    Column("mode", attrgetter("mode"), cells.TEXT),
    Column("size", _sizes, cells.NUMBER),
    Column("time", attrgetter("time_s"), cells.TIME),
    Column("of launches", lambda row: _range(row.time_s), cells.TIME_INTERVAL, 3),
    Column("time over\nplain", attrgetter("ratio"), cells.RATIO),
    Column("of launches ", lambda row: _range(row.ratio), cells.RATIO_INTERVAL, 5),
    Column("verdict", attrgetter("verdict"), cells.TEXT),
    Column("inter-\nrupted", attrgetter("stalled_share"), cells.SHARE, 7),
    Column("waited\nfor a core", attrgetter("queued_share"), cells.SHARE, 2),
    Column("n", attrgetter("launches"), cells.NUMBER, 1),
)


def _without_verdicts(effects: Sequence[ModeEffect]) -> list[ModeEffect]:
    return [each._replace(verdict="", chance=None) for each in effects]


def _modes(report: DoctorReport) -> Iterator[Block]:
    """The effect of each mode on small and large sizes, and what was not tried."""
    # Of a check that ended early, the launches are too few to compare the modes.
    effects = _without_verdicts(report.effects) if report.ended else report.effects
    yield Table("", COLUMNS, effects, tone=lambda row: TONES.get(row.verdict, ""))
    chances = {format_rough_percent(effect.chance): None for effect in effects if effect.chance}
    notes = [RULE.format(join_words([*chances], "or"))] if chances else []
    notes += [
        f"{mode} is not available here: {why.message}." for mode, why in report.refused.items()
    ]
    yield Items(notes)
    if report.modes:
        yield Folded("Every size", [Table("", COLUMNS, _without_verdicts(report.modes))])


def _facts(report: DoctorReport) -> Iterator[Block]:
    gpus = {f"GPU {gpu.address}": gpu for gpu in report.gpus}
    parts = {"Facts of this host": report.facts, "Around its GPUs": report.gpu_system, **gpus}
    return (Folded(title, [Facts([*facts(part)])]) for title, part in parts.items() if part)


VIEW = View(document, schema=1)
