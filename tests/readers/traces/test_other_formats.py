"""Flight recorders, Chakra and NCCL Inspector: what their files say, and what they cannot say."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import real_trace
from synthetic_traces import CHAKRA, DUMP, ENTRIES, inspected, node

from commbench.errors import RecordsError, UsageError
from commbench.readers.trace_base import RankTrace
from commbench.readers.trace_formats import TRACES, read_trace, read_traces
from commbench.workloads.trace import analyse_traces


def read(path: Path, content: Any) -> RankTrace:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_trace(path)


@pytest.mark.parametrize("kind", ["pickle 2", "pickle 4", "JSON"])
def test_a_flight_recorder_has_calls_groups_and_numbers(kind: str, tmp_path: Path) -> None:
    content = DUMP if kind == "JSON" else pickle.dumps(DUMP, int(kind[-1]))
    trace = read(tmp_path / "nccl_trace_rank_2", content)
    assert (trace.rank, trace.world_size, trace.backend) == (2, 4, "nccl")
    assert trace.groups["3"].ranks == (2, 3)
    assert [(c.operation, c.size_bytes, c.sequence, c.tensors) for c in trace.calls] == [
        ("all_reduce", 64, 1, 1), ("all_gather", 64, 2, 1), ("reduce_scatter", 128, 3, 1),
        ("send", 20, 1, 1), ("all_reduce", 24, 5, 2), ("all_to_all", 12, 6, 1),
    ]  # fmt: skip
    assert {c.group for c in trace.calls} == {"3"}
    assert trace.calls[3].peer == 1
    assert trace.calls[0].time_s == pytest.approx(250e-6)
    assert any("1 calls had not ended" in note for note in trace.notes)
    assert any("1 entries are damaged" in note for note in trace.notes)


def test_damaged_entries_of_a_dump_are_counted(tmp_path: Path) -> None:
    text = json.dumps(DUMP).replace('"collective_seq_id": 2', '"collective_seq_id"; 2')
    trace = read(tmp_path / "rank_2.json", text.encode())
    assert len(trace.calls) == 5
    assert "1 records are damaged and were left out" in trace.notes


def test_waiting_is_found_by_the_numbers_of_a_flight_recorder(tmp_path: Path) -> None:
    later = [one | {"duration_ms": 0.75} for one in ENTRIES[2:3]]
    for rank, entries in ((2, ENTRIES[1:3]), (3, later)):
        read(tmp_path / f"rank_{rank}", pickle.dumps(DUMP | {"entries": entries}))
    analysis = analyse_traces(read_traces([tmp_path]))
    (waiting, _) = analysis.waits
    assert (waiting.rank, waiting.for_rank) == (3, 2)
    assert waiting.waiting_s == pytest.approx(0.5e-3)
    assert analysis.sets.sets["tp"] == ((0, 1), (2, 3))
    assert analysis.sets.completed == ("tp",)


def test_a_chakra_trace_has_the_order_of_calls_and_no_times(tmp_path: Path) -> None:
    trace = read(tmp_path / "et_rank2.json", CHAKRA)
    assert (trace.rank, trace.world_size) == (2, 4)
    first, second = trace.calls
    assert (first.operation, first.size_bytes, first.group) == ("all_reduce", 400, "3")
    assert (first.sequence, first.asynchronous) == (41, True)
    assert (second.operation, second.send_splits) == ("all_to_all_v", (10, 30))
    analysis = analyse_traces([trace])
    assert analysis.step_s is None
    assert [call.start_s for call in analysis.calls] == [None, None]


def test_a_chakra_call_that_names_no_group_is_in_the_only_one(tmp_path: Path) -> None:
    shapes = {"shapes": [[[7]]], "types": ["GenericList[Tensor(float)]"]}
    gather = {"shapes": [[], [[25]]], "types": ["", "GenericList[Tensor(float)]"]}
    nodes = [*CHAKRA["nodes"][:1], node(10, "c10d::allreduce_", {}, **shapes),
             node(12, "c10d::allgather_", {}, **gather)]  # fmt: skip
    assert [c.group for c in read(tmp_path / "a", CHAKRA | {"nodes": nodes}).calls] == ["", ""]
    whole = node(3, "## process_group:init ##", {}, values=[json.dumps([
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4}])])  # fmt: skip
    trace = read(tmp_path / "b", CHAKRA | {"nodes": [whole, *nodes[1:]]})
    assert [(c.group, c.size_bytes) for c in trace.calls] == [("0", 28), ("0", 400)]
    assert trace.groups["0"].ranks == (0, 1, 2, 3)


def test_inspector_sizes_of_blocks_become_sizes_of_all_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        found = [inspected(rank, 1, "AllReduce", 1000), inspected(rank, 2, "ReduceScatter", 65536),
                 inspected(rank, 3, "AllGather", 500), {"header": {}}]  # fmt: skip
        lines = "\n".join(json.dumps(one, indent=rank or None) for one in found)
        (tmp_path / f"host-{rank}.log.gz").write_bytes(gzip.compress(lines.encode()))
    analysis = analyse_traces(read_traces([tmp_path]))
    sizes = {row.operation: row.size_bytes for row in analysis.totals}
    assert sizes == {"all_reduce": 1000, "reduce_scatter": 131072, "all_gather": 1000}
    assert analysis.totals[0].transfer_s == pytest.approx(110e-6)
    assert [w.rank for w in analysis.waits if w.waiting_s] == [1]
    assert any("1 objects are no collectives" in note for note in analysis.workload.notes)


def test_each_file_has_one_format() -> None:
    starts = [real_trace.small_text()[:4000], json.dumps(DUMP), json.dumps(CHAKRA),
              json.dumps(inspected(0, 1, "AllReduce", 1))]  # fmt: skip
    for start, name in zip(starts, TRACES, strict=True):
        assert [f.name for f in TRACES.values() if f.starts.match(start)] == [name]


def test_traces_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    read(tmp_path / "a_rank0.json", DUMP)
    read(tmp_path / "b_rank0.json", DUMP)
    with pytest.raises(UsageError, match="both of rank 0"):
        read_traces([tmp_path])
    read(tmp_path / "c_rank1.json", CHAKRA)
    with pytest.raises(UsageError, match="of different formats: Chakra and flight recorder"):
        read_traces([tmp_path / "a_rank0.json", tmp_path / "c_rank1.json"])
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(RecordsError, match="has no traces"):
        read_traces([empty])


@pytest.mark.parametrize(
    "content",
    [pickle.dumps([1]), pickle.dumps({"entries": []}), pickle.dumps({"entries": [1, {}]}),
     {"version": "2.10", "entries": 7}, {"schema": "1.1.1-chakra.0.0.4", "nodes": [{}]},
     {"header": {"id": 1}}, b"\x80\x04"],
)  # fmt: skip
def test_files_without_calls_are_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordsError):
        read(tmp_path / "a", content)
