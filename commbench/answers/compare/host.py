"""What the host did while two runs were measured: which of its own times changed, and in which
launches in turns other programs had the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log
from statistics import fmean
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import LONGER, launch_shares
from commbench.analysis.load import LoadedRun
from commbench.analysis.statistics import launch_half_width, median
from commbench.answers.compare.ratio import BANDWIDTH, LATENCY, ComparedRow, HostChange, HostEffect
from commbench.output.text import join_words, span
from commbench.results.schema import Batch, Run
from commbench.stats import Estimate, around, collect, hold_together
from commbench.units import format_share

FEWEST_TURNS = 3
"""Launches in turns that are left, at least."""


class LeftOut(NamedTuple):
    """A launch in turns that does not count: ranks of one run waited for a core far longer than in
    its other launches, or far shorter, and those of another did not. So the host was not the same
    for both."""

    launch: int
    """Counted from 1."""
    run: int
    """Which of the runs, from 0."""
    share: float
    """The part of the time that its ranks waited, in the median row."""
    usual: float
    """The same of the median launch."""


def find_left_out(runs: Sequence[Run]) -> tuple[LeftOut, ...]:
    """The launches in turns of these runs that do not count: the odd ones, if they are few."""
    found, launches = find_odd_launches(runs)
    return found if are_few(found, launches) else ()


def are_few(odd: Sequence[LeftOut], launches: int) -> bool:
    """Whether these are a third of so many launches at most, and FEWEST_TURNS are left."""
    return 3 * len(odd) <= launches and launches - len(odd) >= FEWEST_TURNS


def find_odd_launches(runs: Sequence[Run]) -> tuple[tuple[LeftOut, ...], int]:
    """The launches in turns of these runs in which ranks of one waited for a core as LeftOut says,
    none of several CPU modes, whose effect waiting is; and how many launches there are."""
    shares = [_shares_by_launch(run) for run in runs]
    usual = [median(sorted(own.values())) if own else 0.0 for own in shares]
    launches = sorted(set[int]().union(*shares))
    found = []
    for launch in launches:
        more = [own.get(launch, each) - each for own, each in zip(shares, usual, strict=True)]
        if max(more) - min(more) >= LONGER:  # where all wait alike, their ratio is right
            run = max(range(len(more)), key=lambda n: abs(more[n]))
            found.append(LeftOut(launch, run, shares[run].get(launch, usual[run]), usual[run]))
    is_one_mode = len({run.header.plan.cpu_mode for run in runs}) == 1
    return (tuple(found) if is_one_mode else ()), len(launches)


def _shares_by_launch(run: Run) -> dict[int, float]:
    """The part of the time that its ranks waited, in the median row, by launch."""
    own = collect(each for m in run.measurements for each in launch_shares(m).items())
    return {launch: median(sorted(of_rows)) for launch, of_rows in own.items()}


def without(run: Run, left_out: Iterable[LeftOut]) -> Run:
    """A run without these launches; the others keep their numbers."""
    lost = {each.launch - 1 for each in left_out}
    starts = tuple(start for n, start in enumerate(run.starts) if n not in lost)
    plan = replace(run.header.plan, launches=max(1, run.header.plan.launches - len(lost)))
    return run._replace(
        header=run.header._replace(plan=plan), starts=starts, launches=len(starts),
        measurements=tuple(
            m._replace(batches=tuple(b for b in m.batches if b.launch not in lost))
            for m in run.measurements
        ),
    )  # fmt: skip


SEVERAL = {"launch": "launches", "round": "rounds"}
"""What several are called."""


def name_launches(found: Sequence[LeftOut], word: str) -> str:
    """`Launch 3`, `Rounds 1 and 4`: `word` is for one."""
    numbers = join_words([str(each.launch) for each in found])
    return f"{(SEVERAL[word] if len(found) > 1 else word).capitalize()} {numbers}"


def left_out_text(left_out: Sequence[LeftOut], whose: Sequence[str], word: str) -> list[str]:
    """Which launches or rounds (`word` is for one) do not count, and why, in a sentence; `whose`
    ranks: `of old`, `under old`, for each run."""
    if not left_out:
        return []
    ranks = join_words([*dict.fromkeys(whose[each.run] for each in left_out)])
    shares = span(format_share, [each.share for each in left_out])
    usual = span(format_share, [each.usual for each in left_out])
    return [
        f"{name_launches(left_out, word)} do{'es' * (len(left_out) == 1)} not count: ranks {ranks} "
        f"waited for a core {shares} of the time there, {usual} in the others."
    ]


class HostFigure(NamedTuple):
    """What the ranks' host does in the same way in every run."""

    takes: str
    """What takes that long."""
    of_batch: Callable[[Batch], float | None]
    """Its time beside a batch, or what is proportional to it."""
    usual_spread: float
    """The standard deviation of its log medians between launches on a quiet host (72 launches on
    2 cores; of clocks an assumption)."""
    part: str = ""
    """See HostChange.part; empty for what the ranks do not measure, and their number and their CPU
    mode do not change."""


