"""DIAGNOSTICS: the warnings about a measurement, the most important first; and what is said of
ranks that waited for a core.

Each has a name, a figure and a threshold; diagnostics.txt has what its name means, its message, its
advice and an explanation. They are computed from the journal whenever a run is read, so a better
rule applies to old runs too. The notes of `show`, the rows of `explain`, the column `warnings` of
results.csv and JSON all come from this table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.analysis import clearer
from commbench.analysis import diagnostic_figures as figures
from commbench.analysis.statistics import median
from commbench.analysis.two_groups import BIMODAL
from commbench.host.cpu import PLAIN
from commbench.host.gpu_system import explain_counter
from commbench.output.text import join_words, list_some, read_sections
from commbench.plan.dimensions import PIPELINED
from commbench.results.schema import IN_SWEEP, Measurement, RunHeader, is_imported, is_in_process
from commbench.stats import collect
from commbench.units import format_rough, format_share
from commbench.views.cells import ratio_interval_text

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow

_RUN_DOCTOR = "run `commbench doctor`"


class Diagnostic(NamedTuple):
    """One way in which a measurement can mislead."""

    name: str
    figure: Callable[[ResultRow], float | None]
    """What is compared with the threshold; None where it is unknown or does not apply."""
    threshold: float
    """The diagnostic applies where the figure is above it."""
    words: str
    """What the name means, in two or three plain words."""
    message: str
    """What is wrong, in a few words. `{}` is the largest figure of the rows concerned, `{percent}`
    the same in percent, with `up to` where it is of one row of several, `{capped}` likewise, and
    100 % at most; `{part}` is `14 % of` or `1.4 times`, and `{longer}` is 1 more than the figure;
    `{names}` are those of its row. `{interval}` is the interval of that row's time over the
    median, and `{backend}` the backend of its run."""
    advice: str
    """What to do about it, in a few words; the blanks are of _BLANKS: options that the run takes
    and has not used yet."""
    explanation: str
    """What the message means, and what else to do, in sentences."""
    explained_by: tuple[str, ...] = ()
    """Diagnostics that give the reason. Where one of them applies, its message has this one."""
    names: Callable[[ResultRow], Sequence[str]] = lambda _: ()
    """What it is about: variables, counters, ranks, reasons."""
    is_enough: Callable[[ResultRow], bool] = lambda _: False
    """Whether a row needs no advice; where the worst row needs none, none has any."""

    def follows_from(self, cause: Diagnostic) -> bool:
        """Whether it is explained by a diagnostic, or by one that this explains."""
        return cause.name in self.explained_by or any(
            each.follows_from(cause) for each in DIAGNOSTICS if each.name in self.explained_by
        )

    def describe(self, concerned: Sequence[tuple[ResultRow, float]]) -> str:
        """Message and advice for the rows concerned, each with its figure, and what it explains."""
        message, several = self._message(concerned), len(concerned)
        worst, _ = max(concerned, key=itemgetter(1))
        rows = [] if self.is_enough(worst) else [row for row, _ in concerned]
        unsure = [row for row in rows if not self.is_enough(row)]
        headers = {id(row.header): row.header for row in unsure}.values()
        advice = {
            self.advice.format_map({name: make(header) for name, make in _BLANKS.items()})
            for header in headers
        }
        todo = f"; {advice.pop() if len(advice) == 1 else _RUN_DOCTOR}" if advice else ""
        message += "" if is_imported(concerned[0][0].header) else todo
        effects = Counter(effect for row, _ in concerned for effect in _find_effects(self, row))
        told = [
            where + join_words(words)
            for where, is_all in (("This explains ", True), ("In some rows this explains ", False))
            if (words := [e.words for e, n in effects.most_common() if (n == several) == is_all])
        ]
        return ". ".join([message, *told])

    def _message(self, concerned: Sequence[tuple[ResultRow, float]]) -> str:
        row, worst = max(concerned, key=lambda found: found[1])
        plan, is_one = row.header.plan, len(concerned) == 1
        up_to = "" if is_one else "up to "
        time = row.time and row.time.estimate
        over = time.scaled(1 / time.value) if time and time.value else None
        ends = ratio_interval_text(over)
        interval = f"is {ends} times the median" if ends else "is too wide to be told"
        return self.message.format(
            worst,
            percent=up_to + format_share(worst),
            capped=up_to + format_share(min(worst, 1.0)),
            part=up_to
            + (f"{format_share(worst)} of" if worst < 1.05 else f"{format_rough(worst)} times"),
            longer=f"{up_to}{1 + worst:.3g}",
            interval=f"{'the' if is_one else 'their worst'} interval {interval}",
            backend=plan.backend,
            names=list_some(self.names(row), 1),
        )


def diagnose_row(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics that apply to a row, each with its figure, in the order of the table."""
    if not (row.measurement.batches and row.time):
        return {}
    found = ((diagnostic, diagnostic.figure(row)) for diagnostic in DIAGNOSTICS)
    return {d: figure for d, figure in found if figure is not None and figure > d.threshold}


