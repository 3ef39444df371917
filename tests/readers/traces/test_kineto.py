"""Traces of torch.profiler: a real one of NCCL, older and poorer ones made of it, and what events
say of a call, form by form."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import real_trace

from commbench.plan.dtypes import REDUCE_OPS
from commbench.plan.workload import UNKNOWN_GROUP, Call
from commbench.readers.trace_base import RankTrace
from commbench.readers.trace_formats import read_trace
from commbench.workloads.trace import TraceAnalysis, analyse_traces
from commbench.workloads.trace_steps import WHOLE_TRACE

Event = dict[str, Any]
T = "TensorList"
RECORD = {"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 2,
          "dtype": "BFloat16", "Process Group Name": "5", "Group size": 2}  # fmt: skip
METADATA = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size",
            "Process Group Name", "Process Group Ranks", "Process Group Description",
            "Global rank start", "Global rank stride")  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> RankTrace:
    return read_trace(real_trace.PATH)


def read(tmp_path: Path, text: str) -> RankTrace:
    (path := tmp_path / "rank0.json").write_text(text)
    return read_trace(path)


def analyse(tmp_path: Path, text: str) -> TraceAnalysis:
    return analyse_traces([read(tmp_path, text)])


def without(*names: str) -> Any:
    def change(event: Event) -> Event:
        return event | {"args": {k: v for k, v in event.get("args", {}).items() if k not in names}}

    return change


def event(name: str, start: int, args: Event, **fields: Any) -> Event:
    base = {"ph": "X", "cat": "cpu_op", "pid": 100, "tid": 100, "ts": start, "dur": 5}
    return base | {"name": name, "args": args} | fields


def operator(name: str, start: int, shapes: Any, types: Any, values: Any = ()) -> Event:
    args = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}
    return event(f"c10d::{name}", start, args)


def transfer(name: str, start: int, elements: int, **fields: Any) -> Event:
    args = {"Input Dims": [[elements]], "Input type": ["float"]}
    return event(f"gloo:{name}", start, args, cat="user_annotation", **fields)


def recorded(start: int, **args: Any) -> Event:
    return event("record_param_comms", start, RECORD | args)


def read_all(folder: Path, *events: Event, groups: Event | None = None) -> RankTrace:
    config = [{"pg_name": name, "ranks": ranks} for name, ranks in (groups or {}).items()]
    info = {"rank": 0, "world_size": 4, "pg_config": config}
    values = {"traceEvents": [event("aten::add", 1, {}), *events], "distributedInfo": info}
    return read(folder, json.dumps(values))


def record(folder: Path, groups: Event | None = None, **args: Any) -> Call:
    """The call that a record of a backend with these arguments describes."""
    (call,) = read_all(folder, recorded(10, **args), groups=groups).calls
    return call


def test_the_buckets_of_resnet_50_are_found_in_their_order(whole: RankTrace) -> None:
    assert [(call.operation, call.size_bytes) for call in whole.calls] == 3 * [
        ("broadcast", 4 * 53_120), ("broadcast", 8 * 53),
        *(("all_reduce", size) for size in real_trace.SIZES),
    ]  # fmt: skip
    assert sum(real_trace.SIZES) == 4 * 25_557_032


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


def test_an_older_trace_has_sizes_where_shapes_were_recorded(tmp_path: Path) -> None:
    def older(event: Event) -> Event:
        found = without(*METADATA)(event)
        if event["name"].startswith("nccl:") and event.get("cat") == "user_annotation":
            found["args"] |= {"Input Dims": [[1000]], "Input type": ["float"]}
        return found

    analysis = analyse(tmp_path, real_trace.changed(older, distributedInfo=None))
    assert len(analysis.calls) == 21
    assert {one.size_bytes for one in analysis.calls} == {4000}
    assert all(one.time_s for one in analysis.calls)
    assert any("this trace names no groups" in note for note in analysis.workload.notes)


@pytest.mark.parametrize(
    ("change", "facts", "note"),
    [
        (without(*METADATA), {"distributedInfo": None},
         "21 of 21 calls have no size: profile with record_shapes=True"),
        (lambda event: event if event.get("cat") != "kernel" else None, {},
         "21 of 21 calls have no time"),
    ],
)  # fmt: skip
def test_what_calls_lack_is_said(
    change: Any, facts: dict[str, Any], note: str, tmp_path: Path
) -> None:
    """A trace without shapes, and one of the host alone."""
    analysis = analyse(tmp_path, real_trace.changed(change, **facts))
    assert any(note in each for each in analysis.workload.notes)
    (row, *_) = analysis.totals
    assert (row.size_bytes if "size" in note else row.time_s) is None


def test_a_trace_of_kernels_alone_has_their_calls(tmp_path: Path) -> None:
    text = real_trace.changed(lambda event: event if event.get("cat") == "kernel" else None)
    trace = read(tmp_path, text)
    found = [call.size_bytes for call in trace.calls if call.operation == "all_reduce"]
    assert found == 3 * real_trace.SIZES
    assert any("marks no steps" in note for note in trace.notes)


def test_kernels_without_any_record_have_their_operation_and_their_time(tmp_path: Path) -> None:
    """As those of CUDA graphs and of libraries that call NCCL themselves."""

    def kernels(event: Event) -> Event | None:
        return without("External id", *METADATA)(event) if event.get("cat") == "kernel" else None

    analysis = analyse(tmp_path, real_trace.changed(kernels))
    assert [(row.operation, row.calls, row.size_bytes) for row in analysis.totals] == [
        ("all_reduce", 15, None), ("broadcast", 6, None),
    ]  # fmt: skip
    assert analysis.totals[0].time_s == pytest.approx(3 * 15.587e-3, rel=1e-3)
    assert any(
        "21 communication kernels have no record" in note for note in analysis.workload.notes
    )
    assert {one.group for one in analysis.calls} == {UNKNOWN_GROUP}


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


def test_a_trace_that_ends_in_its_first_step_has_none(tmp_path: Path) -> None:
    text = real_trace.small_text()
    analysis = analyse(tmp_path, text[: text.index('"ProfilerStep#5')])
    assert analysis.steps == (WHOLE_TRACE,)
    cut = "rank0.json ends early, in ProfilerStep#4: this step is left out; "
    assert any(note.startswith(cut) for note in analysis.workload.notes)


def test_a_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    events = json.loads(real_trace.small_text())["traceEvents"]
    assert len(read(tmp_path, json.dumps(events)).calls) == 21


def test_a_kernel_of_several_calls_is_shared_by_them(tmp_path: Path) -> None:
    """A batch of sends and receives, as pipelines make them: one kernel, without metadata."""
    calls = [
        recorded(start, **{"Collective name": name, "Out msg nelems": 64, "Group size": 4,
                           "Rank": peer, "External id": start})
        for name, start, peer in (("send", 10, 2), ("recv", 20, 0))
    ]  # fmt: skip
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgs)"
    kernel = event(name, 40, {"External id": 99}, cat="kernel", dur=100)
    found = read_all(tmp_path, *calls, kernel).calls
    assert [(c.operation, c.peer, c.size_bytes) for c in found] == [
        ("send", 2, 128), ("recv", 0, 128),
    ]  # fmt: skip
    assert [c.time_s for c in found] == pytest.approx([50e-6] * 2)


@pytest.mark.parametrize("names_its_group", [True, False])
def test_a_call_of_gloo_has_its_transfer(tmp_path: Path, names_its_group: bool) -> None:
    events = [
        operator("allreduce_", 10, [[[100]]], [T], ["True"]) | {"dur": 9},
        transfer("all_reduce", 15, 100, tid=5, dur=40),
    ]
    if names_its_group:
        args = {"In msg nelems": 100, "dtype": "Float", "Process Group Name": "3"}
        events.append(recorded(11, **args))
    (call,) = read_all(tmp_path, *events, groups={"0": [0, 1], "3": [0, 1]}).calls
    assert (call.size_bytes, call.dtype, call.asynchronous) == (400, "float32", True)
    assert (call.time_s, call.start_s) == pytest.approx((40e-6, 15e-6))
    assert call.group == ("3" if names_its_group else "")


def test_splits_in_rows_become_elements_and_a_wait_finds_its_call(tmp_path: Path) -> None:
    splits = {"Collective name": "all_to_allv", "In msg nelems": 40, "Out msg nelems": 60,
              "In split size": "[1, 3]", "Out split size": "[2, 4]", "Is asynchronized op": True,
              "Seq": 3}  # fmt: skip
    wait = recorded(30, **{"Collective name": "wait", "Seq": 3})
    (found,) = read_all(tmp_path, recorded(10, **splits), wait).calls
    assert (found.operation, found.size_bytes) == ("all_to_all_v", 80)
    assert (found.send_splits, found.receive_splits) == ((10, 30), (20, 40))
    assert found.asynchronous and found.waited_s == pytest.approx(30e-6)


@pytest.mark.parametrize("ranks", [[0, 99999999999], "[0, 99999999999]"])
def test_a_group_with_a_rank_that_no_job_has_is_not_the_world(tmp_path: Path, ranks: Any) -> None:
    analysis = analyse_traces([read_all(tmp_path, recorded(11), groups={"5": ranks})])
    assert [call.group for call in analysis.calls] == [UNKNOWN_GROUP]


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
    name: str, shapes: list[Any], types: list[str], values: list[Any], expected: dict[str, Any],
    tmp_path: Path,
) -> None:  # fmt: skip
    (call,) = read_all(tmp_path, operator(name, 10, shapes, types, values)).calls
    assert {key: getattr(call, key) for key in expected} == expected


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [[None]], [[-1]], [[[2**70]]], [[1e9]]])
def test_odd_arguments_of_an_operator_do_no_harm(odd: Any, tmp_path: Path) -> None:
    names = [name for name, *_ in OPERATORS]
    made = [operator(name, 10 * n, odd, odd, odd) for n, name in enumerate([*names, "unheard_of"])]
    trace = read_all(tmp_path, *made)
    assert {call.size_bytes for call in trace.calls} <= {None, 0}
    assert "left out calls that commbench has no operation for: c10d::unheard_of" in trace.notes


def test_a_record_tells_its_group_also_where_its_ranks_are_cut(tmp_path: Path) -> None:
    args = {"Collective name": "_reduce_scatter_base", "Process Group Description": "mesh_dp",
            "Process Group Ranks": "[0, 2, 4, ...]", "Group size": 32, "Global rank start": 0,
            "Global rank stride": 2, "Seq": 9, "Is asynchronized op": 1}  # fmt: skip
    trace = read_all(tmp_path, recorded(10, **args))
    (call,) = trace.calls
    assert (call.operation, call.size_bytes, call.sequence) == ("reduce_scatter", 128, 9)
    assert call.asynchronous is True
    assert trace.groups["5"] == (tuple(range(0, 64, 2)), "mesh_dp", 32)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [([0, 2], (0, 2)), ("[0, 2]", (0, 2)), ("[0, 99999999999]", (0, 99999999999)),
     *((wrong, ()) for wrong in ("[0, 1, ...]", "[0, 0]", "[]", "", None, [-1], [2**70], "[1"))],
)  # fmt: skip
def test_ranks_are_lists_or_whole_texts(text: Any, ranks: tuple[int, ...], tmp_path: Path) -> None:
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
     ("ncclDevKernel_AllReduce_Prod_f32_RING_LL(x)", "prod"),
     ("ncclKernel_AllReduce_RING_LL_Max_f", "max"), ("ncclKernel_Broadcast_RING_LL_Sum_f", "")],
)  # fmt: skip
def test_a_kernels_name_tells_the_reduction(kernel: str, reduce_op: str, tmp_path: Path) -> None:
    (call,) = read_all(tmp_path, event(kernel, 10, {}, cat="kernel")).calls
    assert call.reduce_op == reduce_op
    assert reduce_op in ("", *REDUCE_OPS)  # else the file of the workload could not be read again


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
        gloo = "all_gather" if thread == known else "all_reduce"
        where = {"pid": int(process), "tid": int(own)}
        events.append(transfer(gloo, start + 10, elements, **where))
    ranks = {name: [0, 1, 2, 3] if known and name == "1" else [0, 1] for name in groups}
    calls = read_all(folder, *events, groups=ranks).calls
    return {str(call.stream): call.group for call in calls}


def test_a_file_of_gloo_that_ends_early_has_no_times(tmp_path: Path) -> None:
    groups_of_threads(tmp_path, ["100/101", "100/102"], groups=("0",))
    text = (tmp_path / "rank0.json").read_text()
    (tmp_path / "rank0.json").write_text(text[: text.rindex("]")])
    trace = read_trace(tmp_path / "rank0.json")
    assert trace.is_cut
    assert [(call.time_s, call.group) for call in trace.calls] == [(None, ""), (None, "")]


@pytest.mark.parametrize(
    ("process", "numbers", "groups", "expected"),
    [
        (100, (120, 101, 102, 121, 113, 114), "013", "300311"),  # by their order
        (299, (300, 302, 9, 11, 4, 5), "013", "003311"),  # numbers may start again
        (100, (101, 102, 110, 111), "013", ""),  # several assignments are possible
        (100, range(101, 108), "013", ""),  # more than these groups can have
        (100, (107,), "0", "0"),
        (100, (100,), "013", ""),  # the thread of the process may call in any group
    ],
)
def test_threads_are_given_to_groups_where_one_assignment_is_possible(
    process: int, numbers: Sequence[int], groups: str, expected: str, tmp_path: Path
) -> None:
    threads = [f"{process}/{number}" for number in numbers]
    found = groups_of_threads(tmp_path, threads, groups=tuple(groups))
    assert found == dict(zip(threads, expected or [""] * len(threads), strict=True))


def test_a_call_that_fits_one_group_only_tells_the_others(tmp_path: Path) -> None:
    threads = [f"100/{n}" for n in (101, 102, 110, 111)]
    found = groups_of_threads(tmp_path, threads, known="100/101")
    assert [found[thread] for thread in threads] == ["1", "1", "3", "3"]
