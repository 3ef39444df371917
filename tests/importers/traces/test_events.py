"""What events of torch.profiler say of a call, form by form, and which group of gloo it is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commbench.importers.traces.base import RankTrace
from commbench.importers.traces.registry import read_trace
from commbench.spec.workload import Call

T = "TensorList"
OPERATORS: list[tuple[str, list[Any], list[str], list[Any], dict[str, Any]]] = [
    ("allreduce_", [[[8, 4]]], [T], ["", "", "", "", "True"],
     {"operation": "all_reduce", "asynchronous": True, "size_bytes": None, "tensors": 1}),
    ("allreduce_coalesced_", [[[5], [7]]], [T], ["", "", "", "False"],
     {"operation": "all_reduce", "tensors": 2, "asynchronous": False}),
    ("_allgather_base_", [[64], [16]], ["float", "float"], [],
     {"operation": "all_gather", "size_bytes": 256, "dtype": "float32"}),
    ("_reduce_scatter_base_", [[16], [64]], ["c10::BFloat16", "c10::BFloat16"], [],
     {"operation": "reduce_scatter", "size_bytes": 128, "dtype": "bfloat16"}),
    ("allgather_into_tensor_coalesced_", [[[8], [8]], [[2], [2]]], [T, T], [],
     {"operation": "all_gather", "tensors": 2}),
    ("broadcast_", [[[3]]], [T], ["", "", "1", "0"], {"operation": "broadcast", "root": 1}),
    ("reduce_", [[[3]]], [T], ["", "", "", "2"], {"operation": "reduce", "root": 2}),
    ("gather_", [[], [[3]]], ["", T], ["", "", "", "0"], {"operation": "gather", "root": 0}),
    ("send", [[[4, 2]]], [T], ["", "", "3", "0"], {"operation": "send", "peer": 3}),
    ("recv_", [[[4, 2]]], [T], ["", "", "0", "0"], {"operation": "recv", "peer": 0}),
    ("alltoall_base_", [[6, 2], [4, 2]], ["int", "int"], ["", "", "", "[2, 4]", "[1, 3]"],
     {"operation": "all_to_all_v", "send_splits": (2, 6), "receive_splits": (4, 8),
      "size_bytes": 32}),
    ("alltoall_base_", [[4], [4]], ["int", "int"], ["", "", "", "[]", "[]"],
     {"operation": "all_to_all", "send_splits": (), "size_bytes": 16}),
    ("barrier", [[1]], ["unsigned char"], [],
     {"operation": "barrier", "size_bytes": 0, "dtype": ""}),
]  # fmt: skip
RECORD = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 2,
          "dtype": "BFloat16", "Process Group Name": "5", "Group size": 2}  # fmt: skip


def event(name: str, start: int, args: dict[str, Any], **fields: Any) -> dict[str, Any]:
    base = {"ph": "X", "cat": "cpu_op", "pid": 100, "tid": 100, "ts": start, "dur": 5}
    return base | {"name": name, "args": args} | fields


def operator(name: str, start: int, shapes: Any, types: Any, values: Any = ()) -> dict[str, Any]:
    args = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}
    return event(f"c10d::{name}", start, args)


def read(folder: Path, *events: dict[str, Any], groups: dict[str, Any] | None = None) -> RankTrace:
    config = [{"pg_name": name, "ranks": ranks} for name, ranks in (groups or {}).items()]
    info = {"rank": 0, "world_size": 4, "pg_config": config}
    values = {"traceEvents": [event("aten::add", 1, {}), *events], "distributedInfo": info}
    (path := folder / "rank0.json").write_text(json.dumps(values))
    return read_trace(path)


def record(folder: Path, groups: dict[str, Any] | None = None, **args: Any) -> Call:
    """The call that a record of a backend with these arguments describes."""
    (call,) = read(folder, event("record_param_comms", 10, RECORD | args), groups=groups).calls
    return call


@pytest.mark.parametrize(("name", "shapes", "types", "values", "expected"), OPERATORS)
def test_an_operator_tells_its_call(
    name: str, shapes: list[Any], types: list[str], values: list[Any], expected: dict[str, Any],
    tmp_path: Path,
) -> None:  # fmt: skip
    (call,) = read(tmp_path, operator(name, 10, shapes, types, values)).calls
    assert {key: getattr(call, key) for key in expected} == expected


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [[None]], [[-1]], [[[2**70]]], [[1e9]]])
def test_odd_arguments_of_an_operator_do_no_harm(odd: Any, tmp_path: Path) -> None:
    names = [name for name, *_ in OPERATORS]
    made = [operator(name, 10 * n, odd, odd, odd) for n, name in enumerate([*names, "unheard_of"])]
    trace = read(tmp_path, *made)
    assert {call.size_bytes for call in trace.calls} <= {None, 0}
    assert "left out calls that commbench has no operation for: c10d::unheard_of" in trace.notes


def test_a_record_tells_its_group_also_where_its_ranks_are_cut(tmp_path: Path) -> None:
    args = {"Collective name": "_reduce_scatter_base", "Process Group Description": "mesh_dp",
            "Process Group Ranks": "[0, 2, 4, ...]", "Group size": 32, "Global rank start": 0,
            "Global rank stride": 2, "Seq": 9, "Is asynchronized op": 1}  # fmt: skip
    trace = read(tmp_path, event("record_param_comms", 10, RECORD | args))
    (call,) = trace.calls
    assert (call.operation, call.size_bytes, call.sequence) == ("reduce_scatter", 128, 9)
    assert call.asynchronous is True
    assert trace.groups["5"] == (tuple(range(0, 64, 2)), "mesh_dp", 32)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [([0, 2], (0, 2)), ("[0, 2]", (0, 2)), ("[0, 99999999999]", (0, 99999999999)),
     *((wrong, ()) for wrong in ("[0, 1, ...]", "[0, 0]", "[]", "", None, [-1], [2**70], "[1"))],
)  # fmt: skip
def test_ranks_are_read_from_lists_and_from_whole_texts_only(
    text: Any, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    record(tmp_path, groups={"5": text})
    assert read_trace(tmp_path / "rank0.json").groups["5"].ranks == ranks


def test_the_peer_of_a_message_is_a_rank_of_its_group(tmp_path: Path) -> None:
    groups, send = {"5": [1, 3, 5]}, {"Collective name": "send", "Group size": 3}
    found = [record(tmp_path, groups, **send, **extra) for extra in ({"Rank": 2}, {"Dst Rank": 5})]
    assert [call.peer for call in found] == [2, 2]


@pytest.mark.parametrize(
    ("name", "operation"),
    [("allreduce", "all_reduce"), ("_all_gather_base", "all_gather"), ("AllReduce", "all_reduce"),
     ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("ReduceScatter", "reduce_scatter"),
     ("all_to_allv", "all_to_all"), ("isend", "send"), ("recvAnySource", "recv")],
)  # fmt: skip
def test_names_of_torch_and_nccl_are_commbenchs(name: str, operation: str, tmp_path: Path) -> None:
    assert record(tmp_path, **{"Collective name": name}).operation == operation


@pytest.mark.parametrize(
    ("kernel", "reduce_op"),
    [("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "sum"),
     ("ncclKernel_AllReduce_RING_LL_Max_f", "max"), ("ncclKernel_Broadcast_RING_LL_Sum_f", "")],
)  # fmt: skip
def test_the_name_of_a_kernel_tells_the_reduction(
    kernel: str, reduce_op: str, tmp_path: Path
) -> None:
    (call,) = read(tmp_path, event(kernel, 10, {}, cat="kernel")).calls
    assert call.reduce_op == reduce_op


def groups_of_threads(
    folder: Path, threads: list[str], known: str = "", groups: tuple[str, ...] = ("0", "1", "3")
) -> dict[str, str]:
    """The groups of calls whose transfers run on these threads, `process/number`. That of the
    thread `known` gathers from four ranks, and only the group 1 has so many."""
    events = []
    for number, thread in enumerate(threads):
        process, _, own = thread.partition("/")
        elements, start = 4 * (number + 1), 100 * (number + 1)
        name, shapes = "allreduce", [[[elements]]]
        if thread == known:
            name, shapes = "_allgather_base", [[4 * elements], [elements]]
        events.append(operator(f"{name}_", start, shapes, ["float", "float"]))
        args = {"Input Dims": [[elements]], "Input type": ["float"]}
        gloo = "gloo:all_gather" if thread == known else "gloo:all_reduce"
        where = {"cat": "user_annotation", "pid": int(process), "tid": int(own)}
        events.append(event(gloo, start + 10, args, **where))
    ranks = {name: [0, 1, 2, 3] if known and name == "1" else [0, 1] for name in groups}
    calls = read(folder, *events, groups=ranks).calls
    return {str(call.stream): call.group for call in calls}


def test_two_threads_for_each_group_are_told_apart_by_their_order(tmp_path: Path) -> None:
    threads = [f"100/{n}" for n in (120, 101, 102, 121, 113, 114)]
    assert groups_of_threads(tmp_path, threads) == {
        "100/101": "0", "100/102": "0", "100/113": "1", "100/114": "1", "100/120": "3",
        "100/121": "3",
    }  # fmt: skip


def test_numbers_of_threads_may_start_again(tmp_path: Path) -> None:
    threads = [f"299/{n}" for n in (300, 302, 9, 11, 4, 5)]
    assert groups_of_threads(tmp_path, threads) == {
        "299/300": "0", "299/302": "0", "299/4": "1", "299/5": "1", "299/9": "3", "299/11": "3",
    }  # fmt: skip


def test_a_call_that_fits_one_group_only_tells_the_others(tmp_path: Path) -> None:
    threads = [f"100/{n}" for n in (101, 102, 110, 111)]
    assert groups_of_threads(tmp_path, threads) == dict.fromkeys(threads, "")
    assert groups_of_threads(tmp_path, threads, known="100/101") == {
        "100/101": "1", "100/102": "1", "100/110": "3", "100/111": "3",
    }  # fmt: skip


def test_the_only_group_is_that_of_all_calls(tmp_path: Path) -> None:
    assert groups_of_threads(tmp_path, ["100/107"], groups=("0",)) == {"100/107": "0"}


def test_the_thread_of_the_process_may_call_in_any_group(tmp_path: Path) -> None:
    assert groups_of_threads(tmp_path, ["100/100"]) == {"100/100": ""}


def test_a_file_of_gloo_that_ends_early_has_no_times(tmp_path: Path) -> None:
    groups_of_threads(tmp_path, ["100/101", "100/102"], groups=("0",))
    text = (tmp_path / "rank0.json").read_text()
    (tmp_path / "rank0.json").write_text(text[: text.rindex("]")])
    trace = read_trace(tmp_path / "rank0.json")
    assert trace.is_cut
    assert [(call.time_s, call.group) for call in trace.calls] == [(None, ""), (None, "")]


def test_more_threads_than_the_groups_can_have_are_of_no_group(tmp_path: Path) -> None:
    threads = [f"100/{n}" for n in range(101, 108)]
    assert groups_of_threads(tmp_path, threads) == dict.fromkeys(threads, "")
