"""Traces of real training jobs over gloo: every call of every rank is found in them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from commands import start_command

from commbench.plan.workload import RECV, SEND, UNKNOWN_GROUP, make_workload, workload_values
from commbench.readers.trace_base import Call, RankTrace
from commbench.readers.trace_formats import read_traces
from commbench.results.files import read_workload, write_workload
from commbench.workloads.trace import TraceAnalysis, analyse_traces

JOBS = (("ddp", 2), ("ddp", 4), ("fsdp", 4), ("tp", 4), ("pp", 4))
"""Kinds of jobs and their ranks; the first is traced in the plain tests."""
TRANSFERS = {"reduce_scatter": "all_reduce"}
"""gloo makes reduce_scatter of all_reduce, and its flight recorder names that."""


class Job:
    """The traces of a job, and what its flight recorder says."""

    def __init__(self, folder: Path, kind: str, ranks: int) -> None:
        self.kind, self.ranks, self.folder = kind, ranks, folder
        program = Path(__file__).with_name("traced_job.py").read_text()
        started = [
            start_command(folder, str(folder), kind, str(self.ranks), program=program, RANK=str(r))
            for r in range(self.ranks)
        ]
        ends = [each.finish() for each in started]
        assert [end.code for end in ends] == [0] * self.ranks, ends[0].err
        self.traces: list[RankTrace] = read_traces([folder / "trace"])
        self.recorded: list[RankTrace] = (
            [] if kind == "pp" else read_traces([*sorted((folder / "recorder").glob("*.json"))])
        )
        self.analysis: TraceAnalysis = analyse_traces(self.traces)


_PARAMETERS = [
    pytest.param(job, marks=[] if job == JOBS[0] else [pytest.mark.full], id=f"{job[0]}{job[1]}")
    for job in JOBS
]


@pytest.fixture(scope="module", params=_PARAMETERS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp(request.param[0]), *request.param)


def fingerprint(call: Call) -> tuple[str, str, int | None]:
    """Operation by gloo's name, group and bytes of a call."""
    name = "all_to_all" if call.operation == "all_to_all_v" else call.operation
    return TRANSFERS.get(name, name), call.group, call.size_bytes


def test_each_call_that_the_flight_recorder_has_is_in_the_trace(job: Job) -> None:
    for trace, recorded in zip(job.traces, job.recorded, strict=bool(job.recorded)):
        # A rank that is not the root of a scatter records no shape.
        own = [call for call in trace.calls if call.operation not in (SEND, RECV, "scatter")]
        found = Counter(map(fingerprint, own))
        expected = Counter(
            fingerprint(call) for call in recorded.calls if call.operation != "scatter"
        )
        # A reduce_scatter of a list is several all_reduces of gloo.
        for call in (call for call in own if call.operation == "reduce_scatter"):
            part = ("all_reduce", call.group, (call.size_bytes or 0) // job.ranks)
            if expected[part] >= job.ranks:
                expected[part] -= job.ranks
                expected[fingerprint(call)] += 1
        assert found == +expected


def test_all_facts_of_each_call_are_known(job: Job) -> None:
    assert len(job.analysis.steps) == 2
    for one in job.analysis.calls:
        assert one.group != UNKNOWN_GROUP
        assert None not in (one.size_bytes, one.time_s, one.transfer_s)
    assert job.analysis.workload.notes == ()


def test_the_groups_are_those_of_the_mesh(job: Job) -> None:
    sets = job.analysis.sets.sets
    expected = {"world": (tuple(range(job.ranks)),)}
    if job.kind == "tp":
        expected |= {"dp": ((0, 2), (1, 3)), "tp": ((0, 1), (2, 3))}
        in_tp, in_dp = (
            Counter(one.size_bytes for one in job.analysis.calls if one.group == group)
            for group in ("tp", "dp")
        )
        assert {*in_tp} == {4 * 64 * 4}
        number = 2 * job.ranks
        assert in_dp == {4 * 32 * 64: 2 * number, 4 * 32: number, 4 * 64: number}
    assert sets == expected


def test_transfer_and_waiting_make_up_the_time_and_one_rank_waits_for_nobody(job: Job) -> None:
    for one in job.analysis.calls:
        assert one.transfer_s is not None and one.waiting_s is not None
        assert one.transfer_s + one.waiting_s == pytest.approx(one.time_s)
    assert {waiting.rank for waiting in job.analysis.waits} == {*range(job.ranks)}
    overlap = job.analysis.overlap
    assert overlap is not None
    assert 0 <= overlap.exposed_s <= overlap.communication_s


def test_the_workload_has_one_step_and_the_programs_of_the_job(job: Job, tmp_path: Path) -> None:
    workload = job.analysis.workload
    (step,) = workload.steps
    assert step.count == 2
    assert workload.ranks_per_node == job.ranks
    assert make_workload(workload_values(workload)) == workload
    write_workload(tmp_path / "step.json", workload)
    assert read_workload(tmp_path / "step.json") == workload
    programs = {"ddp": 1, "fsdp": 1, "tp": 4, "pp": 4}
    assert len(step.programs) == programs[job.kind]  # tp has splits that differ from rank to rank
    if job.kind == "ddp":
        sizes = [call.size_bytes for call in step.programs[0].calls]
        assert sum(filter(None, sizes)) == 4 * 4 * (32 * 32 + 32)
        assert all(call.asynchronous for call in step.programs[0].calls)
    if job.kind == "pp":
        messages = Counter((call.operation, call.peer) for call in step.programs[0].calls)
        assert messages == {(SEND, 1): 4, (RECV, 1): 4}


def test_without_shapes_all_calls_are_found_but_no_sizes(job: Job, tmp_path: Path) -> None:
    values = json.loads((job.folder / "trace" / "rank0.json").read_text())
    for event in values["traceEvents"]:
        for name in ("Input Dims", "Input type", "Input Strides"):
            event.get("args", {}).pop(name, None)
    (path := tmp_path / "rank0.json").write_text(json.dumps(values))
    analysis = analyse_traces(read_traces([path]))
    assert len(analysis.calls) == len(job.traces[0].calls)
    assert any("have no size: profile with" in note for note in analysis.workload.notes)


@pytest.mark.parametrize("part", [0.5, 0.7, 0.9, 0.99])
def test_a_cut_trace_says_what_the_whole_says(job: Job, tmp_path: Path, part: float) -> None:
    text = (job.folder / "trace" / "rank0.json").read_text()
    (path := tmp_path / "rank0.json").write_text(text[: int(len(text) * part)])
    whole = {call.ready_s: call for call in job.traces[0].calls}
    (cut,) = read_traces([path])
    assert cut.is_cut
    assert len(cut.steps) < 2
    for call in cut.calls:
        known = whole[call.ready_s]
        for name in ("operation", "size_bytes", "start_s", "time_s"):
            assert getattr(call, name) in (None, getattr(known, name))


def test_a_trace_of_one_rank_says_what_it_cannot_know(job: Job) -> None:
    alone = analyse_traces(job.traces[:1])
    assert any("rank 0 of" in note for note in alone.workload.notes)
    assert all(row.waiting_s is None for row in alone.totals if row.group != "unknown")
    assert alone.waits == ()
    alike = job.ranks if job.kind in ("ddp", "fsdp") else 1
    assert alone.workload.steps[0].programs[0].ranks == tuple(range(alike))
