"""What each cpu mode would change on this host, as a table and a sentence for each mode."""

from __future__ import annotations

from math import ceil, comb

from commbench.doctor import mode_effects
from commbench.doctor.checkup import DoctorReport
from commbench.doctor.mode_effects import ModeEffect, ModeResult
from commbench.doctor.mode_trials import MODES, PLAIN, order_trials
from commbench.doctor.sample_range import BY_CHANCE, SampleRange
from commbench.output.paragraphs import fill
from commbench.output.table import table
from commbench.units import format_bytes, format_interval, format_share, format_time

HEADINGS = (
    "mode", "size", "time", "of launches", "time over\nplain's", "of rounds", "stalled", "queued",
    "n",
)  # fmt: skip
ENOUGH_ROUNDS = next(n for n in range(1, 99) if 2 / comb(2 * n, n) <= BY_CHANCE)


def modes_text(report: DoctorReport) -> str:
    """The table of modes and sizes, and a line for each mode that could not be tried."""
    rows = [_make_cells(result) for result in report.results]
    lines = table(HEADINGS, rows, left="mode") if rows else []
    for trial in report.trials:
        if trial.trouble:
            line = f"  {trial.mode}: no launch: {trial.trouble.message}"
            lines.append(fill(line, rest="    "))
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
    """Sentences on what each mode would change here, and how sure that is."""
    lines = [_describe_plain(report)] if any(f.mode == PLAIN for f in report.results) else []
    tried = {trial.mode for trial in report.trials}
    lines += [_describe_mode(report, mode) for mode in MODES if mode in tried - {PLAIN}]
    missing = [mode for mode in MODES if mode not in tried]
    lines += [f"Not tried, for the check ended before: {', '.join(missing)}."] if missing else []
    return [*lines, _describe_confidence(report), *_describe_missing(report)]


def _describe_plain(report: DoctorReport) -> str:
    shares = [f.stalled_share for f in report.results if f.mode == PLAIN]
    known = [share for share in shares if share is not None]
    stalled = f": up to {format_share(max(known))} of its iterations stall" if known else ""
    return f"plain is what ranks get that are left alone{stalled}."


def _describe_mode(report: DoctorReport, mode: str) -> str:
    trouble = next((t.trouble for t in report.trials if t.mode == mode and t.trouble), None)
    if trouble:
        return f"{mode} cannot be had here: {trouble.message}."
    effects = [
        mode_effects.compare_modes(report.trials, mode, sizes)
        for sizes in (mode_effects.SMALL, mode_effects.LARGE)
    ]
    known = [_describe_effect(found) for found in effects if found]
    if not known:
        return f"{mode} cannot be held against plain: no round has both."
    if stalls := mode_effects.compare_stalls(report.trials, mode):
        here, in_plain = map(format_share, stalls)
        known.append(f"{here} of iterations stall instead of {in_plain}")
    return f"{mode}: {'; '.join(known)}."


def _describe_effect(found: ModeEffect) -> str:
    ratio, size = found.ratio, format_bytes(found.sizes[-1])
    what = f"up to {size}" if len(found.sizes) > 1 else f"at {size}"
    if found.verdict == mode_effects.FASTER:
        fast = SampleRange(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.number)
        return f"{what} {_times(fast)} times as fast as plain{_extent(fast)}"
    if found.verdict == mode_effects.SLOWER:
        return f"{what} {_times(ratio)} times as slow as plain{_extent(ratio)}"
    is_small = ratio.number < ENOUGH_ROUNDS
    doubt = "which may be noise" if is_small else "not to be told from noise"
    return f"{what} {_times(ratio)} times plain's time{_extent(ratio)}, {doubt}"


def _times(ratio: SampleRange) -> str:
    return f"{ratio.median:.{_digits(ratio)}f}"


def _extent(ratio: SampleRange) -> str:
    digits = _digits(ratio)
    return f" ({ratio.low:.{digits}f} … {ratio.high:.{digits}f})" if ratio.number > 1 else ""


def _digits(ratio: SampleRange) -> int:
    return 2 if ratio.low < 1 else 1 if ratio.median < 10 else 0


def _describe_confidence(report: DoctorReport) -> str:
    """A sentence on how often chance alone makes such differences."""
    launches = {f.mode: f.time_s.number for f in report.results}
    fewest = min(launches.values(), default=0)
    rule = "A difference is told only where all launches of a mode lie beyond all of plain's"
    if fewest < ENOUGH_ROUNDS:
        return (
            f"{rule}, and there are {ENOUGH_ROUNDS} of each or more; here some mode has {fewest}."
        )
    chance = format_share(2 / comb(2 * fewest, fewest))
    return f"{rule}: with {fewest} of each, chance does that in {chance} of comparisons."


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
        f"The time was up after {len(done)} of {len(order)} launches: --seconds {needed} is likely "
        "to do for all."
    ]
