"""A run on several nodes, for any cluster manager; and job scripts: a batch script for Slurm's
sbatch, in which srun starts the ranks, and a manifest for kubectl, in which torchrun starts the
ranks in each pod. Both can test the nodes first.

KINDS is the table of the operators that a manifest can be for. Sources: Slurm's manual pages,
sbatch(1) and srun(1); for the options of containers the usage page of NVIDIA's plugin pyxis,
https://github.com/NVIDIA/pyxis/wiki/Usage; those of the operators, at
https://github.com/kubeflow/trainer (TrainJob, v2.3) and its branch release-1.9 (PyTorchJob).
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any

from commbench import __version__
from commbench.errors import UsageError, name_error
from commbench.plan.backends import BACKENDS, require_nccl
from commbench.plan.cases import require_ready_case
from commbench.plan.operations import OPERATIONS
from commbench.runner.option import require_label, value_text
from commbench.runner.run_options import RUN_OPTIONS, RunOptions
from commbench.units import format_count
from commbench.validation import choose, require_within

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.ASCII | re.DOTALL)

OF_PREFLIGHT = ("backend", "device", "nccl_option", "cpu_mode")
"""The options of the run with which the nodes are tested: how ranks run, not what they call."""
NVIDIA = "nvidia.com/gpu"
"""The resource of Kubernetes that --gpus-per-node requests."""
NO_GPUS = "no GPUs are requested: the job measures gloo; for GPUs add --backend nccl"


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
    calls: str = ""
    """The operations and sizes, also where they are the defaults; empty with a workload."""
    note: str = ""
    """What may not be meant."""
    other_gpus: int = 0
    """Those of each node that are not of NVIDIA."""
    tested_with: str = ""
    """The options of the run that its preflight has, too, as words of a shell after ` --`."""

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
        count = self.gpus_per_node + self.other_gpus
        gpus = format_count(count, "GPU") if count else "no GPUs"
        what = f"commbench {__version__} measures the run {self.title}"
        return f"{what} on {nodes}, {ranks} and {gpus} each."

    @property
    def heading(self) -> list[str]:
        """What the comments on top of the script say."""
        named = {"Calls:    ": self.calls, "Note:     ": self.note}
        return [self.summary, *(name + text for name, text in named.items() if text)]


def make_job(
    run: RunOptions,
    words: Sequence[str],
    *,
    nodes: int,
    nproc_per_node: int,
    gpus_per_node: int | None = None,
    env: Sequence[str] = (),
    resources: Sequence[tuple[str, str]] = (),
) -> Job:
    """The job that runs `commbench run WORDS`, whose options are `run`.

    By default a node has a GPU for each rank if the run needs GPUs and none are among the
    resources. Raises the error that every rank would raise.
    """
    backend = BACKENDS.get(run.backend or "")
    if run.backend and not (backend or run.device):  # a backend of one's own needs a device
        raise name_error("backend", run.backend, [*BACKENDS])
    device = run.device or (backend.devices[0] if backend else "cpu")
    others = sum(int(number) for name, number in resources if name.endswith("/gpu"))
    is_unsaid = gpus_per_node is None and not (run.backend or run.device or others)
    if gpus_per_node is None:
        gpus_per_node = 0 if device == "cpu" or others else nproc_per_node
    tested_with = [
        option.argument(value)
        for option in map(RUN_OPTIONS.__getitem__, OF_PREFLIGHT)
        if (value := getattr(run, option.name)) != option.default
    ]
    job = Job(
        title=run.name,
        words=tuple(words),
        output=None if run.output is None else str(run.output),
        nodes=nodes,
        ranks_per_node=nproc_per_node,
        gpus_per_node=gpus_per_node,
        variables=parse_variables(env),
        workload=str(run.workload or ""),
        calls="" if run.workload else _calls(run),
        note=NO_GPUS if is_unsaid else "",
        other_gpus=others,
        tested_with=f" -- {shlex.join(tested_with)}" if tested_with else "",
    )
    plan = run.plan(run.backend or "gloo", device, nodes * nproc_per_node)
    if run.backend:
        require_ready_case(plan)
        require_nccl(plan.backend, plan.nccl_options)
    return job


def _calls(run: RunOptions) -> str:
    has_sizes = any(OPERATIONS[name].has_data for name in run.op)
    return value_text(run.op) + f" of {value_text(run.sizes)}" * has_sizes


def parse_variables(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names and values of texts `NAME=VALUE`. The last value of a name counts."""
    for text in texts:
        require_match(_VARIABLE, "--env", text, "write NAME=VALUE, such as --env NCCL_ALGO=RING")
        require_printable("--env", text)
    return tuple(dict(text.partition("=")[::2] for text in texts).items())


