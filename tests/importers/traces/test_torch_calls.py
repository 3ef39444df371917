"""What operators of c10d and records of a backend say of a call, form by form."""

from __future__ import annotations

from typing import Any

import pytest

from commbench.importers.traces.base import (
    TracedGroup,
    as_ranks,
    find_dtype_name,
    find_operation_name,
    find_reduce_op,
)
from commbench.importers.traces.torch_calls import read_operator, read_record

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


@pytest.mark.parametrize(("name", "shapes", "types", "values", "expected"), OPERATORS)
def test_an_operator_tells_its_call(
    name: str, shapes: list[Any], types: list[str], values: list[Any], expected: dict[str, Any]
) -> None:
    found = read_operator(f"c10d::{name}", shapes, types, values)
    assert found is not None
    assert {key: getattr(found.call, key) for key in expected} == expected


def test_the_ranks_of_a_group_follow_from_shapes_where_they_can() -> None:
    gathered = read_operator("c10d::_allgather_base_", [[64], [16]], ["float"] * 2, [])
    reduced = read_operator("c10d::allreduce_", [[[64]]], [T], [])
    assert gathered is not None and reduced is not None
    assert (gathered.ratio, reduced.ratio) == (4, None)


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [[None]], [[-1]], [[[2**70]]], [[1e9]]])
def test_odd_arguments_of_an_operator_do_no_harm(odd: Any) -> None:
    for name, *_ in OPERATORS:
        found = read_operator(f"c10d::{name}", odd, odd, odd)
        assert found is None or found.call.size_bytes in (None, 0)
    assert read_operator("c10d::unheard_of", [], [], []) is None


def test_a_record_tells_its_group_also_where_its_ranks_are_cut() -> None:
    groups: dict[str, TracedGroup] = {}
    args = {"Collective name": "_reduce_scatter_base", "In msg nelems": 64, "Out msg nelems": 2,
            "dtype": "BFloat16", "Process Group Name": "5", "Process Group Description": "mesh_dp",
            "Process Group Ranks": "[0, 2, 4, ...]", "Group size": 32, "Global rank start": 0,
            "Global rank stride": 2, "Seq": 9, "Is asynchronized op": 1}  # fmt: skip
    call = read_record(args, groups)
    assert call is not None
    assert (call.operation, call.size_bytes, call.sequence) == ("reduce_scatter", 128, 9)
    assert call.asynchronous is True
    assert groups["5"] == TracedGroup(tuple(range(0, 64, 2)), "mesh_dp", 32)


def test_the_peer_of_a_message_is_a_rank_of_its_group() -> None:
    groups = {"7": TracedGroup((1, 3, 5), "mesh_pp", 3)}
    args = {"Collective name": "send", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Half",
            "Process Group Name": "7", "Group size": 3}  # fmt: skip
    found = [read_record(args | extra, groups) for extra in ({"Rank": 2}, {"Dst Rank": 5})]
    assert [call.peer for call in found if call] == [2, 2]


def test_names_of_torch_and_nccl_are_commbenchs() -> None:
    names = ("allreduce", "_all_gather_base", "reduce_scatter_tensor_coalesced", "all_to_allv",
             "AllReduce", "ReduceScatter", "isend", "recvAnySource", "wait", 7, None)  # fmt: skip
    assert [find_operation_name(name) for name in names] == [
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all_v", "all_reduce",
        "reduce_scatter", "send", "recv", "", "", "",
    ]  # fmt: skip
    assert [find_dtype_name(n) for n in ("BFloat16", "long int", "c10::Half", "x")] == [
        "bfloat16", "int64", "float16", "",
    ]  # fmt: skip
    new, old = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "ncclKernel_AllReduce_RING_LL_Max_f"
    assert [find_reduce_op("all_reduce", kernel) for kernel in (new, old)] == ["sum", "max"]
    assert find_reduce_op("broadcast", old) == ""


def test_ranks_are_read_from_lists_and_from_whole_texts_only() -> None:
    assert as_ranks("[0, 2]") == as_ranks([0, 2]) == (0, 2)
    assert as_ranks([0, 99999999999]) == as_ranks("[0, 99999999999]") == (0, 99999999999)
    for wrong in ("[0, 1, ...]", "[0, 0]", "[]", "", None, [-1], [2**70], "[1"):
        assert as_ranks(wrong) == ()
