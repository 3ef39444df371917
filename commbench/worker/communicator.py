"""The process groups of a rank: the one that is measured, and one of its own for control, and what
ranks tell each other over that.

Control traffic goes along a binomial tree, so that no rank talks to more than log2(n) others, and
rank 0 does not grow with what the ranks hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from commbench import errors
from commbench.errors import CommbenchError, UnavailableError, reason_of
from commbench.host.gpus import bind_near
from commbench.plan.case import Case
from commbench.plan.groups import format_group
from commbench.plan.pairs import QUICK
from commbench.plan.plan import Plan, longest_join_s
from commbench.worker import groups
from commbench.worker.device import Device, open_device
from commbench.worker.entrypoint import LOCAL, RankContext
from commbench.worker.groups import GroupView, GroupViews, NcclLog
from commbench.worker.watchdog import hangs, heartbeats, rank_state
from commbench.worker.watchdog.watchdog import Watchdog

TORCH_EXTRA_S = 60.0
"""How much longer than the watchdog torch waits for an operation."""
_TAG, _SHARE_TAG, _GROUP_TAG = 1, 2, 3
"""Of the messages that go up and down the tree of all ranks, and up that of a group."""


class Communicator:
    """One rank's view of the ranks that are measured.

    `group` is the measured process group; it carries nothing but what is measured. All other
    traffic goes over `control`, a gloo group of the same ranks. Ranks are numbered within the
    group.
    """

    def __init__(
        self, rank: int, ranks: int, device: Device, group: Any = None, control: Any = None
    ) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self.group, self.control = group, control
        self._parent, self._children = _binomial_tree(rank, ranks)
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
        self.state = rank_state.open_state(None, rank)
        """What this rank does, for its watchdog."""
        self.nccl_log: NcclLog | None = None
        """Where NCCL logs how it makes the communicator, on rank 0."""
        self.plan: Plan | None = None
        """What is measured; None where that has no groups."""
        self.group_views: GroupViews = {}
        """Of each dimension of groups, those that this rank is in."""

    def views(self, case: Case) -> tuple[GroupView, ...]:
        """The groups of a case that this rank is in: one, none, or several that overlap."""
        if not case.group:
            return (GroupView(self.group, self.rank, range(self.ranks), self.global_ranks),)
        views, alone = self.group_views.get(case.group, ()), case.group_ranks
        return tuple(view for view in views if not alone or format_group(view.ranks) == alone)

    def all_groups(self, case: Case) -> Sequence[Sequence[int]]:
        """The global ranks of each group of a case's dimension."""
        groups = dict(self.plan.group_sets).get(case.group) if self.plan and case.group else None
        return groups or (self.global_ranks,)

    def own_groups(self) -> list[Any]:
        """The process groups that this rank is in, that of all ranks first."""
        made = (view.group for views in self.group_views.values() for view in views)
        return list(dict.fromkeys([self.group, *made]))

    def share(self, tensor: torch.Tensor, source: int = 0) -> torch.Tensor:
        """The tensor of rank `source`, on every rank."""
        parent, children = self._parent, self._children  # gloo's broadcast takes twice the time
        if source:
            parent, children = _binomial_tree((self.rank - source) % self.ranks, self.ranks)
        if parent is not None:
            self.control.recv([tensor], (parent + source) % self.ranks, _SHARE_TAG).wait()
        for child, _ in reversed(children):  # the largest subtree first
            self.control.send([tensor], (child + source) % self.ranks, _SHARE_TAG).wait()
        return tensor

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every rank's `tensor` (same shape and dtype everywhere), stacked by rank, on rank 0;
        empty elsewhere."""
        parts = [tensor.unsqueeze(0)]
        for child, size in self._children:
            part = torch.empty((size, *tensor.shape), dtype=tensor.dtype)
            self.control.recv([part], child, _TAG).wait()
            parts.append(part)
        gathered = torch.cat(parts)
        if self._parent is None:
            return gathered
        self.control.send([gathered], self._parent, _TAG).wait()
        return gathered[:0]

    def reduce_max(self, tensor: torch.Tensor, view: GroupView | None = None) -> torch.Tensor:
        """The maximum of each element over all ranks, on rank 0; a part of it elsewhere. With
        `view` over the ranks of that group, on its first rank; the ranks that are in several groups
        call this in the same order. A rank holds one more tensor, however many ranks there are.
        """
        ranks: Sequence[int] = view.ranks if view else range(self.ranks)
        tag = _GROUP_TAG if view else _TAG
        parent, children = _binomial_tree(view.rank if view else self.rank, len(ranks))
        result, part = tensor.clone(), torch.empty_like(tensor)
        for child, _ in children:
            self.control.recv([part], ranks[child], tag).wait()
            torch.maximum(result, part, out=result)
        if parent is not None:
            self.control.send([result], ranks[parent], tag).wait()
        return result

    def all_reduce_max(self, tensor: torch.Tensor) -> torch.Tensor:
        """The maximum of each element over all ranks, on every rank."""
        return self.share(self.reduce_max(tensor))

    def first_rank(self, flags: Sequence[bool]) -> list[int | None]:
        """For each flag the lowest rank on which it is set, None where there is none; the same on
        every rank. All ranks have equally many flags."""
        if not flags:
            return []
        own = torch.tensor([flag * (self.ranks - self.rank) for flag in flags])
        found = self.all_reduce_max(own).tolist()
        return [self.ranks - number if number else None for number in found]

    def share_value(self, value: Any, source: int = 0) -> Any:
        """The JSON value of rank `source`, of any size, on every rank."""
        data = bytearray(json.dumps(value).encode() if self.rank == source else b"")
        size = int(self.share(torch.tensor(len(data)), source))
        found = self.share(_as_bytes(data or bytearray(size)), source)
        return json.loads(bytes(found.numpy()))

    def gather_values(self, value: Any) -> list[Any]:
        """The JSON value of each rank, in the order of ranks and without None, on rank 0; empty
        elsewhere. On the way they are texts of equal length, which only rank 0 reads."""
        text = b" " if value is None else json.dumps(value).encode()
        longest = int(self.all_reduce_max(torch.tensor(len(text))))
        padded = self.gather(_as_bytes(bytearray(text.ljust(longest)))).numpy()
        texts = (each.tobytes().strip() for each in padded)
        return [json.loads(each) for each in texts if each]

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every rank's `tensor` (same shape and dtype everywhere), stacked by rank."""
        gathered, shape = self.gather(tensor), (self.ranks, *tensor.shape)
        return self.share(torch.empty(shape, dtype=tensor.dtype) if self.rank else gathered)

    def first_alike(self, values: Sequence[Any]) -> torch.Tensor:
        """For each of these JSON values, and each rank, the first rank that has the same: int64
        [values, ranks], the same on every rank. Ranks compare 64 bits of a hash."""
        hashes = [hashlib.sha256(json.dumps(value).encode()).digest()[:8] for value in values]
        own = torch.tensor([int.from_bytes(each, "big", signed=True) for each in hashes])
        first = torch.empty((len(values), self.ranks), dtype=torch.int64)
        for found, column in zip(first, self.gather(own).T.tolist(), strict=True):
            seen: dict[int, int] = {}
            for rank, value in enumerate(column):
                found[rank] = seen.setdefault(value, rank)
        return self.share(first)

    def on_rank_0(self, function: Callable[[], Any]) -> Any:
        """The JSON value that a function returns on rank 0, on every rank. A CommbenchError that it
        raises is raised on every rank."""
        found, error = None, None
        if not self.rank:
            try:
                found = function()
            except CommbenchError as caught:
                error = errors.to_wire(caught)
        found, error = self.share_value((found, error))
        if error:
            raise errors.from_wire(error)
        return found


