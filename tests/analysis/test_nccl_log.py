"""What is read of NCCL's log, from lines as it prints them."""

import pytest
from synthetic import in_memory, steady

from commbench.analysis.environment_diff import environment_facts
from commbench.analysis.nccl_log import (
    SELECTIONS,
    NcclSelection,
    describe_communicator,
    describe_init,
    find_selection,
    parse_communicator,
    parse_selections,
    selections_by_call,
)
from commbench.analysis.rows import make_rows
from commbench.explain.row_text import explain_row
from commbench.explain.run_text import explain_run
from commbench.spec.case import Case
from commbench.spec.plan import Plan

# Lines as NCCL 2.29.7 prints them with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING.
TUNING = """\
lab:3038984:3038984 [0] NCCL INFO   Algorithm   |                            Tree                  |
lab:3038984:3038984 [0] NCCL INFO     AllReduce |    16.8/   0.5 |    31.0/   0.0 |    36.4/   1.9 |
lab:3038984:3038984 [0] NCCL INFO Broadcast: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
lab:3038984:3038984 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
lab:3038984:3038984 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
lab:3038984:3038984 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel X nchannels 1 nthreads 2 nWorks 1
lab:3038984:3038984 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
"""  # noqa: E501


def test_choices_are_read_from_the_log_once_each() -> None:
    assert parse_selections(TUNING.splitlines()) == (
        NcclSelection("Broadcast", 16384, "RING", "LL", 2),
        NcclSelection("AllReduce", 1024, "TREE", "LL", 1),
        NcclSelection("AllReduce", 4096, "SYMMETRIC", "X", 1),
        NcclSelection("AllReduce", 1 << 20, "RING", "SIMPLE", 24),
    )


def case(operation: str, size: int, ranks: int = 4) -> Case:
    return Plan(
        operations=(operation,), sizes=(size,), backend="nccl", device="cuda", world_size=ranks
    ).cases()[0]


# Lines as NCCL 2.30 prints them; the size of a function with blocks is that of one block.
KERNELS = """\
lab:1:1 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1
lab:1:1 [0] NCCL INFO AllGather [Copy Engine]: 1048576 Bytes -> cudaMemcpyBatchAsync
lab:1:1 [0] NCCL INFO ReduceScatter: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
lab:1:1 [0] NCCL INFO AllReduce: 64 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
lab:1:1 [0] NCCL INFO AllReduce: 64 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..0}
"""  # noqa: E501


def test_a_case_finds_what_nccl_selected_for_its_function_and_the_bytes_that_nccl_logs() -> None:
    known = {SELECTIONS: selections_by_call(KERNELS.splitlines())}
    assert find_selection(known, case("all_reduce", 4096)) == (
        "SYMMETRIC", "AllReduce_AGxLL_R", "4",
    )  # fmt: skip
    assert find_selection(known, case("all_gather", 4 << 20)) == (
        "COPY_ENGINE", "cudaMemcpyBatchAsync", "",
    )  # fmt: skip
    assert find_selection(known, case("reduce_scatter", 1024)) == ("RING", "LL", "2")
    assert find_selection(known, case("all_reduce", 64)) == ("TREE or NVLS", "LL or SIMPLE", "1")
    for operation in ("all_to_all", "barrier", "broadcast"):
        assert find_selection(known, case(operation, 64)) == ("", "", "")


@pytest.mark.parametrize("damaged", [None, 5, [], {"AllReduce 64": 3}, {"AllReduce 64": [["x"]]}])
def test_damaged_selections_are_unknown(damaged: object) -> None:
    assert find_selection({SELECTIONS: damaged}, case("all_reduce", 64)) == ("", "", "")


def test_the_row_and_the_environment_of_a_run_say_what_nccl_selected() -> None:
    run = in_memory("a", [steady(1e-4), steady(2e-4)])
    sizes = [m.case.block_bytes for m in run.measurements]
    facts = {SELECTIONS: {f"AllReduce {sizes[0]}": [["RING", "LL", "2"]]}}
    run = run._replace(header=run.header._replace(environment=facts))
    first, second = make_rows(run)
    assert (first.nccl_selection, second.nccl_selection) == (("RING", "LL", "2"), ("", "", ""))
    assert "it selected RING LL, channels: 2." in explain_row(first)
    assert SELECTIONS not in environment_facts(run.header)


