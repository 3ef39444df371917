"""What is read of NCCL's log, from lines as it prints them."""

from pathlib import Path
from typing import Any

import pytest
from synthetic import in_memory, steady

from commbench.analysis.environment import environment_facts
from commbench.analysis.nccl_log import (
    INIT_MODE,
    SELECTIONS,
    NcclSelection,
    describe_communicator,
    describe_init,
    find_selection,
    is_symmetric,
    one_selection,
    parse_communicator,
    parse_selections,
    selection_entries,
    selection_key,
)
from commbench.analysis.rows import make_rows
from commbench.answers.explain.explanation import VIEW, explain_row, explain_run
from commbench.plan.case import Case
from commbench.plan.plan import Plan

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


def case(operation: str, size: int, ranks: int = 4, **choices: Any) -> Case:
    return Plan(
        operations=(operation,), sizes=(size,), backend="nccl", device="cuda", world_size=ranks,
        **choices,
    ).cases()[-1]  # fmt: skip


# Lines as NCCL 2.30 prints them; the size of a function with blocks is that of one block.
SYMMETRIC = """\
lab:1:1 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1
"""  # noqa: E501
COPY_ENGINE = """\
lab:1:1 [0] NCCL INFO AllGather [Copy Engine]: 1048576 Bytes -> cudaMemcpy; CE synchronization with NVLS
lab:1:1 [0] NCCL INFO AllGather [Hierarchical CE]: 1048576 Bytes -> RMA proxy + CE
"""  # noqa: E501
STEPS = """\
lab:1:1 [0] NCCL INFO ReduceScatter: 256 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
lab:1:1 [0] NCCL INFO AllGather: 256 Bytes -> Algo PAT proto SIMPLE channel{Lo..Hi}={0..1}
"""
OLD = {"AllReduce 1024": [["TREE", "LL", "1"], ["NVLS", "SIMPLE", "1"]]}
"""As older journals have it, whatever the form, the memory and the dtype of the call was."""


def test_a_case_has_what_nccl_selected_in_its_own_call_and_no_other_case_has_it() -> None:
    two_steps = case("all_reduce", 1024, forms=("reduce_scatter+all_gather",))
    registered = case("all_reduce", 4096, memory=("symmetric",))._replace(operation="all_reduce")
    known = {
        SELECTIONS: {
            selection_key(registered): selection_entries(SYMMETRIC.splitlines()),
            selection_key(case("all_gather", 4 << 20)): selection_entries(COPY_ENGINE.splitlines()),
            selection_key(two_steps): selection_entries(STEPS.splitlines()),
        }
    }
    assert find_selection(known, registered) == ("SYMMETRIC", "AllReduce_AGxLL_R", "4")
    assert find_selection(known, case("all_gather", 4 << 20)) == (
        "COPY_ENGINE", "cudaMemcpy and RMA proxy + CE", "",
    )  # fmt: skip
    assert find_selection(known, two_steps) == ("RING and PAT", "LL and SIMPLE", "2")
    assert one_selection(known, two_steps) is None
    pipelined = case("all_gather", 4 << 20, timing="pipelined", buffers="rotating")
    assert find_selection(known, pipelined)[0] == "COPY_ENGINE"
    for other in (
        case("all_reduce", 4096), case("all_reduce", 1024),
        case("all_gather", 4 << 20, dtypes=("bfloat16",)),
        case("all_gather", 4 << 20, launch_mode="graph"), case("barrier", 64),
        case("all_gather", 4 << 20)._replace(part="computation"),
    ):  # fmt: skip
        assert find_selection(known, other) == ("", "", "")


def test_an_older_journal_labels_direct_eager_calls_in_plain_memory_only() -> None:
    known = {SELECTIONS: OLD}
    for right in (
        case("all_reduce", 1024), case("all_reduce", 1024, timing="pipelined"),
        case("all_reduce", 1024, dtypes=("bfloat16",)),
        case("all_reduce", 1024, tensors=("4",), forms=("flat",)),
    ):  # fmt: skip
        assert find_selection(known, right) == ("TREE or NVLS", "LL or SIMPLE", "1")
    for wrong in (
        case("all_reduce", 1024, forms=("async",)), case("all_reduce", 1024, launch_mode="graph"),
        case("all_reduce", 1024, tensors=("4",), forms=("coalesced",)),
        case("all_reduce", 1024)._replace(memory="registered"),
        case("all_reduce", 1024)._replace(part="computation"),
        case("all_reduce", 1024, forms=("first",)),
    ):  # fmt: skip
        assert find_selection(known, wrong) == ("", "", ""), wrong.name


def test_a_call_is_symmetric_if_all_that_nccl_used_is() -> None:
    assert all(map(is_symmetric, ("SYMMETRIC", "COPY_ENGINE", "SYMMETRIC and COPY_ENGINE")))
    assert not any(map(is_symmetric, ("RING and SYMMETRIC", "SYMMETRIC or RING", "RING", "")))


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
    (how,) = (fact.how for fact in explain_row(first).facts if fact.value == "RING LL")
    assert how.endswith("channels: 2")
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
        "transports": {"P2P/CUMEM": 2}, "communicators": {"2": 1}, "init_s": 0.61,
        "init_parts_s": {
            "kernels": 0.19, "alloc": 0.08, "bootstrap": 0.22, "allgathers": 0.0, "topo": 0.12,
            "graphs": 0.0, "connections": 0.01, "rest": 0.0,
        },
    }  # fmt: skip


