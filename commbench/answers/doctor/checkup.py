"""Checks a host step by step, and FINDINGS: the problems that a host may have, each with its figure
and threshold; findings.txt has their texts. If the check ends early, the results until then are
kept."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from commbench import __version__
from commbench.analysis.clearer import more_launches
from commbench.answers.doctor import cpu_modes
from commbench.answers.doctor.measure import HostBandwidth, measure_host_bandwidth
from commbench.errors import CommbenchError, Interrupted, UnavailableError
from commbench.host import facts as host_facts
from commbench.host.cpu import PLAIN
from commbench.host.facts import HostFacts, Program
from commbench.host.gpu_system import GpuSystem, read_gpu_system
from commbench.host.gpus import Gpu, read_gpus
from commbench.host.procfs import read_cpu_ticks
from commbench.output.text import list_some, read_sections
from commbench.stats import FASTER, SLOWER, UNDECIDED, ratio
from commbench.units import format_bytes, format_count, format_share, format_time
from commbench.validation import require_within
from commbench.views.formats import Result, fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of `commbench doctor`; raises UsageError for invalid values."""

    ranks: int
    rounds: int
    seconds: float
    """For everything together."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_within("--nproc-per-node", self.ranks, 2, inf)
        require_within("--rounds", self.rounds, 1, inf)
        require_within("--seconds", self.seconds, 1e-3, 86400.0)


class OtherLoad(NamedTuple):
    """The use of the cores by others while modes were tried, as shares of their time."""

    others_share: float
    """Used by other programs. The kernel's work for the network belongs to none and is left out."""
    stolen_share: float
    busiest: tuple[Program, ...] = ()
    """The programs that used most, of those that ran on until the end."""


class Finding(NamedTuple):
    """A problem for measurements on this host."""

    name: str
    figure: float
    threshold: float
    message: str
    """A sentence without its full stop, as is the advice."""
    advice: str
    """What to do about it."""


@dataclass(frozen=True, repr=False)
class DoctorReport(Result, view="answers.doctor.document", rows="modes"):
    """What is known of the host; a part that was not reached is empty or None."""

    request: DoctorOptions
    facts: HostFacts | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_system: GpuSystem | None = None
    """The host around its GPUs; None where it has none."""
    bandwidth: HostBandwidth | None = None
    trials: tuple[cpu_modes.Trial, ...] = ()
    meanwhile: OtherLoad | None = None
    ended: CommbenchError | None = None
    """The error that ended the check early."""
    findings: tuple[Finding, ...] = ()

    @property
    def effects(self) -> tuple[cpu_modes.ModeEffect, ...]:
        """What each mode changes, of small sizes together and of large ones."""
        return _effects(self.trials, cpu_modes.SMALL, cpu_modes.LARGE)

    @property
    def small(self) -> tuple[cpu_modes.ModeEffect, ...]:
        """What each mode but plain changes of small sizes; none of a check that ended early."""
        found = () if self.ended else _effects(self.trials, cpu_modes.SMALL)
        return tuple(effect for effect in found if effect.verdict)

    @property
    def best(self) -> cpu_modes.ModeEffect | None:
        """Small calls in the fastest of the modes that are faster than plain."""
        faster = [effect for effect in self.small if effect.verdict == FASTER]
        return min(faster, key=lambda effect: effect.time_s.value, default=None)

    @property
    def quiet(self) -> list[cpu_modes.ModeEffect]:
        """Small and large calls in quiet, compared with the best mode, or else with plain."""
        other = self.best.mode if self.best else PLAIN
        groups = (cpu_modes.SMALL, cpu_modes.LARGE)
        found = (cpu_modes.compare_mode(self.trials, QUIET, sizes, other) for sizes in groups)
        return [each for each in found if each]

    @property
    def slower_quiet(self) -> cpu_modes.ModeEffect | None:
        """The first of `quiet` that is slower."""
        return next((each for each in self.quiet if each.verdict == SLOWER), None)

    @property
    def most_stalled(self) -> cpu_modes.ModeEffect | None:
        """The calls in quiet, small or large ones, of which most were interrupted."""
        own = (e for e in self.effects if e.mode == QUIET and e.stalled_share is not None)
        return max(own, key=lambda effect: effect.stalled_share or 0.0, default=None)

    @property
    def refused(self) -> dict[str, CommbenchError]:
        """Why a mode could not be tried."""
        return {trial.mode: trial.trouble for trial in self.trials if trial.trouble}

    @property
    def launches(self) -> tuple[int, int]:
        """How many launches were made, of how many that were planned."""
        done = sum(bool(trial.points) for trial in self.trials)
        return done, self.request.rounds * (len(cpu_modes.MODES) - len(self.refused))

    @property
    def unjudged(self) -> list[str]:
        """The modes that had fewer launches than a verdict needs."""
        tried = Counter(trial.mode for trial in self.trials if trial.points)
        few = [mode for mode in cpu_modes.MODES if tried[mode] < cpu_modes.FEWEST_LAUNCHES]
        return [mode for mode in few if mode not in self.refused] if self.launches[0] else []

    @property
    def modes(self) -> tuple[cpu_modes.ModeEffect, ...]:
        """The results of every mode and size that was measured."""
        return _effects(self.trials, *((size,) for size in cpu_modes.SIZES))

    @property
    def trouble(self) -> CommbenchError | None:
        """The error to raise after the report: what ended the check, that of a rank that died, or
        why no mode at all could be tried."""
        troubles = [*self.refused.values()]
        deaths = [error for error in troubles if not isinstance(error, UnavailableError)]
        refusals = [] if any(trial.points for trial in self.trials) else troubles
        return next(filter(None, [self.ended, *deaths, *refusals]), None)

    def as_json(self) -> dict[str, Any]:
        """Everything that is known, and the version that found it."""
        fit = self.facts.ranks_fit if self.facts else None
        return {"commbench": __version__, "ranks_fit": fit, **fields_of(self, "effects", "modes")}


