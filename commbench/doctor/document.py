"""What a document of a check says: the problems, the limits of the host, and the CPU modes."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from operator import attrgetter
from typing import NamedTuple

from commbench.doctor.findings import STILL_QUIET
from commbench.doctor.mode_effects import ModeEffect
from commbench.doctor.mode_trials import MODES
from commbench.doctor.report import DoctorReport
from commbench.output.paragraphs import join_words
from commbench.stats.estimate import Estimate, known
from commbench.stats.verdict import FASTER, SLOWER
from commbench.units import format_bytes, format_count
from commbench.views.cells import (
    BANDWIDTH,
    BANDWIDTH_INTERVAL,
    NUMBER,
    RATIO,
    RATIO_INTERVAL,
    SHARE,
    TEXT,
    TIME,
    TIME_INTERVAL,
    Column,
    in_brackets,
    time_interval_text,
    time_text,
)
from commbench.views.document import BAD, GOOD, Block, Document, Facts, Folded, Items, Table
from commbench.views.facts import facts
from commbench.views.formats import View

RULE = (
    "A mode is faster or slower only if each of its launches is, compared with every launch of "
    "plain. The column `by chance` says how often noise alone does that: it must be 10 % or less, "
    "which takes 3 launches of each."
)


TONES = {FASTER: GOOD, SLOWER: BAD}


def document(report: DoctorReport) -> Document:
    """The problems first, and what they rest on."""
    problems = [f"{found.name}: {found.message}. {found.advice}." for found in report.findings]
    tone = BAD if problems else GOOD if report.trials and not report.ended else ""
    return Document(
        "What disturbs measurements on this host",
        _subtitle(report),
        [_answer(report)],
        [Items(problems, "Problems"), *_limits(report), *_modes(report), *_facts(report)],
        tone,
    )


def _subtitle(report: DoctorReport) -> list[str]:
    if not (host := report.facts):
        return []
    usable = f"{len(host.cores)} of {host.host_cores} cores may be used"
    fit = "1 rank fits" if host.ranks_fit == 1 else f"{host.ranks_fit} ranks fit"
    return [f"{host.host}: {usable}; {fit}"]


def _answer(report: DoctorReport) -> str:
    names = [finding.name for finding in report.findings]
    problems = f"{format_count(len(names), 'problem')}: {join_words(names)}." if names else ""
    if report.ended:
        stopped = "The check was stopped before its end, so the CPU modes are not compared."
        return f"{stopped} It found {problems}" if problems else stopped
    untried = "" if report.trials else ", but no CPU mode was tried"
    return problems or f"No problems found{untried}."


class Limit(NamedTuple):
    """A bandwidth that the host or gloo reaches."""

    what: str
    rate: Estimate | None
    loopback: Estimate | None


LIMIT_COLUMNS = (
    Column("limit of this host", attrgetter("what"), TEXT),
    Column("GB/s", attrgetter("rate"), BANDWIDTH),
    Column("least … most", attrgetter("rate"), BANDWIDTH_INTERVAL),
    Column(
        "of the loopback", lambda row: row.loopback and row.rate.value / row.loopback.value, SHARE
    ),
)


def _limits(report: DoctorReport) -> Iterator[Block]:
    """What loopback and memory can do, and what gloo reached in its best mode."""
    if not (found := report.ceilings):
        return
    loopback, trip = found.loopback_bytes_per_s, found.round_trip_s
    rates = [
        ("loopback TCP, one way", loopback),
        ("memory copied by one core", found.copy_one_bytes_per_s),
        (f"memory copied by {format_count(found.cores, 'core')}", found.copy_all_bytes_per_s),
    ]
    if best := max(report.effects, key=lambda e: e.busbw_bytes_per_s or 0, default=None):
        what = f"gloo, {best.mode}, {_sizes(best)}"
        rates.append((what, known(best.busbw_bytes_per_s)))
    yield Table("", LIMIT_COLUMNS, [Limit(*each, loopback) for each in rates if each[1]])
    notes = []
    if trip:
        interval = in_brackets(time_interval_text(trip))
        notes.append(f"Loopback TCP, a byte there and back: {time_text(trip)}{interval}.")
    if found.undisturbed:
        notes.append(
            "All but the copies by all cores were measured under SCHED_FIFO: other "
            "programs had to wait."
        )
    elif report.facts and (report.facts.busy_share or 0) > STILL_QUIET:
        notes.append("Other programs may have slowed these measurements down.")
    yield Items(notes)


def _sizes(effect: ModeEffect) -> str:
    largest = format_bytes(effect.sizes_bytes[-1])
    return f"up to {largest}" if len(effect.sizes_bytes) > 1 else largest


SIZE_COLUMNS = (
    Column("mode", attrgetter("mode"), TEXT),
    Column("size", _sizes, NUMBER),
    Column("time", attrgetter("time_s"), TIME),
    Column("of launches", attrgetter("time_s"), TIME_INTERVAL, 3),
    Column("time over\nplain", attrgetter("ratio"), RATIO),
    Column("of rounds", attrgetter("ratio"), RATIO_INTERVAL, 5),
    Column("stalled", attrgetter("stalled_share"), SHARE, 4),
    Column("queued", attrgetter("queued_share"), SHARE, 2),
    Column("n", attrgetter("launches"), NUMBER, 1),
)
EFFECT_COLUMNS = (
    *SIZE_COLUMNS[:6],
    Column("verdict", attrgetter("verdict"), TEXT),
    Column("by chance", attrgetter("chance"), SHARE, 6),
    *SIZE_COLUMNS[6:],
)


def _modes(report: DoctorReport) -> Iterator[Block]:
    """The effect of each mode on small and large sizes, and what was not tried."""
    effects = report.effects
    if report.ended:  # too few launches to compare the modes
        effects = tuple(each._replace(verdict="", chance=None) for each in effects)
    yield Table("", EFFECT_COLUMNS, effects, tone=lambda row: TONES.get(row.verdict, ""))
    refused = {t.mode: t.trouble.message for t in report.trials if t.trouble}
    notes = [RULE] if any(effect.verdict for effect in effects) else []
    notes += [f"{mode} is not available here: {why}." for mode, why in refused.items()]
    tried = {trial.mode for trial in report.trials}
    untried = [mode for mode in MODES if mode not in tried]
    if tried and untried:
        notes.append(f"Not tried, because the check ended before: {join_words(untried)}.")
    yield Items([*notes, *_missing(report, len(MODES) - len(refused))])
    yield Folded("Every size", [Table("", SIZE_COLUMNS, report.modes)] if report.modes else [])


def _missing(report: DoctorReport, modes: int) -> list[str]:
    """A sentence on the launches that are missing because the time was up."""
    options = report.request
    done = [trial.elapsed_s for trial in report.trials if trial.points]
    planned = options.rounds * modes
    if report.ended or not 0 < len(done) < planned:
        return []
    more = (planned - len(done) + 1) * sum(done) / len(done)
    return [
        f"The time was up after {len(done)} of {planned} launches. "
        f"--seconds {ceil((options.seconds + more) / 10) * 10} is probably enough for all."
    ]


def _facts(report: DoctorReport) -> Iterator[Block]:
    gpus = {f"GPU {gpu.address}": gpu for gpu in report.gpus}
    parts = {"Facts of this host": report.facts, "Around its GPUs": report.gpu_system, **gpus}
    return (Folded(title, [Facts([*facts(part)])]) for title, part in parts.items() if part)


VIEW = View(document, schema=1)
