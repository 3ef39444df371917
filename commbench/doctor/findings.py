"""FINDINGS: the problems that a host may have, each with its threshold and advice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from commbench.analysis.advice import more_launches
from commbench.doctor.checkup import DoctorReport
from commbench.doctor.host_facts import HostFacts
from commbench.doctor.mode_effects import FASTER, SLOWER, SMALL, UNCLEAR, compare_modes, find_times
from commbench.doctor.mode_trials import MODES, PLAIN
from commbench.host.gpu_system import GpuSystem
from commbench.host.gpus import Gpu
from commbench.units import format_bytes, format_share

QUIET = "quiet"
FAST_CLOCKS = ("tsc", "arch_sys_counter", "timebase", "tod", "riscv_clocksource")
"""Clock sources that are a register of the processor."""
SHM_BYTES = 1 << 30
"""Of /dev/shm that are enough for the ranks of a host; containers have 64 MiB by default."""
STILL_QUIET = 0.1
"""Share of the cores' time that other programs may use before that counts."""
SLOW_GOVERNORS = ("powersave", "conservative")
OWN_GOVERNORS = ("intel_pstate", "amd-pstate-epp")
"""Drivers whose `powersave` still raises the frequency under load."""


class Finding(NamedTuple):
    """A problem for measurements on this host."""

    name: str
    figure: float
    threshold: float
    message: str
    """A sentence without its full stop, as is the advice."""
    advice: str
    """What to do about it."""


class Rule(NamedTuple):
    """A problem that a host may have, and how it is recognised."""

    name: str
    figure: Callable[[HostFacts, DoctorReport], float | None]
    """What is compared with the threshold; None where it is unknown or does not apply."""
    threshold: float
    """The finding is reported where the figure is larger."""
    message: str
    """`{0}` is replaced by the figure, `{percent}` by it in percent, `{1}` by `subject`."""
    advice: str
    """`{1}` as in the message."""
    subject: Callable[[HostFacts, DoctorReport], str] = lambda *_: ""


def make_findings(report: DoctorReport) -> tuple[Finding, ...]:
    """What the rules find on this host. The trials of a check that ended early are not used: they
    are too few to compare the modes."""
    if report.ended:
        report = report._replace(trials=(), meanwhile=None)
    facts, found = report.facts, []
    for rule in FINDINGS if facts else ():
        assert facts
        figure = rule.figure(facts, report)
        if figure is not None and figure > rule.threshold:
            words = figure, rule.subject(facts, report)
            message = rule.message.format(*words, percent=format_share(figure))
            advice = rule.advice.format(*words)
            found.append(Finding(rule.name, float(figure), rule.threshold, message, advice))
    return tuple(found)


def _busy(facts: HostFacts, report: DoctorReport) -> float | None:
    """Share of the cores' time that other programs use: before modes were tried, or meanwhile."""
    meanwhile = report.meanwhile.others_share if report.meanwhile else None
    return _largest(facts.busy_share, meanwhile)


def _busiest(facts: HostFacts, _: DoctorReport) -> str:
    """The programs that were seen to use the cores."""
    named = ", ".join(f"{name} {cores:.1f}" for name, cores in facts.busiest)
    return named or "none is visible from here"


def _stolen(facts: HostFacts, report: DoctorReport) -> float | None:
    """Share of the cores' time that the hypervisor gave to others: before, or meanwhile."""
    meanwhile = report.meanwhile.stolen_share if report.meanwhile else None
    return _largest(facts.stolen_share, meanwhile)


def _throttled(_: HostFacts, report: DoctorReport) -> float | None:
    """Mean share of the measured time in which the control group had used up its own."""
    points = [point.throttled_share for trial in report.trials for point in trial.points]
    known = [share for share in points if share is not None]
    return sum(known) / len(known) if known else None


def _quiet_slower(_: HostFacts, report: DoctorReport) -> float | None:
    """Time of small calls in quiet over that in plain, where quiet is slower beyond noise."""
    found = compare_modes(report.trials, QUIET, SMALL)
    return found.ratio.median if found and found.verdict == SLOWER else None


