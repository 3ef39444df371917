"""Checks a host step by step. If the check ends early, the results until then are kept."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence

from commbench.doctor.findings import make_findings
from commbench.doctor.host_bandwidth import measure_host_bandwidth
from commbench.doctor.mode_trials import try_modes
from commbench.doctor.report import DoctorOptions, DoctorReport, OtherLoad
from commbench.errors import CommbenchError, Interrupted
from commbench.host.facts import measure_use, read_facts
from commbench.host.gpu_system import read_gpu_system
from commbench.host.gpus import read_gpus
from commbench.host.procfs import read_cpu_ticks


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
        message = str(stopped) or "stopped by SIGINT"
        hint = "the results until then are printed above"
        ended = Interrupted(message, hint, signal_number=number)
    except CommbenchError as error:
        ended = error
    known = known._replace(ended=ended)
    return known._replace(findings=make_findings(known))


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
