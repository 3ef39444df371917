"""What is in the way of measuring on this host: the closed table of findings, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from commbench.doctor import metrics as symptoms
from commbench.doctor.checkup import DoctorReport
from commbench.units import format_share


class Finding(NamedTuple):
    """One way in which a host can be in the way."""

    name: str
    figure: Callable[[DoctorReport], float | None]
    """What is held against the threshold; None where it is not known or does not apply."""
    threshold: float
    """Complained of above it."""
    message: str
    """`{0}` stands for the figure, `{percent}` for it in percent, `{1}` for what `naming` says."""
    advice: str
    """What to do about it; `{1}` as in the message."""
    naming: Callable[[DoctorReport], str] = lambda _: ""

    def says(self, checkup: DoctorReport) -> str:
        """The message for this host."""
        figure = self.figure(checkup) or 0.0
        return self.message.format(figure, self.naming(checkup), percent=format_share(figure))

    def advises(self, checkup: DoctorReport) -> str:
        """The advice for this host."""
        return self.advice.format(None, self.naming(checkup))


def findings_of(checkup: DoctorReport) -> tuple[Finding, ...]:
    """What to complain of."""
    return tuple(f for f in FINDINGS if (x := f.figure(checkup)) is not None and x > f.threshold)


FINDINGS: tuple[Finding, ...] = (
    Finding(
        "busy_cores", symptoms.busy, symptoms.STILL_QUIET,
        "other work uses {percent} of the cores' time; cores used at the first look: {1}",
        "stop it, or give ranks cores of their own (taskset, a cpuset, an exclusive node); ranks "
        "that keep to one core cannot move away from it",
        symptoms.busiest,
    ),
    Finding(
        "stolen", symptoms.stolen, 0.05,
        "the hypervisor gave away {percent} of the cores' time",
        "other guests of this machine are busy: measure again when they are not, or elsewhere",
    ),
    Finding(
        "throttled", symptoms.throttled, 0.01,
        "the control group's processor time was used up for {percent} of the measured time",
        "raise the CPU limit of this container, or start fewer ranks (--nproc-per-node)",
    ),
    Finding(
        "cpu_limit", symptoms.ranks_per_limit, 1.0,
        "the control group allows the time of {1} processors: one for {0:.3g} ranks",
        "raise the CPU limit of this container, or start fewer ranks (--nproc-per-node)",
        lambda c: f"{c.facts.cpu_limit:.3g}" if c.facts and c.facts.cpu_limit else "",
    ),
    Finding(
        "few_cores", symptoms.ranks_per_core, 1.0,
        "{0:.3g} ranks share a core: they wait for each other, and not only for data",
        "start fewer ranks (--nproc-per-node), or allow this process more cores",
    ),
    Finding(
        "quiet_slower", symptoms.quiet_slower, 1.05,
        "quiet is not quieter than plain: small calls take {0:.1f} times as long",
        "something else runs on the cores that ranks keep to: free them, or leave ranks free to "
        "move (--cpu-mode plain)",
    ),
    Finding(
        "quiet_stalls", symptoms.quiet_stalls, 0.05,
        "quiet is not quieter than plain: up to {percent} of its small calls still stall",
        "other work takes these cores in turn: free them first, for no mode can",
    ),
    Finding(
        "better_mode", lambda c: symptoms.better(c)[0], 1.25,
        "in {1} mode small calls are {0:.1f} times as fast as in quiet, the default",
        "measure with --cpu-mode {1}, and compare only runs that did",
        lambda c: symptoms.better(c)[1],
    ),
    Finding(
        "unsteady", symptoms.unsteady, 1.5,
        "the slowest launch in quiet took {0:.1f} times as long as the fastest, for small calls",
        "believe no single run here: compare over several launches (--launches 6), in turn",
    ),
    Finding(
        "clock_source", symptoms.slow_clock_source, 0.0,
        "the clock source is {1}, and no counter of the processor",
        "choose tsc or arch_sys_counter where it is offered, in /sys/devices/system/clocksource/"
        "clocksource0/current_clocksource or at boot (clocksource=tsc)",
        lambda c: (c.facts.clock_source if c.facts else None) or "",
    ),
    Finding(
        "slow_clock", lambda c: c.facts.clock_read_s if c.facts else None, 0.5e-6,
        "reading the clock takes {1}, and is read twice for each call",
        "choose a clock source that is read without a system call, or use --timing pipelined",
        lambda c: f"{(c.facts.clock_read_s or 0) * 1e6:.2g} us" if c.facts else "",
    ),
    Finding(
        "slow_governor", symptoms.slow_governor, 0.0,
        "the frequency governor is {1}: cores speed up late, or not at all",
        "set it to performance while measuring: cpupower frequency-set -g performance",
        lambda c: ", ".join(c.facts.governors) if c.facts else "",
    ),
    Finding(
        "slow_loopback", symptoms.slow_loopback, 5.0,
        "one core copies memory {0:.1f} times as fast as loopback TCP carries it",
        "look for what handles each packet: firewall rules on lo, a small MTU (65536 is usual), a "
        "sandbox with a network of its own; gloo on one host goes that way",
    ),
    Finding(
        "narrow_gpu", symptoms.narrow_gpus, 0.0,
        "{0:.0f} GPU(s) use fewer PCIe lanes than they have",
        "reseat them, or look for a slot or riser with fewer lanes",
    ),
    Finding(
        "far_gpu", symptoms.far_gpus, 0.0,
        "{0:.0f} GPU(s) have no core nearby that this process may use",
        "allow it cores of their NUMA nodes (numactl, srun --cpu-bind), or data takes a detour",
    ),
)  # fmt: skip