# Lines as NCCL 2.24 to 2.30 prints them with NCCL_DEBUG=INFO; shortened.
ONE_HOST = """\
node1:10208:10208 [0] NCCL INFO NCCL version 2.26.5+cuda12.9
node1:10208:10226 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>
node1:10208:10226 [0] NCCL INFO Using network Socket
node1:10208:10226 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 16 p2p channels per peer
node1:10208:10226 [0] NCCL INFO ncclCommInitRankConfig comm 0x58892a1d3910 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 100000 commId 0x56bea185a98d5193 - Init COMPLETE
node1:10208:10226 [0] NCCL INFO Init timings - ncclCommInitRankConfig: rank 0 nranks 2 total 0.61 (kernels 0.19, alloc 0.08, bootstrap 0.22, allgathers 0.00, topo 0.12, graphs 0.00, connections 0.01, rest 0.00)
node1:10208:10234 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:10208:10234 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
"""  # noqa: E501
TWO_HOSTS = """\
node1:7:7 [0] NCCL INFO NCCL version 2.31.2+cuda12.9
node1:7:19 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:10.0.0.1<0>
node1:7:19 [0] NCCL INFO Using network IB
node1:7:19 [0] NCCL INFO Channel 00/0 : 9[1] -> 0[0] [receive] via NET/IB/0/GDRDMA/flush=None
node1:7:19 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/1/GDRDMA
node1:7:19 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via SHM/direct/direct
"""


def test_a_communicator_has_a_version_a_network_channels_transports_and_times() -> None:
    found = parse_communicator(ONE_HOST.splitlines())
    assert found == {
        "version": "2.26.5+cuda12.9", "network": "Socket", "adapters": "[0]eth0:10.0.0.4<0>",
        "channels": "16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, "
        "16 p2p channels per peer",
        "transports": {"P2P/CUMEM": 2}, "init_s": 0.61,
        "init_parts_s": {
            "kernels": 0.19, "alloc": 0.08, "bootstrap": 0.22, "allgathers": 0.0, "topo": 0.12,
            "graphs": 0.0, "connections": 0.01, "rest": 0.0,
        },
    }  # fmt: skip
    assert describe_init(found).startswith("0.61 s (kernels 0.19, alloc 0.08, bootstrap 0.22,")
    assert describe_communicator(found).endswith("per peer; 2 connections via P2P/CUMEM")


def test_transports_are_counted_without_the_number_of_the_adapter() -> None:
    found = parse_communicator(TWO_HOSTS.splitlines())
    assert found["transports"] == {"NET/IB/GDRDMA": 2, "SHM/direct/direct": 1}
    assert describe_communicator(found) == (
        "NCCL 2.31.2+cuda12.9; network IB ([0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]); "
        "2 connections via NET/IB/GDRDMA, 1 connections via SHM/direct/direct"
    )
    assert describe_init(found) == ""


@pytest.mark.parametrize("damaged", [None, 5, {}, {"transports": 3}, {"init_s": "x"}])
def test_a_log_that_says_nothing_and_damaged_facts_give_no_text(damaged: object) -> None:
    assert parse_communicator(["some line", ""]) == {}
    assert describe_communicator(damaged) == describe_init(damaged) == ""


def test_explain_and_the_environment_of_a_run_say_what_nccl_logged() -> None:
    run = in_memory("a", [steady(1e-4), steady(2e-4)])
    facts = {"nccl_log": parse_communicator(ONE_HOST.splitlines())}
    run = run._replace(header=run.header._replace(environment=facts))
    text = " ".join(explain_run(run).split())
    assert "NCCL 2.26.5+cuda12.9; network Socket" in text
    assert "2 connections via P2P/CUMEM; communicator made in 0.61 s (kernels 0.19," in text
    assert environment_facts(run.header)["nccl_log"] == describe_communicator(facts["nccl_log"])
