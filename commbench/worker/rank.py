"""The life of a rank: join the process group, agree on the plan, measure, leave the group."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from commbench import __version__
from commbench.analysis.nccl_log import INIT_MODE, SELECTIONS, parse_communicator
from commbench.errors import UnavailableError
from commbench.host.cpu_modes import apply_cpu_mode
from commbench.host.environment import (
    DIFFERENT_BY_NATURE,
    boot_id,
    gather_facts,
    nccl_settings,
    relevant_variables,
)
from commbench.host.fault_counters import FaultWatch
from commbench.host.gpu_system import describe_gpu_facts, gpu_facts
from commbench.host.gpus import read_place
from commbench.host.nvml import find_gpu
from commbench.results.run_folder import create_folder
from commbench.results.schema import RankInfo, RunHeader, StartUp
from commbench.spec.backends import BACKENDS
from commbench.spec.case import READY, UNSUPPORTED, Case
from commbench.spec.plan import Plan
from commbench.validation import build
from commbench.worker.communicator import Communicator, communicator
from commbench.worker.context import LaunchTask, RankContext
from commbench.worker.coordinator import CaseRunner
from commbench.worker.feasibility import allocate_arena, mark_unsupported, skip_oversized
from commbench.worker.interfaces import find_interface
from commbench.worker.link_probe import probe_links
from commbench.worker.measure import loop_overhead_s
from commbench.worker.nccl_selections import learn_selections
from commbench.worker.plan_agreement import find_other_plan, raise_other_plan
from commbench.worker.quick_search import make_quick_search
from commbench.worker.recorder import Recorder
from commbench.worker.reduction import aligner_s
from commbench.worker.scheduler import ResultSink, Scheduler
from commbench.worker.timers import make_timer
from commbench.worker.watchdog import flight_recorder, rank_state
from commbench.worker.watchdog.rank_state import StateBuffer, is_process_alive, set_phase
from commbench.worker.watchdog.watchdog import ReportError, Watchdog, watching

MOST_OTHERS = 3
"""Ranks whose other variables are recorded."""
NOT_SET = "not set"
Sink = TypeVar("Sink", bound=ResultSink)


class GroupInfo(NamedTuple):
    """What the ranks of a group learn of each other before they measure."""

    ranks: tuple[RankInfo, ...]
    """On rank 0; empty elsewhere."""
    other_variables: dict[str, dict[str, str]]
    """By rank, the environment variables that it has otherwise than rank 0; on rank 0."""
    other_gpus: dict[str, dict[str, str]]
    """By host, the GPUs, links and HCAs where they differ from those of rank 0's host; on rank
    0."""
    first_ranks: list[int]
    """Of each rank, the first rank on its host."""
    pids: list[int]
    """Of each rank."""
    folder: str
    """The run folder: only rank 0 knows it where a launcher started the ranks."""
    num_nodes: int
    shares_clock: bool
    gpu_shared: bool

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each host."""
        return tuple(sorted(set(self.first_ranks)))


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
        if rank_context.is_external:
            watchdog.local_pids = _local_pids(group, comm.rank)
        if not task.is_silent:
            watchdog.dump_folder = Path(group.folder) / flight_recorder.FOLDER
        set_phase(state, rank_state.TRYING)
        header = make_header(task, rank_context.launcher, group, facts)
        if task.resumed_from:
            comm.agree(None, lambda _: _require_unchanged(task.resumed_from, header))
        recorder = measure_cases(task, comm, state, header, group, lambda h: Recorder(task, h))
        if recorder:
            recorder.close()
        set_phase(state, rank_state.LEAVING)


