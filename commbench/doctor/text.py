"""What the doctor found as text: facts of the host, its bandwidth, cpu modes and advice."""

from __future__ import annotations

from collections.abc import Callable

from commbench.doctor.checkup import DoctorReport
from commbench.doctor.findings import STILL_QUIET, make_findings
from commbench.doctor.host_bandwidth import HostBandwidth
from commbench.doctor.host_facts import HostFacts
from commbench.doctor.mode_effects import SMALL
from commbench.doctor.modes_text import describe_modes, modes_text
from commbench.host.gpu_system import Hca
from commbench.host.gpus import Gpu
from commbench.output.paragraphs import fill
from commbench.output.table import BOLD, style, table
from commbench.units import format_bytes, format_GBps, format_share, format_time


def doctor_text(report: DoctorReport) -> str:
    """Everything that is known about the host."""
    parts = []
    if report.facts:
        parts.append(_facts_text(report.facts, report))
    if report.ceilings:
        parts.append(_ceilings_text(report, report.ceilings))
    if report.trials:
        parts += [modes_text(report), "\n".join(map(_line, describe_modes(report)))]
    if report.facts:
        parts.append(_advice_text(report))
    return "\n\n".join(filter(None, parts))


def _ceilings_text(report: DoctorReport, ceilings: HostBandwidth) -> str:
    cores = f"{ceilings.cores} cores" if ceilings.cores > 1 else "one core"
    measured = (
        ("loopback TCP, one way", ceilings.loopback, _rate),
        ("loopback TCP, a byte there and back", ceilings.round_trip, format_time),
        ("memory copied by one core", ceilings.copy_one, _rate),
        (f"memory copied by {cores} together", ceilings.copy_all, _rate),
    )
    rows = [(name, *map(text, found[:3])) for name, found, text in measured if found]
    heading = "limits of this host"
    lines = table((heading, "median", "least", "most"), rows, left=heading)
    notes = [_describe_conditions(report, ceilings), *_describe_reached(report)]
    return "\n".join([*lines, *(_line(sentence) for sentence in notes if sentence)])


def _rate(value: float) -> str:
    return f"{format_GBps(value)} GB/s"


def _describe_conditions(report: DoctorReport, ceilings: HostBandwidth) -> str:
    if ceilings.undisturbed:
        return "All but the last were measured under SCHED_FIFO: other programs had to wait."
    used = report.facts.busy_share if report.facts else None
    is_busy = used is not None and used > STILL_QUIET
    return "Other programs may have slowed these measurements down." if is_busy else ""


def _describe_reached(report: DoctorReport) -> list[str]:
    """The share of the loopback's bandwidth that gloo reached in its best mode."""
    found = [f for f in report.results if f.busbw and f.size_bytes not in SMALL]
    loopback = report.ceilings.loopback if report.ceilings else None
    if not found or not loopback:
        return []
    best = max(found, key=lambda figure: figure.busbw or 0.0)
    share = (best.busbw or 0.0) / loopback.median
    line = (
        f"gloo's bus bandwidth reached {format_GBps(best.busbw)} GB/s here "
        f"({format_bytes(best.size_bytes)}, {best.mode}): {format_share(share)} of the loopback"
    )
    caveat = "; other programs slowed down the measurement of the loopback" if share > 1 else ""
    return [f"{line}{caveat}."]


def _advice_text(report: DoctorReport) -> str:
    found = make_findings(report)
    heading = "Problems:" if found else "No problems found."
    if report.ended:
        heading = "The check was stopped before its end, so the cpu modes are not compared."
        heading += " Problems found until then:" if found else ""
    elif not report.trials and not found:
        heading = "No problems found, but no cpu mode was tried."
    lines = [_line(f"{f.name}: {f.message}. {f.advice}.", "  ") for f in found]
    return "\n".join([style(heading, BOLD), *lines])


def _line(text: str, indent: str = "") -> str:
    return fill(text, indent, f"{indent}  ", break_long_words=False, break_on_hyphens=False)


def _facts_text(facts: HostFacts, report: DoctorReport) -> str:
    """The facts of the host, one per line; those that are not known are left out."""
    lines = [(name, describe(facts)) for name, describe in _FACTS]
    lines += [(f"GPU {gpu.address}", _gpu(gpu)) for gpu in report.gpus]
    if system := report.gpu_system:
        lines += [("GPU driver", system.driver or ""), ("GPU links", "; ".join(system.links))]
        lines += [(f"HCA {hca.name}", _hca(hca)) for hca in system.hcas]
    known = [(name, text) for name, text in lines if text]
    widest = max(len(name) for name, _ in known)
    return "\n".join(
        fill(text, f"  {name:<{widest}}  ", " " * (widest + 4), break_on_hyphens=False)
        for name, text in known
    )