def find_causes(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics of a row without those that another of them explains."""
    names = {diagnostic.name for diagnostic in row.diagnoses}
    return {d: figure for d, figure in row.diagnoses.items() if names.isdisjoint(d.explained_by)}


def _find_effects(cause: Diagnostic, row: ResultRow) -> list[Diagnostic]:
    """The diagnostics of a row that this cause explains, as the first of the row's causes."""
    causes = find_causes(row)
    return [
        d for d in row.diagnoses
        if d not in causes and next(filter(d.follows_from, causes)) is cause
    ]  # fmt: skip


MOST_QUEUED = 0.4
"""The part of the time that ranks may wait for a core. Two ranks bound to the cores of an idle host
wait for up to 0.3 of it, and for 0.5 and more where another program never leaves a core."""
WAITED = f"ranks waited for a core over {format_share(MOST_QUEUED)} of the time"
_SO = "this shows the host, not the network"
WAITED_SENTENCE = f"{WAITED.capitalize()}: {_SO}"
_BUSY = "Use an idle host"
QUEUED = "queued"
"""The diagnostic that says of which rows that is so."""


def has_waited(queued_share: float | None) -> bool:
    """Whether ranks waited for a core for so much of the time that it is the host which decides how
    long calls take. No answer has a verdict on such rows."""
    return (queued_share or 0.0) > MOST_QUEUED


LONGER = 0.2
"""Ranks that wait for a core so much more of the time may be slower for that."""


def launch_shares(measurement: Measurement) -> dict[int, float]:
    """The part of the time that ranks waited for a core, by launch, counted from 1."""
    launches = collect((batch.launch + 1, batch) for batch in measurement.batches)
    shares = ((n, figures.find_interference(own, ()).queued_share) for n, own in launches.items())
    return {n: share for n, share in shares if share is not None}


def waited_launches(measurement: Measurement) -> list[int]:
    """The launches in which the ranks of a row waited so long, or LONGER than in the median one."""
    shares = launch_shares(measurement)
    most = min(MOST_QUEUED, median(sorted(shares.values())) + LONGER) if shares else 0.0
    return [n for n, share in shares.items() if share > most]


def _odd_launch(row: ResultRow) -> list[str]:
    """The launch that alone differs, and whether that is because its ranks waited for a core; else
    those in which they did."""
    is_round = len(row.launch_medians) > row.header.plan.launches
    word, words = ("round", "rounds") if is_round else ("launch", "launches")
    if not row.odd_launch:
        waited = waited_launches(row.measurement)
        if not 0 < len(waited) < len(row.launch_medians):
            return []
        where = f"{words if waited[1:] else word} {join_words([*map(str, waited)])}"
        return [f": ranks waited for a core much of the time in {where}"]
    number, times = row.odd_launch
    parts = _odd_waits(row)
    waits = " (its ranks waited for a core {1} of the time, theirs {0})".format(*parts or "  ")
    took = f"{word} {number} took {format_rough(times)} times as long as the others"
    return [f": {took}{waits * bool(parts)}"]


def _odd_waits(row: ResultRow) -> tuple[str, str] | None:
    """longer_waits of the other launches and of the one that alone differs, if one does."""
    if not row.odd_launch:
        return None
    (number, times), shares = row.odd_launch, launch_shares(row.measurement)
    own = [shares.pop(number, None)]
    return longer_waits(shares.values(), own, is_slower=times > 1)


def longer_waits(
    a: Iterable[float | None], b: Iterable[float | None], is_slower: bool = True
) -> tuple[str, str] | None:
    """The parts of the time that ranks waited for a core in rows or runs of A and of B, on average,
    where they waited longer in B, if that `is_slower`, else in A; None where they did not."""
    shares = [[each for each in own if each is not None] for own in (a, b)]
    first, second = map(fmean, shares) if all(shares) else (0.0, 0.0)
    is_so = (second - first if is_slower else first - second) >= LONGER
    return (format_share(first), format_share(second)) if is_so else None


def waited_hint(headers: Iterable[RunHeader | None]) -> str:
    """What to do against that, where it is the same for all these runs."""
    every = [*headers]
    bound = [header for header in every if header and header.plan.cpu_mode != PLAIN]
    hints = {_waited_hint(header) for header in bound or every}
    return hints.pop() if len(hints) == 1 else _waited_hint(None)


def _waited_hint(header: RunHeader | None) -> str:
    if header and header.plan.needs_two_cores:
        return f"{_BUSY}, with two cores for each rank, which --overlap needs."
    if header and (figures.ranks_per_core(header) or 0.0) > 1.0:
        return "Give each rank a core."
    if header and is_in_process(header) and header.plan.device == "cpu":
        return f"{_BUSY}, and bind each rank to a core of its own: measure() binds none."
    if header is None or header.plan.device != "cpu":
        return f"{_BUSY}, with a core for each rank."
    return busy_hint(header.plan.cpu_mode, clearer.may_use_realtime(header))


def busy_hint(cpu_mode: str, is_allowed: bool = True) -> str:
    """The same for ranks on CPUs with a core each, which may use the mode realtime or not."""
    if cpu_mode == "realtime":
        return f"{_BUSY}: interrupts, or other programs with realtime priority, had the cores."
    mode = clearer.REALTIME if is_allowed else "another --cpu-mode"
    if cpu_mode == PLAIN:  # not bound to cores, so they also wait for each other
        mode = (
            f"--cpu-mode quiet, which gives each rank a core, or {mode.removeprefix('--cpu-mode ')}"
        )
    return f"{_BUSY}, or {mode}; `commbench doctor` tries every mode."


def waited_sentences(
    queued: Sequence[float | None], headers: Iterable[RunHeader | None], name: str = "",
    whose: str = "",
) -> list[str]:  # fmt: skip
    """The answer to rows of which more than half say that ranks waited for a core, and what to do;
    `queued` has the part of the time of each row, None where it is not known, and `headers` are
    those of their runs. `name`: of their run, where it is one of several; `whose`: of the one run
    of several whose ranks waited. Of several CPU modes that are compared, waiting is an effect."""
    some = sum(map(has_waited, queued))
    if 2 * some <= len(queued):
        return []
    headers = [*headers]
    modes = dict.fromkeys(h.plan.cpu_mode for h in headers if h and h.plan.device == "cpu")
    if len(modes) > 1:
        named = list_some([*modes], 5)
        return [f"{WAITED.capitalize()}; how long depends on the CPU mode ({named})."]
    rows = f" ({some} of {len(queued)} rows)" * (some < len(queued))
    rows += f", in {whose}" * bool(whose)
    sentence = f"{name}: {WAITED}: {_SO}" if name else WAITED_SENTENCE
    return [f"{sentence}{rows}. {waited_hint(headers)}"]


def waited_answer(rows: Iterable[ResultRow], name: str = "") -> list[str]:
    """The same of the rows that were timed."""
    timed = [row for row in rows if row.time]
    queued = [row.queued_share for row in timed]
    return waited_sentences(queued, [row.header for row in timed], name)


def _anew(header: RunHeader) -> str:
    """How a sweep measures with another option: resuming takes only --rounds."""
    return "a new sweep with " * (header.launcher == IN_SWEEP)


_BLANKS: dict[str, Callable[[RunHeader], str]] = {
    "more_time": lambda header: _anew(header) + clearer.more_time(header),
    "more_launches": clearer.more_launches,
    "memory": lambda header: _anew(header) + clearer.write_options(header, memory="all"),
    "timing": lambda header: _anew(header) + clearer.write_options(header, timing=PIPELINED),
    "less_waiting": lambda header: (
        f"try {_anew(header)}--cpu-mode realtime"
        if clearer.may_use_realtime(header)
        else _RUN_DOCTOR
    ),
    "counter": lambda header: (
        explain_counter(next(iter(figures.risen_counters(header)), "")) or _RUN_DOCTOR
    ),
}
"""What the blanks of an advice are filled with."""
_TEXTS = read_sections(Path(__file__).with_suffix(".txt"))


def _diagnostic(
    name: str, figure: Callable[[ResultRow], float | None], limit: float, *others: str, **more: Any
) -> Diagnostic:
    """The diagnostic with the texts of this name; `others` may explain it."""
    words, message, advice, explanation = _TEXTS[name].splitlines()
    return Diagnostic(name, figure, limit, words, message, advice, explanation, others, **more)


def _named(name: str, find: Callable[[RunHeader], Sequence[str]]) -> Diagnostic:
    """A diagnostic that applies where something of the run has names."""
    return _diagnostic(
        name, lambda row: len(find(row.header)), 0, names=lambda row: find(row.header)
    )


def _is_precise(row: ResultRow) -> bool:
    """Whether the interval of the median is as narrow as its plan asks for."""
    precision = row.time and row.time.precision
    return precision is not None and precision <= row.header.plan.precision


def _needs_no_launches(row: ResultRow) -> bool:
    """Whether more launches are no use: it is precise, or one launch differs since it waited."""
    return _is_precise(row) or bool(_odd_waits(row))


def _has_core(row: ResultRow) -> bool:
    """Whether ranks waited so little for a core that slow calls have another cause."""
    return row.queued_share is not None and row.queued_share <= MOST_QUEUED / 2


def _realtime_wait(row: ResultRow) -> float | None:
    """The part of the time that ranks waited in a mode in which they should hardly wait."""
    is_own = row.header.plan.cpu_mode == "realtime" and not has_waited(row.queued_share)
    return row.queued_share if is_own else None


DIAGNOSTICS: tuple[Diagnostic, ...] = (
    _diagnostic("above_link", figures.above_link, 1.005),
    _named("unread_variables", figures.unread_variables),
    _named("different_variables", figures.different_variables),
    _named("faults", lambda header: [
        f"{n} rose by {by}" for n, by in figures.risen_counters(header).items()]),
    _named("far_from_gpu", lambda header: [f"rank {rank}" for rank in figures.far_ranks(header)]),
    _diagnostic("too_few_cores", lambda row: figures.ranks_per_core(row.header), 1.0),
    _diagnostic("overlap_cores", figures.overlap_threads_per_core, 1.0, "too_few_cores"),
    _diagnostic("not_symmetric", figures.shown_asymmetric, 0),
    _diagnostic("throttled", lambda row: row.interference.throttled_share, 0.01),
    _diagnostic("stolen", lambda row: row.interference.stolen_share, 0.05),
    _diagnostic("gpu_throttled", figures.gpu_throttled_share, 0.10, names=figures.throttle_reasons),
    _diagnostic("gpu_clocks", figures.gpu_clock_spread, 0.10, "gpu_throttled"),
    _diagnostic(
        "stalls", lambda row: row.interference.stalled_share, 0.05, "too_few_cores", "throttled",
        "stolen", QUEUED, is_enough=_has_core,
    ),
    _diagnostic(QUEUED, lambda row: row.queued_share, MOST_QUEUED, "too_few_cores", "throttled"),
    _diagnostic("waits", _realtime_wait, 0.30, "too_few_cores", "throttled"),
    *(_diagnostic(
        name, partial(figures.launch_spread, are_rounds=name == "rounds"), 0.05, QUEUED,
        names=_odd_launch, is_enough=_needs_no_launches,
    ) for name in ("launches", "rounds")),
    _diagnostic("drift", figures.drift, 0.10, QUEUED),
    _diagnostic(
        "bimodal", figures.bimodality, BIMODAL, "too_few_cores", QUEUED,
        is_enough=_is_precise,
    ),
    _diagnostic("skew", figures.skew, 0.10, "too_few_cores", QUEUED, "always_last"),
    _diagnostic("always_last", figures.always_last, 0.90, "too_few_cores", names=figures.last_rank),
    _diagnostic("launch_bound", figures.late_launches, 0.10),
    _diagnostic("coarse_clock", figures.clock_coarseness, 1.0),
    _diagnostic(
        "imprecise", figures.imprecision, 1.0, QUEUED, is_enough=figures.is_of_launches
    ),
)  # fmt: skip
