"""What is measured on, on made-up hosts; and ranks of another launcher, by made-up variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UnavailableError, UsageError
from commbench.launch.devices import Capabilities, Target, choose_target, find_common_device
from commbench.launch.launchers import FIRST_PORT, PORTS, detect_rank_context
from commbench.worker.entrypoint import RankContext


def host(gpus: int, *backends: str, kind: str = "cuda") -> Capabilities:
    return Capabilities(backends=backends, devices={"cpu": 1} | ({kind: gpus} if gpus else {}))


LAPTOP = host(0, "gloo")
WORKSTATION = host(1, "gloo", "nccl")
BOX = host(8, "gloo", "nccl", "mpi")
REGISTERED = host(8, "gloo", "nccl", "mpi", "nccl2")._replace(registered={"nccl2": ("cuda",)})


@pytest.mark.parametrize(
    ("offer", "backend", "device", "ranks", "place"),
    [
        (LAPTOP, None, None, None, ("gloo", "cpu", 2, "there is no GPU")),
        (WORKSTATION, None, None, None,
         ("gloo", "cpu", 2, "there is only one GPU: --device cuda measures on it")),
        (BOX, None, None, None, ("nccl", "cuda", 8, "there are 8 GPUs")),
        (host(8, "gloo", "xccl", kind="xpu"), None, None, None,
         ("xccl", "xpu", 8, "there are 8 GPUs")),
        (WORKSTATION, "nccl", None, None, ("nccl", "cuda", 1, "the backend's device")),
        (WORKSTATION, "gloo", None, None, ("gloo", "cpu", 2, "the backend's device")),
        (WORKSTATION, None, "cuda", None, ("nccl", "cuda", 1, "as requested")),
        (BOX, "nccl", None, None, ("nccl", "cuda", 8, "the backend's device")),
        (BOX, "gloo", None, None, ("gloo", "cpu", 2, "the backend's device")),
        (BOX, "gloo", "cuda", None, ("gloo", "cuda", 8, "as requested")),
        (BOX, None, "cpu", None, ("gloo", "cpu", 2, "as requested")),
        (BOX, "mpi", None, None, ("mpi", "cpu", 2, "the backend's device")),
        (BOX, None, None, 4, ("nccl", "cuda", 4, "there are 8 GPUs")),
        (LAPTOP, None, None, 7, ("gloo", "cpu", 7, "there is no GPU")),
        (host(0, "gloo", "mine"), "mine", None, None, ("mine", "cpu", 2, "the backend's device")),
        (REGISTERED, "nccl2", None, None, ("nccl2", "cuda", 8, "the backend's device")),
        # More ranks than GPUs share them.
        (WORKSTATION, None, "cuda", 2, ("nccl", "cuda", 2, "as requested", True)),
        (BOX, None, None, 9, ("nccl", "cuda", 9, "there are 8 GPUs", True)),
        (BOX, None, None, 8, ("nccl", "cuda", 8, "there are 8 GPUs")),
        (BOX, None, "cpu", 16, ("gloo", "cpu", 16, "as requested")),
    ],
)  # fmt: skip
def test_what_was_requested_is_kept_and_the_rest_follows(
    offer: Capabilities,
    backend: str | None,
    device: str | None,
    ranks: int | None,
    place: tuple[str, str, int, str],
) -> None:
    found = choose_target(offer, backend, device, ranks)
    names = ("backend", "device", "ranks_per_node", "why", "gpu_shared")
    assert found == Target(**dict(zip(names, place, strict=False)))


OWN_GPU = "every rank sees a GPU"


@pytest.mark.parametrize(
    ("seen", "on_host", "ranks", "more", "device", "why"),
    [
        # srun --gpus-per-task=1 shows each rank its own.
        (1, 8, 8, {"is_external": True}, "cuda", OWN_GPU),
        (1, 1, 1, {"is_external": True}, "cuda", OWN_GPU),
        # Where /sys shows no other: a container.
        (1, 1, 8, {"is_external": True}, "cuda", OWN_GPU),
        # The ranks find out that they share them.
        (1, 8, 16, {"is_external": True}, "cuda", OWN_GPU),
        (1, 1, 2, {"is_external": True}, "cuda", OWN_GPU),
        (2, 8, 8, {"is_external": True}, "cuda", "there are 2 GPUs"),
        (0, 8, 8, {"is_external": True}, "cpu",
         "this rank sees no GPU, though the host has 8: see `commbench env`"),
        (0, 2, 8, {}, "cpu", "torch sees no GPU, though the host has 2: see `commbench env`"),
        (0, 0, 8, {}, "cpu", "there is no GPU"),
        (1, 1, None, {"nodes": 2}, "cuda", "every node has a GPU"),
    ],
)  # fmt: skip
def test_ranks_of_another_launcher_or_node_may_each_see_only_their_own_gpu(
    seen: int, on_host: int, ranks: int | None, more: dict[str, Any], device: str, why: str
) -> None:
    offer = host(seen, "gloo", "nccl")._replace(host_gpus=on_host)
    target = choose_target(offer, None, None, ranks, **more)
    assert (target.device, target.why, target.gpu_shared) == (device, why, False)


@pytest.mark.parametrize(
    ("offer", "backend", "device", "message", "hint"),
    [
        (LAPTOP, "nccl", None, "this torch has no backend 'nccl'",
         "it has: gloo; for nccl install a torch that is built with it"),
        (LAPTOP, "glo", None, "this torch has no backend 'glo'", "did you mean gloo? it has: gloo"),
        (host(0), "gloo", None, "this torch has no backend 'gloo'",
         "it has: none; for gloo install a torch that is built with it"),
        (host(0), None, None,
         "this torch has no backend for cpu", "it has: none; --device cpu measures with gloo"),
        (LAPTOP, None, "cuda", "there is no device 'cuda' here", "there are: cpu"),
        (BOX, None, "tpu", "there is no device 'tpu' here", "there are: cpu, cuda"),
        (host(0, "gloo", "nccl"), "nccl", None,
         "backend nccl needs a cuda device, and there is none here",
         "use --backend gloo, which runs on the CPU"),
    ],
)  # fmt: skip
def test_what_the_host_does_not_offer_is_refused_with_what_it_does(
    offer: Capabilities, backend: str | None, device: str | None, message: str, hint: str
) -> None:
    with pytest.raises(UnavailableError) as refused:
        choose_target(offer, backend, device, None)
    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("backends", "device"),
    [
        (("gloo", "nccl"), "cuda"),
        (("gloo", "mpi"), None),  # both are on the CPU by default
        (("nccl2", "nccl"), None),
        (("nccl2", "gloo"), "cuda"),
        (("gloo", "elsewhere"), None),  # refused later, for it is not here
        (("nccl",), None),
    ],
)
def test_backends_are_compared_on_one_device(backends: tuple[str, ...], device: str | None) -> None:
    assert find_common_device(REGISTERED, backends) == device
    with pytest.raises(UsageError) as refused:
        find_common_device(BOX, ("nccl", "mpi"))
    assert refused.value.message == "the backends nccl, mpi serve no device in common"
    assert refused.value.hint == "nccl serves cuda; mpi serves cpu"


TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
}  # fmt: skip
SRUN = {
    "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "n[03-05]",
}  # fmt: skip
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "prterun-node0-1234@1",
}  # fmt: skip


# PMI_FD is the number of a file descriptor in one rank: another in each.
PMI = {
    "PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "7",
}  # fmt: skip


def rank_context(
    variables: Mapping[str, str], address: str | None = None, port: int | None = None
) -> RankContext:
    found = detect_rank_context(address, port, variables)
    assert found is not None
    return found


def init_method(*arguments: Any) -> str:
    return rank_context(*arguments).init_method


def port_of(**variables: str) -> int:
    return int(init_method(SRUN | variables).rpartition(":")[2])


@pytest.mark.parametrize(
    ("variables", "ranks", "launcher", "init_method"),
    [
        (TORCHRUN, (5, 8, 1, 4), "torchrun", "env://"),
        (SRUN, (2, 5, 0, 2), "srun", "tcp://n03:29500"),  # ranks meet on the first host
        (OPENMPI, (3, 4, 3, 4), "mpirun", "tcp://127.0.0.1:29500"),  # one host uses loopback
        (PMI, (1, 2, 1, 2), "mpirun", "tcp://127.0.0.1:29500"),
    ],
)
def test_the_variables_of_a_launcher_give_the_rank_context(
    variables: dict[str, str], ranks: tuple[int, ...], launcher: str, init_method: str
) -> None:
    found = rank_context(variables, port=None if variables is TORCHRUN else 29500)
    rank, world_size, local_rank, local_world_size = ranks
    assert found == RankContext(
        rank=rank, world_size=world_size, local_rank=local_rank, local_world_size=local_world_size,
        launcher=launcher, init_method=init_method,
    )  # fmt: skip
    assert found.is_single_node == (variables in (OPENMPI, PMI))


def test_one_rank_of_torchrun_joins_what_torchrun_prepared() -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    found = rank_context(TORCHRUN | alone)
    assert (found.world_size, found.init_method) == (1, "env://")
    del (without := TORCHRUN | alone)["MASTER_ADDR"]
    assert detect_rank_context(None, None, without) is None


@pytest.mark.parametrize(
    ("tasks", "per_node"),
    [("2(x2),1", [2, 2, 1]), ("4", [4]), ("8(x3)", [8, 8, 8]), ("1,3(x2),2", [1, 3, 3, 2]),
     ("16(x1),8", [16, 8]), ("1(x12)", [1] * 12)],
)  # fmt: skip
def test_each_node_of_slurm_reads_its_own_tasks(tasks: str, per_node: list[int]) -> None:
    found = []
    for node in range(len(per_node)):
        variables = SRUN | {
            "SLURM_STEP_TASKS_PER_NODE": tasks,
            "SLURM_NODEID": str(node),
            "SLURM_PROCID": str(sum(per_node[:node])),
            "SLURM_STEP_NUM_TASKS": str(max(sum(per_node), 2)),
        }
        found.append(rank_context(variables).local_world_size)
    assert found == per_node


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n[03-05,9],login", "n03"), ("n[9,03-05]", "n9"), ("host1,host2", "host1"),
     ("login,n[1-2]", "login"), ("gpu-a-[001-128]", "gpu-a-001"), ("n[1-2]-ib", "n1-ib"),
     ("solo", "solo"), ("n7.cluster.example", "n7.cluster.example"),
     ("rack[1-2]n[3-4]", "rack1n3")],
)  # fmt: skip
def test_the_first_host_of_a_slurm_list_is_where_to_meet(nodes: str, first: str) -> None:
    assert init_method(SRUN | {"SLURM_STEP_NODELIST": nodes}, None, 1) == f"tcp://{first}:1"


def test_master_variables_that_a_person_set_are_used_by_every_launcher() -> None:
    given = {"MASTER_ADDR": "mine", "MASTER_PORT": "4242"}
    assert init_method(TORCHRUN, "chosen", 1234) == "tcp://chosen:1234"
    for variables in (SRUN, OPENMPI, PMI):
        assert init_method(variables | given) == "tcp://mine:4242"
        assert init_method(variables | given, "yours", 1) == "tcp://yours:1"


def test_ranks_without_a_local_rank_do_not_run_alone() -> None:
    lacking = {name: TORCHRUN[name] for name in ("MASTER_ADDR", "RANK", "WORLD_SIZE")}
    with pytest.raises(UsageError, match="LOCAL_RANK is not"):
        detect_rank_context(None, None, lacking)
    assert detect_rank_context("node0", None, lacking) is None
    assert detect_rank_context(None, None, lacking | {"WORLD_SIZE": "1"}) is None


def test_ranks_on_several_unnamed_hosts_get_a_hint_to_name_one() -> None:
    spread = OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    with pytest.raises(UnavailableError) as refused:
        detect_rank_context(None, None, spread)
    assert refused.value.message == "mpirun does not say on which host rank 0 is"
    assert "--master-addr" in refused.value.hint
    assert init_method(spread, "node0", 1) == "tcp://node0:1"


def test_all_ranks_of_a_job_use_the_same_port_and_two_jobs_or_steps_rarely_do() -> None:
    same = {
        port_of(SLURM_PROCID=rank, SLURM_NODEID=node, SLURM_LOCALID=local)
        for rank, node, local in ("000", "101", "420")
    }
    assert len(same) == 1 and FIRST_PORT <= min(same) < FIRST_PORT + PORTS
    ports = {port_of(SLURM_JOB_ID=str(job)) for job in range(20)}
    assert len(ports | {port_of(SLURM_STEP_ID=str(step)) for step in range(1, 20)}) >= 38


ONE_TASK = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}


@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        ({}, None),
        ({"PATH": "/bin", "MASTER_ADDR": "host"}, None),
        (SRUN | ONE_TASK, None),
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, None),
        # a batch script outside srun
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1", "SLURM_LOCALID": "0"},
         None),
        (SRUN | TORCHRUN, "torchrun"),  # within a Slurm step
        (SRUN | OPENMPI, "mpirun"),
        (SRUN | {"PMI_RANK": "2", "PMI_SIZE": "5"}, "srun"),  # srun --mpi=pmi2
    ],
)  # fmt: skip
def test_the_innermost_launcher_is_taken(variables: dict[str, str], launcher: str | None) -> None:
    found = detect_rank_context("host", 29500, variables)
    assert (found and found.launcher) == launcher


@pytest.mark.parametrize(
    ("variables", "wrong", "why"),
    [(TORCHRUN, {"RANK": "8"}, "RANK=8 is not a rank of WORLD_SIZE=8"),
     (TORCHRUN, {"RANK": "-1"}, "RANK=-1 is not a rank of"),
     (TORCHRUN, {"WORLD_SIZE": "0"}, "is not a rank of WORLD_SIZE=0"),
     (SRUN, {"SLURM_PROCID": "5"}, "SLURM_PROCID=5 is not a rank of"),
     (TORCHRUN, {"RANK": "five"}, "RANK='five'"), (TORCHRUN, {"LOCAL_RANK": ""}, "LOCAL_RANK=''"),
     (TORCHRUN, {"LOCAL_WORLD_SIZE": "four"}, "LOCAL_WORLD_SIZE='four'"),
     (SRUN, {"SLURM_STEP_NUM_TASKS": "5 x"}, "SLURM_STEP_NUM_TASKS='5 x'"),
     (SRUN, {"SLURM_NODEID": "n1"}, "SLURM_NODEID='n1'"),
     (SRUN, {"SLURM_STEP_TASKS_PER_NODE": "all"}, "SLURM_STEP_TASKS_PER_NODE='all'"),
     (OPENMPI, {"MASTER_PORT": "http"}, "MASTER_PORT='http'"),
     (TORCHRUN, {"LOCAL_RANK": "4"}, "rank 4 of 4 on a node"),
     (TORCHRUN, {"LOCAL_RANK": "-1"}, "rank -1 of 4 on a node"),
     (TORCHRUN, {"LOCAL_WORLD_SIZE": "9"}, "in a world of 8, cannot be"),
     (OPENMPI, {"OMPI_COMM_WORLD_LOCAL_SIZE": "0"}, "has no ranks for node 0"),
     (SRUN, {"SLURM_NODEID": "3"}, "has no ranks for node 3"),
     (SRUN, {"SLURM_LOCALID": "2"}, "rank 2 of 2 on a node")],
)  # fmt: skip
def test_variables_that_contradict_each_other_are_refused(
    variables: dict[str, str], wrong: dict[str, str], why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        detect_rank_context("host", None, variables | wrong)
    assert why in refused.value.message
    assert "unset them" in refused.value.hint


VALUES = st.sampled_from(["0", "1", "2", "4", "8", "-1", "", "x", "2(x2),1", "n[1-2]", "host"])


def changed(variables: dict[str, str]) -> st.SearchStrategy[dict[str, str]]:
    names = sorted({*variables, "MASTER_ADDR", "MASTER_PORT"})
    changes = st.dictionaries(st.sampled_from(names), VALUES, max_size=4)
    return changes.map(lambda change: variables | change)


@settings(deadline=None, max_examples=150)
@given(st.one_of(*map(changed, (TORCHRUN, SRUN, OPENMPI, PMI))))
def test_any_variables_give_a_rank_context_or_an_error(variables: dict[str, str]) -> None:
    try:
        found = detect_rank_context(None, None, variables)
    except (UsageError, UnavailableError) as refused:
        assert refused.hint
        return
    if found:
        assert 0 <= found.rank < found.world_size
        assert 0 <= found.local_rank < found.local_world_size <= found.world_size