CLOCK = "a clock of the GPUs"
FIGURES = (
    HostFigure("a message between processes", lambda b: b.host_round_trip_s, 0.12, LATENCY),
    HostFigure("a copy in memory", lambda b: b.host_copy_s, 0.05, BANDWIDTH),
    HostFigure(CLOCK, lambda b: b.clock_mhz and 1 / b.clock_mhz, 0.02),
)


def host_logs(run: LoadedRun) -> Mapping[str, Sequence[float]]:
    """The logarithms of each of FIGURES that was measured beside a run, by what takes that time: a
    value for each launch, or for each run of a history."""
    if run.history or not run.run:
        return run.history.host if run.history else {}
    batches = [batch for measurement in run.run.measurements for batch in measurement.batches]
    found = {}
    for figure in FIGURES:
        launches = collect((b.launch, own) for b in batches if (own := figure.of_batch(b)))
        found[figure.takes] = [log(median(sorted(own))) for own in launches.values()]
    return {takes: logs for takes, logs in found.items() if logs}


def find_host_changes(a: LoadedRun, b: LoadedRun, are_alike: bool = True) -> tuple[HostChange, ...]:
    """In what the host of run B was slower or faster than that of A; empty where that may be
    chance, or was not measured. `are_alike`: they have as many ranks and cores, in the same CPU
    mode."""
    found = []
    of_a, of_b = map(host_logs, (a, b))
    for figure in FIGURES:
        logs = [own[figure.takes] for own in (of_a, of_b) if figure.takes in own]
        if len(logs) < 2 or (figure.part and not are_alike):
            continue
        if change := find_change(logs[0], logs[1], figure.usual_spread):
            found.append(HostChange(figure.takes, change, figure.part, change.value))
    return tuple(found)


def find_change(a: Sequence[float], b: Sequence[float], usual_spread: float) -> Estimate | None:
    """How many times as large one figure is in B, from logarithms; None where that may be chance.
    `usual_spread` is that of launch_half_width."""
    value = fmean(b) - fmean(a)
    half = hypot(*(launch_half_width(side, usual_spread) for side in (a, b)))
    return around(value, half).map(exp) if abs(value) > half else None


MOSTLY = 0.5
"""A row of whose time a figure may change this part, or more, shows how far calls followed it."""


def limit_change(change: HostChange, rows: Sequence[tuple[ComparedRow, float]]) -> HostChange:
    """The change as far as calls can have followed it: a slower host makes every call slower, so
    one that is not shows that it did less. `rows` are compared without that, each with the part of
    its time that the figure may change. It is wrong by as much as what is compared made such a row
    faster."""
    own = [(row, part) for row, part in rows if part >= MOSTLY]
    least, value = min(1.0, change.ratio.value), max(1.0, change.ratio.value)
    for row, part in own:
        if row.ratio:
            held = hold_together(row.ratio, len(own), row.degrees)
            low, high = (1 + (end - 1) / part for end in held.ends)
            least, value = max(least, min(1.0, low)), min(value, max(1.0, high))
    return change._replace(allowed=value if change.ratio.value > 1 else least)


def find_parts(row: Any, of_kind: Sequence[Any]) -> dict[str, float]:
    """Which parts of the time of a row of A its latency, its bandwidth and the whole are at most.
    With time = latency + bytes / bandwidth, its latency is at most the shortest time of its kind,
    and its bandwidth the highest."""
    parts = dict.fromkeys((LATENCY, BANDWIDTH, ""), 1.0)
    highest = max((each.size_bytes / each.time_s for each in of_kind), default=0.0)
    if highest and row.time_s:
        parts[LATENCY] = min(each.time_s for each in of_kind) / row.time_s
        parts[BANDWIDTH] = row.size_bytes / row.time_s / highest
    return parts


def find_effect(changes: Sequence[HostChange], parts: Mapping[str, float]) -> HostEffect:
    """What changes of the host may do to a row with these parts. Together they do not more than the
    largest change."""
    ratios = [1.0, *(change.allowed for change in changes)]
    more = [(change.allowed - 1) * parts[change.part] for change in changes]
    less, longer = (1 + sum(limit(0.0, each) for each in more) for limit in (min, max))
    return HostEffect(max(min(ratios), less), min(max(ratios), longer))