def _quiet_stalls(_: HostFacts, report: DoctorReport) -> float | None:
    """Share of small calls that stall in quiet, where it is not faster than plain beyond noise."""
    found = compare_modes(report.trials, QUIET, SMALL)
    if not found or found.verdict != UNCLEAR:
        return None
    results = (r for r in report.results if r.mode == QUIET and r.size_bytes in SMALL)
    return _largest(*(result.stalled_share for result in results))


def _better(report: DoctorReport) -> tuple[float, str]:
    """Time of small calls in quiet over that in the mode that is faster by most, beyond noise, and
    that mode; 0 where none is faster."""
    rivals = [mode for mode in MODES if mode not in (QUIET, PLAIN)]
    effects = [compare_modes(report.trials, mode, SMALL, other=QUIET) for mode in rivals]
    found = [(1 / e.ratio.median, e.mode) for e in effects if e and e.verdict == FASTER]
    return max(found, default=(0.0, ""))


def _unsteady(_: HostFacts, report: DoctorReport) -> float | None:
    """Time of the slowest over that of the fastest launch in quiet, for small calls."""
    times = find_times(report.trials, QUIET, SMALL).values()
    return max(times) / min(times) if len(times) > 1 else None


def _slow_governor(facts: HostFacts, _: DoctorReport) -> float:
    """1 for a governor that keeps the frequency down under load."""
    is_slow = any(governor in SLOW_GOVERNORS for governor in facts.governors)
    return float(is_slow and facts.frequency_driver not in OWN_GOVERNORS)


def _slow_loopback(facts: HostFacts, report: DoctorReport) -> float | None:
    """Rate of one core's memory copies over the loopback's; None where other work may slow it."""
    ceilings = report.ceilings
    if not ceilings or not ceilings.loopback or not ceilings.copy_one:
        return None
    if not ceilings.undisturbed and (facts.busy_share or 0) > STILL_QUIET:
        return None
    return ceilings.copy_one.median / ceilings.loopback.median


def _around_gpus(
    figure: Callable[[GpuSystem], float | None],
) -> Callable[[HostFacts, DoctorReport], float | None]:
    """A figure of the host around its GPUs; None on a host without GPUs."""
    return lambda _, report: figure(report.gpu_system) if report.gpu_system else None


def _count_gpus(has_it: Callable[[Gpu], object]) -> Callable[[HostFacts, DoctorReport], float]:
    """How many GPUs of the host have something."""
    return lambda _, report: sum(bool(has_it(gpu)) for gpu in report.gpus)


def _missing_nvlinks(_: HostFacts, report: DoctorReport) -> float:
    """The most NVLinks that a GPU has less than another one of the host."""
    numbers = [gpu.nvlinks for gpu in report.gpus if gpu.nvlinks is not None]
    return max(numbers, default=0) - min(numbers, default=0)


def _throttling(_: HostFacts, report: DoctorReport) -> str:
    """Why GPUs are throttled, each reason once."""
    return ", ".join(dict.fromkeys(chain.from_iterable(g.throttle_reasons for g in report.gpus)))


def _no_gpudirect(system: GpuSystem) -> float:
    """1 where HCAs cannot reach the memory of NVIDIA's GPUs."""
    return float(system.gpudirect is False and bool(system.hcas))


def _shm_size(_: HostFacts, report: DoctorReport) -> str:
    return format_bytes((report.gpu_system and report.gpu_system.shm_bytes) or 0)


def _locked_limit(_: HostFacts, report: DoctorReport) -> str:
    return format_bytes((report.gpu_system and report.gpu_system.memlock_bytes) or 0)


def _largest(*shares: float | None) -> float | None:
    return max((share for share in shares if share is not None), default=None)