def introduce(task: LaunchTask, rank_context: RankContext, comm: Communicator) -> GroupInfo:
    """Tell the ranks about each other. Where all have the same plan, rank 0 creates the run folder
    if needed. Raises UnavailableError on every rank where plans, versions or journals differ."""
    # One rank of each host looks for its GPUs.
    gpus = {} if rank_context.local_rank else describe_gpu_facts(gpu_facts())
    own = _own_part(task, rank_context, comm) | {"gpus": _digest(gpus)}
    ranks: tuple[RankInfo, ...] = ()

    def decide(parts: list[dict[str, Any]]) -> dict[str, Any]:
        nonlocal ranks
        if other := find_other_plan(parts):
            return {"other_plan": other}
        if not task.folder_exists:
            create_folder(task.folder)
        ranks = tuple(build(RankInfo, part["rank"]) for part in parts)
        hosts = [(part["rank"]["host"], part["boot_id"]) for part in parts]
        first_of = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
        return {
            "first_ranks": [first_of[host] for host in hosts],
            "pids": [rank.pid for rank in ranks],
            "folder": str(task.folder),
            "num_nodes": len(first_of),
            "shares_clock": len({part["boot_id"] for part in parts}) == 1 and bool(boot_id()),
            "others": _first_of_each([part["variables"] for part in parts])[1 : 1 + MOST_OTHERS],
            "other_hosts": _first_with_other_gpus(parts, sorted(first_of.values())),
        }

    agreed = comm.agree(own, decide)
    if "other_plan" in agreed:
        raise_other_plan(task.plan, comm, **agreed["other_plan"])
    comm.shares_clock = agreed["shares_clock"]
    other_variables = _find_other_variables(comm, agreed.pop("others"))
    other_gpus = dict(
        comm.share_value([socket.gethostname(), gpus], rank) for rank in agreed.pop("other_hosts")
    )
    return GroupInfo(
        ranks,
        other_variables=other_variables,
        other_gpus=other_gpus,
        gpu_shared=comm.gpu_shared,
        **agreed,
    )


def _first_of_each(values: Sequence[str]) -> list[int]:
    """The index of the first of each value."""
    return [values.index(value) for value in dict.fromkeys(values)]


def _first_with_other_gpus(parts: Sequence[dict[str, Any]], leaders: Sequence[int]) -> list[int]:
    """For each kind of GPUs and links that differs from rank 0's the first rank of a host with it;
    `leaders` has the first rank of each host."""
    kinds = [parts[rank]["gpus"] for rank in leaders]
    return [leaders[index] for index in _first_of_each(kinds)[1 : 1 + MOST_OTHERS]]


def _own_part(task: LaunchTask, rank_context: RankContext, comm: Communicator) -> dict[str, Any]:
    """What this rank sends to rank 0 about itself."""
    cores = sorted(os.sched_getaffinity(0))
    node, near = read_place(comm.device.pci_bus_id)
    info = RankInfo(
        rank=comm.rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=comm.device.name,
        device_uuid=comm.device.uuid,
        pci_bus_id=comm.device.pci_bus_id,
        cores=tuple(cores),
        numa_node=node,
        near_cores=None if node is None else len(near.intersection(cores)),
        cpu_mode=task.plan.cpu_mode,
        local_rank=rank_context.local_rank,
        **find_interface(task.plan.backend, rank_context)._asdict(),
    )
    return {
        "rank": info._asdict(),
        "plan": task.plan.digest,
        "journal": task.journal,
        "commbench": __version__,
        "boot_id": boot_id(),
        "variables": _digest(_common_variables()),
    }


def _common_variables() -> dict[str, str]:
    """The variables and settings in which all ranks should be alike."""
    found = nccl_settings() | relevant_variables()
    return {name: value for name, value in found.items() if name not in DIFFERENT_BY_NATURE}


def _digest(values: dict[str, str]) -> str:
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:16]


def _find_other_variables(comm: Communicator, others: Sequence[int]) -> dict[str, dict[str, str]]:
    """For each rank that was named, the variables that it has otherwise than rank 0; on rank 0."""
    differences = {}
    for rank in others:
        own = _common_variables()
        theirs = comm.share_value(own, rank)
        names = sorted(name for name in {*own, *theirs} if own.get(name) != theirs.get(name))
        differences[f"rank {rank}"] = {name: theirs.get(name, NOT_SET) for name in names}
    return differences


