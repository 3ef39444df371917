"""Facts of a host for people: what each line says; it is left out where it says nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill

from commbench.doctor.gpus import Gpu
from commbench.doctor.host_facts import HostFacts
from commbench.output.table import clean
from commbench.units import format_bytes, format_share, format_time

WIDTH = 100


def facts_lines(facts: HostFacts, gpus: Sequence[Gpu]) -> str:
    """Facts, one a line; those that are not known are left out."""
    lines = [(name, tell(facts)) for name, tell in FACTS]
    lines += [(f"GPU {gpu.address}", _gpu(gpu)) for gpu in gpus]
    known = [(name, text) for name, text in lines if text]
    widest = max(len(name) for name, _ in known)
    return "\n".join(
        fill(
            clean(text), WIDTH,
            initial_indent=f"  {name:<{widest}}  ", subsequent_indent=" " * (widest + 4),
            break_on_hyphens=False,
        )
        for name, text in known
    )  # fmt: skip


def _cores(facts: HostFacts) -> str:
    fit = f"{facts.ranks_fit} ranks fit" if facts.ranks_fit > 1 else "1 rank fits"
    return f"{len(facts.cores)} of {facts.host_cores} may be used; {fit}"


def _threads(facts: HostFacts) -> str:
    if not facts.simultaneous_threads or not facts.physical_cores:
        return ""
    return f"simultaneous threads are on: these are {facts.physical_cores} physical cores"


def _limit(facts: HostFacts) -> str:
    if facts.cpu_limit is None:
        return ""
    spent = facts.throttled_share
    return f"{facts.cpu_limit:.3g} processors" + (
        f"; used up in {format_share(spent)} of the periods so far" if spent is not None else ""
    )


def _clock(facts: HostFacts) -> str:
    others = [name for name in facts.clock_sources if name != facts.clock_source]
    source = facts.clock_source or ""
    return _joined(
        source + (f" (also offered: {', '.join(others)})" if others and source else ""),
        f"{_short(facts.clock_read_s)} to read from Python" if facts.clock_read_s else "",
        f"steps of {_short(facts.clock_step_s)} seen" if facts.clock_step_s else "",
    )


def _short(seconds: float) -> str:
    return f"{seconds * 1e9:.3g} ns" if seconds < 1e-6 else format_time(seconds)


def _scheduling(facts: HostFacts) -> str:
    known = (("SCHED_FIFO", facts.fifo_permitted), ("SCHED_BATCH", facts.batch_permitted))
    share = facts.realtime_share
    return _joined(
        *(f"{name} {'is' if so else 'is not'} permitted" for name, so in known if so is not None),
        f"realtime work may have {format_share(share)} of a second" if share else "",
    )


def _slices(facts: HostFacts) -> str:
    return _joined(
        f"{facts.tick_hz} ticks a second" if facts.tick_hz else "",
        f"slices of at least {format_time(facts.slice_s)}" if facts.slice_s else "",
    )


def _now(facts: HostFacts) -> str:
    told = ((facts.busy_share, "used"), (facts.stolen_share, "stolen"))
    shares = ", ".join(f"{format_share(share)} {what}" for share, what in told if share is not None)
    named = ", ".join(f"{name} {cores:.1f}" for name, cores in facts.busiest)
    return _joined(
        f"of the cores' time {shares}" if shares else "", f"cores used by {named}" if named else ""
    )


def _waiting(facts: HostFacts) -> str:
    share = facts.waiting_share
    return (
        f"some task waited for a core in {format_share(share)} of the last 10 s"
        if share is not None
        else ""
    )


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


FACTS: tuple[tuple[str, Callable[[HostFacts], str]], ...] = (
    ("host", lambda f: f.host),
    ("processor", lambda f: _joined(f.processor or "", "virtual" if f.virtual else "")),
    ("kernel", lambda f: " ".join(filter(None, (f.kernel, f.machine)))),
    ("cores", _cores),
    ("threads", _threads),
    ("isolated cores", lambda f: f.isolated_cores or ""),
    ("CPU limit", _limit),
    ("frequency", lambda f: _joined(
        f"governor {', '.join(f.governors)}" if f.governors else "",
        f"driver {f.frequency_driver}" if f.frequency_driver else "",
    )),
    ("last-level cache", lambda f: format_bytes(f.cache_bytes) if f.cache_bytes else ""),
    ("clock", _clock),
    ("scheduling", _scheduling),
    ("time slices", _slices),
    ("loopback MTU", lambda f: str(f.loopback_mtu or "")),
    ("load", lambda f: " ".join(f"{x:.2f}" for x in f.load) + " over 1, 5, 15 minutes"
     if f.load else ""),
    ("right now", _now),
    ("queue", _waiting),
)  # fmt: skip
"""What each line of facts says; a line that says nothing is left out."""


def _gpu(gpu: Gpu) -> str:
    lanes = f"x{gpu.link_width} of x{gpu.most_width}" if gpu.link_width and gpu.most_width else ""
    return _joined(
        gpu.name,
        f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else "",
        " ".join(filter(None, (gpu.link_speed, lanes))),
        f"{gpu.near_cores} cores nearby may be used" if gpu.near_cores is not None else "",
    )