def test_transports_are_counted_without_the_number_of_the_adapter() -> None:
    found = parse_communicator(TWO_HOSTS.splitlines())
    assert found["transports"] == {"NET/IB/GDRDMA": 2, "SHM/direct/direct": 1}
    assert describe_communicator(found) == (
        "NCCL 2.31.2+cuda12.9; network IB ([0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]); "
        "2 connections via NET/IB/GDRDMA, 1 connections via SHM/direct/direct"
    )
    assert describe_init(found) == ""


# Eight GPUs with NVSwitch, then two lazily made communicators of a pair; NCCL 2.30, shortened.
EIGHT_GPUS = """\
node1:7:7 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer
node1:7:7 [0] NCCL INFO ncclCommInitRankConfig comm 0x5650de21b3f0 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 18000 commId 0x56bea185a98d5193 - Init COMPLETE
node1:7:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node1:7:7 [0] NCCL INFO NVLS comm 0x5650de21b3f0 headRank 0 nHeads 8 nvlsRanks 8 buffSize 1048576 nvlsPerRankSize 33554432 nvlsTotalSize 268435456
node1:7:7 [0] NCCL INFO Connected NVLS tree
node1:7:7 [0] NCCL INFO ncclCommInitRankConfig comm 0x5650de21c000 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 18000 commId 0x1 - Init COMPLETE
node1:7:7 [0] NCCL INFO ncclCommSplit comm 0x5650de21d000 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 18000 parent 0x5650de21b3f0 childCount 1 color 3 key 0 - Init COMPLETE
"""  # noqa: E501
OLD_NVLS = """\
node1:7:7 [0] NCCL INFO 16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 16 p2p channels per peer
node1:7:7 [0] NCCL INFO NVLS comm 0x765a3b0 headRank 0 nHeads 4 buffSize 4194304 nvlsPerRankSize 301989888 nvlsTotalSize 2415919104
"""  # noqa: E501
# With aws-ofi-nccl on EFA, on Slingshot, and as RCCL ends its lines.
LIBFABRIC = """\
node1:7:9 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.17.2
node1:7:9 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
node1:7:9 [0] NCCL INFO Using network AWS Libfabric
node1:7:9 [0] NCCL INFO Channel 00/0 : 9[1] -> 0[0] [receive] via NET/AWS Libfabric/0(1)/GDRDMA/Shared
node1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer
"""  # noqa: E501
SLINGSHOT = """\
node1:7:9 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)
node1:7:9 [0] NCCL INFO Channel 00/0 : 4[d6] -> 0[d6] [receive] via NET/AWS Libfabric/2/GDRDMA comm 0x9bbf3b0 nRanks 16
"""  # noqa: E501


def test_nvls_and_lazily_made_communicators_are_counted() -> None:
    found = parse_communicator(EIGHT_GPUS.splitlines())
    assert found["transports"] == {"P2P/CUMEM/read": 1, "NVLS": 128}  # 8 heads on 16 channels
    assert found["communicators"] == {"8": 1, "2": 2}
    assert parse_communicator(OLD_NVLS.splitlines())["transports"] == {"NVLS": 64}


def test_the_lines_of_a_plugin_for_libfabric_are_read() -> None:
    found = parse_communicator(LIBFABRIC.splitlines())
    assert found == {
        "network": "AWS Libfabric", "adapters": "efa, fabric is efa-direct (found 16 nics)",
        "transports": {"NET/AWS Libfabric/GDRDMA/Shared": 1, "P2P/direct pointer": 1},
    }  # fmt: skip
    assert parse_communicator(SLINGSHOT.splitlines()) == {
        "adapters": "cxi (found 4 nics)", "transports": {"NET/AWS Libfabric/GDRDMA": 1}
    }  # fmt: skip


@pytest.mark.parametrize("damaged", [None, 5, {}, {"transports": 3}, {"init_s": "x"}])
def test_a_log_that_says_nothing_and_damaged_facts_give_no_text(damaged: object) -> None:
    assert parse_communicator(["some line", ""]) == {}
    assert describe_communicator(damaged) == describe_init(damaged) == ""


def test_explain_and_the_environment_of_a_run_say_what_nccl_logged() -> None:
    run = in_memory("a", [steady(1e-4), steady(2e-4)])
    facts = {"nccl_log": parse_communicator(ONE_HOST.splitlines()), INIT_MODE: "lazy"}
    run = run._replace(header=run.header._replace(environment=facts))
    text = " ".join(VIEW.write(explain_run(run)).split())
    assert "NCCL 2.26.5+cuda12.9; network Socket" in text
    assert "2 connections via P2P/CUMEM; communicators: 1 of 2 ranks" in text
    assert "nccl init mode lazy nccl init 0.61 s (kernels 0.19," in text
    assert environment_facts(run.header)[INIT_MODE] == "lazy"
    assert environment_facts(run.header)["nccl_log"] == describe_communicator(facts["nccl_log"])


def test_a_real_log_of_two_ranks_on_one_h100_is_read() -> None:
    path = Path(__file__).parent.parent / "data/nccl/nccl-2.28.9-two-ranks-on-one-h100.log"
    lines = path.read_text().splitlines()
    found = parse_communicator(lines)
    assert (found["version"], found["network"]) == ("2.28.9+cuda13.0", "Socket")
    assert (found["transports"], found["communicators"]) == ({"NET/Socket": 8}, {"2": 2})
    assert found["init_s"] == 0.53 and found["init_parts_s"]["kernels"] == 0.51
    chosen = {(one.function, one.size_bytes): one for one in parse_selections(lines)}
    ring = NcclSelection("AllReduce", 1 << 20, "RING", "SIMPLE", 2)
    assert chosen["AllReduce", 1 << 20] == ring
    assert chosen["Broadcast", 1024].protocol == "LL"
    assert {function for function, _ in chosen} == {"AllReduce", "AllGather", "Broadcast"}
