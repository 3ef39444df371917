"""Job scripts: what Slurm, bash and Kubernetes read; users' words stay words; manifests against the
published models, and their pods' commands with real ranks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import START_TIMEOUT_S, Ended, clean_environment, free_port
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_job import HOSTILE, a_job

from commbench.errors import UsageError
from commbench.runner.jobs import (
    KubernetesOptions,
    SlurmOptions,
    parse_resources,
    parse_variables,
    slurm_time,
)

KINDS = ("trainjob", "pytorchjob")
IMAGE = "registry.example/commbench:1"


def write_tools(where: Path, **programs: str) -> Path:
    """A folder with programs, by their names."""
    tools = where / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    return tools


def run_script(script: str, where: Path, code: int = 0, **variables: str) -> str:
    """What a script prints with the programs of `tools`."""
    ended = subprocess.run(
        ["bash"], input=script, cwd=where, capture_output=True, text=True,
        env={"PATH": f"{where / 'tools'}:{os.environ['PATH']}", **variables},
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    return ended.stdout


def ranks_arguments(script: str, where: Path, variables: str = "") -> list[str]:
    """What the ranks of the script's srun are given, and the values of some variables."""
    write_tools(where, srun=f'printf "%s\\0" "$@"\nprintf "%s\\0" {variables}')
    printed = run_script(script, where, SLURM_JOB_ID="7")
    assert not (where / "pwned").exists()
    return printed.split("\0")[:-1]


def test_a_replay_names_the_file_that_every_node_needs() -> None:
    script = SlurmOptions().script(a_job(workload="traces/step.json"))
    assert "# Workload: traces/step.json; every node must find this file.\n" in script


def test_srun_is_given_the_options_of_run_and_folders_of_the_job(tmp_path: Path) -> None:
    image = "nvcr.io#nvidia/pytorch:26.10-py3"
    script = SlurmOptions(cpus_per_task=4, container=image).script(a_job())
    assert ranks_arguments(script, tmp_path) == [
        "--mpi=none", "--kill-on-bad-exit=1", "--cpus-per-task=4", f"--container-image={image}",
        f"--container-mounts={tmp_path}:{tmp_path}", f"--container-workdir={tmp_path}",
        "commbench", "run", "--sizes", "1K-1G", "--label", "ring", "--output", "results/7-ring",
        "",
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_users_words_stay_words(tmp_path: Path, text: str) -> None:
    job = a_job(words=("--output", text), output=text, variables=(("NOTE", text),))
    script = SlurmOptions(container=text).script(job)
    words = ranks_arguments(script, tmp_path, '"$NOTE"')
    assert words[2] == f"--container-image={text}"
    assert words[-3:] == ["--output", text, text]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30))
def test_any_text_is_quoted_or_refused(text: str) -> None:
    try:
        script = SlurmOptions().script(a_job(words=("--output", text)))
    except UsageError as refused:
        assert not text.isprintable()
        assert "control character" in refused.message
        return
    [line] = [line for line in script.splitlines() if "commbench run" in line]
    assert shlex.split(line.removesuffix("\\")) == ["commbench", "run", "--output", text]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("text", "written"),
    [("30m", "00:30:00"), ("90s", "00:01:30"), ("2h", "02:00:00"), ("3d", "72:00:00"),
     ("90", "90"), ("1:30:00", "1:30:00"), ("2-12", "2-12"), ("1-00:30", "1-00:30")],
)  # fmt: skip
def test_times_are_written_as_slurm_reads_them(text: str, written: str) -> None:
    assert slurm_time(text) == written


