"""Flight recorders, Chakra and NCCL Inspector, beside what tests/golden shows of their files."""

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


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_of_a_flight_recorder_says_what_its_json_says(
    protocol: int, tmp_path: Path
) -> None:
    trace = read(tmp_path / "nccl_trace_rank_2", pickle.dumps(DUMP, protocol))
    path = tmp_path / "rank_2.json"
    assert trace == read(path, DUMP)._replace(path=trace.path)
    found = [(call.sequence, call.tensors) for call in trace.calls]
    assert found == [(1, 1), (2, 1), (3, 1), (1, 1), (5, 2), (6, 1)]


def test_damaged_entries_of_a_dump_are_counted(tmp_path: Path) -> None:
    text = json.dumps(DUMP).replace('"collective_seq_id": 2', '"collective_seq_id"; 2')
    trace = read(tmp_path / "rank_2.json", text.encode())
    assert len(trace.calls) == 5
    assert "left out 1 damaged record" in trace.notes


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


def test_a_chakra_record_has_its_number_and_whether_it_is_awaited(tmp_path: Path) -> None:
    first, second = read(tmp_path / "et_rank2.json", CHAKRA).calls
    assert (first.sequence, first.asynchronous) == (41, True)
    assert (second.start_s, second.ready_s) == (None, None)


def test_a_chakra_call_that_names_no_group_is_in_the_only_one(tmp_path: Path) -> None:
    shapes = {"shapes": [[[7]]], "types": ["GenericList[Tensor(float)]"]}
    gather = {"shapes": [[], [[25]]], "types": ["", "GenericList[Tensor(float)]"]}
    nodes = [*CHAKRA["nodes"][:1], node(10, "c10d::allreduce_", **shapes),
             node(12, "c10d::allgather_", **gather)]  # fmt: skip
    assert [c.group for c in read(tmp_path / "a", CHAKRA | {"nodes": nodes}).calls] == ["", ""]
    whole = node(3, "## process_group:init ##", values=[json.dumps([
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4}])])  # fmt: skip
    trace = read(tmp_path / "b", CHAKRA | {"nodes": [whole, *nodes[1:]]})
    assert [(c.group, c.size_bytes) for c in trace.calls] == [("0", 28), ("0", 400)]
    assert trace.groups["0"].ranks == (0, 1, 2, 3)


def test_objects_of_inspector_may_take_several_lines_and_be_compressed(tmp_path: Path) -> None:
    found = [inspected(0, 2, "ReduceScatter", 65536), {"header": {}}]
    lines = "\n".join(json.dumps(one, indent=1) for one in found)
    trace = read(tmp_path / "host-0.log.gz", gzip.compress(lines.encode()))
    assert [call.size_bytes for call in trace.calls] == [131072]
    assert any("left out 1 object: no collective" in note for note in trace.notes)


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
     {"header": {"id": 1}}, b"\x80\x04", {}, [], {"traceEvents": []}, {"traceEvents": 7},
     {"schemaVersion": 1}, {"traceEvents": [7, "x", None]}, {"a": 1}, b"", b"{", b"\x1f\x8bx",
     b"not a trace"],
)  # fmt: skip
def test_files_without_calls_are_refused(content: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordsError):
        read(tmp_path / "a", content)