def _effects(
    trials: Sequence[cpu_modes.Trial], *groups: tuple[int, ...]
) -> tuple[cpu_modes.ModeEffect, ...]:
    """The effects of every mode, plain first, on every group of sizes that was measured."""
    found = (
        cpu_modes.compare_mode(trials, mode, sizes) for mode in cpu_modes.MODES for sizes in groups
    )
    return tuple(effect for effect in found if effect)


def examine(
    options: DoctorOptions, start: float, print_status: Callable[[str], None]
) -> DoctorReport:
    """Check this host; `start` is the monotonic time from which the seconds of the options count.
    An error that ends the check is in the report."""
    known = DoctorReport(options)
    ended: CommbenchError | None = None
    hint = "the results until then are printed above"
    try:
        for step in _run_steps(known, start + options.seconds, print_status):
            known = step
    except KeyboardInterrupt:
        ended = Interrupted("stopped by SIGINT", hint)
    except Interrupted as stopped:
        ended = Interrupted(stopped.message, hint, signal_number=stopped.signal_number)
    except CommbenchError as error:
        ended = error
    known = replace(known, ended=ended)
    return replace(known, findings=make_findings(known))


def _run_steps(
    known: DoctorReport, deadline: float, print_status: Callable[[str], None]
) -> Iterator[DoctorReport]:
    """Run the check; yields the report after each step."""
    from commbench.launch.devices import choose_target, detect_capabilities

    options = known.request
    facts = host_facts.read_facts()
    gpus = read_gpus(facts.cores)
    system = read_gpu_system(gpus) if gpus else None
    yield (known := replace(known, facts=facts, gpus=gpus, gpu_system=system))
    print_status("measuring loopback and memory")
    yield (known := replace(known, bandwidth=measure_host_bandwidth(facts, options.seconds)))
    choose_target(detect_capabilities(), "gloo", "cpu", options.ranks)
    ticks, began, own_s = read_cpu_ticks(facts.cores), time.monotonic(), _read_own_s()
    processes = host_facts.read_processes()
    asked = options.ranks, options.rounds, options.seed
    for trial in cpu_modes.try_modes(*asked, deadline, print_status):
        yield (known := replace(known, trials=(*known.trials, trial)))
    if use := host_facts.measure_use(ticks, read_cpu_ticks(facts.cores)):
        elapsed_s = time.monotonic() - began
        own_share = (_read_own_s() - own_s) / elapsed_s / len(facts.cores)
        others = max(0.0, use.programs_share - own_share)
        busiest = host_facts.find_busiest(processes, host_facts.read_processes(), elapsed_s)
        yield replace(known, meanwhile=OtherLoad(others, use.stolen_share, busiest))


