"""Checks a host step by step. If the check ends early, the results until then are kept."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from commbench.doctor.host_bandwidth import HostBandwidth, measure_host_bandwidth
from commbench.doctor.host_facts import HostFacts, measure_use, read_facts
from commbench.doctor.mode_effects import ModeResult, make_mode_results
from commbench.doctor.mode_trials import Trial, try_modes
from commbench.errors import CommbenchError, Interrupted, UnavailableError, UsageError
from commbench.host.gpu_system import GpuSystem, read_gpu_system
from commbench.host.gpus import Gpu, read_gpus
from commbench.host.procfs import read_cpu_ticks
from commbench.validation import require_within

LONGEST_S = 86400.0


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
        if not 0 < self.seconds <= LONGEST_S:
            why = f"--seconds {self.seconds:g} is not between 0 and 86400, a day"
            raise UsageError(why, "write --seconds 60")


class OtherLoad(NamedTuple):
    """The use of the cores by others while modes were tried, as shares of their time."""

    others_share: float
    """Used by other programs. The kernel's work for the network belongs to none and is left out."""
    stolen_share: float


class DoctorReport(NamedTuple):
    """What is known of the host; a part that was not reached is empty or None."""

    request: DoctorOptions
    facts: HostFacts | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_system: GpuSystem | None = None
    """The host around its GPUs; None where it has none."""
    ceilings: HostBandwidth | None = None
    trials: tuple[Trial, ...] = ()
    meanwhile: OtherLoad | None = None
    ended: CommbenchError | None = None
    """The error that ended the check early."""

    @property
    def results(self) -> tuple[ModeResult, ...]:
        """The results of every mode and size that was measured."""
        return make_mode_results(self.trials)

    @property
    def trouble(self) -> CommbenchError | None:
        """The error to raise after the report: what ended the check, that of a rank that died, or
        why no mode at all could be tried."""
        troubles = [trial.trouble for trial in self.trials if trial.trouble]
        deaths = [error for error in troubles if not isinstance(error, UnavailableError)]
        refusals = troubles if not any(trial.points for trial in self.trials) else []
        return next(iter([*([self.ended] if self.ended else []), *deaths, *refusals]), None)


def examine(
    options: DoctorOptions, start: float, print_status: Callable[[str], None]
) -> DoctorReport:
    """Check this host; `start` is the monotonic time from which the seconds of the options count.
    An error that ends the check is in the report."""
    known = DoctorReport(options)
    try:
        for report in _run_steps(known, start + options.seconds, print_status):
            known = report
    except (KeyboardInterrupt, Interrupted) as stopped:
        number = stopped.exit_code - 128 if isinstance(stopped, Interrupted) else 2
        message = str(stopped) or "stopped by SIGINT"
        ended = Interrupted(
            message, "the results until then are printed above", signal_number=number
        )
        return known._replace(ended=ended)
    except CommbenchError as error:
        return known._replace(ended=error)
    return known


def _run_steps(
    known: DoctorReport, deadline: float, print_status: Callable[[str], None]
) -> Iterator[DoctorReport]:
    """Run the check; yields the report after each step."""
    from commbench.launch.devices import choose_target, detect_capabilities

    options = known.request
    facts = read_facts()
    gpus = read_gpus(facts.cores)
    system = read_gpu_system(gpus) if gpus else None
    yield (known := known._replace(facts=facts, gpus=gpus, gpu_system=system))
    print_status("measuring loopback and memory")
    yield (known := known._replace(ceilings=measure_host_bandwidth(facts, options.seconds)))
    choose_target(detect_capabilities(), "gloo", "cpu", options.ranks)
    load = _LoadMeter(facts.cores)
    trials = try_modes(options.ranks, options.rounds, options.seed, deadline, print_status)
    for trial in trials:
        known = known._replace(trials=(*known.trials, trial), meanwhile=load.read())
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
