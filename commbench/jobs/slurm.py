"""A batch script for Slurm's sbatch, in which srun starts the ranks.

Sources: Slurm's manual pages, sbatch(1) and srun(1); for the options of containers the
usage page of NVIDIA's plugin pyxis, https://github.com/NVIDIA/pyxis/wiki/Usage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from commbench.errors import UsageError
from commbench.jobs.job import Job, render, require_match, require_printable
from commbench.validation import require_within

_NAME = re.compile(r"[A-Za-z0-9_.,:+@/-]+")
_SLURM_TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d+(:\d{1,2}){0,2}", re.ASCII)
_SHORT_TIME = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """The options of the job beside nodes and ranks; None where an option was not given."""

    partition: str | None = None
    account: str | None = None
    time: str = "30m"
    """30m, 2h, 1d, or as Slurm writes it."""
    cpus_per_task: int | None = None
    exclusive: bool = True
    """Whether the job gets whole nodes; on shared nodes it measures other jobs, too."""
    container: str | None = None
    """Image for pyxis: REGISTRY#IMAGE:TAG, or the path of a .sqsh file."""
    setup: tuple[str, ...] = ()
    """Lines of shell before the run, such as `module load cuda`."""

    def __post_init__(self) -> None:
        for option, name in (("--partition", self.partition), ("--account", self.account)):
            if name is not None:
                require_match(_NAME, option, name, "use letters, digits and any of _ . , : + @ / -")
        require_within("--cpus-per-task", self.cpus_per_task, 1, inf)
        if self.container is not None:
            require_printable("--container", self.container)
        for line in self.setup:
            require_printable("--setup", line)
        slurm_time(self.time)

    def script(self, job: Job) -> str:
        """The batch script of the job; texts from users are quoted for the shell."""
        return render("slurm.sh.jinja", job=job, options=self, time=slurm_time(self.time))


def slurm_time(text: str) -> str:
    """A time limit in Slurm's notation: `30m` becomes `00:30:00`, Slurm's own forms stay."""
    if match := _SHORT_TIME.fullmatch(text):
        seconds = int(match[1]) * _SECONDS[match[2]]
        if seconds:
            return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    elif _SLURM_TIME.fullmatch(text):
        return text
    raise UsageError(
        f"--time {text!r} is not a time", "write 30m, 2h, 1d, or as Slurm does: 90, 1:30:00, 2-12"
    )