FINDINGS: tuple[Rule, ...] = (
    Rule(
        "busy_cores", _busy, STILL_QUIET,
        "Other programs use {percent} of the cores' time (in cores, at the first look: {1})",
        "Stop them, or give the ranks cores of their own (taskset, a cpuset, an exclusive node). A "
        "rank that is bound to one core cannot move away from them",
        _busiest,
    ),
    Rule(
        "stolen", _stolen, 0.05,
        "The hypervisor gave {percent} of the cores' time to other virtual machines",
        "Measure again when they are idle, or on another host",
    ),
    Rule(
        "throttled", _throttled, 0.01,
        "The CPU limit of the control group stopped the ranks for {percent} of the measured time",
        "Raise the CPU limit of this container, or start fewer ranks (--nproc-per-node)",
    ),
    Rule(
        "cpu_limit", lambda f, r: r.request.ranks / f.cpu_limit if f.cpu_limit else None, 1.0,
        "The control group allows the time of {1} processors, so {0:.3g} ranks share each",
        "Raise the CPU limit of this container, or start fewer ranks (--nproc-per-node)",
        lambda f, _: f"{f.cpu_limit:.3g}",
    ),
    Rule(
        "few_cores", lambda f, r: r.request.ranks / (f.physical_cores or len(f.cores)), 1.0,
        "{0:.3g} ranks share a core, so they wait for each other",
        "Start fewer ranks (--nproc-per-node), or allow this process more cores",
    ),
    Rule(
        "quiet_slower", _quiet_slower, 1.05,
        "In cpu mode quiet small calls take {0:.1f} times as long as in plain",
        "Other programs use the cores to which quiet binds the ranks. Free these cores, or let the "
        "ranks move (--cpu-mode plain)",
    ),
    Rule(
        "quiet_stalls", _quiet_stalls, 0.05,
        "In cpu mode quiet up to {percent} of small calls stall, and they are not faster than in "
        "plain",
        "Other programs use the cores in turn. Stop them: no cpu mode helps",
    ),
    Rule(
        "better_mode", lambda _, r: _better(r)[0], 1.25,
        "In cpu mode {1} small calls are {0:.1f} times as fast as in quiet, the default",
        "Measure with --cpu-mode {1}, and compare only runs of the same mode",
        lambda _, r: _better(r)[1],
    ),
    Rule(
        "unsteady", _unsteady, 1.5,
        "In cpu mode quiet the slowest launch took {0:.1f} times as long as the fastest, for small "
        "calls",
        f"Do not rely on a single run here: compare runs of several launches ({more_launches()})",
    ),
    Rule(
        "clock_source", lambda f, _: f.clock_source not in (None, *FAST_CLOCKS), 0.0,
        "The clock source is {1}, which is not a counter of the processor",
        "Choose tsc or arch_sys_counter if the host offers it, in /sys/devices/system/clocksource/"
        "clocksource0/current_clocksource or at boot (clocksource=tsc)",
        lambda f, _: f.clock_source or "",
    ),
    Rule(
        "slow_clock", lambda f, _: f.clock_read_s, 0.5e-6,
        "Reading the clock takes {1}, and every call needs two readings",
        "Choose a clock source that needs no system call, or use --timing pipelined",
        lambda f, _: f"{(f.clock_read_s or 0) * 1e6:.2g} us",
    ),
    Rule(
        "slow_governor", _slow_governor, 0.0,
        "The frequency governor is {1}, which raises the frequency of a core late or never",
        "Use the governor performance while you measure: cpupower frequency-set -g performance",
        lambda f, _: ", ".join(f.governors),
    ),
    Rule(
        "slow_loopback", _slow_loopback, 5.0,
        "One core copies memory {0:.1f} times as fast as loopback TCP, which gloo uses on one host",
        "Look for something that handles each packet: firewall rules on lo, a small MTU (65536 is "
        "usual), a sandbox with its own network",
    ),
    Rule(
        "narrow_gpu",
        lambda _, r: sum(0 < (g.link_width or 0) < (g.most_width or 0) for g in r.gpus), 0.0,
        "{0:.0f} GPU(s) use fewer PCIe lanes than they have",
        "Reseat them, or look for a slot or a riser with fewer lanes",
    ),
    Rule(
        "far_gpu", lambda _, r: sum(gpu.near_cores == 0 for gpu in r.gpus), 0.0,
        "{0:.0f} GPU(s) have no core nearby that this process may use, so data takes a detour",
        "Allow this process cores of their NUMA nodes (numactl, srun --cpu-bind)",
    ),
    Rule(
        "gpu_persistence", _count_gpus(lambda gpu: gpu.persistence is False), 0.0,
        "Persistence mode is off on {0:.0f} GPU(s), so the driver initialises them for every run",
        "Switch it on, as root: nvidia-smi -pm 1, or start nvidia-persistenced",
    ),
    Rule(
        "gpu_throttled", _count_gpus(lambda gpu: gpu.throttle_reasons), 0.0,
        "{0:.0f} GPU(s) are throttled now ({1})",
        "Raise a power cap (nvidia-smi -pl). For a temperature, a slowdown or a power brake, check "
        "the cooling and the power supply: nvidia-smi -q -d PERFORMANCE",
        _throttling,
    ),
    Rule(
        "low_power_cap", _count_gpus(
            lambda gpu: (gpu.power_cap_w or 0) < 0.99 * (gpu.default_power_cap_w or 0)
            and gpu.power_cap_w
        ), 0.0,
        "{0:.0f} GPU(s) have a power cap below their default",
        "Raise it, as root: nvidia-smi -pl WATTS, or compare only runs with the same cap. "
        "nvidia-smi -q -d POWER shows both",
    ),
    Rule(
        "gpu_ecc_errors", lambda _, r: sum(gpu.ecc_errors or 0 for gpu in r.gpus), 0.0,
        "The memory of the GPUs had {0:.0f} uncorrected ECC errors since the driver was loaded",
        "Reset the GPU (nvidia-smi -r) or reboot, and replace it if errors come back: "
        "nvidia-smi -q -d ECC,ROW_REMAPPER shows which one",
    ),
    Rule(
        "nvlink_down", _missing_nvlinks, 0.0,
        "A GPU has {0:.0f} active NVLinks less than another one of this host",
        "nvidia-smi nvlink -s shows which links are down. With NVSwitches, check that the service "
        "nvidia-fabricmanager is running",
    ),
    Rule(
        "no_p2p", _count_gpus(lambda gpu: gpu.unreachable), 0.0,
        "{0:.0f} GPU(s) cannot read the memory of another GPU directly (P2P), so NCCL copies "
        "through memory of the host",
        "nvidia-smi topo -p2p r shows which, and why. Look at ACS and IOMMU settings; in a virtual "
        "machine, at how the GPUs are passed through",
    ),
    Rule(
        "no_gpudirect", _around_gpus(_no_gpudirect), 0.0,
        "Network adapters cannot read the memory of GPUs (GPUDirect RDMA): the module "
        "nvidia_peermem is not loaded, and the driver has no dma-buf",
        "Load it, as root: modprobe nvidia_peermem, or install the driver's open kernel modules",
    ),
    Rule(
        "acs", _around_gpus(lambda system: system.redirecting_bridges), 0.0,
        "{0:.0f} PCIe bridge(s) send data between devices through the processor (ACS)",
        "Switch ACS off in the BIOS, or with setpci as NCCL's documentation describes it under "
        "PCI Access Control Services. A virtual machine may need it",
    ),
    Rule(
        "small_shm", _around_gpus(
            lambda system: SHM_BYTES / system.shm_bytes if system.shm_bytes else None
        ), 1.0,
        "/dev/shm has only {1}, and NCCL makes a buffer in it for each connection",
        "Enlarge it: docker run --shm-size=1g or --ipc=host; in Kubernetes mount an emptyDir of "
        "medium Memory at /dev/shm",
        _shm_size,
    ),
    Rule(
        "memlock", _around_gpus(
            lambda system: float(bool(system.hcas) and system.memlock_bytes is not None)
        ), 0.0,
        "This process may lock only {1} of memory, and RDMA locks its buffers",
        "Lift the limit: docker run --ulimit memlock=-1, memlock unlimited in "
        "/etc/security/limits.conf, or PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
        _locked_limit,
    ),
)  # fmt: skip
