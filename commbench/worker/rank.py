"""The life of a rank: join the process group, agree on the plan, measure, leave the group. And
`commbench.measure()`, which measures on a process group of the caller, and starts no ranks."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from commbench import __version__
from commbench.analysis import csv_file, nccl_log
from commbench.errors import CommbenchError, RankError, UnavailableError, UsageError, reason_of
from commbench.host import cpu, gpus
from commbench.host.environment import gather_facts, relevant_variables
from commbench.host.gpu_system import FaultWatch
from commbench.plan.case import READY
from commbench.plan.cases import nothing_left
from commbench.plan.pairs import QUICK
from commbench.plan.plan import Plan
from commbench.results.journal import encode_run
from commbench.results.journal_reader import decode_run
from commbench.results.records import LinkProbe, StartUp
from commbench.results.schema import IN_PROCESS, Run, RunHeader
from commbench.validation import brief
from commbench.worker import coordinator, feasibility, measure, reduction, sampling, soak
from commbench.worker.communicator import Communicator, communicator, connect
from commbench.worker.device import Accelerator, Device
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.groups import find_shared_gpus, lazy_gloo, uses_nccl
from commbench.worker.introduction import GroupInfo, introduce
from commbench.worker.meeting import Meeting
from commbench.worker.recorder import Recorder, RunCollector
from commbench.worker.scheduler import Scheduler
from commbench.worker.watchdog import hangs, rank_state
from commbench.worker.watchdog.watchdog import ReportError, Watchdog, watching

PROBE_BYTES = 4 << 20
PROBE_REPEATS = 4
Sink = TypeVar("Sink", bound=RunCollector)


def run_rank(tasks: Sequence[LaunchTask], rank_context: RankContext, report: ReportError) -> None:
    """Take part in launches of one run, one after another, as one rank; rank 0 writes the run
    folder, and creates it if needed.

    `report` is called with the error where all ranks hang.
    Raises CommbenchError: on every rank alike where the error concerns all.
    """
    plan = tasks[0].plan
    facts = {} if rank_context.rank else gather_facts()  # before this rank keeps to a single core
    cpu.apply_cpu_mode(plan.cpu_mode, rank_context.local_rank)
    with watching(plan, rank_context, report) as watchdog:
        for task in tasks:
            if rank_context.rank or task.launch:
                # Rank 0 says once, in the first launch, which names torch will drop.
                warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
            _run_launch(task, rank_context, watchdog, facts)


def _run_launch(
    task: LaunchTask, rank_context: RankContext, watchdog: Watchdog, facts: dict[str, Any]
) -> None:
    with communicator(task.plan, rank_context, watchdog, task.logs_nccl) as comm:
        group = introduce(task, rank_context, comm)
        if not task.is_silent:
            watchdog.dump_folder = Path(group.folder) / hangs.FOLDER
        rank_state.set_phase(comm.state, rank_state.TRYING)
        header = make_header(task, rank_context.launcher, comm, group, facts)
        if task.resumed_from:
            comm.on_rank_0(lambda: _require_unchanged(task.resumed_from, header))
        measure_cases(task, comm, header, group, lambda h: Recorder(task, h))
        rank_state.set_phase(comm.state, rank_state.LEAVING)


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
    task: LaunchTask, comm: Communicator, header: RunHeader, group: GroupInfo,
    make_sink: Callable[[RunHeader], Sink],
) -> Sink | None:  # fmt: skip
    """Measure the cases of a task that can be measured. Rank 0 hands the results to the sink that
    is made for them, and gets it back; None elsewhere.

    Raises UnavailableError where nothing can be measured.
    """
    plan, device = task.plan, comm.device
    gpu = gpus.find_gpu(device.pci_bus_id, device.uuid) if device.is_async else None
    faults = FaultWatch(gpu, device.pci_bus_id or device.uuid, has_ports=comm.rank in group.leaders)
    cases = feasibility.mark_unsupported(task.cases(), comm)
    cases = feasibility.skip_oversized(plan, cases, comm)
    arena, cases = feasibility.allocate_arena(cases, comm)
    cases = feasibility.set_up_calls(cases, comm, arena)
    if all(case.status != READY for case in cases):
        raise nothing_left(cases, device.free_bytes())
    environment = header.environment | (_nccl_facts(comm) if uses_nccl(plan) else {})
    timer = measure.DeviceEventTimer(comm) if device.is_async else measure.Timer(comm)
    with arena:
        environment |= feasibility.learn_selections(task, cases, comm, arena)
        rank_state.set_phase(comm.state, rank_state.PROBING)
        header = header._replace(
            environment=environment,
            overhead_s=measure.loop_overhead_s(timer),
            aligner_s=reduction.aligner_s(timer, comm),
            resolution_s=timer.resolution_s,
            link_probes=probe_links(comm, group.leaders),
            start_up=_start_up(comm),
        )
        sink = None if comm.rank else make_sink(header)
        scheduler: Scheduler | None = None
        if sink and plan.is_soak:
            scheduler = soak.SoakScheduler(plan, cases, sink, task.launch)
        elif sink:
            search = sampling.QuickSearch(header, cases) if QUICK in plan.pairs else None
            scheduler = Scheduler(plan, cases, sink, task.launch, search)
        coordinator.CaseRunner(plan, comm, arena, timer).run_all(cases, scheduler)
    own, risen = faults.read_risen(), dict[str, dict[str, int]]()
    for host, found in comm.gather_values(None if own is None else (socket.gethostname(), own)):
        risen.setdefault(host, {}).update(found)  # ranks of one GPU count the same
    if sink:
        sink.close(risen)
    return sink


def _nccl_facts(comm: Communicator) -> dict[str, Any]:
    """What is known of NCCL's communicators."""
    is_eager = getattr(comm.group, "bound_device_id", None) is not None
    logged = nccl_log.parse_communicator(comm.nccl_log.remove()) if comm.nccl_log else {}
    facts = {nccl_log.INIT_MODE: "eager" if is_eager else "lazy"}
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
    from commbench.analysis.environment import describe_changes

    if before and (differences := describe_changes(before, now)):
        hint = "restore it, or start a new run and use `commbench compare`"
        raise UnavailableError(f"the run cannot be resumed: {differences}", hint)


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
    own: LinkProbe | None = None
    for disjoint in (pairs[: len(pairs) - odd : 2], pairs[1::2], pairs[-1:] if odd else []):
        dist.barrier(group=comm.group)
        for sender, receiver in disjoint:
            if comm.rank == sender:
                seconds = _exchange(comm, receiver, dist.send, dist.recv)
                own = LinkProbe(sender, receiver, PROBE_BYTES, round(seconds, 9))
            elif comm.rank == receiver:
                _exchange(comm, sender, dist.recv, dist.send)
    return tuple(LinkProbe(*found) for found in comm.gather_values(own))


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


