"""Checks a host step by step, and FINDINGS: the problems that a host may have, each with its
threshold and advice. If the check ends early, the results until then are kept."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import NamedTuple, TypeAlias

from commbench.analysis.diagnostics import more_launches
from commbench.answers.doctor.host_bandwidth import measure_host_bandwidth
from commbench.answers.doctor.report import (
    MODES,
    PLAIN,
    SMALL,
    DoctorOptions,
    DoctorReport,
    Finding,
    ModeEffect,
    OtherLoad,
    compare_mode,
    try_modes,
)
from commbench.errors import CommbenchError, Interrupted
from commbench.host.facts import HostFacts, measure_use, read_facts
from commbench.host.gpu_system import GpuSystem, read_gpu_system
from commbench.host.gpus import Gpu, read_gpus
from commbench.host.procfs import read_cpu_ticks
from commbench.output.paragraphs import join_words
from commbench.stats.estimate import ratio
from commbench.stats.verdict import FASTER, SLOWER, UNDECIDED
from commbench.units import format_bytes, format_share, format_time


def examine(
    options: DoctorOptions, start: float, print_status: Callable[[str], None]
) -> DoctorReport:
    """Check this host; `start` is the monotonic time from which the seconds of the options count.
    An error that ends the check is in the report."""
    known = DoctorReport(options)
    ended: CommbenchError | None = None
    try:
        for report in _run_steps(known, start + options.seconds, print_status):
            known = report
    except (KeyboardInterrupt, Interrupted) as stopped:
        number = stopped.exit_code - 128 if isinstance(stopped, Interrupted) else 2
        message = str(stopped.args[0] if stopped.args else "stopped by SIGINT")
        hint = "the results until then are printed above"
        ended = Interrupted(message, hint, signal_number=number)
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
    facts = read_facts()
    gpus = read_gpus(facts.cores)
    system = read_gpu_system(gpus) if gpus else None
    yield (known := replace(known, facts=facts, gpus=gpus, gpu_system=system))
    print_status("measuring loopback and memory")
    yield (known := replace(known, ceilings=measure_host_bandwidth(facts, options.seconds)))
    choose_target(detect_capabilities(), "gloo", "cpu", options.ranks)
    load = _LoadMeter(facts.cores)
    trials = try_modes(options.ranks, options.rounds, options.seed, deadline, print_status)
    for trial in trials:
        known = replace(known, trials=(*known.trials, trial), meanwhile=load.read())
        yield known


class _LoadMeter:
    """Measures from now on how much of the cores others than this process and its ranks use."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores, self._ticks = cores, read_cpu_ticks(cores)
        self._start, self._own_s = time.monotonic(), _read_own_s()

    def read(self) -> OtherLoad | None:
        """The load so far; None where the kernel does not count it."""
        use = measure_use(self._ticks, read_cpu_ticks(self._cores))
        if use is None:
            return None
        elapsed = time.monotonic() - self._start
        own = (_read_own_s() - self._own_s) / (elapsed * len(self._cores))
        return OtherLoad(max(0.0, use.programs_share - own), use.stolen_share)


