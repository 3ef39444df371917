"""A manifest for kubectl, in which torchrun starts the ranks in each pod.

KINDS is the table of the operators that it can be for. Sources: those of the operators, at
https://github.com/kubeflow/trainer (TrainJob, v2.3) and its branch release-1.9 (PyTorchJob).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from commbench.errors import UsageError, name_error
from commbench.jobs.job import Job, require_match

LONGEST_NAME = 40
"""Names of pods and services are made of a job's, and have 63 characters at most."""
CLAIM_FOLDER, POD_FOLDER = "/results", "/tmp"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_IMAGE = re.compile(r"[!-~]+")
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/-]+", re.ASCII)
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
        """The manifest of the job."""
        return manifest(job, self)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator's resource that starts torchrun on several nodes."""

    api_version: str
    name: str
    spec: Callable[[Job, KubernetesOptions, str], dict[str, Any]]
    """Makes the specification from the job, the options and the name."""
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


def manifest(job: Job, options: KubernetesOptions) -> str:
    """The manifest; texts from users are quoted, and Kubernetes does not expand them."""
    parents = PurePosixPath(posixpath.normpath(job.output or "")).parents
    if options.claim and job.output and PurePosixPath(CLAIM_FOLDER) not in parents:
        raise UsageError(
            f"--output {job.output} of run is outside the claim, which is at {CLAIM_FOLDER}",
            f"leave it out, or write --output {CLAIM_FOLDER}/NAME",
        )
    kind = KINDS[options.kind]
    name = options.name or _default_name(job.title)
    metadata = {"name": name}
    if options.namespace is not None:
        metadata["namespace"] = options.namespace
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": kind.spec(job, options, name),
    }
    comments = "".join(f"# {line}\n" for line in _comments(job, options, name))
    return comments + make_yaml(document)


