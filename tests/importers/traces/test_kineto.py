"""Traces of torch.profiler: a real one of NCCL, older and poorer ones made of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import real_trace

from commbench.analysis.trace import TraceAnalysis, analyse_traces
from commbench.analysis.trace_steps import WHOLE_TRACE
from commbench.errors import RecordsError
from commbench.importers.traces.base import RankTrace
from commbench.importers.traces.registry import read_trace
from commbench.report.workload_text import trace_text
from commbench.spec.workload import UNKNOWN_GROUP

Event = dict[str, Any]
METADATA = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size",
            "Process Group Name", "Process Group Ranks", "Process Group Description",
            "Global rank start", "Global rank stride")  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> RankTrace:
    return read_trace(real_trace.PATH)


def read(tmp_path: Path, text: str, name: str = "rank0.json") -> RankTrace:
    (path := tmp_path / name).write_text(text)
    return read_trace(path)


def analyse(tmp_path: Path, text: str) -> TraceAnalysis:
    return analyse_traces([read(tmp_path, text)])


def without(*names: str) -> Any:
    def change(event: Event) -> Event:
        return event | {"args": {k: v for k, v in event.get("args", {}).items() if k not in names}}

    return change


def test_the_buckets_of_resnet_50_are_found_in_their_order(whole: RankTrace) -> None:
    reduced = [call.size_bytes for call in whole.calls if call.operation == "all_reduce"]
    assert reduced == 3 * real_trace.SIZES
    assert sum(real_trace.SIZES) == 4 * 25_557_032
    assert [call.size_bytes for call in whole.calls if call.operation == "broadcast"] == 3 * [
        4 * 53_120, 8 * 53,
    ]  # fmt: skip
    assert {call.operation for call in whole.calls} == {"all_reduce", "broadcast"}


def test_each_call_has_its_kernel_its_group_and_its_type(whole: RankTrace) -> None:
    assert (whole.rank, whole.world_size, whole.backend) == (0, 2, "nccl")
    assert whole.groups["0"].ranks == (0, 1)
    for call in whole.calls:
        assert call.group == "0"
        assert call.dtype == ("int64" if call.size_bytes == 424 else "float32")
        assert call.reduce_op == ("sum" if call.operation == "all_reduce" else "")
        assert call.start_s is not None and call.time_s is not None and call.ready_s is not None
        assert 0 < call.start_s - call.ready_s < 1e-3
    assert whole.calls[2].time_s == pytest.approx(3306.963e-6, rel=1e-3)


def test_steps_and_the_overlap_with_kernels_are_found(whole: RankTrace) -> None:
    analysis = analyse_traces([whole])
    assert analysis.steps == ("ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6")
    assert analysis.step_s == pytest.approx(0.222442, rel=1e-4)
    assert whole.has_kernels and analysis.overlap
    assert analysis.overlap.communication_s == pytest.approx(12.3000e-3, rel=1e-3)
    assert analysis.overlap.hidden_s == pytest.approx(1.7604e-3, rel=1e-2)
    reduced = analysis.totals[0]
    assert (reduced.group, reduced.ranks, reduced.calls) == ("world", 2, 5)
    assert reduced.busbw == pytest.approx(sum(real_trace.SIZES) / reduced.time_s)  # type: ignore[operator]
    assert reduced.waiting_s is None
    assert "only rank 0 of 2 was traced" in analysis.notes[0]


def test_the_steps_are_one_step_of_the_workload_and_all_ranks_make_it(whole: RankTrace) -> None:
    workload = analyse_traces([whole]).workload
    (step,) = workload.steps
    (program,) = step.programs
    assert (step.count, program.ranks) == (3, (0, 1))
    assert [call.size_bytes for call in program.calls][2:] == real_trace.SIZES
    assert "ranks without a trace are taken to make the same calls" in workload.notes


def test_an_older_trace_has_sizes_where_shapes_were_recorded(tmp_path: Path) -> None:
    def older(event: Event) -> Event:
        found = without(*METADATA)(event)
        if event["name"].startswith("nccl:") and event.get("cat") == "user_annotation":
            found["args"] |= {"Input Dims": [[1000]], "Input type": ["float"]}
        return found

    analysis = analyse(tmp_path, real_trace.changed(older, distributedInfo=None))
    assert len(analysis.calls) == 21
    assert {one.call.size_bytes for one in analysis.calls} == {4000}
    assert all(one.call.time_s for one in analysis.calls)
    assert any("do not say their group" in note for note in analysis.notes)


def test_a_trace_without_shapes_says_so(tmp_path: Path) -> None:
    analysis = analyse(tmp_path, real_trace.changed(without(*METADATA), distributedInfo=None))
    assert len(analysis.calls) == 21
    assert {row.size_bytes for row in analysis.totals} == {None}
    assert any("21 of 21 calls have no size: profile with record_shapes=True" in note
               for note in analysis.notes)  # fmt: skip


def test_a_trace_of_kernels_alone_has_their_calls(tmp_path: Path) -> None:
    text = real_trace.changed(lambda event: event if event.get("cat") == "kernel" else None)
    trace = read(tmp_path, text)
    found = [call.size_bytes for call in trace.calls if call.operation == "all_reduce"]
    assert found == 3 * real_trace.SIZES
    analysis = analyse_traces([trace])
    assert any("marks no steps" in note for note in analysis.notes)


def test_kernels_without_any_record_have_their_operation_and_their_time(tmp_path: Path) -> None:
    """As those of CUDA graphs and of libraries that call NCCL themselves."""

    def kernels(event: Event) -> Event | None:
        return without("External id", *METADATA)(event) if event.get("cat") == "kernel" else None

    analysis = analyse(tmp_path, real_trace.changed(kernels))
    assert [(row.operation, row.calls, row.size_bytes) for row in analysis.totals] == [
        ("all_reduce", 15, None), ("broadcast", 6, None),
    ]  # fmt: skip
    assert analysis.totals[0].time_s == pytest.approx(3 * 15.587e-3, rel=1e-3)
    assert any("21 communication kernels have no record" in note for note in analysis.notes)
    assert {one.call.group for one in analysis.calls} == {UNKNOWN_GROUP}


def test_a_trace_of_the_host_alone_has_no_times(tmp_path: Path) -> None:
    text = real_trace.changed(lambda event: event if event.get("cat") != "kernel" else None)
    analysis = analyse(tmp_path, text)
    assert {row.time_s for row in analysis.totals} == {None}
    assert any("21 of 21 calls have no time" in note for note in analysis.notes)


def test_a_cut_trace_gives_the_calls_before_the_cut_and_says_so(tmp_path: Path) -> None:
    text = real_trace.small_text()
    analysis = analyse(tmp_path, text[: len(text) * 2 // 3])
    assert analysis.steps == ("ProfilerStep#4", "ProfilerStep#5")
    assert len(analysis.calls) == 14
    assert analysis.overlap is None
    cut = "rank0.json ends early, in ProfilerStep#6: this step is left out; 5 of 14 calls lack a "
    assert f"{cut}size, a time or a group, which the rest of the file may have" in analysis.notes
    assert "7 calls are left out: no whole step of all ranks has them" in analysis.notes


def test_each_cut_of_a_trace_divides_by_its_whole_steps(tmp_path: Path) -> None:
    """Each whole step has 5 all_reduces and 2 broadcasts, wherever the file ends."""
    text = real_trace.small_text()
    marks = [match.start() for match in re.finditer('"ProfilerStep#', text)]
    found = set()
    for end in (*(mark + 200 for mark in marks), *(len(text) * n // 20 for n in range(8, 20))):
        analysis = analyse(tmp_path, text[:end])
        found.add(len(analysis.steps))
        if analysis.steps != (WHOLE_TRACE,):
            totals = {row.operation: row.calls for row in analysis.totals}
            assert totals == {"all_reduce": 5, "broadcast": 2}
            assert len(analysis.workload.steps) == 1
            assert analysis.workload.steps[0].count == len(analysis.steps) < 3
    assert found == {1, 2}


def test_a_trace_that_ends_in_its_first_step_says_so(tmp_path: Path) -> None:
    text = real_trace.small_text()
    analysis = analyse(tmp_path, text[: text.index('"ProfilerStep#5')])
    assert analysis.steps == (WHOLE_TRACE,)
    cut = "rank0.json ends early, in ProfilerStep#4, and has no whole step"
    assert any(note.startswith(cut) for note in analysis.notes)
    assert "no steps" in trace_text(analysis).splitlines()[0]


def test_a_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    events = json.loads(real_trace.small_text())["traceEvents"]
    assert len(read(tmp_path, json.dumps(events)).calls) == 21


def test_a_kernel_of_several_calls_is_shared_by_them(tmp_path: Path) -> None:
    """A batch of sends and receives, as pipelines make them: one kernel, without metadata."""

    def call(name: str, start: float, peer: int) -> Event:
        args = {"Collective name": name, "In msg nelems": 64, "Out msg nelems": 64,
                "dtype": "BFloat16", "Group size": 4, "Process Group Name": "7",
                "Process Group Description": "mesh_pp", "Process Group Ranks": "[0, 2, 4, 6]",
                "Rank": peer, "External id": start}  # fmt: skip
        return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1,
                "ts": start, "dur": 5, "args": args}  # fmt: skip

    kernel = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv(ncclDevKernelArgs)",
              "pid": 0, "tid": 20, "ts": 40, "dur": 100, "args": {"External id": 99}}  # fmt: skip
    events = [call("send", 10, 2), call("recv", 20, 0), kernel]
    trace = read(tmp_path, json.dumps({"traceEvents": events}))
    assert [(c.operation, c.peer, c.size_bytes) for c in trace.calls] == [
        ("send", 2, 128), ("recv", 0, 128),
    ]  # fmt: skip
    assert [c.time_s for c in trace.calls] == [pytest.approx(50e-6)] * 2
    assert trace.groups["7"].ranks == (0, 2, 4, 6)


@pytest.mark.parametrize("names_its_group", [True, False])
def test_a_call_of_gloo_has_its_transfer_whether_or_not_it_names_its_group(
    tmp_path: Path, names_its_group: bool
) -> None:
    base = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op"}
    shapes = {"Input Dims": [[[100]]], "Input type": ["TensorList"], "Concrete Inputs": ["True"]}
    events = [
        base | {"name": "c10d::allreduce_", "ts": 10, "dur": 9, "args": shapes},
        base | {"name": "gloo:all_reduce", "cat": "user_annotation", "tid": 5, "ts": 15, "dur": 40,
                "args": {"Input Dims": [[100]], "Input type": ["float"]}},
    ]  # fmt: skip
    if names_its_group:
        record = {"Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100,
                  "dtype": "Float", "Process Group Name": "3", "Group size": 2}  # fmt: skip
        events.append(base | {"name": "record_param_comms", "ts": 11, "dur": 5, "args": record})
    groups = [{"pg_name": n, "pg_size": 2, "ranks": [0, 1]} for n in ("0", "3")]
    info = {"rank": 0, "world_size": 2, "backend": "gloo", "pg_config": groups}
    text = json.dumps({"traceEvents": events, "distributedInfo": info})
    (call,) = read(tmp_path, text).calls
    assert (call.size_bytes, call.dtype, call.asynchronous) == (400, "float32", True)
    assert (call.time_s, call.start_s) == (pytest.approx(40e-6), pytest.approx(15e-6))
    assert call.group == ("3" if names_its_group else "")


def test_splits_in_rows_become_elements_and_a_wait_finds_its_call(tmp_path: Path) -> None:
    record = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1}
    group = {"Process Group Name": "0", "Group size": 2, "Global rank start": 0,
             "Global rank stride": 1, "Seq": 3}  # fmt: skip
    call = group | {"Collective name": "all_to_allv", "In msg nelems": 40, "Out msg nelems": 60,
                    "dtype": "Half", "In split size": "[1, 3]", "Out split size": "[2, 4]",
                    "Is asynchronized op": True}  # fmt: skip
    events = [
        record | {"ts": 10, "dur": 5, "args": call},
        record | {"ts": 30, "dur": 5, "args": group | {"Collective name": "wait"}},
    ]
    (found,) = read(tmp_path, json.dumps({"traceEvents": events})).calls
    assert (found.operation, found.size_bytes) == ("all_to_all_v", 80)
    assert (found.send_splits, found.receive_splits) == ((10, 30), (20, 40))
    assert found.asynchronous and found.waited_s == pytest.approx(30e-6)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"traceEvents": []}', '{"traceEvents": 7}', '{"schemaVersion": 1}',
     '{"traceEvents": [7, "x", null]}', "\x1f\x8bx", "not a trace", '{"a": 1}'],
)  # fmt: skip
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecordsError):
        read(tmp_path, text)


def test_events_of_any_values_do_no_harm(tmp_path: Path) -> None:
    odd: list[Any] = [None, -1, 1e400, "x" * 1000, [], {}, [[[]]], True, 2**70, "[0, 1", "[-1]"]
    fields = [*METADATA, "Seq", "In split size", "Rank", "External id", "Src Rank"]
    events = []
    for number, (field, value) in enumerate((f, v) for f in fields for v in odd):
        base = {"Collective name": "all_to_allv", "In msg nelems": 4, "Out msg nelems": 4,
                "dtype": "Float", "Process Group Name": "0", "Group size": 2}  # fmt: skip
        for name in ("record_param_comms", "nccl:x", "c10d::alltoall_base_"):
            events.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": value,
                           "ts": number * 10, "dur": 5, "args": base | {field: value}})  # fmt: skip
    for key in ("ts", "dur", "cat", "name", "args", "pid"):
        events += [events[0] | {key: value} for value in odd]
    text = json.dumps({"traceEvents": events, "distributedInfo": {"rank": 2**60, "pg_config": 7}})
    analysis = analyse(tmp_path, text)
    assert analysis.world_size < 100


@pytest.mark.parametrize("bad", [-1, None, "5", 1e300])
def test_calls_without_a_valid_duration_are_counted_as_left_out(
    tmp_path: Path, whole: RankTrace, bad: Any
) -> None:
    records = 0

    def change(event: Event) -> Event:
        nonlocal records
        is_record = event.get("name") == "record_param_comms"
        records += is_record
        return event | ({"dur": bad} if is_record and records <= 3 else {})

    trace = read(tmp_path, real_trace.changed(change))
    assert records > 3
    why = "their `ts` or `dur` is missing, below 0 or too long"
    assert f"3 events of calls or steps were left out: {why}" in trace.notes
    assert not any("left out" in note for note in whole.notes)


@pytest.mark.parametrize("ranks", [[0, 99999999999], "[0, 99999999999]"])
def test_a_group_with_a_rank_that_no_job_has_is_not_the_world(tmp_path: Path, ranks: Any) -> None:
    record = {"Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100,
              "dtype": "Float", "Process Group Name": "3", "Group size": 2}  # fmt: skip
    events = [{"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": "record_param_comms",
               "ts": 11, "dur": 5, "args": record}]  # fmt: skip
    groups = [{"pg_name": "3", "pg_size": 2, "ranks": ranks}]
    info = {"rank": 0, "world_size": 2, "backend": "nccl", "pg_config": groups}
    analysis = analyse(tmp_path, json.dumps({"traceEvents": events, "distributedInfo": info}))
    assert len(analysis.calls) == 1
    assert {call.call.group for call in analysis.calls} == {UNKNOWN_GROUP}
    notes = " ".join(analysis.notes)
    assert "no job has the ranks of these groups, which are left out: 3 (rank 99999999999)" in notes
