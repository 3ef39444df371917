"""The life of a rank: join the process group, agree on the plan, measure, leave the group."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from commbench import __version__
from commbench.analysis.nccl_log import INIT_MODE, parse_communicator
from commbench.errors import UnavailableError
from commbench.host.cpu import apply_cpu_mode
from commbench.host.environment import gather_facts, relevant_variables
from commbench.host.gpu_system import FaultWatch
from commbench.host.gpus import find_gpu
from commbench.plan.case import READY, UNSUPPORTED, Case
from commbench.results.records import LinkProbe, StartUp
from commbench.results.schema import RunHeader
from commbench.units import format_count
from commbench.worker.communicator import Communicator, communicator
from commbench.worker.coordinator import CaseRunner
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.feasibility import (
    allocate_arena,
    learn_selections,
    mark_unsupported,
    set_up_calls,
    skip_oversized,
)
from commbench.worker.groups import uses_nccl
from commbench.worker.introduction import GroupInfo, introduce
from commbench.worker.measure import loop_overhead_s, make_timer
from commbench.worker.recorder import Recorder
from commbench.worker.reduction import aligner_s
from commbench.worker.sampling import make_quick_search
from commbench.worker.scheduler import ResultSink, Scheduler
from commbench.worker.soak import SoakScheduler
from commbench.worker.watchdog import hang_evidence, rank_state
from commbench.worker.watchdog.rank_state import StateBuffer, set_phase
from commbench.worker.watchdog.watchdog import ReportError, Watchdog, watching

PROBE_BYTES = 4 << 20
PROBE_REPEATS = 4
Sink = TypeVar("Sink", bound=ResultSink)


def run_rank(tasks: Sequence[LaunchTask], rank_context: RankContext, report: ReportError) -> None:
    """Take part in launches of one run, one after another, as one rank; rank 0 writes the run
    folder, and creates it if needed.

    `report` is called with the error where all ranks hang.
    Raises CommbenchError: on every rank alike where the error concerns all.
    """
    plan = tasks[0].plan
    facts = {} if rank_context.rank else gather_facts()  # before this rank keeps to a single core
    apply_cpu_mode(plan.cpu_mode, rank_context.local_rank)
    with watching(plan, rank_context, report) as watchdog:
        for task in tasks:
            _run_launch(task, rank_context, watchdog, facts)


def _run_launch(
    task: LaunchTask, rank_context: RankContext, watchdog: Watchdog, facts: dict[str, Any]
) -> None:
    state = watchdog.state
    with communicator(task.plan, rank_context, watchdog, task.logs_nccl) as comm:
        group = introduce(task, rank_context, comm)
        if not task.is_silent:
            watchdog.dump_folder = Path(group.folder) / hang_evidence.FOLDER
        set_phase(state, rank_state.TRYING)
        header = make_header(task, rank_context.launcher, comm, group, facts)
        if task.resumed_from:
            comm.agree(None, lambda _: _require_unchanged(task.resumed_from, header))
        recorder = measure_cases(task, comm, state, header, group, lambda h: Recorder(task, h))
        if recorder:
            recorder.close()
        set_phase(state, rank_state.LEAVING)


def make_header(
    task: LaunchTask, launcher: str, comm: Communicator, group: GroupInfo, facts: dict[str, Any]
) -> RunHeader:
    """The header of the run, complete on rank 0 except for what is measured later."""
    return RunHeader(
        plan=task.plan,
        label=task.label,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        launcher=launcher,
        # The variables as the ranks have them: joining the others set some.
        environment=facts | {"variables": relevant_variables()} | group.differences,
        ranks=group.ranks,
        num_nodes=len(group.leaders),
        gpu_shared=comm.gpu_shared,
        commbench=__version__,
        launch=task.launch,
        resumed=task.finished is not None,
    )


def measure_cases(
    task: LaunchTask,
    comm: Communicator,
    state: StateBuffer,
    header: RunHeader,
    group: GroupInfo,
    make_sink: Callable[[RunHeader], Sink],
) -> Sink | None:
    """Measure the cases of a task that can be measured. Rank 0 hands the results to the sink that
    is made for them, and gets it back; None elsewhere.

    Raises UnavailableError where nothing can be measured.
    """
    plan, device = task.plan, comm.device
    gpu = find_gpu(device.pci_bus_id, device.uuid) if device.is_async else None
    faults = FaultWatch(gpu, device.pci_bus_id or device.uuid, has_ports=comm.rank in group.leaders)
    cases = skip_oversized(plan, mark_unsupported(task.cases(), comm, state), comm)
    arena, cases = allocate_arena(cases, comm)
    cases = set_up_calls(cases, comm, arena, state)
    if all(case.status != READY for case in cases):
        raise _nothing_left(cases)
    environment = header.environment | (_nccl_facts(comm) if uses_nccl(plan) else {})
    timer = make_timer(comm)
    with arena:
        environment |= learn_selections(task, cases, comm, arena, state)
        set_phase(state, rank_state.PROBING)
        header = header._replace(
            environment=environment,
            overhead_s=loop_overhead_s(timer),
            aligner_s=aligner_s(timer, comm),
            resolution_s=timer.resolution_s,
            link_probes=probe_links(comm, group.leaders),
            start_up=_start_up(comm),
        )
        sink = None if comm.rank else make_sink(header)
        scheduler: Scheduler | None = None
        if sink and plan.is_soak:
            scheduler = SoakScheduler(plan, cases, sink, task.launch)
        elif sink:
            search = make_quick_search(header, cases)
            scheduler = Scheduler(plan, cases, sink, task.launch, search)
        CaseRunner(plan, comm, arena, timer, state).run_all(cases, scheduler)
    risen: dict[str, dict[str, int]] = {}

    def join(parts: list[tuple[str, dict[str, int]]]) -> None:
        for host, found in parts:  # ranks of one GPU count the same
            risen.setdefault(host, {}).update(found)

    own = faults.read_risen()
    comm.agree(None if own is None else (socket.gethostname(), own), join)
    if sink:
        sink.counted(risen)
    return sink


def _nccl_facts(comm: Communicator) -> dict[str, Any]:
    """What is known of NCCL's communicators."""
    is_eager = getattr(comm.group, "bound_device_id", None) is not None
    logged = parse_communicator(comm.nccl_log.remove()) if comm.nccl_log else {}
    facts = {INIT_MODE: "eager" if is_eager else "lazy"}
    return facts | ({"nccl_log": logged} if logged else {})