def measure_on_group(
    parse: Callable[[], tuple[Callable[[str, str, int], Plan], str, Path | None]], group: Any = None
) -> Run:
    """Measure on an existing process group, from within the program that made it.

    Every rank of the group calls this with the same arguments, and every rank gets the same Run,
    with all samples. `parse` gives what makes the plan for a backend, a device type and a number of
    ranks; the label; and the folder into which rank 0 of the group writes the run, or None. The
    group None is the default one. The current CUDA device is measured where the group has NCCL,
    otherwise the CPU.

    Nothing is initialised and nothing remains: the CPU mode and all variables stay as they are, and
    the process group for control traffic and the buffers are freed. Ranks in the Run, and the root,
    are those of the group. Raises a CommbenchError on every rank alike; RankError where a rank does
    not come within the plan's timeout, or raised before. Where one is lost within a collective, the
    timeout of the group decides how long the others wait.
    """
    if not dist.is_available() or not dist.is_initialized():
        hint = "call torch.distributed.init_process_group() first, or use commbench.run()"
        raise UsageError("there is no process group to measure", hint)
    others = (None, dist.GroupMember.NON_GROUP_MEMBER)
    if not isinstance(group, dist.ProcessGroup) and group not in others:
        raise UsageError(f"group cannot be {brief(group)}", "give a ProcessGroup, or None")
    if dist.get_rank(group) < 0:
        hint = "call measure() on the ranks of the group only"
        raise UsageError("this rank is not in the process group", hint)
    meeting = Meeting(group)
    with meeting.preparing():
        make_plan, label, output = parse()
        backend, device = _find_backend(group)
        plan = make_plan(backend, device.torch_device.type, meeting.ranks)
    task = LaunchTask(plan, label, output or Path(), folder_exists=output is None)
    task = task._replace(logs_nccl=False)  # the program's own log is left alone
    with _on_group(group, meeting, plan, device) as comm:
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        numbers = comm.rank, comm.ranks, local_rank, local_ranks
        ranks = introduce(task, RankContext(*numbers, IN_PROCESS, "env://"), comm)
        header = make_header(task, IN_PROCESS, comm, ranks, {} if comm.rank else gather_facts())
        collector = measure_cases(task, comm, header, ranks, RunCollector)
        path = str(output or "")
        lines = comm.share_value(list(encode_run(collector.run(path))) if collector else None)
        run = decode_run(lines)._replace(path=path)
        if output:
            comm.on_rank_0(lambda: csv_file.write_run_folder(task.folder, run))
        return run


@contextmanager
def _on_group(group: Any, meeting: Meeting, plan: Plan, device: Device) -> Iterator[Communicator]:
    """A communicator of the ranks of a group, with a control group that ends with it.

    The control group is not registered with torch.distributed: making it involves nobody but its
    ranks, and group numbers, which have to be the same on all ranks of a job, stay as they are.
    """
    rank, ranks, control = meeting.rank, meeting.ranks, None
    try:
        meeting.join(plan.timeout_s)
        longest_s = plan.timeout_s + hangs.longest_check_s(max(plan.sizes, default=0))
        with lazy_gloo():
            control = dist.ProcessGroupGloo(meeting.store, rank, ranks, timedelta(0, longest_s))
        comm = Communicator(rank, ranks, device, group or dist.group.WORLD, control)
        comm.global_ranks = meeting.members
        comm.gpu_shared, _ = find_shared_gpus(comm)
        if device.is_async:
            connect(comm)  # memory is registered with a communicator that there is
        yield comm
    except CommbenchError:
        raise
    except (RuntimeError, OSError, rank_state.CallError) as error:
        why = f"measuring failed on rank {rank} ({socket.gethostname()}): {reason_of(error)}"
        hint = "read the errors of the other ranks, and check that all of them called measure()"
        raise RankError(why, hint) from error
    finally:
        del control
        device.release_graphs()
        device.release_cached_memory()


def _find_backend(group: Any) -> tuple[str, Device]:
    """The backend of a group that is measured, and its device."""
    known = dist.get_backend_config(group)
    backends = dict(part.split(":", 1) for part in known.split(",") if ":" in part)
    if "cuda" in backends and torch.cuda.is_available():
        return backends["cuda"], Accelerator("cuda", torch.cuda.current_device())
    if "cpu" in backends:
        return backends["cpu"], Device()
    hint = "measure a group of the backend nccl with GPUs, or of gloo"
    raise UnavailableError(f"the process group has no backend for this host: {known}", hint)
