"""What a check is asked for and what it finds: data only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from commbench import __version__
from commbench.doctor.host_bandwidth import HostBandwidth
from commbench.doctor.mode_effects import GROUPS, ModeEffect, compare_modes
from commbench.doctor.mode_trials import SIZES, Trial
from commbench.errors import CommbenchError, UnavailableError, UsageError
from commbench.host.facts import HostFacts
from commbench.host.gpu_system import GpuSystem
from commbench.host.gpus import Gpu
from commbench.validation import require_within
from commbench.views.as_json import fields_of

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


class Finding(NamedTuple):
    """A problem for measurements on this host."""

    name: str
    figure: float
    threshold: float
    message: str
    """A sentence without its full stop, as is the advice."""
    advice: str
    """What to do about it."""


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
    findings: tuple[Finding, ...] = ()

    @property
    def effects(self) -> tuple[ModeEffect, ...]:
        """What each mode changes, of small sizes together and of large ones."""
        return compare_modes(self.trials, GROUPS)

    @property
    def modes(self) -> tuple[ModeEffect, ...]:
        """The results of every mode and size that was measured."""
        return compare_modes(self.trials, [(size,) for size in SIZES])

    @property
    def trouble(self) -> CommbenchError | None:
        """The error to raise after the report: what ended the check, that of a rank that died, or
        why no mode at all could be tried."""
        troubles = [trial.trouble for trial in self.trials if trial.trouble]
        deaths = [error for error in troubles if not isinstance(error, UnavailableError)]
        refusals = troubles if not any(trial.points for trial in self.trials) else []
        return next(iter([*([self.ended] if self.ended else []), *deaths, *refusals]), None)

    def as_json(self) -> dict[str, Any]:
        """Everything that is known, and the version that found it."""
        fit = self.facts.ranks_fit if self.facts else None
        found = fields_of(self, "effects", "modes")
        return {"commbench": __version__, "ranks_fit": fit, **found}
