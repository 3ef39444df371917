"""What a rank does from its first line to its last: settle, join, try, then case by case."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone
from typing import Any, NamedTuple

import torch

from commbench import __version__
from commbench.errors import RankError, UnavailableError, first_line
from commbench.plan import READY, UNSUPPORTED, Case
from commbench.records.environment import boot_id, gather_facts, relevant_variables
from commbench.records.journal import create_folder
from commbench.records.schema import Header, Rank
from commbench.typed import build
from commbench.worker.buffers import Arena
from commbench.worker.communicator import Communicator, communicator, gpu_shared
from commbench.worker.conductor import call_of, perform
from commbench.worker.hops import measure_hops
from commbench.worker.measure import loop_overhead_s
from commbench.worker.memory import allocated, only_fitting
from commbench.worker.network import way_of
from commbench.worker.position import ITERATION, LEAVING, PROBING, TRYING, Row, is_there, move
from commbench.worker.quiet import settle
from commbench.worker.recorder import Recorder
from commbench.worker.sameness import other_plan, refuse_plan
from commbench.worker.seat import Seat
from commbench.worker.task import Task
from commbench.worker.timers import timer_for
from commbench.worker.watch import Tell, watched

TRIAL_BYTES = 64 * 1024
"""Most bytes of the control message that carries the outcome of all trials."""


class Place(NamedTuple):
    """Where a rank is, in numbers."""

    first: int
    """The first rank of its host."""
    pid: int


def run_rank(task: Task, seat: Seat, tell: Tell) -> None:
    """Take part in a run as one rank; rank 0 writes the run folder, making it if need be.

    `tell` is called with what there is to say where all ranks stand still.
    Raises CommbenchError: on every rank alike where the trouble concerns all.
    """
    plan = task.plan
    facts = {} if seat.rank else gather_facts()  # before this rank settles on a single core
    cores = settle(plan.cpu_mode, seat.local_rank)
    with watched(plan, seat, tell) as watch, communicator(plan, seat, watch) as comm:
        row = watch.row
        header, places = _introduce(task, seat, comm, cores)
        if seat.joined:
            watch.neighbours = _neighbours(places, comm.rank)
        move(row, TRYING)
        # Variables as the ranks have them: joining the others set some.
        header = header._replace(environment=facts | {"variables": relevant_variables()})
        if task.began:
            comm.agree(None, lambda _: _refuse_changes(task.began, header))
        cases = only_fitting(_after_trials(task.cases(), comm, row), comm)
        arena, cases = allocated(cases, comm)
        if all(case.status != READY for case in cases):
            raise _nothing_left(cases)
        timer = timer_for(comm)
        move(row, PROBING)
        header = header._replace(
            overhead_s=loop_overhead_s(timer),
            resolution_s=timer.resolution_s,
            launch=task.launch,
            resumed=task.finished is not None,
            hops=measure_hops(comm, tuple(sorted({place.first for place in places}))),
        )
        recorder = Recorder(task, header) if not comm.rank else None
        perform(plan, cases, comm, arena, timer, recorder, task.launch, row)
        if recorder:
            recorder.close()
        move(row, LEAVING)


def _introduce(
    task: Task, seat: Seat, comm: Communicator, cores: tuple[int, ...]
) -> tuple[Header, list[Place]]:
    """Tell rank 0 who this is; it refuses ranks with another plan, and opens the folder.

    Gives the header, with all ranks on rank 0, and the place of every rank.
    """
    plan = task.plan
    me = Rank(
        rank=seat.rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=_device_name(comm.device),
        cores=cores,
        cpu_mode=plan.cpu_mode,
        local_rank=seat.local_rank,
        **way_of(plan.backend, seat)._asdict(),
    )
    part = {
        "rank": me._asdict(),
        "plan": plan.digest,
        "journal": task.journal,
        "commbench": __version__,
        "boot_id": boot_id(),
        "gpu_shared": gpu_shared(plan.device, seat),
    }

    def meet(parts: list[dict[str, Any]]) -> dict[str, Any]:
        if other := other_plan(parts):
            return {"other_plan": other}
        if not task.folder_exists:
            create_folder(task.folder)
        ranks.extend(build(Rank, p["rank"]) for p in parts)
        hosts.extend((p["rank"]["host"], p["boot_id"]) for p in parts)
        return {
            "shares_clock": len({p["boot_id"] for p in parts}) == 1 and bool(part["boot_id"]),
            "gpu_shared": any(p["gpu_shared"] for p in parts),
        }

    ranks: list[Rank] = []
    hosts: list[tuple[str, str]] = []
    agreed = comm.agree(part, meet)
    if "other_plan" in agreed:
        refuse_plan(plan, comm, **agreed["other_plan"])
    comm.shares_clock = agreed["shares_clock"]
    header = Header(
        plan=plan,
        label=task.label,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        launcher=seat.launcher,
        ranks=tuple(ranks),
        num_nodes=len(set(hosts)),
        gpu_shared=agreed["gpu_shared"],
        commbench=__version__,
    )
    # Two numbers for each rank, whatever their number: messages that are agreed on are small.
    first_of = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
    places = [(first_of[host], rank.pid) for host, rank in zip(hosts, ranks, strict=True)]
    table = comm.share(torch.tensor(places or [(0, 0)] * comm.ranks, dtype=torch.int64))
    return header, [Place(*numbers) for numbers in table.tolist()]


def _neighbours(places: list[Place], rank: int) -> dict[int, int]:
    """The processes of the ranks on this rank's host, by rank; those that can be seen from here."""
    here = places[rank].first
    return {
        other: place.pid
        for other, place in enumerate(places)
        if place.first == here and is_there(place.pid)
    }


def _refuse_changes(began: Header | None, now: Header) -> None:
    """Raise UnavailableError where a run that is taken up again would mix two environments."""
    from commbench.analysis.comparison.facts import changes

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


def _after_trials(cases: tuple[Case, ...], comm: Communicator, row: Row) -> tuple[Case, ...]:
    """The cases, those marked unsupported whose kind the backend refuses when tried once.

    A trial moves one element per block; it also makes the connections.
    """
    refusals: dict[str, str] = {}
    titles: dict[str, Case] = {}
    for case in cases:
        if case.status == READY:
            titles.setdefault(case.title, case)
    for title, case in titles.items():
        row[ITERATION] += 1
        trial = case._replace(count=1, size_bytes=case.size_bytes // max(1, case.count))
        try:
            call_of(trial, Arena(comm, (trial,)).buffers(trial))()
            comm.synchronize()
        except (RuntimeError, ValueError, TypeError) as error:
            refusals[title] = first_line(error)[:200]

    def judge(parts: list[dict[str, str]]) -> dict[str, str]:
        for title in titles:
            refused = [rank for rank, part in enumerate(parts) if title in part]
            if refused and len(refused) < len(parts):
                raise RankError(
                    f"{title} failed on rank {refused[0]} only: {parts[refused[0]][title]}",
                    "see what differs on that rank: device, driver, versions",
                )
        return parts[0]

    agreed = comm.agree(refusals, judge, TRIAL_BYTES)
    return tuple(
        case._replace(status=UNSUPPORTED, reason=agreed[case.title])
        if case.status == READY and case.title in agreed
        else case
        for case in cases
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return "cpu"
    return f"{device} {torch.get_device_module(device).get_device_name(device)}"