def _read_own_s() -> float:
    """Processor time of this process and of its children that have ended, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


# The problems

QUIET = "quiet"
FAST_CLOCKS = ("tsc", "arch_sys_counter", "timebase", "tod", "riscv_clocksource")
"""Clock sources that are a register of the processor."""
SHM_BYTES = 1 << 30
"""Of /dev/shm that are enough for the ranks of a host; containers have 64 MiB by default."""
STILL_QUIET = 0.1
"""Share of the cores' time that other programs may use before that counts."""
STOLEN = 0.05
"""The same, for other virtual machines."""
STALLED = 0.05
"""Share of the calls that may be interrupted."""
SLOW_GOVERNORS = ("powersave", "conservative")
OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose `powersave` still raises the frequency under load."""
Figure: TypeAlias = Callable[[HostFacts, DoctorReport], float | None]
"""What is compared with a threshold; None where it is unknown or does not apply."""


def make_findings(report: DoctorReport) -> tuple[Finding, ...]:
    """What the rules find on this host. The trials of a check that ended early are not used: they
    are too few to compare the modes."""
    report = replace(report, trials=(), meanwhile=None) if report.ended else report
    texts = read_sections(Path(__file__).with_name("findings.txt"))
    facts, found = report.facts, []
    for name, (figure_of, threshold) in FINDINGS.items() if facts else ():
        assert facts
        figure = figure_of(facts, report)
        if figure is not None and figure > threshold:
            lines = texts[name].format_map(_words(facts, report, figure)).splitlines()
            found.append(Finding(name, float(figure), threshold, *lines))
    return tuple(found)


def _words(facts: HostFacts, report: DoctorReport, figure: float) -> dict[str, object]:
    """What a text may name: the figure, also in percent and as a time, and facts."""
    system = report.gpu_system or GpuSystem()
    reasons = dict.fromkeys(reason for gpu in report.gpus for reason in gpu.throttle_reasons)
    slower, most, best = report.slower_quiet, report.most_stalled, report.best
    others, mode = OTHERS(facts, report), best.mode if best else PLAIN
    last = report.meanwhile or OtherLoad(0.0, 0.0)
    programs = max((facts.busy_share or 0.0, facts.busiest), (last.others_share, last.busiest))[1]
    busiest = [
        f"{each.name} (pid {list_some([*map(str, each.pids)], 2)}) {each.cores:.1f} cores"
        for each in programs
    ]
    if busiest and (others or 0.0) * facts.host_cores > 2 * sum(each.cores for each in programs):
        busiest.append("most have ended or cannot be seen from here")
    return {
        "figure": figure,
        "percent": format_share(figure),
        "time": format_time(figure),
        "facts": facts,
        "others": "unknown" if others is None else format_share(others),
        "load": f"{facts.load[0]:.1f}" if facts.load else "unknown",
        "busiest": ", ".join(busiest) or "none that can be seen from here",
        "stalled": most.stalled_calls if most else "",
        "quiet": (slower or report.quiet[0]).takes(mode) if report.quiet else "",
        "calls": "large" if slower and slower.sizes_bytes == cpu_modes.LARGE else "small",
        "cores": format_count(facts.host_cores, "core"),
        "governors": ", ".join(facts.governors),
        "mode": mode,
        "launches": more_launches(),
        "reasons": ", ".join(reasons),
        "shm": format_bytes(system.shm_bytes or 0),
        "memlock": format_bytes(system.memlock_bytes or 0),
    }


def _load(before: str, meanwhile: str) -> Figure:
    """The larger share of the cores' time, of those before modes were tried and meanwhile."""

    def largest(facts: HostFacts, report: DoctorReport) -> float | None:
        shares = getattr(facts, before), getattr(report.meanwhile, meanwhile, None)
        return max((share for share in shares if share is not None), default=None)

    return largest


OTHERS = _load("busy_share", "others_share")
BY_OTHER_MACHINES = _load("stolen_share", "stolen_share")


def _is_idle(facts: HostFacts, report: DoctorReport) -> bool:
    """Whether others use almost nothing of the cores' time, as far as that is known."""
    others, stolen = (load(facts, report) or 0.0 for load in (OTHERS, BY_OTHER_MACHINES))
    return others <= STILL_QUIET and stolen <= STOLEN


def _stalled(_: HostFacts, report: DoctorReport) -> float:
    """The part of the calls that were interrupted in quiet, of small or of large ones."""
    return getattr(report.most_stalled, "stalled_share", None) or 0.0


def _throttled(_: HostFacts, report: DoctorReport) -> float | None:
    """Mean share of the measured time in which the control group had used up its own."""
    points = [point.throttled_share for trial in report.trials for point in trial.points]
    known = [share for share in points if share is not None]
    return sum(known) / len(known) if known else None


def _quiet_undecided(_: HostFacts, report: DoctorReport) -> float:
    """1 if another mode is faster than plain, and quiet is not seen to be."""
    verdicts = [effect.verdict for effect in report.small if effect.mode == QUIET]
    return float(bool(report.best and not report.slower_quiet) and verdicts == [UNDECIDED])


