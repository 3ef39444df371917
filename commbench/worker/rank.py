"""What a rank does from its first line to its last: settle, join, try, then case by case."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone
from typing import Any, NamedTuple

import torch

from commbench import __version__
from commbench.errors import UnavailableError
from commbench.host.cpu_modes import apply_cpu_mode
from commbench.host.environment import boot_id, gather_facts, relevant_variables
from commbench.results.run_folder import create_folder
from commbench.results.schema import RankInfo, RunHeader
from commbench.spec.case import READY, UNSUPPORTED, Case
from commbench.validation import build
from commbench.worker.communicator import Communicator, communicator, gpu_shared
from commbench.worker.context import LaunchTask, RankContext
from commbench.worker.coordinator import run_cases
from commbench.worker.interfaces import way_of
from commbench.worker.link_probe import probe_links
from commbench.worker.measure import loop_overhead_s
from commbench.worker.memory_check import allocate_arena, skip_oversized
from commbench.worker.plan_agreement import other_plan, refuse_plan
from commbench.worker.recorder import Recorder
from commbench.worker.support_probe import _after_trials
from commbench.worker.timers import timer_for
from commbench.worker.watchdog.rank_state import (
    LEAVING,
    PROBING,
    TRYING,
    is_process_alive,
    set_phase,
)
from commbench.worker.watchdog.watchdog import ReportError, watching


class RankLocation(NamedTuple):
    """Where a rank is, in numbers."""

    first: int
    """The first rank of its host."""
    pid: int


def run_rank(task: LaunchTask, rank_context: RankContext, report: ReportError) -> None:
    """Take part in a run as one rank; rank 0 writes the run folder, making it if need be.

    `report` is called with the error where all ranks hang.
    Raises CommbenchError: on every rank alike where the trouble concerns all.
    """
    plan = task.plan
    facts = {} if rank_context.rank else gather_facts()  # before this rank settles on a single core
    cores = apply_cpu_mode(plan.cpu_mode, rank_context.local_rank)
    with (
        watching(plan, rank_context, report) as watchdog,
        communicator(plan, rank_context, watchdog) as comm,
    ):
        row = watchdog.state
        header, places = _introduce(task, rank_context, comm, cores)
        if rank_context.joined:
            watchdog.local_pids = _local_pids(places, comm.rank)
        set_phase(row, TRYING)
        # Variables as the ranks have them: joining the others set some.
        header = header._replace(environment=facts | {"variables": relevant_variables()})
        if task.began:
            comm.agree(None, lambda _: _refuse_changes(task.began, header))
        cases = skip_oversized(_after_trials(task.cases(), comm, row), comm)
        arena, cases = allocate_arena(cases, comm)
        if all(case.status != READY for case in cases):
            raise _nothing_left(cases)
        timer = timer_for(comm)
        set_phase(row, PROBING)
        header = header._replace(
            overhead_s=loop_overhead_s(timer),
            resolution_s=timer.resolution_s,
            launch=task.launch,
            resumed=task.finished is not None,
            link_probes=probe_links(comm, tuple(sorted({place.first for place in places}))),
        )
        recorder = Recorder(task, header) if not comm.rank else None
        run_cases(plan, cases, comm, arena, timer, recorder, task.launch, row)
        if recorder:
            recorder.close()
        set_phase(row, LEAVING)


def _introduce(
    task: LaunchTask, rank_context: RankContext, comm: Communicator, cores: tuple[int, ...]
) -> tuple[RunHeader, list[RankLocation]]:
    """Tell rank 0 who this is; it refuses ranks with another plan, and opens the folder.

    Gives the header, with all ranks on rank 0, and the place of every rank.
    """
    plan = task.plan
    me = RankInfo(
        rank=rank_context.rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=_device_name(comm.device),
        cores=cores,
        cpu_mode=plan.cpu_mode,
        local_rank=rank_context.local_rank,
        **way_of(plan.backend, rank_context)._asdict(),
    )
    part = {
        "rank": me._asdict(),
        "plan": plan.digest,
        "journal": task.journal,
        "commbench": __version__,
        "boot_id": boot_id(),
        "gpu_shared": gpu_shared(plan.device, rank_context),
    }

    def meet(parts: list[dict[str, Any]]) -> dict[str, Any]:
        if other := other_plan(parts):
            return {"other_plan": other}
        if not task.folder_exists:
            create_folder(task.folder)
        ranks.extend(build(RankInfo, p["rank"]) for p in parts)
        hosts.extend((p["rank"]["host"], p["boot_id"]) for p in parts)
        return {
            "shares_clock": len({p["boot_id"] for p in parts}) == 1 and bool(part["boot_id"]),
            "gpu_shared": any(p["gpu_shared"] for p in parts),
        }

    ranks: list[RankInfo] = []
    hosts: list[tuple[str, str]] = []
    agreed = comm.agree(part, meet)
    if "other_plan" in agreed:
        refuse_plan(plan, comm, **agreed["other_plan"])
    comm.shares_clock = agreed["shares_clock"]
    header = RunHeader(
        plan=plan,
        label=task.label,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        launcher=rank_context.launcher,
        ranks=tuple(ranks),
        num_nodes=len(set(hosts)),
        gpu_shared=agreed["gpu_shared"],
        commbench=__version__,
    )
    # Two numbers for each rank, whatever their number: messages that are agreed on are small.
    first_of = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
    places = [(first_of[host], rank.pid) for host, rank in zip(hosts, ranks, strict=True)]
    table = comm.share(torch.tensor(places or [(0, 0)] * comm.ranks, dtype=torch.int64))
    return header, [RankLocation(*numbers) for numbers in table.tolist()]


def _local_pids(places: list[RankLocation], rank: int) -> dict[int, int]:
    """The processes of the ranks on this rank's host, by rank; those that can be seen from here."""
    here = places[rank].first
    return {
        other: place.pid
        for other, place in enumerate(places)
        if place.first == here and is_process_alive(place.pid)
    }


def _refuse_changes(began: RunHeader | None, now: RunHeader) -> None:
    """Raise UnavailableError where a run that is taken up again would mix two environments."""
    from commbench.analysis.environment_diff import changes

    if began and (changed := changes(began, now)):
        told = "; ".join(f"{fact.name} was {fact.a} and is {fact.b}" for fact in changed)
        raise UnavailableError(
            f"the run cannot be resumed: {told}",
            "put that back, or begin a new run: `commbench compare` takes both",
        )


def _nothing_left(cases: tuple[Case, ...]) -> UnavailableError:
    reasons = dict.fromkeys(f"{case.title}: {case.reason}" for case in cases)
    return UnavailableError(
        f"nothing is left to measure; {'; '.join(list(reasons)[:3])}",
        "another operation, dtype, reduce op, placement or backend may do"
        if all(case.status == UNSUPPORTED for case in cases)
        else "ask for smaller --sizes or fewer ranks: --dry-run prints what each needs",
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return "cpu"
    return f"{device} {torch.get_device_module(device).get_device_name(device)}"