def require_printable(what: str, text: str) -> None:
    """Raise UsageError for a text with line breaks or control characters."""
    if not text.isprintable():
        hint = "write one line of printable characters"
        raise UsageError(f"{what} {text!r} has a line break or a control character", hint)


def require_match(pattern: re.Pattern[str], what: str, text: str | None, rule: str) -> None:
    """Raise UsageError for a text that does not match; `rule` is the hint. None passes."""
    if text is not None and not pattern.fullmatch(text):
        raise UsageError(f"{what} {text!r} is not allowed", rule)


def render(template: str, **values: Any) -> str:
    """A file of this folder with its blanks filled in."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # Kubernetes would replace `$(NAME)` by a variable.
    literally = {"literally": lambda text: text.replace("$", "$$")}
    in_yaml = partial(json.dumps, ensure_ascii=False)
    environment.filters |= {"quote": shlex.quote, "yaml": in_yaml, **literally}
    return environment.get_template(template).render(values).rstrip("\n") + "\n"


_SLURM_NAME = re.compile(r"[A-Za-z0-9_.,:+@/-]+")
_SLURM_TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d+(:\d{1,2}){0,2}", re.ASCII)
_SHORT_TIME = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options that jobs of all cluster managers have."""

    preflight: bool = False
    """Whether `commbench preflight` chooses the nodes of the run."""
    spare: int = 0
    """Nodes that are tested beside those of the run."""

    def __post_init__(self) -> None:
        require_within("--spare", self.spare, 0, inf)
        if self.spare and not self.preflight:
            raise UsageError("--spare needs --preflight, which chooses nodes", "add --preflight")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions(JobOptions):
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
        JobOptions.__post_init__(self)
        words = "use letters, digits and any of _ . , : + @ / -"
        for option, name in (("--partition", self.partition), ("--account", self.account)):
            require_match(_SLURM_NAME, option, name, words)
        require_within("--cpus-per-task", self.cpus_per_task, 1, inf)
        if self.preflight and self.container is not None:
            hint = "leave out one of them; `commbench preflight --start` takes any command"
            raise UsageError("--preflight cannot start commbench in a --container", hint)
        require_printable("--container", self.container or "")
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
    hint = "write 30m, 2h, 1d, or as Slurm does: 90, 1:30:00, 2-12"
    raise UsageError(f"--time {text!r} is not a time", hint)