def make_yaml(data: dict[str, Any]) -> str:
    """Data as YAML. A text that some version of YAML may read as another value, such as `1e3` and
    `y`, goes in quotes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, text: str) -> yaml.Node:
            style = None if _PLAIN.fullmatch(text) else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_str)
    return str(yaml.dump(data, None, Dumper, sort_keys=False, allow_unicode=True, width=10**6))


def _default_name(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", f"commbench-{title}".lower())
    return words[:LONGEST_NAME].strip("-")


def _comments(job: Job, options: KubernetesOptions, name: str) -> list[str]:
    kind = KINDS[options.kind]
    where = f" -n {options.namespace}" if options.namespace else ""
    folder = job.output or f"{_folder(options)}/{name}"
    kept = (
        f"in the claim {options.claim}, which must allow {kind.claim_modes}"
        if options.claim
        else "lost when the pod ends, except the table in its log; --claim NAME keeps them"
    )
    file = f"Workload: {job.workload}; every pod must find this file, in the image or in a claim."
    return [
        job.summary,
        *([file] if job.workload else []),
        f"Needs:    {kind.needs}; torch and commbench in the image.",
        "Submit:   kubectl create -f FILE",
        f"Log:      kubectl logs{where} -f -l {kind.job_label}={name},{kind.first_pod}",
        f"Results:  {folder}, {kept}.",
        "Again:    delete the job first, or use another --name; results are never overwritten.",
    ]


def _folder(options: KubernetesOptions) -> str:
    return CLAIM_FOLDER if options.claim else POD_FOLDER


def _torchrun(
    job: Job, options: KubernetesOptions, name: str, torchrun_options: Sequence[str] = ()
) -> dict[str, Any]:
    """The fields of a container that start the ranks of a node."""
    words = ["--module", "--", "commbench", "run", *job.words]
    if job.output is None:
        words.append(f"--output={_folder(options)}/{name}")
    return {
        "image": options.image,
        "command": ["torchrun"],
        "args": [*torchrun_options, *map(_literally, words)],
        "env": [{"name": key, "value": _literally(value)} for key, value in job.variables],
    }


def _literally(text: str) -> str:
    """The text in a form that Kubernetes does not change: it would replace `$(NAME)` by a
    variable."""
    return text.replace("$", "$$")


def _resources(job: Job, options: KubernetesOptions) -> dict[str, Any]:
    """Requests equal limits, as they must for GPUs
    (https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/)."""
    gpus = {"nvidia.com/gpu": str(job.gpus_per_node)} if job.gpus_per_node else {}
    quantities = gpus | dict(options.resources)
    return {"limits": quantities, "requests": dict(quantities)} if quantities else {}


def _pod(container: dict[str, Any], claim: str | None) -> dict[str, Any]:
    """The specification of a pod with one container, which gets the claim and shared memory: NCCL
    needs a larger /dev/shm than the 64 MB that containers have by default."""
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    if claim:
        volumes.append({"name": "results", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "results", "mountPath": CLAIM_FOLDER})
    return {"volumes": volumes, "containers": [_known(container) | {"volumeMounts": mounts}]}


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _train_job(job: Job, options: KubernetesOptions, name: str) -> dict[str, Any]:
    """The operator sets variables PET_…, from which torchrun takes nodes, ranks and address. The
    container `node` of the runtime, in the replicated job `node`, is replaced."""
    trainer = {
        **_torchrun(job, options, name),
        "numNodes": job.nodes,
        "numProcPerNode": job.ranks_per_node,
        "resourcesPerNode": _resources(job, options),
    }
    pod = {"spec": _pod({"name": "node"}, options.claim)}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    patch = {
        "manager": "commbench",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    return {
        "runtimeRef": {"name": options.runtime},
        "trainer": _known(trainer),
        "runtimePatches": [patch],
    }


def _pytorch_job(job: Job, options: KubernetesOptions, name: str) -> dict[str, Any]:
    """In all versions the operator sets RANK (of the node), MASTER_ADDR and MASTER_PORT in each
    pod, but torchrun's own variables PET_… only in some. So torchrun gets options made of the
    former."""
    torchrun_options = (
        f"--nnodes={job.nodes}",
        f"--nproc-per-node={job.ranks_per_node}",
        "--node-rank=$(RANK)",
        "--master-addr=$(MASTER_ADDR)",
        "--master-port=$(MASTER_PORT)",
    )

    def replicas(number: int, claim: str | None) -> dict[str, Any]:
        container = {
            "name": "pytorch",  # the operator finds it by this name
            **_torchrun(job, options, name, torchrun_options),
            "resources": _resources(job, options),
        }
        # A proxy that Istio adds would be between the ranks, and would never end.
        metadata = {"annotations": {"sidecar.istio.io/inject": "false"}}
        template = {"metadata": metadata, "spec": _pod(container, claim)}
        return {"replicas": number, "restartPolicy": "Never", "template": template}

    roles = {"Master": replicas(1, options.claim)}  # only rank 0 writes, in this pod
    if job.nodes > 1:
        roles["Worker"] = replicas(job.nodes - 1, None)
    return {
        "nprocPerNode": str(job.ranks_per_node),
        "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0},
        "pytorchReplicaSpecs": roles,
    }


KINDS = {
    "trainjob": Operator(
        api_version="trainer.kubeflow.org/v1alpha1",
        name="TrainJob",
        spec=_train_job,
        job_label="jobset.sigs.k8s.io/jobset-name",
        first_pod="batch.kubernetes.io/job-completion-index=0",
        needs="Kubeflow Trainer 2.2 or newer, the runtime below",
        claim_modes="ReadWriteMany",
    ),
    "pytorchjob": Operator(
        api_version="kubeflow.org/v1",
        name="PyTorchJob",
        spec=_pytorch_job,
        job_label="training.kubeflow.org/job-name",
        first_pod="training.kubeflow.org/replica-type=master",
        needs="Kubeflow Training Operator 1.7 or newer",
        claim_modes="ReadWriteOnce",
    ),
}