def _read_own_s() -> float:
    """Processor time of this process and of its children that have ended, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


QUIET = "quiet"
FAST_CLOCKS = ("tsc", "arch_sys_counter", "timebase", "tod", "riscv_clocksource")
"""Clock sources that are a register of the processor."""
SHM_BYTES = 1 << 30
"""Of /dev/shm that are enough for the ranks of a host; containers have 64 MiB by default."""
_LOOKS_FASTER = 0.8
"""Time of a mode over that of quiet, below which a mode that is not decided is named."""
STILL_QUIET = 0.1
"""Share of the cores' time that other programs may use before that counts."""
SLOW_GOVERNORS = ("powersave", "conservative")
OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose `powersave` still raises the frequency under load."""


Figure: TypeAlias = Callable[[HostFacts, DoctorReport], float | None]
"""What is compared with a threshold; None where it is unknown or does not apply."""


class Rule(NamedTuple):
    """A problem that a host may have, and how it is recognised."""

    name: str
    figure: Figure
    threshold: float
    """The finding is reported where the figure is larger."""
    message: str
    """What is in braces is one of _words."""
    advice: str
    """The same."""


def make_findings(report: DoctorReport) -> tuple[Finding, ...]:
    """What the rules find on this host. The trials of a check that ended early are not used: they
    are too few to compare the modes."""
    if report.ended:
        report = replace(report, trials=(), meanwhile=None)
    facts, found = report.facts, []
    for rule in FINDINGS if facts else ():
        assert facts
        figure = rule.figure(facts, report)
        if figure is not None and figure > rule.threshold:
            words = _words(facts, report, figure)
            texts = (text.format_map(words) for text in (rule.message, rule.advice))
            found.append(Finding(rule.name, float(figure), rule.threshold, *texts))
    return tuple(found)


def _words(facts: HostFacts, report: DoctorReport, figure: float) -> dict[str, object]:
    """What a message may name: the figure, also in percent and as a time, and facts."""
    system = report.gpu_system or GpuSystem()
    reasons = chain.from_iterable(gpu.throttle_reasons for gpu in report.gpus)
    busiest = ", ".join(f"{name} {cores:.1f}" for name, cores in facts.busiest)
    tried = [e for m in MODES if (e := compare_mode(report.trials, m, SMALL, other=QUIET))]
    seen = [e.mode for e in tried if e.ratio and e.ratio.value < _LOOKS_FASTER]
    return {
        "figure": figure,
        "percent": format_share(figure),
        "time": format_time(figure),
        "facts": facts,
        "busiest": busiest or "none is visible from here",
        "governors": ", ".join(facts.governors),
        "mode": _better(report)[1],
        "launches": min((each.launches for each in tried), default=0),
        "looks": f"; {join_words(seen)} look{'' if seen[1:] else 's'} faster" if seen else "",
        "longer": ceil(max(60.0, 3 * report.request.seconds)),
        "reasons": ", ".join(dict.fromkeys(reasons)),
        "shm": format_bytes(system.shm_bytes or 0),
        "memlock": format_bytes(system.memlock_bytes or 0),
    }


def _load(before: str, meanwhile: str) -> Figure:
    """The larger share of the cores' time, of those before modes were tried and meanwhile."""

    def largest(facts: HostFacts, report: DoctorReport) -> float | None:
        shares = getattr(facts, before), getattr(report.meanwhile, meanwhile, None)
        return max((share for share in shares if share is not None), default=None)

    return largest


def _throttled(_: HostFacts, report: DoctorReport) -> float | None:
    """Mean share of the measured time in which the control group had used up its own."""
    points = [point.throttled_share for trial in report.trials for point in trial.points]
    known = [share for share in points if share is not None]
    return sum(known) / len(known) if known else None


def _in_quiet(figure: Callable[[ModeEffect], float | None]) -> Figure:
    """A figure of small calls in the mode quiet."""

    def of_small_calls(_: HostFacts, report: DoctorReport) -> float | None:
        found = compare_mode(report.trials, QUIET, SMALL)
        return figure(found) if found else None

    return of_small_calls


def _better(report: DoctorReport) -> tuple[float, str]:
    """Time of small calls in quiet over that in the mode that is faster by most, beyond noise, and
    that mode; 0 where none is faster."""
    rivals = [mode for mode in MODES if mode not in (QUIET, PLAIN)]
    effects = [compare_mode(report.trials, mode, SMALL, other=QUIET) for mode in rivals]
    found = [(1 / e.ratio.value, e.mode) for e in effects if e and e.ratio and e.verdict == FASTER]
    return max(found, default=(0.0, ""))


def _slow_governor(facts: HostFacts, _: DoctorReport) -> float:
    """1 for a governor that keeps the frequency down under load."""
    is_slow = any(governor in SLOW_GOVERNORS for governor in facts.governors)
    return float(is_slow and facts.frequency_driver not in OWN_GOVERNORS)


def _slow_loopback(facts: HostFacts, report: DoctorReport) -> float | None:
    """Rate of one core's memory copies over the loopback's; None where other work may slow it."""
    found = report.ceilings
    is_quiet = found and (found.undisturbed or (facts.busy_share or 0) <= STILL_QUIET)
    rate = ratio(found.copy_one_bytes_per_s, found.loopback_bytes_per_s) if found else None
    return rate.value if rate and is_quiet else None


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


