"""A batch script for Slurm's sbatch, in which srun starts the ranks.

Sources: Slurm's manual pages, sbatch(1) and srun(1); for the options of containers the
usage page of NVIDIA's plugin pyxis, https://github.com/NVIDIA/pyxis/wiki/Usage.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from math import inf

from commbench.errors import UsageError
from commbench.jobs.job import Job, require_match, require_printable
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
        """The batch script of the job."""
        return batch_script(job, self)


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


def batch_script(job: Job, options: SlurmOptions) -> str:
    """The script; texts from users are quoted for the shell."""
    lines = ["#!/bin/bash", *_comments(job), *_directives(job, options), "", *_setup(job, options)]
    return "\n".join([*lines, *_step(job, options), ""])


def _comments(job: Job) -> list[str]:
    folder = job.output or f"results/JOB-{job.title}"
    file = f"# Workload: {job.workload}; every node must find this file."
    return [
        f"# {job.summary}",
        *([file] if job.workload else []),
        "# Submit:   sbatch FILE; options given to sbatch replace those below.",
        f"# Results:  {folder}, in the folder from which you submit. The first node writes them.",
        f"# Log:      commbench-{job.title}-JOB.log, with the table. JOB is the job's number.",
    ]


def _directives(job: Job, options: SlurmOptions) -> list[str]:
    directives = {
        "job-name": f"commbench-{job.title}",
        "output": f"commbench-{job.title}-%j.log",
        "nodes": job.nodes,
        "ntasks-per-node": job.ranks_per_node,
        "cpus-per-task": options.cpus_per_task,
        # Not per task: a rank that sees only one GPU may lose the direct links to the others.
        "gpus-per-node": job.gpus_per_node or None,
        "partition": options.partition,
        "account": options.account,
        "time": slurm_time(options.time),
    }
    lines = [f"--{name}={value}" for name, value in directives.items() if value is not None]
    # If Slurm restarted the job, its folder would be in use.
    lines += ["--no-requeue", *(["--exclusive"] if options.exclusive else [])]
    return [f"#SBATCH {line}" for line in lines]


def _setup(job: Job, options: SlurmOptions) -> list[str]:
    exports = [f"export {name}={shlex.quote(value)}" for name, value in job.variables]
    # Environment modules and conda read variables that may not be set.
    until = ["set -e", *options.setup, "set -u"] if options.setup else ["set -eu"]
    return [*until, *exports]


def _step(job: Job, options: SlurmOptions) -> list[str]:
    """The srun line. --mpi=none: ranks that get a PMI's variables would look for an mpirun."""
    srun = ["srun --mpi=none --kill-on-bad-exit=1"]
    if options.cpus_per_task is not None:
        srun[0] += f" --cpus-per-task={options.cpus_per_task}"  # not inherited since Slurm 22.05
    if options.container is not None:
        srun += [
            f"--container-image={shlex.quote(options.container)}",
            '--container-mounts="$PWD:$PWD" --container-workdir="$PWD"',
        ]
    srun.append(shlex.join(["commbench", "run", *job.words]))
    if job.output is None:
        srun.append(f'--output "results/$SLURM_JOB_ID-{job.title}"')
    return " \\\n    ".join(srun).splitlines()
