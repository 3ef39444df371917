"""The whole check of a host, step by step; whatever ends it, what was found until then is kept."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from commbench.doctor.cpu_usage import use_between
from commbench.doctor.gpus import Gpu, read_gpus
from commbench.doctor.host_bandwidth import HostBandwidth, measure_ceilings
from commbench.doctor.host_facts import HostFacts, read_facts
from commbench.doctor.mode_effects import ModeResult, compare
from commbench.doctor.mode_trials import Trial, try_modes
from commbench.errors import CommbenchError, Interrupted, UnavailableError, UsageError
from commbench.host.procfs import read_cpu_ticks

LONGEST_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """What was asked for; refuses what makes no sense (UsageError)."""

    ranks: int
    rounds: int
    seconds: float
    """For everything together."""
    seed: int = 0

    def __post_init__(self) -> None:
        for option, value, least in (("nproc-per-node", self.ranks, 2), ("rounds", self.rounds, 1)):
            if value < least:
                raise UsageError(f"--{option} is {value}", f"it must be at least {least}")
        if not 0 < self.seconds <= LONGEST_S:
            raise UsageError(
                f"--seconds {self.seconds:g} is not between 0 and a day", "write --seconds 60"
            )


class OtherLoad(NamedTuple):
    """What happened on the cores while modes were tried; shares of their time."""

    others_share: float
    """What other programs used. What the kernel does for the network is nobody's and left out."""
    stolen_share: float


class DoctorReport(NamedTuple):
    """What is known so far; empty or None: not yet, or never."""

    request: DoctorOptions
    facts: HostFacts | None = None
    gpus: tuple[Gpu, ...] = ()
    ceilings: HostBandwidth | None = None
    trials: tuple[Trial, ...] = ()
    meanwhile: OtherLoad | None = None
    ended: CommbenchError | None = None
    """What ended it before its time."""

    @property
    def figures(self) -> tuple[ModeResult, ...]:
        """Every mode and size that was measured."""
        return compare(self.trials)

    @property
    def trouble(self) -> CommbenchError | None:
        """What has to be told after everything else: what ended the check, a rank that died, or
        why no mode at all could be tried."""
        troubles = [trial.trouble for trial in self.trials if trial.trouble]
        deaths = [error for error in troubles if not isinstance(error, UnavailableError)]
        hopeless = troubles if not any(trial.points for trial in self.trials) else []
        return next(iter([*([self.ended] if self.ended else []), *deaths, *hopeless]), None)


def examine(request: DoctorOptions, began: float, say: Callable[[str], None]) -> DoctorReport:
    """Check this host; `began` is the monotonic time from which the seconds count. Never raises
    what ends the check: it is in the answer."""
    known = DoctorReport(request)
    try:
        for step in _steps(known, began + request.seconds, say):
            known = step
    except (KeyboardInterrupt, Interrupted) as stopped:
        number = stopped.exit_code - 128 if isinstance(stopped, Interrupted) else 2
        message = str(stopped) or "stopped by SIGINT"
        ended = Interrupted(message, "what was known is above", signal_number=number)
        return known._replace(ended=ended)
    except CommbenchError as error:
        return known._replace(ended=error)
    return known


def _steps(
    known: DoctorReport, deadline: float, say: Callable[[str], None]
) -> Iterator[DoctorReport]:
    """The check, richer with each step."""
    from commbench.launch.devices import choose_target, detect_capabilities

    request = known.request
    facts = read_facts()
    yield (known := known._replace(facts=facts, gpus=read_gpus(facts.cores)))
    say("measuring loopback and memory")
    yield (known := known._replace(ceilings=measure_ceilings(facts, request.seconds)))
    choose_target(detect_capabilities(), "gloo", "cpu", request.ranks)
    watch = _Watch(facts.cores)
    for trial in try_modes(request.ranks, request.rounds, request.seed, deadline, say):
        known = known._replace(trials=(*known.trials, trial), meanwhile=watch.meanwhile())
        yield known


class _Watch:
    """Remembers when trials began: what the cores had done, and this process with its ranks."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores, self._ticks = cores, read_cpu_ticks(cores)
        self._began, self._own = time.monotonic(), _own_s()

    def meanwhile(self) -> OtherLoad | None:
        """What happened since; None where the kernel does not tell."""
        use = use_between(self._ticks, read_cpu_ticks(self._cores))
        if use is None:
            return None
        own = (_own_s() - self._own) / ((time.monotonic() - self._began) * len(self._cores))
        return OtherLoad(max(0.0, use.programs_share - own), use.stolen_share)


def _own_s() -> float:
    """Processor time of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)
