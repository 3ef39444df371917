"""The effect of each cpu mode on this host, as a table and a sentence for each mode."""

from __future__ import annotations

from math import ceil, comb
from operator import itemgetter

from commbench.doctor import mode_effects
from commbench.doctor.checkup import DoctorReport
from commbench.doctor.mode_effects import ModeEffect, ModeResult
from commbench.doctor.mode_trials import MODES, PLAIN, order_trials
from commbench.doctor.sample_range import BY_CHANCE, SampleRange
from commbench.output.paragraphs import fill
from commbench.output.table import TableColumn, fitting_table
from commbench.units import format_bytes, format_interval, format_share, format_time

HEADINGS = {
    "mode": 9, "size": 9, "time": 9, "of launches": 3, "time over\nplain": 9, "of rounds": 5,
    "stalled": 4, "queued": 2, "n": 1,
}  # fmt: skip
"""The columns, each with its importance: the least important are left out of a wide table."""
ENOUGH_ROUNDS = next(n for n in range(1, 99) if 2 / comb(2 * n, n) <= BY_CHANCE)


def modes_text(report: DoctorReport) -> str:
    """The table of modes and sizes, and a line for each mode that could not be tried."""
    rows = [_make_cells(result) for result in report.results]
    columns = [
        TableColumn(heading, itemgetter(index), importance, is_left=heading == "mode")
        for index, (heading, importance) in enumerate(HEADINGS.items())
    ]
    lines = fitting_table(columns, rows) if rows else []
    for trial in report.trials:
        if trial.trouble:
            text = f"  {trial.mode}: not measured: {trial.trouble.message}"
            lines.append(fill(text, rest="    "))
    return "\n".join(lines)


def _make_cells(result: ModeResult) -> tuple[str, ...]:
    time, ratio = result.time_s, result.ratio
    return (
        result.mode,
        format_bytes(result.size_bytes),
        format_time(time.median),
        format_interval(time.low, time.high, like=time.median) if time.number > 1 else "",
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.low:.2f} … {ratio.high:.2f}" if ratio and ratio.number > 1 else "",
        _percent(result.stalled_share),
        _percent(result.queued_share),
        str(time.number),
    )


def _percent(share: float | None) -> str:
    return "" if share is None else format_share(share)


def describe_modes(report: DoctorReport) -> list[str]:
    """Sentences on the effect of each mode here, and how certain it is. A check that was stopped
    has compared too little: there is only a sentence on what was not tried."""
    tried = {trial.mode for trial in report.trials}
    missing = [mode for mode in MODES if mode not in tried]
    untried = f"Not tried, because the check ended before: {', '.join(missing)}."
    if report.ended:
        return [untried] if missing else []
    lines = [_describe_plain(report)] if any(f.mode == PLAIN for f in report.results) else []
    lines += [_describe_mode(report, mode) for mode in MODES if mode in tried - {PLAIN}]
    lines += [untried] if missing else []
    return [*lines, _describe_confidence(report), *_describe_missing(report)]


def _describe_plain(report: DoctorReport) -> str:
    shares = [f.stalled_share for f in report.results if f.mode == PLAIN]
    known = [share for share in shares if share is not None]
    stalled = f" Up to {format_share(max(known))} of its iterations stall." if known else ""
    return f"plain leaves the scheduling of the ranks as it is.{stalled}"


def _describe_mode(report: DoctorReport, mode: str) -> str:
    trouble = next((t.trouble for t in report.trials if t.mode == mode and t.trouble), None)
    if trouble:
        return f"{mode} is not available here: {trouble.message}."
    effects = [
        mode_effects.compare_modes(report.trials, mode, sizes)
        for sizes in (mode_effects.SMALL, mode_effects.LARGE)
    ]
    known = [_describe_effect(found) for found in effects if found]
    if not known:
        return f"{mode} cannot be compared with plain: no round measured both."
    if stalls := mode_effects.compare_stalls(report.trials, mode):
        here, in_plain = map(format_share, stalls)
        known.append(f"{here} of its iterations stall, in plain {in_plain}")
    return f"{mode}: {'; '.join(known)}."


def _describe_effect(found: ModeEffect) -> str:
    ratio, size = found.ratio, format_bytes(found.sizes[-1])
    what = f"up to {size}" if len(found.sizes) > 1 else f"at {size}"
    if found.verdict == mode_effects.FASTER:
        fast = SampleRange(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.number)
        return f"{what} {_times(fast)} times as fast as plain{_extent(fast)}"
    if found.verdict == mode_effects.SLOWER:
        return f"{what} it takes {_times(ratio)} times as long as plain{_extent(ratio)}"
    return f"{what} {_times(ratio)} times the time of plain{_extent(ratio)}, which may be noise"


def _times(ratio: SampleRange) -> str:
    return f"{ratio.median:.{_digits(ratio)}f}"


def _extent(ratio: SampleRange) -> str:
    digits = _digits(ratio)
    return f" ({ratio.low:.{digits}f} … {ratio.high:.{digits}f})" if ratio.number > 1 else ""


def _digits(ratio: SampleRange) -> int:
    return 2 if ratio.low < 1 else 1 if ratio.median < 10 else 0


def _describe_confidence(report: DoctorReport) -> str:
    """A sentence on how often noise alone makes such differences."""
    launches = {f.mode: f.time_s.number for f in report.results}
    fewest = min(launches.values(), default=0)
    rule = (
        "A mode counts as faster or slower than plain only if each of its launches is faster, or "
        "slower, than every launch of plain"
    )
    if fewest < ENOUGH_ROUNDS:
        return f"{rule}. That takes {ENOUGH_ROUNDS} launches of each mode; one has {fewest}."
    chance = format_share(2 / comb(2 * fewest, fewest))
    return f"{rule}. With {fewest} launches of each, noise alone does that in {chance} of cases."


def _describe_missing(report: DoctorReport) -> list[str]:
    """A sentence on the launches that are missing because the time was up."""
    refused = {trial.mode for trial in report.trials if trial.trouble}
    options = report.request
    order = [m for _, m in order_trials(options.rounds, options.seed) if m not in refused]
    done = [trial for trial in report.trials if trial.points]
    missing = len(order) - len(done)
    if missing <= 0 or not done or report.ended:
        return []
    each = sum(trial.elapsed_s for trial in done) / len(done)
    needed = ceil((options.seconds + (missing + 1) * each) / 10) * 10
    return [
        f"The time was up after {len(done)} of {len(order)} launches. --seconds {needed} is "
        "probably enough for all."
    ]
