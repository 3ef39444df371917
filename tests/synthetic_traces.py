"""Small files of flight recorders, Chakra and NCCL Inspector, made by hand with their fields."""

from __future__ import annotations

import json
from typing import Any


def entry(number: int, name: str, sizes: list[int], **values: Any) -> dict[str, Any]:
    """An entry of a flight recorder, with the fields of FlightRecorderDetail.hpp."""
    return {
        "record_id": number, "pg_id": 1, "process_group": ("3", "mesh_tp"),
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": name,
        "time_created_ns": 10**18 + number * 10**6, "duration_ms": 0.25, "input_sizes": [sizes],
        "input_dtypes": ["BFloat16"], "output_sizes": [sizes], "output_dtypes": ["BFloat16"],
        "state": "completed", "retired": True, "is_p2p": False, "timeout_ms": 600000,
        "frames": [{"name": "f", "filename": "a.py", "line": 7}],
    } | values  # fmt: skip


ENTRIES = [
    entry(1, "nccl:all_reduce", [4, 8]),
    entry(2, "nccl:_all_gather_base", [16], output_sizes=[[2, 16]]),
    entry(3, "nccl:_reduce_scatter_base", [64], output_sizes=[[32]]),
    entry(4, "nccl:send 0->1", [10], is_p2p=True, p2p_seq_id=1),
    entry(5, "nccl:all_reduce_coalesced", [5], input_sizes=[[5], [7]], output_sizes=[[5], [7]]),
    entry(6, "nccl:all_to_all", [6], state="started", retired=False),
    entry(7, "nccl:unheard_of", [6]),
]
DUMP = {
    "version": "2.10", "nccl_comm_state": {}, "comm_lib_version": "2.27.5",
    "pg_config": {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "3": {"name": "3", "desc": "mesh_tp", "ranks": "[2, 3]"},
    },
    "entries": ENTRIES,
}  # fmt: skip


def inspected(rank: int, number: int, coll: str, size: int, **values: Any) -> dict[str, Any]:
    """An object of NCCL Inspector, as its README shows it."""
    return {
        "header": {"id": "0x9e7a479f95a66c", "rank": rank, "n_ranks": 2, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "hostname": "a", "pid": 7},
        "coll_perf": {"coll": coll, "coll_sn": number, "coll_msg_size_bytes": size,
                      "coll_exec_time_us": 110 + rank * 20, "coll_timing_source": "kernel_gpu"},
    } | values  # fmt: skip


def node(number: int, name: str, attributes: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    """A node of a Chakra trace."""
    attrs = [{"name": key, "type": "string", "value": value} for key, value in attributes.items()]
    parent = inputs.pop("parent", 2)
    inputs = {"values": [], "shapes": [], "types": []} | inputs
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs, "attrs": attrs}


CHAKRA = {
    "schema": "1.1.1-chakra.0.0.4", "pid": 5, "start_ts": 1,
    "nodes": [
        node(3, "## process_group:init ##", {}, values=[json.dumps([
            {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4},
            {"pg_name": "3", "pg_desc": "mesh_tp", "ranks": [2, 3], "group_size": 2},
        ])]),
        node(10, "c10d::allreduce_", {}, shapes=[[[100]], [], [], [], [], []],
             types=["GenericList[Tensor(float)]"], values=[[], "", "", "", True, -1]),
        node(11, "record_param_comms", {
            "collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 100,
            "out_msg_nelems": 100, "pg_name": "3", "pg_size": 2, "global_rank_start": 2,
            "global_rank_stride": 1}, parent=10, values=[[], [41, False]]),
        node(20, "record_param_comms", {"collective_name": "wait", "pg_name": "3"}),
        node(30, "record_param_comms", {
            "collective_name": "all_to_allv", "dtype": "BFloat16", "in_msg_nelems": 40,
            "out_msg_nelems": 60, "in_split_size": "[1, 3]", "out_split_size": "[2, 4]",
            "pg_name": "3", "pg_size": 2}),
    ],
}  # fmt: skip
