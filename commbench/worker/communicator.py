"""The process groups of a rank: the one that is measured, and one of its own for control."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from commbench.errors import CommbenchError, RankError, UnavailableError, reason_of
from commbench.host.gpus import bind_near
from commbench.plan.case import Case
from commbench.plan.pairs import QUICK
from commbench.plan.plan import Plan, longest_join_s
from commbench.worker import control_tree, groups
from commbench.worker.device import Device, open_device
from commbench.worker.entrypoint import LOCAL, RankContext
from commbench.worker.groups import GroupView, GroupViews, NcclLog
from commbench.worker.watchdog import hangs, heartbeats, rank_state
from commbench.worker.watchdog.rank_state import CONNECTING, JOINING, set_phase
from commbench.worker.watchdog.watchdog import Watchdog

TORCH_EXTRA_S = 60.0
"""How much longer than the watchdog torch waits for an operation."""


class Communicator(control_tree.ControlTree):
    """One rank's view of the ranks that are measured.

    `group` is the measured process group; it carries nothing but what is measured. All other
    traffic goes over `control`, a gloo group of the same ranks. Ranks are numbered within the
    group.
    """

    def __init__(
        self, rank: int, ranks: int, device: Device, group: Any = None, control: Any = None
    ) -> None:
        super().__init__(rank, ranks, control)
        self.device = device
        self.group = group
        self.global_ranks: Sequence[int] = range(ranks)
        """The number of each rank in the default process group, as torch.distributed wants it."""
        self.shares_clock = False
        """Whether all ranks run under one boot of one host, hence read the same clock."""
        self.gpu_shared = False
        """Whether two ranks have the same GPU."""
        self.start_up_s: tuple[float, ...] | None = None
        """How long init_process_group, making the groups, connect, and in the first of them opening
        the store took on this rank; None where the ranks had joined before."""
        self.joined = 0.0
        """When it had connected (time.perf_counter)."""
        self.nccl_log: NcclLog | None = None
        """Where NCCL logs how it makes the communicator, on rank 0."""
        self.plan: Plan | None = None
        """What is measured; None where that has no groups."""
        self.group_views: GroupViews = {}
        """Of each dimension of groups, and of each group alone, those that this rank is in."""

    def views(self, case: Case) -> tuple[GroupView, ...]:
        """The groups of a case that this rank is in: one, none, or several that overlap."""
        if not case.group:
            return (GroupView(self.group, self.rank, range(self.ranks), self.global_ranks),)
        return self.group_views.get((case.group, case.group_ranks), ())

    def all_groups(self, case: Case) -> Sequence[Sequence[int]]:
        """The global ranks of each group of a case's dimension."""
        groups = dict(self.plan.group_sets).get(case.group) if self.plan and case.group else None
        return groups or (self.global_ranks,)

    def own_groups(self) -> list[Any]:
        """The process groups that were made and that this rank is in."""
        found = {
            id(view.group): view.group for views in self.group_views.values() for view in views
        }
        return [group for group in found.values() if group is not self.group]


_joins = count()
"""How many times this process has joined others. In a store, each time has keys of its own."""


@cache
def _open_store(rank_context: RankContext, timeout: timedelta) -> Any:
    """The store in which the ranks meet. Launches in one process use the same, because rank 0 may
    serve it, and nobody else may take its port in between."""
    if rank_context.init_method.startswith("file:"):
        path = rank_context.init_method.removeprefix("file:")
        return dist.FileStore(path, rank_context.world_size)
    context = rank_context
    found = dist.rendezvous(context.init_method, context.rank, context.world_size, timeout=timeout)
    return next(iter(found))[0]


@contextmanager
def communicator(
    plan: Plan, rank_context: RankContext, watchdog: Watchdog, logs_nccl: bool = True
) -> Iterator[Communicator]:
    """Join the other ranks; leave the groups on every path, or gloo aborts at exit."""
    join_s = longest_join_s(plan.world_size)
    set_phase(watchdog.state, JOINING, expected_s=join_s)
    if plan.device == "cpu":
        # One compute thread per rank, as torchrun sets it for several ranks.
        torch.set_num_threads(1)
    device = open_device(plan.device, rank_context.local_rank)
    if rank_context.launcher == LOCAL:
        bind_near(device.pci_bus_id)  # the threads of the backend inherit it
    _prepare_variables(plan, rank_context)
    # The watchdog finds out which rank hangs; torch would only say that it timed out.
    log = groups.start_log(plan, rank_context.rank, rank_context.scratch_dir) if logs_nccl else None
    longest_s = plan.timeout_s + hangs.longest_check_s(max(plan.sizes, default=0))
    timeout = timedelta(seconds=longest_s + join_s + TORCH_EXTRA_S)
    began = time.perf_counter()
    rendezvous_s = _init_process_group(plan, rank_context, timeout)
    init_s = time.perf_counter() - began
    comm = Communicator(rank_context.rank, rank_context.world_size, device, dist.group.WORLD)
    try:
        with groups.lazy_gloo():
            comm.control = dist.new_group(backend="gloo", timeout=timeout)
        comm.gpu_shared, is_refused = groups.find_shared_gpus(comm)
        if is_refused:
            comm.gpu_shared |= groups.share_gpus(rank_context, groups.nccl_version())
        comm.nccl_log, comm.plan = log, plan
        began = time.perf_counter()
        with groups.lazy_gloo():
            comm.group_views = groups.make_groups(plan, comm.rank, comm.group, timeout)
        groups.open_idle_groups(plan, comm.device, timeout)
        made = time.perf_counter()
        _connect_or_report(comm, plan, rank_context, watchdog)
        comm.joined = time.perf_counter()
        comm.start_up_s = (init_s, made - began, comm.joined - made, rendezvous_s)
        if log:
            log.restore_variables()
        yield comm
    except CommbenchError:
        raise  # every rank has come this far, and no operation is under way
    except BaseException as error:
        lost = _publish_failure(error, rank_context, watchdog)
        _abort(comm)
        if lost and lost.message and rank_context.is_external:
            watchdog.report_lost_ranks(lost)
            raise RankError(lost.message, lost.hint, is_reporter=False) from error
        raise
    finally:
        if log:
            log.remove()
        device.release_graphs()
        if dist.is_initialized():
            dist.destroy_process_group()