REFUSED: list[tuple[Any, dict[str, Any]]] = [
    *((SlurmOptions, wishes) for wishes in (
        *({"time": text} for text in (
            "", "0m", "30 m", "half an hour", "1:2:3:4", "5w", "-5", "١٢m",
        )),
        {"partition": "gpu --uid=0"}, {"partition": "a\n#SBATCH --uid=0"}, {"account": ""},
        {"account": "a#b"}, {"cpus_per_task": 0}, {"setup": ("a\nb",)}, {"container": "a\nb"},
        {"spare": 1}, {"spare": -1, "preflight": True},
    )),
    *((KubernetesOptions, {"image": IMAGE} | wishes) for wishes in (
        {"kind": "job"}, {"image": ""}, {"image": "a b"}, {"image": "a\nb"}, {"name": "8ring"},
        {"name": "a" * 41}, {"name": "ring-"}, {"name": "ring\n"}, {"namespace": "a.b"},
        {"namespace": "A"}, {"claim": "a/b"}, {"claim": ""}, {"runtime": "a b"}, {"spare": 1},
    )),
    *((a_job, wishes) for wishes in (
        {"nodes": 0}, {"ranks_per_node": 0}, {"gpus_per_node": -1}, {"title": "a b"},
        {"title": ""}, {"words": ("--output", "a\nb")}, {"words": ("--output", "a\x1b[2J")},
    )),
    *((lambda text: parse_variables([text]), {"text": text}) for text in (
        "A", "=1", "1A=1", "A B=1", "$(x)=1", "A=1\nB=2", "",
    )),
    *((parse_resources, {"texts": texts}) for texts in (
        ["gpu=1"], ["cpu"], ["cpu="], ["cpu=1 "], ["cpu=many"], ["cpu=1", "cpu=2"],
    )),
]  # fmt: skip


@pytest.mark.parametrize(("make", "wishes"), REFUSED)
def test_what_a_cluster_could_misread_is_refused(make: Any, wishes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        make(**wishes)
    assert refused.value.hint


def test_variables_and_resources_are_names_and_values() -> None:
    texts = ["A=1", "B=", "C=x=y $HOME", "A=2"]
    assert parse_variables(texts) == (("A", "2"), ("B", ""), ("C", "x=y $HOME"))
    texts = ["cpu=500m", "memory=1.5Gi", "rdma/hca_a=1", "hugepages-2Mi=4Gi"]
    assert parse_resources(texts) == tuple(tuple(text.split("=")) for text in texts)


@pytest.mark.parametrize("bad", [(), ("n2", "n5")])
def test_with_a_preflight_srun_gets_good_nodes_only(tmp_path: Path, bad: tuple[str, ...]) -> None:
    listed = "".join(f"{name}\n" for name in bad)
    write_tools(tmp_path, commbench=(
        'folder="${@: -1}"\nmkdir -p "$folder"\necho "$@" >asked\n'
        f"printf '%s' '{listed}' >\"$folder/exclude.txt\""
    ))  # fmt: skip
    job = a_job()
    script = SlurmOptions(preflight=True, spare=3).script(job)
    assert f"#SBATCH --nodes={job.nodes + 3}\n" in script
    words = ranks_arguments(script, tmp_path)
    excluded = [word for word in words if word.startswith("--exclude")]
    assert excluded == (["--exclude=n2,n5"] if bad else [])
    assert f"--nodes={job.nodes}" in words
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:3] == ["preflight", "--need", str(job.nodes)]


def document(kind: str = "trainjob", job: Any = None, **wishes: Any) -> dict[str, Any]:
    return dict(
        yaml.safe_load(KubernetesOptions(image=IMAGE, kind=kind, **wishes).script(job or a_job()))
    )