def make_header(
    task: LaunchTask, launcher: str, group: GroupInfo, facts: dict[str, Any]
) -> RunHeader:
    """The header of the run, complete on rank 0 except for what is measured later."""
    return RunHeader(
        plan=task.plan,
        label=task.label,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        launcher=launcher,
        # The variables as the ranks have them: joining the others set some.
        environment=facts
        | {"variables": relevant_variables()}
        | ({"other_variables": group.other_variables} if group.other_variables else {})
        | ({"other_gpus": group.other_gpus} if group.other_gpus else {})
        | ({SELECTIONS: task.nccl_selections} if task.nccl_selections else {}),
        ranks=group.ranks,
        num_nodes=group.num_nodes,
        gpu_shared=group.gpu_shared,
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
    is_leader = comm.rank in group.leaders
    gpu = find_gpu(comm.device.pci_bus_id, comm.device.uuid) if comm.device.is_async else None
    faults = FaultWatch(gpu, comm.device.pci_bus_id or comm.device.uuid, has_ports=is_leader)
    cases = skip_oversized(task.plan, mark_unsupported(task.cases(), comm, state), comm)
    arena, cases = allocate_arena(cases, comm)
    if all(case.status != READY for case in cases):
        raise _nothing_left(cases)
    header = header._replace(environment=header.environment | _nccl_facts(task.plan, comm))
    timer = make_timer(comm)
    with arena:
        selections = learn_selections(task, cases, comm, arena, state)
        header = header._replace(environment=header.environment | selections)
        set_phase(state, rank_state.PROBING)
        header = header._replace(
            overhead_s=loop_overhead_s(timer),
            aligner_s=aligner_s(timer, comm),
            resolution_s=timer.resolution_s,
            link_probes=probe_links(comm, group.leaders),
            start_up=_start_up(comm),
        )
        sink = None if comm.rank else make_sink(header)
        search = make_quick_search(header, cases)
        scheduler = Scheduler(task.plan, cases, sink, task.launch, search) if sink else None
        CaseRunner(task.plan, comm, arena, timer, state).run_all(cases, scheduler)
    risen = _gather_risen(comm, faults)
    if sink:
        sink.counted(risen)
    return sink


def _nccl_facts(plan: Plan, comm: Communicator) -> dict[str, Any]:
    """What is known of NCCL's communicators; empty with another backend."""
    backend = BACKENDS.get(plan.backend)
    if not (backend and backend.is_nccl):
        return {}
    is_eager = getattr(comm.group, "bound_device_id", None) is not None
    said = parse_communicator(comm.nccl_log.remove()) if comm.nccl_log else {}
    facts = {INIT_MODE: "eager" if is_eager else "lazy"}
    return facts | ({"nccl_log": said} if said else {})


def _gather_risen(comm: Communicator, faults: FaultWatch) -> dict[str, dict[str, int]]:
    """By host, the counters of faults that rose; on rank 0. Ranks of one GPU count the same."""
    risen: dict[str, dict[str, int]] = {}

    def decide(parts: list[tuple[str, dict[str, int] | None]]) -> None:
        for host, found in parts:
            if found is not None:
                risen.setdefault(host, {}).update(found)

    comm.agree((socket.gethostname(), faults.read_risen()), decide)
    return risen


def _start_up(comm: Communicator) -> StartUp | None:
    """How long the ranks needed to join, on rank 0; a part of it elsewhere."""
    if comm.start_up_s is None:
        return None
    own_ns = torch.tensor([round(s * 1e9) for s in comm.start_up_s])
    found = comm.reduce_max(torch.cat([own_ns, -own_ns[:1]])).tolist()
    init, groups, connecting, fastest = (round(ns * 1e-9, 9) for ns in found)
    return StartUp(init, -fastest, groups, connecting)


def _local_pids(group: GroupInfo, rank: int) -> dict[int, int]:
    """The processes of the ranks on this rank's host, by rank; those that can be seen from here."""
    return {
        other: pid
        for other, (first, pid) in enumerate(zip(group.first_ranks, group.pids, strict=True))
        if first == group.first_ranks[rank] and is_process_alive(pid)
    }


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
    reasons = dict.fromkeys(f"{case.title}: {case.reason}" for case in cases)
    return UnavailableError(
        f"nothing is left to measure; {'; '.join(list(reasons)[:3])}",
        "try another operation, dtype, reduce operation, placement or backend"
        if all(case.status == UNSUPPORTED for case in cases)
        else "ask for smaller --sizes or fewer ranks: --dry-run prints what each needs",
    )
