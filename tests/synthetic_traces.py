"""Small files of flight recorders, Chakra and NCCL Inspector, made by hand with their fields: those
whose workloads tests/golden shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILES = Path(__file__).parent / "golden" / "data" / "files"
CHAKRA: dict[str, Any] = json.loads((_FILES / "chakra_rank2.json").read_text())
DUMP: dict[str, Any] = json.loads((_FILES / "flight_recorder_rank_2.json").read_text())
ENTRIES: list[dict[str, Any]] = DUMP["entries"]
"""With the fields of FlightRecorderDetail.hpp."""
for _entry in ENTRIES:  # as in the pickle that torch writes
    _entry["process_group"] = tuple(_entry["process_group"])


def inspected(rank: int, number: int, coll: str, size: int, **values: Any) -> dict[str, Any]:
    """An object of NCCL Inspector, as its README shows it."""
    return {
        "header": {"id": "0x9e7a479f95a66c", "rank": rank, "n_ranks": 2, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "hostname": "a", "pid": 7},
        "coll_perf": {"coll": coll, "coll_sn": number, "coll_msg_size_bytes": size,
                      "coll_exec_time_us": 110 + rank * 20, "coll_timing_source": "kernel_gpu"},
    } | values  # fmt: skip


def node(number: int, name: str, **inputs: Any) -> dict[str, Any]:
    """A node of a Chakra trace."""
    inputs = {"values": [], "shapes": [], "types": []} | inputs
    return {"id": number, "name": name, "ctrl_deps": 2, "inputs": inputs, "attrs": []}