_RAISE_LIMIT = "Raise the CPU limit of this container, or start fewer ranks (--nproc-per-node)"
FINDINGS: tuple[Rule, ...] = (
    Rule(
        "busy_cores", _load("busy_share", "others_share"), STILL_QUIET,
        "Other programs use {percent} of the cores' time (in cores, at the first look: {busiest})",
        "Stop them, or give the ranks cores of their own (taskset, a cpuset, an exclusive node)",
    ),
    Rule(
        "stolen", _load("stolen_share", "stolen_share"), 0.05,
        "The hypervisor gave {percent} of the cores' time to other virtual machines",
        "Measure again when they are idle, or on another host",
    ),
    Rule(
        "throttled", _throttled, 0.01,
        "The CPU limit of the control group stopped the ranks for {percent} of the measured time",
        _RAISE_LIMIT,
    ),
    Rule(
        "cpu_limit", lambda f, r: r.request.ranks / f.cpu_limit if f.cpu_limit else None, 1.0,
        "The CPU limit is {facts.cpu_limit:.3g} processors, so {figure:.3g} ranks share each",
        _RAISE_LIMIT,
    ),
    Rule(
        "few_cores", lambda f, r: r.request.ranks / (f.physical_cores or len(f.cores)), 1.0,
        "{figure:.3g} ranks share a core, so they wait for each other",
        "Start fewer ranks (--nproc-per-node), or allow this process more cores",
    ),
    Rule(
        "quiet_slower",
        _in_quiet(lambda e: e.ratio.value if e.ratio and e.verdict == SLOWER else None), 1.05,
        "With --cpu-mode quiet small calls take {figure:.2g} times as long as with plain",
        "Other programs use the same cores. Stop them, or let the ranks move: --cpu-mode plain"
        " needs no rights",
    ),
    Rule(
        "quiet_stalls",
        _in_quiet(lambda e: e.stalled_share if e.verdict == UNDECIDED else None), 0.05,
        "With --cpu-mode quiet {percent} of small calls are interrupted. Which mode is the fastest"
        " is not known after {launches} launch(es) of each{looks}",
        "Other programs may use the cores in turn: stop them. For a decision run `commbench doctor"
        " --seconds {longer}`",
    ),
    Rule(
        "better_mode", lambda _, r: _better(r)[0], 1.25,
        "With --cpu-mode {mode} small calls are {figure:.2g} times as fast as with quiet, the"
        " default",
        "Measure with --cpu-mode {mode}, and compare only runs of the same mode. Where plain is as"
        " fast, prefer plain: it needs no rights",
    ),
    Rule(
        "unsteady", _in_quiet(lambda e: e.time_s.ends[1] / e.time_s.ends[0]), 1.5,
        "With --cpu-mode quiet the slowest launch took {figure:.2g} times as long as the fastest,"
        " for small calls",
        f"Do not rely on a single run here: compare runs of several launches ({more_launches()})",
    ),
    Rule(
        "clock_source", lambda f, _: f.clock_source not in (None, *FAST_CLOCKS), 0.0,
        "The clock source is {facts.clock_source}, which is not a counter of the processor",
        "Choose tsc or arch_sys_counter if the host offers it, in /sys/devices/system/clocksource/"
        "clocksource0/current_clocksource or at boot (clocksource=tsc)",
    ),
    Rule(
        "slow_clock", lambda f, _: f.clock_read_s, 0.5e-6,
        "Reading the clock takes {time}, and every call needs two readings",
        "Choose a clock source that needs no system call, or use --timing pipelined",
    ),
    Rule(
        "slow_governor", _slow_governor, 0.0,
        "The frequency governor is {governors}, which raises the frequency of a core late or never",
        "Use the governor performance while you measure: cpupower frequency-set -g performance",
    ),
    Rule(
        "slow_loopback", _slow_loopback, 5.0,
        "One core copies memory {figure:.1f} times as fast as loopback TCP, gloo's way on one host",
        "Look for what handles each packet: firewall rules on lo, a small MTU (65536 is usual), a "
        "sandbox with its own network",
    ),
    Rule(
        "narrow_gpu", _count_gpus(lambda g: 0 < (g.link_width or 0) < (g.most_width or 0)), 0.0,
        "{figure:.0f} GPU(s) use fewer PCIe lanes than they have",
        "Reseat them, or look for a slot or a riser with fewer lanes",
    ),
    Rule(
        "far_gpu", _count_gpus(lambda gpu: gpu.near_cores == 0), 0.0,
        "{figure:.0f} GPU(s) have no core nearby that this process may use, so data takes a detour",
        "Allow this process cores of their NUMA nodes (numactl, srun --cpu-bind)",
    ),
    Rule(
        "gpu_persistence", _count_gpus(lambda gpu: gpu.persistence is False), 0.0,
        "Persistence mode is off on {figure:.0f} GPU(s): the driver initialises them for every run",
        "Switch it on, as root: nvidia-smi -pm 1, or start nvidia-persistenced",
    ),
    Rule(
        "gpu_throttled", _count_gpus(lambda gpu: gpu.throttle_reasons), 0.0,
        "{figure:.0f} GPU(s) are throttled now ({reasons})",
        "Raise a power cap (nvidia-smi -pl), or check the cooling and the power supply: "
        "nvidia-smi -q -d PERFORMANCE",
    ),
    Rule(
        "low_power_cap", _count_gpus(
            lambda gpu: 0 < (gpu.power_cap_w or 0) < 0.99 * (gpu.default_power_cap_w or 0)
        ), 0.0,
        "{figure:.0f} GPU(s) have a power cap below their default: nvidia-smi -q -d POWER",
        "Raise it, as root: nvidia-smi -pl WATTS, or compare only runs with the same cap",
    ),
    Rule(
        "gpu_ecc_errors", lambda _, r: sum(gpu.ecc_errors or 0 for gpu in r.gpus), 0.0,
        "The GPUs had {figure:.0f} uncorrected ECC errors in memory since the driver was loaded",
        "Reset the GPU (nvidia-smi -r) or reboot, and replace it if errors come back: "
        "nvidia-smi -q -d ECC,ROW_REMAPPER shows which one",
    ),
    Rule(
        "nvlink_down", _missing_nvlinks, 0.0,
        "A GPU has {figure:.0f} active NVLinks less than another one of this host",
        "nvidia-smi nvlink -s shows which links are down. With NVSwitches, check that the service "
        "nvidia-fabricmanager is running",
    ),
    Rule(
        "no_p2p", _count_gpus(lambda gpu: gpu.unreachable), 0.0,
        "{figure:.0f} GPU(s) cannot read the memory of another one (P2P): NCCL copies through the "
        "host", "nvidia-smi topo -p2p r shows which, and why. Look at ACS and IOMMU settings; in a "
        "virtual machine, at how the GPUs are passed through",
    ),
    Rule(
        "no_gpudirect", _around_gpus(lambda s: s.gpudirect is False and bool(s.hcas)), 0.0,
        "Network adapters cannot read the memory of GPUs (GPUDirect RDMA): the module "
        "nvidia_peermem is not loaded, and the driver has no dma-buf",
        "Load it, as root: modprobe nvidia_peermem, or install the driver's open kernel modules",
    ),
    Rule(
        "acs", _around_gpus(lambda system: system.redirecting_bridges), 0.0,
        "{figure:.0f} PCIe bridge(s) send data between devices through the processor (ACS)",
        "Switch ACS off in the BIOS, or with setpci as NCCL's documentation describes it under "
        "PCI Access Control Services. A virtual machine may need it",
    ),
    Rule(
        "small_shm", _around_gpus(lambda s: s.shm_bytes and SHM_BYTES / s.shm_bytes), 1.0,
        "/dev/shm has only {shm}, and NCCL makes a buffer in it for each connection",
        "Enlarge it: docker run --shm-size=1g or --ipc=host; in Kubernetes mount an emptyDir of "
        "medium Memory at /dev/shm",
    ),
    Rule(
        "memlock", _around_gpus(lambda s: bool(s.hcas) and s.memlock_bytes is not None), 0.0,
        "This process may lock only {memlock} of memory, and RDMA locks its buffers",
        "Lift the limit: docker run --ulimit memlock=-1, memlock unlimited in "
        "/etc/security/limits.conf, or PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
    ),
)  # fmt: skip
