"""The figures that findings are made of, each computed from what the check found."""

from __future__ import annotations

from commbench.doctor.checkup import DoctorReport
from commbench.doctor.mode_effects import FASTER, SLOWER, SMALL, UNCLEAR, effect, times_of
from commbench.doctor.mode_trials import MODES, PLAIN
from commbench.doctor.sample_range import spread

QUIET = "quiet"
FAST_CLOCKS = ("tsc", "arch_sys_counter", "timebase", "tod", "riscv_clocksource")
"""Clock sources that are a register of the processor."""
STILL_QUIET = 0.1
"""Share of the cores' time that others may use before that counts."""
SLOW_GOVERNORS = ("powersave", "conservative")
OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose `powersave` still raises the frequency under load."""


def busy(checkup: DoctorReport) -> float | None:
    """Share of the cores' time that others use: before modes were tried, or meanwhile."""
    before = checkup.facts.busy_share if checkup.facts else None
    return _most(before, checkup.meanwhile.others_share if checkup.meanwhile else None)


def busiest(checkup: DoctorReport) -> str:
    """What was seen to use them."""
    named = checkup.facts.busiest if checkup.facts else ()
    return ", ".join(f"{name} {cores:.1f}" for name, cores in named) or "nothing that is seen here"


def stolen(checkup: DoctorReport) -> float | None:
    """Share of the cores' time that the hypervisor gave away: before, or meanwhile."""
    before = checkup.facts.stolen_share if checkup.facts else None
    return _most(before, checkup.meanwhile.stolen_share if checkup.meanwhile else None)


def throttled(checkup: DoctorReport) -> float | None:
    """Share of the measured time in which the control group had used up its own: the mean."""
    points = [point.throttled_share for trial in checkup.trials for point in trial.points]
    known = [share for share in points if share is not None]
    return sum(known) / len(known) if known else None


def ranks_per_core(checkup: DoctorReport) -> float | None:
    """Ranks over cores that do not share their parts."""
    facts = checkup.facts
    return checkup.request.ranks / (facts.physical_cores or len(facts.cores)) if facts else None


def ranks_per_limit(checkup: DoctorReport) -> float | None:
    """Ranks over the processors that the control group allows."""
    limit = checkup.facts.cpu_limit if checkup.facts else None
    return checkup.request.ranks / limit if limit else None


def quiet_slower(checkup: DoctorReport) -> float | None:
    """How many times as long as in plain small calls take in quiet, where that is no noise."""
    found = effect(checkup.trials, QUIET, SMALL)
    return found.ratio.median if found and found.verdict == SLOWER else None


def quiet_stalls(checkup: DoctorReport) -> float | None:
    """How often small calls still stall in quiet, where it is not faster beyond noise."""
    found = effect(checkup.trials, QUIET, SMALL)
    if not found or found.verdict != UNCLEAR:
        return None
    figures = (f for f in checkup.figures if f.mode == QUIET and f.size_bytes in SMALL)
    return _most(*(figure.stalled_share for figure in figures))


def better(checkup: DoctorReport) -> tuple[float, str]:
    """How many times as fast as in quiet small calls are in the mode that beats it by most beyond
    noise, and that mode; 0 where none does."""
    rivals = [mode for mode in MODES if mode not in (QUIET, PLAIN)]
    effects = [effect(checkup.trials, mode, SMALL, other=QUIET) for mode in rivals]
    found = [(1 / e.ratio.median, e.mode) for e in effects if e and e.verdict == FASTER]
    return max(found, default=(0.0, ""))


def unsteady(checkup: DoctorReport) -> float | None:
    """Slowest over fastest launch in quiet, for small calls."""
    times = list(times_of(checkup.trials, QUIET, SMALL).values())
    return spread(times).high / spread(times).low if len(times) > 1 else None


def slow_clock_source(checkup: DoctorReport) -> float | None:
    """1 for a clock source that is no register of the processor."""
    source = checkup.facts.clock_source if checkup.facts else None
    return None if source is None else float(source not in FAST_CLOCKS)


def slow_governor(checkup: DoctorReport) -> float | None:
    """1 for a governor that keeps the frequency down under load."""
    facts = checkup.facts
    if facts is None or not facts.governors or facts.frequency_driver in OWN_GOVERNORS:
        return None
    return float(any(governor in SLOW_GOVERNORS for governor in facts.governors))


def slow_loopback(checkup: DoctorReport) -> float | None:
    """How many times as fast as loopback carries them one core copies bytes; None where other work
    may have made the difference."""
    ceilings, facts = checkup.ceilings, checkup.facts
    if not ceilings or not ceilings.loopback or not ceilings.copy_one:
        return None
    if not ceilings.undisturbed and facts and (facts.busy_share or 0) > STILL_QUIET:
        return None
    return ceilings.copy_one.median / ceilings.loopback.median


def narrow_gpus(checkup: DoctorReport) -> float | None:
    """How many GPUs use fewer lanes than they have."""
    return float(
        sum((g.link_width or 0) < (g.most_width or 0) for g in checkup.gpus if g.link_width)
    )


def far_gpus(checkup: DoctorReport) -> float | None:
    """How many GPUs have no core close by that this process may use."""
    return float(sum(gpu.near_cores == 0 for gpu in checkup.gpus))


def _most(*shares: float | None) -> float | None:
    return max((share for share in shares if share is not None), default=None)
