"""What the doctor found, for people: facts, ceilings, modes, advice; at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill

from commbench.doctor.checkup import DoctorReport
from commbench.doctor.facts_text import facts_lines
from commbench.doctor.findings import findings_of
from commbench.doctor.host_bandwidth import HostBandwidth
from commbench.doctor.metrics import STILL_QUIET
from commbench.doctor.mode_effects import SMALL
from commbench.doctor.modes_text import modes_text, sentences
from commbench.doctor.sample_range import SampleRange
from commbench.output.table import BOLD, clean, style, table
from commbench.units import format_bytes, format_GBps, format_share, format_time

WIDTH = 100


def doctor_text(checkup: DoctorReport) -> str:
    """Everything that is known."""
    parts = []
    if checkup.facts:
        parts.append(facts_lines(checkup.facts, checkup.gpus))
    if checkup.ceilings:
        parts.append(_ceilings_text(checkup, checkup.ceilings))
    if checkup.trials:
        parts += [modes_text(checkup), "\n".join(_line(s) for s in sentences(checkup))]
    if checkup.facts:
        parts.append(_advice_text(checkup))
    return "\n\n".join(parts)


def _ceilings_text(checkup: DoctorReport, ceilings: HostBandwidth) -> str:
    GBps: Callable[[float], str] = lambda value: f"{format_GBps(value)} GB/s"  # noqa: E731, N806
    cores = f"{ceilings.cores} cores" if ceilings.cores > 1 else "one core"
    rows = [
        _ceiling("loopback TCP, one way", ceilings.loopback, GBps),
        _ceiling("loopback TCP, a byte there and back", ceilings.round_trip, format_time),
        _ceiling("memory copied by one core", ceilings.copy_one, GBps),
        _ceiling(f"memory copied by {cores} together", ceilings.copy_all, GBps),
    ]
    known = [row for row in rows if row]
    lines = table(("ceilings of this host", "median", "least", "most"), known, left=_CEILINGS)
    said = [_how_measured(checkup, ceilings), *_reached(checkup)]
    return "\n".join([*lines, *(_line(sentence) for sentence in said if sentence)])


_CEILINGS = "ceilings of this host"


def _ceiling(
    name: str, found: SampleRange | None, tell: Callable[[float], str]
) -> tuple[str, ...] | None:
    return (name, *(tell(value) for value in found[:3])) if found else None


def _how_measured(checkup: DoctorReport, ceilings: HostBandwidth) -> str:
    if ceilings.undisturbed:
        return "All but the last were measured under SCHED_FIFO, before all other work."
    used = checkup.facts.busy_share if checkup.facts else None
    return "Other work may have slowed these down." if used and used > STILL_QUIET else ""


def _reached(checkup: DoctorReport) -> list[str]:
    """How close gloo came to the loopback, in its best mode."""
    found = [f for f in checkup.figures if f.busbw and f.size_bytes not in SMALL]
    loopback = checkup.ceilings.loopback if checkup.ceilings else None
    if not found or not loopback:
        return []
    best = max(found, key=lambda figure: figure.busbw or 0.0)
    share = (best.busbw or 0.0) / loopback.median
    line = (
        f"gloo's bus bandwidth reached {format_GBps(best.busbw)} GB/s here "
        f"({format_bytes(best.size_bytes)}, {best.mode}): {format_share(share)} of the loopback"
    )
    slowed = "; other work was in the way when that was measured" if share > 1 else ""
    return [f"{line}{slowed}."]


def _advice_text(checkup: DoctorReport) -> str:
    found = findings_of(checkup)
    if not found:
        unknown = "" if checkup.trials else ", as far as it was looked at"
        return style(f"Nothing to complain of{unknown}.", BOLD)
    lines = [_line(f"{f.name}: {f.says(checkup)}; {f.advises(checkup)}.", "  ") for f in found]
    return "\n".join([style("Advice:", BOLD), *lines])


def _line(text: str, indent: str = "") -> str:
    return fill(
        clean(text), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