def _cores(facts: HostFacts) -> str:
    fit = f"{facts.ranks_fit} ranks fit" if facts.ranks_fit > 1 else "1 rank fits"
    return f"{len(facts.cores)} of {facts.host_cores} may be used; {fit}"


def _limit(facts: HostFacts) -> str:
    spent = facts.throttled_share
    used = f"; used up in {format_share(spent)} of the periods so far" if spent is not None else ""
    return "" if facts.cpu_limit is None else f"{facts.cpu_limit:.3g} processors{used}"


def _clock(facts: HostFacts) -> str:
    others = [name for name in facts.clock_sources if name != facts.clock_source]
    source = facts.clock_source or ""
    return _join(
        source + (f" (also offered: {', '.join(others)})" if others and source else ""),
        f"{_short(facts.clock_read_s)} to read from Python" if facts.clock_read_s else "",
        f"steps of {_short(facts.clock_step_s)} seen" if facts.clock_step_s else "",
    )


def _short(seconds: float) -> str:
    return f"{seconds * 1e9:.3g} ns" if seconds < 1e-6 else format_time(seconds)


def _scheduling(facts: HostFacts) -> str:
    known = (("SCHED_FIFO", facts.fifo_permitted), ("SCHED_BATCH", facts.batch_permitted))
    share = facts.realtime_share
    return _join(
        *(f"{name} {'is' if so else 'is not'} permitted" for name, so in known if so is not None),
        f"realtime tasks get at most {format_share(share)} of each second" if share else "",
    )


def _now(facts: HostFacts) -> str:
    known = ((facts.busy_share, "used"), (facts.stolen_share, "stolen"))
    parts = [f"{format_share(share)} {what}" for share, what in known if share is not None]
    used = f"time of the cores: {', '.join(parts)}" if parts else ""
    named = ", ".join(f"{name} {cores:.1f}" for name, cores in facts.busiest)
    return _join(used, f"cores used: {named}" if named else "")


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


_FACTS: tuple[tuple[str, Callable[[HostFacts], str]], ...] = (
    ("host", lambda f: f.host),
    ("processor", lambda f: _join(f.processor or "", "virtual" if f.virtual else "")),
    ("kernel", lambda f: " ".join(filter(None, (f.kernel, f.machine)))),
    ("cores", _cores),
    ("threads", lambda f: f"SMT is on: these are {f.physical_cores} physical cores"
     if f.simultaneous_threads and f.physical_cores else ""),
    ("isolated cores", lambda f: f.isolated_cores or ""),
    ("CPU limit", _limit),
    ("frequency", lambda f: _join(
        f"governor {', '.join(f.governors)}" if f.governors else "",
        f"driver {f.frequency_driver}" if f.frequency_driver else "",
    )),
    ("last-level cache", lambda f: format_bytes(f.cache_bytes) if f.cache_bytes else ""),
    ("clock", _clock),
    ("scheduling", _scheduling),
    ("time slices", lambda f: _join(
        f"{f.tick_hz} ticks a second" if f.tick_hz else "",
        f"slices of at least {format_time(f.slice_s)}" if f.slice_s else "",
    )),
    ("loopback MTU", lambda f: str(f.loopback_mtu or "")),
    ("load", lambda f: " ".join(f"{x:.2f}" for x in f.load) + " over 1, 5, 15 minutes"
     if f.load else ""),
    ("right now", _now),
    ("queue", lambda f: "" if f.waiting_share is None else
     f"some task waited for a core in {format_share(f.waiting_share)} of the last 10 s"),
)  # fmt: skip
"""The lines of facts: a name and a function that describes the fact, empty where it is unknown."""


def _gpu(gpu: Gpu) -> str:
    switches = (("ECC", gpu.ecc), ("MIG", gpu.mig), ("persistence mode", gpu.persistence))
    lanes = f"x{gpu.link_width} of x{gpu.most_width}" if gpu.link_width and gpu.most_width else ""
    return _join(
        gpu.name,
        f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else "",
        " ".join(filter(None, (gpu.link_speed, lanes))),
        f"{gpu.near_cores} nearby cores may be used" if gpu.near_cores is not None else "",
        f"{gpu.clock_mhz} of {gpu.most_clock_mhz} MHz now" if gpu.clock_mhz else "",
        f"power cap {gpu.power_cap_w:.0f} W" if gpu.power_cap_w else "",
        *(f"{name} {'on' if is_on else 'off'}" for name, is_on in switches if is_on is not None),
        f"{gpu.nvlinks} NVLinks" if gpu.nvlinks is not None else "",
    )


def _hca(hca: Hca) -> str:
    node = "" if hca.numa_node is None else f"NUMA node {hca.numa_node}"
    return _join(hca.link_layer, hca.rate, hca.state.lower(), hca.address, node)
