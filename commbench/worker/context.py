"""The data that a launcher passes to a rank. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from commbench.results.schema import RunHeader
from commbench.spec.case import FINISHED, Case
from commbench.spec.plan import Plan

LOCAL = "local"
"""The launcher of ranks that commbench started itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """The number of a rank among the others, and how it joins them."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launcher: str
    """Who started it: `local`, `torchrun`, `srun`, `mpirun`."""
    init_method: str
    """`file:PATH` (one host), `tcp://HOST:PORT`, or `env://` (torchrun's variables)."""
    scratch_dir: Path | None = None
    """The folder for error files; None where nobody would read them."""

    @property
    def is_external(self) -> bool:
        """Whether a launcher other than commbench started the ranks, so that only they themselves
        can see how the others end."""
        return self.launcher != LOCAL and self.scratch_dir is None

    @property
    def is_single_node(self) -> bool:
        """Whether all ranks share this host."""
        return self.local_world_size == self.world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTask:
    """One launch of a run, the same for all of its ranks."""

    plan: Plan
    label: str
    folder: Path
    folder_exists: bool = True
    """False: rank 0 creates it, once all ranks have the same plan."""
    launch: int = 0
    """Its number, from 0."""
    is_silent: bool = False
    """Whether rank 0 shows no progress."""
    is_verbose: bool = False
    """Whether rank 0 prints each case that has ended, where its progress is no bar."""
    logs_nccl: bool = True
    """Whether what NCCL logs of its communicator is recorded."""
    nccl_selections: dict[str, list[list[str]]] = field(default_factory=dict)
    """What NCCL selects for cases (analysis.nccl_log.selection_entries)."""
    nccl_tuning_log: str = ""
    """The path of the file in which NCCL logs what it selects, from the start, with `%p` for the
    process. Such ranks are there to learn that."""
    resumed_from: RunHeader | None = None
    """The header of the run that is resumed: nothing it depends on may have changed since."""
    finished: frozenset[int] | None = None
    """Cases that this launch finished before it was interrupted; None: it was not resumed."""
    journal: str = "new"
    """A digest of the journal that is continued; all ranks need the same."""

    def cases(self) -> tuple[Case, ...]:
        """The cases of the plan; those that this launch has finished before are marked."""
        done = self.finished or ()
        return tuple(
            case._replace(status=FINISHED) if case.index in done else case
            for case in self.plan.cases()
        )
