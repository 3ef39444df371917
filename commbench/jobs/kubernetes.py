"""A manifest for kubectl, in which torchrun starts the ranks in each pod.

KINDS is the table of the operators that it can be for. Sources: those of the operators, at
https://github.com/kubeflow/trainer (TrainJob, v2.3) and its branch release-1.9 (PyTorchJob).
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from commbench.errors import UsageError, name_error
from commbench.jobs.job import Job, render, require_match

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
class KubernetesOptions:
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
        if self.kind not in KINDS:
            raise name_error("kind", self.kind, list(KINDS))
        require_match(_IMAGE, "--image", self.image, "write REGISTRY/IMAGE:TAG, without blanks")
        words = "use small letters, digits and '-'"
        if self.name is not None:
            rule = f"{words}, a letter first, at most {LONGEST_NAME} in all"
            require_match(_NAME, "--name", self.name, rule)
        for pattern, option, name in (
            (_LABEL, "--namespace", self.namespace),
            (_SUBDOMAIN, "--claim", self.claim),
            (_SUBDOMAIN, "--runtime", self.runtime),
        ):
            if name is not None:
                require_match(pattern, option, name, words)

    def script(self, job: Job) -> str:
        """The manifest; texts from users are quoted, and Kubernetes does not expand them."""
        parents = PurePosixPath(posixpath.normpath(job.output or "")).parents
        if self.claim and job.output and PurePosixPath(CLAIM_FOLDER) not in parents:
            raise UsageError(
                f"--output {job.output} of run is outside the claim, which is at {CLAIM_FOLDER}",
                f"leave it out, or write --output {CLAIM_FOLDER}/NAME",
            )
        name = self.name or _default_name(job.title)
        folder = job.output or f"{CLAIM_FOLDER if self.claim else POD_FOLDER}/{name}"
        words = ["--module", "--", "commbench", "run", *job.words]
        gpus = {"nvidia.com/gpu": str(job.gpus_per_node)} if job.gpus_per_node else {}
        return render(
            "manifest.yaml.jinja",
            job=job,
            options=self,
            name=name,
            folder=folder,
            kind=KINDS[self.kind],
            words=[*words, *([] if job.output else [f"--output={folder}"])],
            resources=(gpus | dict(self.resources)).items(),
            claim_folder=CLAIM_FOLDER,
        )


class Operator(NamedTuple):
    """An operator's resource that starts torchrun on several nodes."""

    api_version: str
    name: str
    first_pod: str
    """Labels of the pod of rank 0, after those with the job's name."""
    job_label: str
    needs: str
    """What must be on the cluster."""
    claim_modes: str
    """Which access the claim has to allow."""


def parse_resources(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Names and quantities of `NAME=QUANTITY`; each name once."""
    found: dict[str, str] = {}
    for text in texts:
        match = _RESOURCE.fullmatch(text)
        if not match:
            raise UsageError(
                f"--resource {text!r} is not a quantity of a resource",
                "write NAME=QUANTITY: cpu=32, memory=64Gi, amd.com/gpu=8, rdma/hca=1",
            )
        if match[1] in found:
            raise UsageError(f"--resource {match[1]} is given twice", "give it once")
        found[match[1]] = match[2]
    return tuple(found.items())


def _default_name(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", f"commbench-{title}".lower())
    return words[:LONGEST_NAME].strip("-")


KINDS = {
    "trainjob": Operator(
        api_version="trainer.kubeflow.org/v1alpha1",
        name="TrainJob",
        job_label="jobset.sigs.k8s.io/jobset-name",
        first_pod="batch.kubernetes.io/job-completion-index=0",
        needs="Kubeflow Trainer 2.2 or newer, the runtime below",
        claim_modes="ReadWriteMany",
    ),
    "pytorchjob": Operator(
        api_version="kubeflow.org/v1",
        name="PyTorchJob",
        job_label="training.kubeflow.org/job-name",
        first_pod="training.kubeflow.org/replica-type=master",
        needs="Kubeflow Training Operator 1.7 or newer",
        claim_modes="ReadWriteOnce",
    ),
}