LONGEST_NAME = 40
"""Names of pods and services are made of a job's, and have 63 characters at most."""
CLAIM_FOLDER, POD_FOLDER = "/results", "/tmp"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_IMAGE = re.compile(r"[!-~]+")
_RESOURCE = re.compile(
    r"(cpu|memory|ephemeral-storage|hugepages-[A-Za-z0-9]+|[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+)"
    r"=(\d+(\.\d+)?(m|k|[KMGTP]i?)?)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions(JobOptions):
    """The options of the job beside nodes and ranks; None where an option was not given."""

    image: str
    """With commbench and torch in it."""
    kind: str = "trainjob"
    name: str | None = None
    namespace: str | None = None
    claim: str | None = None
    """PersistentVolumeClaim to keep results in."""
    runtime: str = "torch-distributed"
    """ClusterTrainingRuntime that a TrainJob refers to."""
    resources: tuple[tuple[str, str], ...] = ()
    """Names and quantities of the resources of each pod, beside GPUs."""

    def __post_init__(self) -> None:
        JobOptions.__post_init__(self)
        choose("kind", self.kind, KINDS)
        require_match(_IMAGE, "--image", self.image, "write REGISTRY/IMAGE:TAG, without blanks")
        words = "use small letters, digits and '-'"
        rule = f"{words}, a letter first, at most {LONGEST_NAME} in all"
        require_match(_NAME, "--name", self.name, rule)
        require_match(_LABEL, "--namespace", self.namespace, words)
        require_match(_SUBDOMAIN, "--claim", self.claim, words)
        require_match(_SUBDOMAIN, "--runtime", self.runtime, words)

    def script(self, job: Job) -> str:
        """The manifest, or with `preflight` a script of bash that has it; texts from users are
        quoted, and Kubernetes does not expand them."""
        parents = PurePosixPath(posixpath.normpath(job.output or "")).parents
        if self.claim and job.output and PurePosixPath(CLAIM_FOLDER) not in parents:
            why = f"--output {job.output} of run is outside the claim, which is at {CLAIM_FOLDER}"
            raise UsageError(why, f"leave it out, or write --output {CLAIM_FOLDER}/NAME")
        name = re.sub(r"[^a-z0-9]+", "-", f"commbench-{job.title}".lower())[:LONGEST_NAME]
        name = self.name or name.strip("-")
        folder = job.output or f"{CLAIM_FOLDER if self.claim else POD_FOLDER}/{name}"
        words = ["--module", "--", "commbench", "run", *job.words]
        gpus = {NVIDIA: str(job.gpus_per_node)} if job.gpus_per_node else {}
        values = {
            "job": job, "options": self, "name": name, "folder": folder, "kind": KINDS[self.kind],
            "words": [*words, *([] if job.output else [f"--output={folder}"])],
            "resources": (gpus | dict(self.resources)).items(), "claim_folder": CLAIM_FOLDER,
            "nodes": job.nodes + self.spare,
        }  # fmt: skip
        manifest = render("manifest.yaml.jinja", **values)
        if not self.preflight:
            return manifest
        return render("preflight.sh.jinja", manifest=manifest.rstrip(), **values)


def parse_resources(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Names and quantities of `NAME=QUANTITY`; each name once."""
    rule = "write NAME=QUANTITY: cpu=32, memory=64Gi, amd.com/gpu=8, rdma/hca=1"
    found: dict[str, str] = {}
    for text in texts:
        require_match(_RESOURCE, "--resource", text, rule)
        name, _, quantity = text.partition("=")
        if name in found:
            raise UsageError(f"--resource {name} is given twice", "give it once")
        if name == NVIDIA:
            hint = f"write --gpus-per-node {quantity}"
            raise UsageError(f"--resource {text} requests GPUs", hint)
        if name.endswith("/gpu") and not quantity.isdecimal():
            raise UsageError(f"--resource {text} is no number of GPUs", f"write {name}=8")
        found[name] = quantity
    return tuple(found.items())


KINDS = {
    "trainjob": {
        "api_version": "trainer.kubeflow.org/v1alpha1",
        "name": "TrainJob",
        "job_label": "jobset.sigs.k8s.io/jobset-name",
        "first_pod": "batch.kubernetes.io/job-completion-index=0",
        "needs": "Kubeflow Trainer 2.2 or newer, the runtime below",
        "claim_modes": "ReadWriteMany",
    },
    "pytorchjob": {
        "api_version": "kubeflow.org/v1",
        "name": "PyTorchJob",
        "job_label": "training.kubeflow.org/job-name",
        "first_pod": "training.kubeflow.org/replica-type=master",
        "needs": "Kubeflow Training Operator 1.7 or newer",
        "claim_modes": "ReadWriteOnce",
    },
}
"""The resources of operators that start torchrun on several nodes, as the manifest's template takes
them. `first_pod` are labels of the pod of rank 0, beside the `job_label` with the job's name;
`needs` is what must be on the cluster, `claim_modes` the access that the claim has to allow."""