def _binomial_tree(rank: int, ranks: int) -> tuple[int | None, list[tuple[int, int]]]:
    """The parent of a rank in the tree that gloo's broadcast from rank 0 uses too (None for rank
    0), and each child with the number of ranks below and including it.

    The subtree of a child consists of the ranks that follow it, so that parts arrive in order.
    """
    children, step = [], 1
    while step < ranks and not rank & step:
        if rank + step < ranks:
            children.append((rank + step, min(step, ranks - rank - step)))
        step *= 2
    return (rank - step if rank else None), children


def _as_bytes(data: bytearray) -> torch.Tensor:
    return torch.frombuffer(data, dtype=torch.uint8)


_joins = count()
"""How many times this process has joined others. In a store, each time has keys of its own."""


@cache
def _open_store(rank_context: RankContext, timeout: timedelta) -> Any:
    """The store in which the ranks meet. Launches in one process use the same, because rank 0 may
    serve it, and nobody else may take its port in between."""
    if rank_context.init_method.startswith("file:"):
        path = rank_context.init_method.removeprefix("file:")
        return dist.FileStore(path, rank_context.world_size)
    where = rank_context.init_method, rank_context.rank, rank_context.world_size
    return next(iter(dist.rendezvous(*where, timeout=timeout)))[0]