def _init_process_group(plan: Plan, rank_context: RankContext, timeout: timedelta) -> float:
    """Join the default group. Returns the seconds in which the store where the ranks meet was
    opened. Raises UnavailableError where that is impossible."""
    # Where groups or few of all pairs are measured, ranks connect when they first talk.
    is_lazy = QUICK in plan.pairs or plan.has_groups
    try:
        began = time.perf_counter()
        store = _open_store(rank_context, timeout)
        rendezvous_s = time.perf_counter() - began
        with groups.lazy_gloo() if is_lazy else nullcontext():
            dist.init_process_group(
                plan.backend,
                rank=rank_context.rank,
                world_size=rank_context.world_size,
                timeout=timeout,
                pg_options=groups.make_nccl_options(plan, timeout),
                store=dist.PrefixStore(f"join-{next(_joins)}", store),
            )
        return rendezvous_s
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(
            f"rank {rank_context.rank} could not join a {plan.backend} group: {reason_of(error)}",
            "see `commbench env` for backends and devices; --timeout sets how long ranks wait",
        ) from error


def _connect_or_report(
    comm: Communicator, plan: Plan, rank_context: RankContext, watchdog: Watchdog
) -> None:
    """Connect; where this rank cannot, the error says why. The other ranks may wait for it, so that
    they learn of it as of a lost rank."""
    set_phase(watchdog.state, CONNECTING, expected_s=longest_join_s(plan.world_size))
    try:
        connect(comm)
    except (RuntimeError, ValueError) as error:
        failure = rank_state.make_failure(error, rank_context.rank, socket.gethostname())
        if failure.is_secondary:
            raise
        reason = f"no {plan.backend} communicator: {reason_of(error)}"
        is_reporter = watchdog.report_failure(reason)
        _abort(comm)
        raise UnavailableError(
            f"rank {rank_context.rank} on {failure.host} could make {reason}",
            "NCCL_DEBUG=WARN shows what NCCL says about it; `commbench doctor` checks the host",
            is_reporter=is_reporter,
        ) from error


def _publish_failure(
    error: BaseException, rank_context: RankContext, watchdog: Watchdog
) -> heartbeats.Diagnosis | None:
    """Publish a failure before this rank leaves its groups, which its peers see as a lost
    connection. A secondary failure first waits for the ranks that failed to be known, and returns
    the diagnosis."""
    failure = rank_state.make_failure(error, rank_context.rank, socket.gethostname())
    lost = watchdog.find_lost_ranks() if failure.is_secondary else None
    if lost:
        failure = failure._replace(lost_ranks=lost.message)
    else:
        watchdog.publish(failure=failure.text)
    if rank_context.scratch_dir:
        rank_state.record_failure(rank_context.scratch_dir, failure)
    return lost


def _prepare_variables(plan: Plan, rank_context: RankContext) -> None:
    """Set variables that the backends read, where the user has not set them."""
    if rank_context.is_single_node and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if plan.backend == "nccl":
        # A non-blocking communicator, as torch before 2.7.1 made, is of no use to other operations
        # once it has refused one.
        os.environ.setdefault("TORCH_NCCL_USE_COMM_NONBLOCKING", "0")


def connect(comm: Communicator) -> None:
    """Run the first operation of the group of all ranks, and on a device of each measured group.
    NCCL makes a communicator in it, so that what prevents one shows here and not as an operation
    that the backend refuses.

    Raises whatever torch raises.
    """
    for group in [comm.group, *(comm.own_groups() if comm.device.is_async else [])]:
        groups.call_first(group, comm.device)


def _abort(comm: Communicator) -> None:
    """End what the measured groups have under way on an accelerator: with an operation that never
    ends, destroying a group would wait for it. NCCL waits for its graphs in both (pytorch#115388).
    """
    if not comm.device.is_async:
        return
    comm.device.release_graphs()
    for group in (comm.group, *comm.own_groups()):
        backend = group._get_backend(comm.device.torch_device)
        if hasattr(backend, "abort"):
            backend.abort()