def _unsteady(_: HostFacts, report: DoctorReport) -> float | None:
    """Time of the slowest launch of small calls in quiet over that of the fastest."""
    own = (effect.time_s.ends for effect in report.small if effect.mode == QUIET)
    return next((most / least for least, most in own), None)


def _slow_governor(facts: HostFacts, _: DoctorReport) -> float:
    """1 for a governor that keeps the frequency down under load."""
    is_slow = any(governor in SLOW_GOVERNORS for governor in facts.governors)
    return float(is_slow and facts.frequency_driver not in OWN_GOVERNORS)


def _slow_loopback(facts: HostFacts, report: DoctorReport) -> float | None:
    """Rate of one core's memory copies over the loopback's; None on a host that is busy."""
    found = report.bandwidth if _is_idle(facts, report) else None
    rate = found and ratio(found.copy_one_bytes_per_s, found.loopback_bytes_per_s)
    return rate and rate.value


def _around_gpus(figure: Callable[[GpuSystem], float | None]) -> Figure:
    """A figure of the host around its GPUs; None on a host without GPUs."""
    return lambda _, report: figure(report.gpu_system) if report.gpu_system else None


def _count_gpus(has_it: Callable[[Gpu], object]) -> Figure:
    """How many GPUs of the host have something."""
    return lambda _, report: sum(bool(has_it(gpu)) for gpu in report.gpus)


def _missing_nvlinks(_: HostFacts, report: DoctorReport) -> float:
    """The most NVLinks that a GPU has less than another one of the host."""
    numbers = [gpu.nvlinks for gpu in report.gpus if gpu.nvlinks is not None]
    return max(numbers, default=0) - min(numbers, default=0)


FINDINGS: dict[str, tuple[Figure, float]] = {
    "quiet_slower": (lambda _, r: (e := r.slower_quiet) and e.ratio and e.ratio.value, 1.05),
    "quiet_undecided": (_quiet_undecided, 0.0),
    "interrupted": (lambda f, r: not _is_idle(f, r) and _stalled(f, r), STALLED),
    "own_threads": (lambda f, r: _is_idle(f, r) and _stalled(f, r), STALLED),
    "busy_cores": (lambda f, r: None if _stalled(f, r) > STALLED else OTHERS(f, r), STILL_QUIET),
    "stolen": (BY_OTHER_MACHINES, STOLEN),
    "throttled": (_throttled, 0.01),
    "cpu_limit": (lambda f, r: r.request.ranks / f.cpu_limit if f.cpu_limit else None, 1.0),
    "few_cores": (lambda f, r: r.request.ranks / (f.physical_cores or len(f.cores)), 1.0),
    "unsteady": (_unsteady, 1.5),
    "clock_source": (lambda f, _: f.clock_source not in (None, *FAST_CLOCKS), 0.0),
    "slow_clock": (lambda f, _: f.clock_read_s, 0.5e-6),
    "slow_governor": (_slow_governor, 0.0),
    "slow_loopback": (_slow_loopback, 5.0),
    "narrow_gpu": (_count_gpus(lambda g: 0 < (g.link_width or 0) < (g.most_width or 0)), 0.0),
    "far_gpu": (_count_gpus(lambda gpu: gpu.near_cores == 0), 0.0),
    "gpu_persistence": (_count_gpus(lambda gpu: gpu.persistence is False), 0.0),
    "gpu_throttled": (_count_gpus(lambda gpu: gpu.throttle_reasons), 0.0),
    "low_power_cap": (
        _count_gpus(lambda g: 0 < (g.power_cap_w or 0) < 0.99 * (g.default_power_cap_w or 0)),
        0.0,
    ),
    "gpu_ecc_errors": (lambda _, r: sum(gpu.ecc_errors or 0 for gpu in r.gpus), 0.0),
    "nvlink_down": (_missing_nvlinks, 0.0),
    "no_p2p": (_count_gpus(lambda gpu: gpu.unreachable), 0.0),
    "no_gpudirect": (_around_gpus(lambda s: s.gpudirect is False and bool(s.hcas)), 0.0),
    "acs": (_around_gpus(lambda system: system.redirecting_bridges), 0.0),
    "small_shm": (_around_gpus(lambda s: s.shm_bytes and SHM_BYTES / s.shm_bytes), 1.0),
    "memlock": (_around_gpus(lambda s: bool(s.hcas) and s.memlock_bytes is not None), 0.0),
}
"""The figure and the threshold of each problem, which is reported where the figure is larger."""
