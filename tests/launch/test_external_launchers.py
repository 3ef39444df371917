"""Seats among ranks that somebody else started, found from made-up variables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UnavailableError, UsageError
from commbench.launch.external_launchers import FIRST_PORT, PORTS, detect_rank_context
from commbench.worker.context import RankContext

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "n[03-05]",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-node0-1234@1",
}
PMI = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
    "PMI_FD": "7",
}


def rank_context(
    variables: Mapping[str, str], address: str | None = None, port: int | None = None
) -> RankContext:
    found = detect_rank_context(address, port, variables)
    assert found is not None
    return found


def init_method(
    variables: Mapping[str, str], address: str | None = None, port: int | None = None
) -> str:
    return rank_context(variables, address, port).init_method


def port_of(variables: Mapping[str, str]) -> int:
    return int(init_method(variables).rpartition(":")[2])


def test_without_a_launcher_there_is_no_rank_context() -> None:
    assert detect_rank_context(None, None, {}) is None
    assert detect_rank_context("host", 29500, {"PATH": "/bin", "MASTER_ADDR": "host"}) is None


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
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        launcher=launcher,
        init_method=init_method,
    )
    assert found.is_single_node == (variables in (OPENMPI, PMI))


def test_torchrun_started_within_a_slurm_step_is_torchrun() -> None:
    assert rank_context(SRUN | TORCHRUN).launcher == "torchrun"
    assert rank_context(SRUN | OPENMPI, "node0").launcher == "mpirun"


def test_srun_with_pmi2_is_srun() -> None:
    assert rank_context(SRUN | {"PMI_RANK": "2", "PMI_SIZE": "5"}, port=29500) == rank_context(
        SRUN, port=29500
    )


def test_one_task_launches_as_usual() -> None:
    alone = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert detect_rank_context(None, None, SRUN | alone) is None
    one = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}
    assert (
        detect_rank_context(None, None, OPENMPI | one | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}) is None
    )


def test_a_batch_script_outside_srun_launches_as_usual() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "1", "SLURM_LOCALID": "0"}
    assert detect_rank_context(None, None, batch) is None


def test_one_rank_of_torchrun_joins_what_torchrun_prepared() -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    found = rank_context(TORCHRUN | alone)
    assert (found.world_size, found.init_method) == (1, "env://")
    del (without := TORCHRUN | alone)["MASTER_ADDR"]
    assert detect_rank_context(None, None, without) is None


@pytest.mark.parametrize(
    ("tasks", "per_node"),
    [
        ("2(x2),1", [2, 2, 1]),
        ("4", [4]),
        ("8(x3)", [8, 8, 8]),
        ("1,3(x2),2", [1, 3, 3, 2]),
        ("16(x1),8", [16, 8]),
        ("1(x12)", [1] * 12),
    ],
)
def test_slurm_writes_the_tasks_of_all_nodes_and_each_reads_its_own(
    tasks: str, per_node: list[int]
) -> None:
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
    [
        ("n[03-05,9],login", "n03"),
        ("n[9,03-05]", "n9"),
        ("host1,host2", "host1"),
        ("login,n[1-2]", "login"),
        ("gpu-a-[001-128]", "gpu-a-001"),
        ("n[1-2]-ib", "n1-ib"),
        ("solo", "solo"),
        ("n7.cluster.example", "n7.cluster.example"),
        ("rack[1-2]n[3-4]", "rack1n3"),
    ],
)
def test_the_first_host_of_a_slurm_list_is_where_to_meet(nodes: str, first: str) -> None:
    assert init_method(SRUN | {"SLURM_STEP_NODELIST": nodes}, port=1) == f"tcp://{first}:1"


def test_options_win_over_variables() -> None:
    assert init_method(SRUN, "chosen", 1234) == "tcp://chosen:1234"
    assert init_method(TORCHRUN, "chosen", 1234) == "tcp://chosen:1234"
    assert init_method(OPENMPI, "chosen", 1234) == "tcp://chosen:1234"


def test_master_variables_that_a_person_set_are_used_by_every_launcher() -> None:
    given = {"MASTER_ADDR": "mine", "MASTER_PORT": "4242"}
    for variables in (SRUN, OPENMPI, PMI):
        assert init_method(variables | given) == "tcp://mine:4242"
        assert init_method(variables | given, "yours", 1) == "tcp://yours:1"


def test_ranks_on_several_unnamed_hosts_get_a_hint_to_name_one() -> None:
    spread = OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    with pytest.raises(UnavailableError) as refused:
        detect_rank_context(None, None, spread)
    assert refused.value.message == "mpirun does not say on which host rank 0 is"
    assert "--master-addr" in refused.value.hint
    assert init_method(spread, "node0", 1) == "tcp://node0:1"


def test_all_ranks_of_a_job_use_the_same_port_within_the_range() -> None:
    ranks = [
        SRUN | {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0"},
        SRUN | {"SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"},
        SRUN | {"SLURM_PROCID": "4", "SLURM_NODEID": "2", "SLURM_LOCALID": "0"},
    ]
    assert len({port_of(variables) for variables in ranks}) == 1
    assert FIRST_PORT <= port_of(SRUN) < FIRST_PORT + PORTS


def test_two_jobs_or_steps_rarely_use_the_same_port() -> None:
    ports = [port_of(SRUN | {"SLURM_JOB_ID": str(job)}) for job in range(20)]
    ports += [port_of(SRUN | {"SLURM_STEP_ID": str(step)}) for step in range(1, 20)]
    assert len(set(ports)) >= 38


def test_ranks_of_a_pmi_job_meet_though_each_has_a_socket_of_its_own() -> None:
    # PMI_FD is the number of a file descriptor in one rank: another in each.
    first = PMI | {"PMI_RANK": "0", "MPI_LOCALRANKID": "0", "PMI_FD": "6"}
    assert init_method(first) == init_method(PMI)


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        (TORCHRUN, {"RANK": "8"}),
        (TORCHRUN, {"RANK": "-1"}),
        (TORCHRUN, {"WORLD_SIZE": "0"}),
        (SRUN, {"SLURM_PROCID": "5"}),
        (OPENMPI, {"OMPI_COMM_WORLD_RANK": "4"}),
        (PMI, {"PMI_RANK": "2"}),
    ],
)
def test_a_rank_outside_its_world_is_refused_with_both_variables(
    variables: dict[str, str], wrong: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="is not a rank of") as refused:
        detect_rank_context("host", 1, variables | wrong)
    for name, value in wrong.items():
        assert f"{name}={value}" in refused.value.message
    assert "unset them" in refused.value.hint


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        (TORCHRUN, {"RANK": "five"}),
        (TORCHRUN, {"LOCAL_RANK": ""}),
        (TORCHRUN, {"LOCAL_WORLD_SIZE": "four"}),
        (SRUN, {"SLURM_STEP_NUM_TASKS": "5 "+"x"}),
        (SRUN, {"SLURM_NODEID": "n1"}),
        (SRUN, {"SLURM_STEP_TASKS_PER_NODE": "all"}),
        (OPENMPI, {"MASTER_PORT": "http"}),
        (OPENMPI, {"MASTER_PORT": ""}),
    ],
)  # fmt: skip
def test_a_variable_that_is_no_number_is_refused_by_its_name(
    variables: dict[str, str], wrong: dict[str, str]
) -> None:
    with pytest.raises(UsageError) as refused:
        detect_rank_context(None, None, variables | wrong)
    for name, value in wrong.items():
        assert f"{name}={value!r}" in refused.value.message


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        (TORCHRUN, {"LOCAL_RANK": "4"}),
        (TORCHRUN, {"LOCAL_RANK": "-1"}),
        (TORCHRUN, {"LOCAL_WORLD_SIZE": "9"}),
        (TORCHRUN, {"LOCAL_WORLD_SIZE": "0"}),
        (OPENMPI, {"OMPI_COMM_WORLD_LOCAL_SIZE": "0"}),
        (OPENMPI, {"OMPI_COMM_WORLD_LOCAL_SIZE": "5"}),
        (SRUN, {"SLURM_NODEID": "3"}),
        (SRUN, {"SLURM_LOCALID": "2"}),
    ],
)
def test_local_ranks_that_contradict_each_other_are_refused(
    variables: dict[str, str], wrong: dict[str, str]
) -> None:
    with pytest.raises(UsageError):
        detect_rank_context("host", 1, variables | wrong)


VALUES = st.sampled_from(["0", "1", "2", "4", "8", "-1", "", "x", "2(x2),1", "n[1-2]", "host"])


def changed(variables: dict[str, str]) -> st.SearchStrategy[dict[str, str]]:
    names = sorted({*variables, "MASTER_ADDR", "MASTER_PORT"})
    changes = st.dictionaries(st.sampled_from(names), VALUES, max_size=4)
    return changes.map(lambda change: variables | change)


@settings(deadline=None, max_examples=150)
@given(st.one_of(*map(changed, (TORCHRUN, SRUN, OPENMPI, PMI))))
def test_any_variables_give_a_valid_rank_context_or_an_error_that_says_why(
    variables: dict[str, str],
) -> None:
    try:
        found = detect_rank_context(None, None, variables)
    except (UsageError, UnavailableError) as refused:
        assert refused.hint
        return
    if found:
        assert 0 <= found.rank < found.world_size
        assert 0 <= found.local_rank < found.local_world_size <= found.world_size