def containers(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What is run in the pods: of a TrainJob its trainer, of a PyTorchJob a container per role."""
    if found["kind"] == "TrainJob":
        return [found["spec"]["trainer"]]
    roles = found["spec"]["pytorchReplicaSpecs"].values()
    return [role["template"]["spec"]["containers"][0] for role in roles]


def pod_patch(found: dict[str, Any]) -> dict[str, Any]:
    """What a TrainJob changes of its runtime's pods."""
    [patch] = found["spec"]["runtimePatches"]
    [replicated] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["name"] == "node"
    return dict(replicated["template"]["spec"]["template"]["spec"])


WISHES: list[dict[str, Any]] = [
    {},
    {"name": "ring-8", "namespace": "bench", "claim": "results", "runtime": "torch-h100",
     "resources": (("cpu", "32"), ("memory", "64Gi"), ("rdma/hca", "1"))},
]  # fmt: skip


@pytest.mark.parametrize("wishes", WISHES)
def test_a_trainjob_is_one_by_its_published_model(wishes: dict[str, Any]) -> None:
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob  # takes a second

    found = document(job=a_job(variables=(("NCCL_ALGO", "RING"),)), **wishes)
    # The model drops what it does not know.
    assert TrainerV1alpha1TrainJob.from_dict(found).to_dict() == found
    assert (found["apiVersion"], found["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("wishes", WISHES)
def test_a_pytorchjob_is_one_by_its_reference(wishes: dict[str, Any], nodes: int) -> None:
    """kubeflow.org/v1, as in the models of kubeflow-training 1.9.4; its pods by a model."""
    from kubeflow_trainer_api.models import IoK8sApiCoreV1PodTemplateSpec  # takes a second

    job = a_job(nodes=nodes, variables=(("NCCL_ALGO", "RING"),))
    found = document("pytorchjob", job, **wishes)
    spec = found.pop("spec")
    metadata = found.pop("metadata")
    assert found == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    assert set(metadata) == {"name", *(["namespace"] if wishes else [])}
    assert set(spec) == {"nprocPerNode", "runPolicy", "pytorchReplicaSpecs"}
    assert spec["nprocPerNode"] == "8"
    assert spec["runPolicy"] == {"cleanPodPolicy": "None", "backoffLimit": 0}
    roles = spec["pytorchReplicaSpecs"]
    replicas = {"Master": 1} | ({"Worker": nodes - 1} if nodes > 1 else {})
    assert {name: role["replicas"] for name, role in roles.items()} == replicas
    for role in roles.values():
        assert set(role) == {"replicas", "restartPolicy", "template"}
        assert role["restartPolicy"] == "Never"
        template = role["template"]
        assert IoK8sApiCoreV1PodTemplateSpec.from_dict(template).to_dict() == template
        assert [container["name"] for container in template["spec"]["containers"]] == ["pytorch"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_has_its_gpus_and_shared_memory(kind: str) -> None:
    found = document(kind, resources=(("cpu", "32"),))
    field = "resourcesPerNode" if kind == "trainjob" else "resources"
    for container in containers(found):
        asked = {"nvidia.com/gpu": "8", "cpu": "32"}
        assert container[field] == {"limits": asked, "requests": asked}
    roles = found["spec"].get("pytorchReplicaSpecs", {}).values()
    for pod in [role["template"]["spec"] for role in roles] or [pod_patch(found)]:
        assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
        [container] = pod["containers"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]


def test_only_the_pod_that_writes_mounts_the_claim_of_a_pytorchjob() -> None:
    master, worker = containers(document("pytorchjob", claim="kept"))
    assert [mount["name"] for mount in master["volumeMounts"]] == ["shm", "results"]
    assert [mount["name"] for mount in worker["volumeMounts"]] == ["shm"]


def test_results_outside_of_the_claim_are_refused() -> None:
    for folder in ("/data/x", "x", "/results", "/results/../x", "/results-2/x"):
        job = a_job(output=folder, words=("--output", folder))
        with pytest.raises(UsageError, match="is outside the claim"):
            document(job=job, claim="kept")
        assert folder in containers(document(job=job))[0]["args"]
    assert document(job=a_job(output="/results/a/b"), claim="kept")


def test_the_name_is_made_of_the_runs(title: str = "All_Reduce.x" + "y" * 50) -> None:
    name = document(job=a_job(title=title))["metadata"]["name"]
    assert name == "commbench-all-reduce-xyyyyyyyyyyyyyyyyyy"
    assert len(name) == 40


def expanded(text: str, variables: dict[str, str]) -> str:
    """A word as Kubernetes expands it: `$(NAME)` is a variable, `$$` a dollar sign.

    https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*HOSTILE, "$(HOME)", "$$(HOME)", "$", "a: b", "- a", "&a", "{}"])
def test_users_words_are_neither_yaml_nor_variables(kind: str, text: str) -> None:
    job = a_job(words=("--output", text), output=text, variables=(("NOTE", text),))
    for container in containers(document(kind, job)):
        assert expanded(container["args"][-1], {"HOME": "/root"}) == text
        [variable] = container["env"]
        assert expanded(variable["value"], {"HOME": "/root"}) == text


KUBECTL = """
[ "$1" = --namespace=bench ] || exit 9
shift
case $1 in
create) cat >"created-$(ls | grep -c created)" ;;
get) printf 'pod-c n3\\npod-a n1\\npod-b n2\\n' ;;
esac
echo "$@" >>asked
"""
PREFLIGHT = """
printf '%s\\n' "$@" >words
folder=${@: -1}
mkdir -p "$folder"
echo pod-b >"$folder/drain.txt"
printf 'pod-c\\npod-a\\n' >"$folder/pass.txt"
exit $(cat code)
"""


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_with_a_preflight_the_job_gets_good_nodes_only(
    tmp_path: Path, kind: str, code: int
) -> None:
    from kubeflow_trainer_api.models import IoK8sApiBatchV1Job  # takes a second

    write_tools(tmp_path, kubectl=KUBECTL, commbench=PREFLIGHT)
    (tmp_path / "code").write_text(str(code))
    job = a_job(nodes=2, words=("--label", "$HOME `x` EOF"), variables=(("NOTE", "$(A) `x`"),))
    wishes = {"namespace": "bench", "spare": 1, "resources": (("cpu", "4"),)}
    script = KubernetesOptions(image=IMAGE, kind=kind, preflight=True, **wishes).script(job)
    assert "kubectl label node n2 commbench=drain\n" in run_script(script, tmp_path, code)
    words = (tmp_path / "words").read_text()
    assert "--hosts\npod-a\npod-b\npod-c\n--need\n2\n" in words
    assert "--start\nkubectl --namespace=bench\n" in words
    pods = yaml.safe_load((tmp_path / "created-0").read_text())
    assert IoK8sApiBatchV1Job.from_dict(pods).to_dict() == pods
    assert pods["spec"]["parallelism"] == 3
    name = pods["metadata"]["name"]
    assert f"delete job {name} " in (tmp_path / "asked").read_text()
    if code:
        assert not (tmp_path / "created-1").exists()
        return
    usual = document(kind, job, namespace="bench", resources=(("cpu", "4"),))
    made = yaml.safe_load((tmp_path / "created-1").read_text())
    assert containers(made) == containers(usual)
    [tested], measuring = pods["spec"]["template"]["spec"]["containers"], containers(made)[0]
    assert tested["resources" if kind == "pytorchjob" else "env"] == measuring.get(
        "resources" if kind == "pytorchjob" else "env"
    )
    roles = made["spec"].get("pytorchReplicaSpecs", {}).values()
    for pod in [role["template"]["spec"] for role in roles] or [pod_patch(made)]:
        required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        fields = [term["matchFields"] for term in required["nodeSelectorTerms"]]
        assert fields == [
            [{"key": "metadata.name", "operator": "In", "values": [node]}] for node in ("n1", "n3")
        ]


def operators_variables(kind: str, node: int, port: str) -> dict[str, str]:
    """What the operator sets in the pod of a node of two with two ranks each.

    Trainer: pkg/runtime/framework/plugins/torch/torch.go in https://github.com/kubeflow/trainer;
    Training Operator: pkg/controller.v1/pytorch/envvar.go and master.go, in its branch release-1.7.
    """
    address = "127.0.0.1"
    if kind == "trainjob":
        return {
            "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(node),
            "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port,
        }  # fmt: skip
    return {
        "PYTHONUNBUFFERED": "1", "MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": "4",
        "RANK": str(node), "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(node),
        "PET_NNODES": "2",
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_the_pods_measure_together(tmp_path: Path, kind: str) -> None:
    words = ("--sizes", "1K,64K", "--iters", "5", "--no-plots", "--backend", "gloo",
             "--output", "run")  # fmt: skip
    variables = (("GLOO_SOCKET_IFNAME", "lo"),)
    job = a_job(nodes=2, ranks_per_node=2, gpus_per_node=0, words=words, output="run",
                variables=variables)  # fmt: skip
    roles = containers(document(kind, job))
    port, pods = str(free_port()), []
    for node, container in enumerate(roles * (2 // len(roles))):
        given = operators_variables(kind, node, port)
        given |= {each["name"]: expanded(each["value"], given) for each in container["env"]}
        tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        pods.append(
            subprocess.Popen(
                [*container["command"], *(expanded(word, given) for word in container["args"])],
                cwd=tmp_path,
                env=clean_environment(**given, **tools),
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    ends = [pod.communicate(timeout=START_TIMEOUT_S) for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], json.dumps(ends, indent=1)
    ended = Ended(0, *ends[0], tmp_path / "run")
    # Both nodes are this machine.
    assert (ended.journal()[0]["launcher"], ended.journal()[0]["num_nodes"]) == ("torchrun", 1)
    assert [row["status"] for row in ended.rows()] == ["ok", "ok"]
    assert [row["world_size"] for row in ended.rows()] == ["4", "4"]
    assert "4 gloo ranks" in ends[0][0]
    assert ends[1][0] == ""