def _start_up(comm: Communicator) -> StartUp | None:
    """How long the ranks needed until they can measure, on rank 0; a part of it elsewhere."""
    if comm.start_up_s is None:
        return None
    least_s = (comm.start_up_s[0], time.perf_counter() - comm.joined)
    own_s = (*comm.start_up_s, *(-seconds for seconds in least_s))
    found = comm.reduce_max(torch.tensor([round(s * 1e9) for s in own_s])).tolist()
    init, groups, connecting, rendezvous, fastest, agreement = (round(n * 1e-9, 9) for n in found)
    return StartUp(init, -fastest, groups, connecting, rendezvous, -agreement)


def _require_unchanged(before: RunHeader | None, now: RunHeader) -> None:
    """Raise UnavailableError where resuming a run would mix two environments."""
    from commbench.analysis.environment_diff import changes

    if before and (changed := changes(before, now)):
        differences = "; ".join(f"{fact.name} was {fact.a} and is {fact.b}" for fact in changed)
        raise UnavailableError(
            f"the run cannot be resumed: {differences}",
            "restore it, or start a new run and use `commbench compare`",
        )


def _nothing_left(cases: tuple[Case, ...]) -> UnavailableError:
    first, *more = dict.fromkeys(f"{case.title}: {case.reason}" for case in cases)
    hint = "ask for smaller --sizes or fewer ranks: --dry-run prints what each needs"
    if all(case.status == UNSUPPORTED for case in cases):
        hint = "try another operation, dtype, reduce operation, placement or backend"
    elif any(case.step for case in cases):
        hint = "use a host with more memory, or fewer ranks: --fit shrink --nproc-per-node N"
    first += f", and {format_count(len(more), 'more case')}" if more else ""
    return UnavailableError(f"nothing is left to measure: {first}", hint)


def probe_links(comm: Communicator, leaders: tuple[int, ...]) -> tuple[LinkProbe, ...]:
    """Measures the link from each host to the next: in a collective all hosts are as slow as the
    slowest link, and a probe of each shows which one that is.

    Each leader sends PROBE_BYTES to the next one and waits for a byte in answer: first every
    second leader, so that no link is used twice at once, then the others. On rank 0; empty
    elsewhere. `leaders` holds one rank of each host, the same on every rank. Only for CPUs: with
    NCCL each pair would need a communicator of its own.
    """
    if len(leaders) < 2 or comm.device.is_async:
        return ()
    pairs = list(zip(leaders, leaders[1:] + leaders[:1], strict=True))
    odd = len(pairs) % 2  # the last of an odd number shares a rank with both neighbours
    own = torch.tensor([-1.0, -1.0, 0.0], dtype=torch.float64)
    for disjoint in (pairs[: len(pairs) - odd : 2], pairs[1::2], pairs[-1:] if odd else []):
        dist.barrier(group=comm.group)
        for sender, receiver in disjoint:
            if comm.rank == sender:
                seconds = _exchange(comm, receiver, dist.send, dist.recv)
                own = torch.tensor([sender, receiver, seconds], dtype=torch.float64)
            elif comm.rank == receiver:
                _exchange(comm, sender, dist.recv, dist.send)
    return tuple(
        LinkProbe(int(sender), int(receiver), PROBE_BYTES, round(seconds, 9))
        for sender, receiver, seconds in comm.gather(own).tolist()
        if sender >= 0
    )


def _exchange(
    comm: Communicator, peer: int, first: Callable[..., Any], second: Callable[..., Any]
) -> float:
    """Move the data of a probe, and the answer, by these functions. Returns the seconds of the
    fastest of PROBE_REPEATS transfers, after one that may make connections."""
    data, answer = torch.ones(PROBE_BYTES, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8)
    seconds = []
    for _ in range(PROBE_REPEATS + 1):
        start = time.perf_counter()
        first(data, comm.global_ranks[peer], group=comm.group)
        second(answer, comm.global_ranks[peer], group=comm.group)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
