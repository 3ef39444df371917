"""A run on several nodes, for any cluster manager."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from commbench import __version__
from commbench.errors import UsageError
from commbench.plan.backends import BACKENDS
from commbench.plan.cases import require_ready_case
from commbench.plan.settings import require_nccl
from commbench.runner.option import require_label
from commbench.runner.run_options import RunOptions
from commbench.units import format_count
from commbench.validation import require_within

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run on which resources; raises UsageError for values that no cluster accepts."""

    title: str
    """The run's name."""
    words: tuple[str, ...]
    """What follows `commbench run`."""
    output: str | None
    """The folder of the results if `words` name one; None if the job script chooses it."""
    nodes: int
    ranks_per_node: int
    gpus_per_node: int
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables of every rank."""
    workload: str = ""
    """The file of the workload that `words` replay; empty for none."""

    def __post_init__(self) -> None:
        require_label(self.title)
        require_within("--nodes", self.nodes, 1, inf)
        require_within("--nproc-per-node", self.ranks_per_node, 1, inf)
        require_within("--gpus-per-node", self.gpus_per_node, 0, inf)
        for word in self.words:
            require_printable("the option of run", word)

    @property
    def summary(self) -> str:
        """One line that describes the job."""
        nodes = format_count(self.nodes, "node")
        ranks = format_count(self.ranks_per_node, "rank")
        gpus = format_count(self.gpus_per_node, "GPU") if self.gpus_per_node else "no GPUs"
        what = f"commbench {__version__} measures the run {self.title}"
        return f"{what} on {nodes}, {ranks} and {gpus} each."


def make_job(
    run: RunOptions,
    words: Sequence[str],
    nodes: int,
    ranks_per_node: int,
    gpus_per_node: int | None,
    variables: Sequence[str],
) -> Job:
    """The job that runs `commbench run WORDS`, whose options are `run`.

    By default a node has a GPU for each rank if the run needs GPUs. Raises the error that every
    rank would raise.
    """
    backend = BACKENDS.get(run.backend or "")
    device = run.device or (backend.devices[0] if backend else "cpu")
    if gpus_per_node is None:
        gpus_per_node = 0 if device == "cpu" else ranks_per_node
    job = Job(
        title=run.name,
        words=tuple(words),
        output=None if run.output is None else str(run.output),
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        gpus_per_node=gpus_per_node,
        variables=parse_variables(variables),
        workload=str(run.workload or ""),
    )
    plan = run.plan(run.backend or "gloo", device, nodes * ranks_per_node)
    if run.backend:
        require_ready_case(plan)
        require_nccl(plan.backend, plan.nccl_options)
    return job


def parse_variables(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names and values of texts `NAME=VALUE`. The last value of a name counts."""
    found: dict[str, str] = {}
    for text in texts:
        require_match(_VARIABLE, "--env", text, "write NAME=VALUE, such as --env NCCL_ALGO=RING")
        require_printable("--env", text)
        name, _, value = text.partition("=")
        found[name] = value
    return tuple(found.items())


def require_printable(what: str, text: str) -> None:
    """Raise UsageError for a text with line breaks or control characters."""
    if not text.isprintable():
        raise UsageError(
            f"{what} {text!r} has a line break or a control character",
            "write one line of printable characters",
        )


def require_match(pattern: re.Pattern[str], what: str, text: str, rule: str) -> None:
    """Raise UsageError for a text that does not match; `rule` is the hint."""
    if not pattern.fullmatch(text):
        raise UsageError(f"{what} {text!r} is not allowed", rule)