@contextmanager
def communicator(
    plan: Plan, rank_context: RankContext, watchdog: Watchdog, logs_nccl: bool = True
) -> Iterator[Communicator]:
    """Join the other ranks; leave the groups on every path, or gloo aborts at exit."""
    join_s = longest_join_s(plan.world_size)
    rank_state.set_phase(watchdog.state, rank_state.JOINING, expected_s=join_s)
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
        comm.nccl_log, comm.plan, comm.state = log, plan, watchdog.state
        began = time.perf_counter()
        with groups.lazy_gloo():
            comm.group_views = groups.make_groups(plan, comm.rank, comm.group, timeout)
        groups.open_idle_groups(plan, comm.device, timeout)
        made = time.perf_counter()
        _connect_or_report(comm, plan, watchdog)
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
            raise errors.RankError(lost.message, lost.hint, is_reporter=False) from error
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
        reason = reason_of(error)
        hint = "see `commbench env` for backends and devices; --timeout sets how long ranks wait"
        raise UnavailableError(
            f"rank {rank_context.rank} could not join a {plan.backend} group: {reason}",
            "set GLOO_SOCKET_IFNAME to one of these" if "GLOO_SOCKET_IFNAME" in reason else hint,
        ) from error


def _connect_or_report(comm: Communicator, plan: Plan, watchdog: Watchdog) -> None:
    """Connect; where this rank cannot, the error says why. The other ranks may wait for it, so that
    they learn of it as of a lost rank."""
    join_s = longest_join_s(plan.world_size)
    rank_state.set_phase(watchdog.state, rank_state.CONNECTING, expected_s=join_s)
    try:
        connect(comm)
    except (RuntimeError, ValueError) as error:
        if rank_state.make_failure(error).is_secondary:
            raise
        reason = f"no {plan.backend} communicator: {reason_of(error)}"
        is_reporter = watchdog.report_failure(reason)
        _abort(comm)
        why = f"rank {comm.rank} on {socket.gethostname()} could make {reason}"
        hint = "NCCL_DEBUG=WARN shows what NCCL says about it; `commbench doctor` checks the host"
        raise UnavailableError(why, hint, is_reporter=is_reporter) from error


def _publish_failure(
    error: BaseException, rank_context: RankContext, watchdog: Watchdog
) -> heartbeats.Diagnosis | None:
    """Publish a failure before this rank leaves its groups, which its peers see as a lost
    connection. A secondary failure first waits for the ranks that failed to be known, and returns
    the diagnosis."""
    failure = rank_state.make_failure(error)
    lost = watchdog.find_lost_ranks() if failure.is_secondary else None
    if lost:
        failure = failure._replace(lost_ranks=lost.message)
    else:
        watchdog.publish(failure=failure.text)
    if rank_context.scratch_dir:
        rank_state.record(rank_context.scratch_dir, rank_state.FAILURE, rank_context.rank, failure)
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
    for group in comm.own_groups() if comm.device.is_async else [comm.group]:
        groups.call_first(group, comm.device)


def _abort(comm: Communicator) -> None:
    """End what the measured groups have under way on an accelerator: with an operation that never
    ends, destroying a group would wait for it. NCCL waits for its graphs in both (pytorch#115388).
    """
    if not comm.device.is_async:
        return
    comm.device.release_graphs()
    for group in comm.own_groups():
        backend = group._get_backend(comm.device.torch_device)
        if hasattr(backend, "abort"):
            backend.abort()
