"""The process groups of a plan, those that are made in order to time how they are made, and what
NCCL needs for them: its options, its log, and its leave where ranks share a GPU.

Only rank 0 lets NCCL log how it makes the communicator, only the subsystem INIT: a few hundred
lines while connections are made and none for a call, so that nothing is written while calls are
timed. NCCL reads these variables once, when it logs for the first time; they then become again what
the user has set. `ncclResetDebugInit` makes NCCL read them once more. Its library exports that
function, though no longer as a part of the API (NCCL 2.24 and later, src/debug.cc).
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist

from commbench.errors import UnavailableError
from commbench.host.environment import nccl_settings
from commbench.output.console import print_status
from commbench.plan import backends
from commbench.plan.plan import Plan
from commbench.worker.device import Call, Device
from commbench.worker.entrypoint import RankContext

if TYPE_CHECKING:
    from commbench.worker.communicator import Communicator


LAZY = "TORCH_GLOO_LAZY_INIT"


class GroupView(NamedTuple):
    """A group that is measured, as one of its ranks sees it."""

    group: Any
    """The process group."""
    rank: int
    """The number of this rank within the group."""
    ranks: Sequence[int]
    """The numbers of its ranks among all ranks."""
    global_ranks: Sequence[int]
    """Their numbers in the default process group, as torch.distributed wants them."""
    number: int = 0
    """The number of the group among those of its dimension."""


GroupViews: TypeAlias = dict[str, list[GroupView]]
"""By dimension, the groups that a rank is in."""


def make_groups(plan: Plan, rank: int, default: Any, timeout: timedelta) -> GroupViews:
    """Make the process groups that the plan measures, and no others; the views of `rank`.

    Every rank calls new_group for every group, in the same order, as torch's DeviceMesh does; ranks
    outside of a group make nothing. A group of all ranks is the `default` one.
    """
    views: GroupViews = {}
    for name, groups in plan.group_sets:
        own = views.setdefault(name, [])
        for number, ranks in enumerate(groups) if name else ():
            if len(ranks) < 2:
                continue
            group = default
            if len(ranks) < plan.world_size:
                options = make_nccl_options(plan, timeout)
                group = dist.new_group(
                    ranks, timeout=timeout, pg_options=options, group_desc=f"commbench_{name}"
                )
            if rank in ranks:
                own.append(GroupView(group, ranks.index(rank), ranks, ranks, number))
    return views


def open_idle_groups(plan: Plan, device: Device, timeout: timedelta) -> None:
    """Make the groups that a plan wants to be open while it measures, as a program makes them. On a
    device each makes its communicator in one call."""
    for _ in range(plan.open_groups):
        group = dist.new_group(timeout=timeout, pg_options=make_nccl_options(plan, timeout))
        if device.is_async:
            call_first(group, device)


def call_first(group: Any, device: Device) -> None:
    """Make the first call of a group. Raises whatever torch raises."""
    token = torch.zeros(1, device=device.torch_device)
    device.in_stream(lambda: dist.all_reduce(token, group=group))()
    device.synchronize()


@contextmanager
def lazy_gloo() -> Iterator[None]:
    """While this is open, new gloo groups connect two ranks only when they first talk: control
    traffic goes along trees, and a full mesh of n^2 connections would cost more than the rest of a
    start."""
    before = os.environ.get(LAZY)
    os.environ[LAZY] = "1"
    try:
        yield
    finally:
        os.environ.pop(LAZY, None)
        if before is not None:
            os.environ[LAZY] = before


MOST_KEPT = 4
"""New groups that exist at once. The memory of a group is measured over all of them, because that
of one is smaller than what else a process takes and frees."""


class NewGroups:
    """Makes process groups with the same ranks as others, and ends them.

    Every rank makes all of `groups`, in the same order, as torch demands and its DeviceMesh does;
    they are lists of ranks, and this rank is in one of them. They have torch's default options.
    With gloo all ranks of a group connect when it is made, unless the environment variable
    TORCH_GLOO_LAZY_INIT says otherwise.
    """

    def __init__(self, group: Any, groups: Sequence[Sequence[int]], device: Device) -> None:
        """`group` is the process group of this rank that exists already."""
        self._group, self._groups, self._device = group, groups, device
        self._made: list[Any] = []

    def __len__(self) -> int:
        return len(self._made)

    def make(self) -> Any:
        """The new process group of this rank. Raises RuntimeError where ranks are missing."""
        if sum(map(len, self._groups)) < dist.get_world_size():
            raise NotImplementedError("all ranks of the job take part in making a group")
        for ranks in self._groups:
            made = dist.new_group(list(ranks))
            if dist.get_rank() in ranks:
                self._made.append(made)
        return self._made[-1]

    def split(self) -> Any:
        """A new process group that is split off, with the same ranks. Raises RuntimeError where the
        backend or this torch cannot do it."""
        default = dist.distributed_c10d._get_default_group()
        before, default.bound_device_id = default.bound_device_id, self._device.torch_device
        try:  # torch splits only where the default group has a device
            ranks = list(range(dist.get_world_size(self._group)))
            self._made.append(dist.split_group(self._group, [ranks]))
        finally:
            default.bound_device_id = before
        return self._made[-1]

    def last(self) -> Any:
        """The group that was made last."""
        return self._made[-1] if self._made else self.make()

    def prepare(self, calls_before: int | None, call: Call) -> None:
        """Before a call is timed: make its group, and run so many calls there. None: the call makes
        its group itself."""
        if len(self._made) >= MOST_KEPT:
            self.release()
        if calls_before is None:
            return
        self.make()
        for _ in range(calls_before):
            call()

    def release(self) -> None:
        """End all of them. All ranks come to this together: one that still connects to another must
        find it."""
        if self._made:
            index = self._device.torch_device.index
            dist.barrier(self._group, device_ids=None if index is None else [index])
        while self._made:
            dist.destroy_process_group(self._made.pop())


def held_bytes(made: Sequence[NewGroups], device: Device, is_without: bool) -> int | None:
    """The memory in use, in bytes, once these groups have ended or while there are some. None where
    there are none, or that is unknown."""
    for groups in made if is_without else ():
        groups.release()
    if not made or not (is_without or any(len(groups) for groups in made)):
        return None
    gc.collect()
    device.synchronize()
    return device.held_bytes()


def make_nccl_options(plan: Plan, timeout: timedelta | None = None) -> Any:
    """The Options of a plan, with the timeout of the group, for torch warns of another one; None
    where the plan has none.

    Raises UsageError for another backend, UnavailableError for an option that this torch does not
    offer.
    """
    backends.require_nccl(plan.backend, plan.nccl_options)
    if not plan.nccl_options:
        return None
    process_group = getattr(dist, "ProcessGroupNCCL", None)
    if process_group is None:
        hint = "leave --nccl-option out"
        raise UnavailableError(f"torch {torch.__version__} was built without NCCL", hint)
    options = process_group.Options()
    for text in backends.parse_nccl_options(plan.nccl_options):  # a file may hold another one
        name, _, value = text.partition("=")
        is_of_group = backends.NCCL_OPTIONS[name].is_of_group
        target = options if is_of_group else getattr(options, "config", None)
        if not hasattr(target, name):
            hint = "leave it out, or use a newer torch: its options are those of the NCCL that it "
            hint += "was built with"
            raise UnavailableError(f"torch {torch.__version__} has no NCCL option {name}", hint)
        setattr(target, name, backends.read_value(name, value))
    if timeout is not None:
        options._timeout = timeout
    return options


MULTI_RANK_NCCL = (2, 30)
"""The first NCCL that can put several ranks on one GPU."""


def find_shared_gpus(comm: Communicator) -> tuple[bool, bool]:
    """Whether two ranks have the same device of the same boot of a host, and whether NCCL refuses
    them for that: to it a part of a GPU (MIG) is its GPU (nccl#1716). The same on every rank.

    How many devices a rank sees says nothing about that: many launchers show each rank its own.
    """
    device = comm.device
    if not device.is_async:
        return False, False

    *gpu, part = device.identity
    # RCCL tells the partitions of AMD's GPUs from each other.
    to_nccl = [*gpu, "" if part.startswith("MIG-") else part]
    first = comm.first_alike([device.identity, to_nccl])
    shared, refused = (first != torch.arange(comm.ranks)).any(1).tolist()
    return shared, refused


def nccl_version() -> tuple[int, ...]:
    """The version of NCCL; () in a torch without it."""
    return tuple(torch.cuda.nccl.version()) if dist.is_nccl_available() else ()


def share_gpus(rank_context: RankContext, version: tuple[int, ...]) -> bool:
    """Let NCCL put several ranks on one GPU, which it refuses to ranks of one host; whether that
    takes a detour. Takes effect before the first operation.

    NCCL from 2.30 on can do it. To an older one each rank becomes a host, by a name of its own, and
    talks over sockets: functional, and no measure of performance.
    """
    if version >= MULTI_RANK_NCCL:
        os.environ.setdefault("NCCL_MULTI_RANK_GPU_ENABLE", "1")
        return False
    os.environ["NCCL_HOSTID"] = f"commbench-rank{rank_context.rank}"
    for name, value in (("P2P_DISABLE", "1"), ("SHM_DISABLE", "1"), ("NET", "Socket")):
        os.environ.setdefault(f"NCCL_{name}", value)
    if rank_context.is_single_node:
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    return True


VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT"}
FILE = "NCCL_DEBUG_FILE"
MOST_BYTES = 4 << 20
LIBRARIES = ("libnccl.so.2", "librccl.so.1", "libtorch_cuda.so", None)
"""Where NCCL may be: its library, AMD's, torch if NCCL is built into it, any other."""


def find_reset() -> Call | None:
    """The function of the NCCL in this process that makes it read its variables again; None where
    there is none. It loads no library."""
    for library in LIBRARIES:
        with suppress(OSError, AttributeError):
            return ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW).ncclResetDebugInit
    return None


class NcclLog:
    """The log of a subsystem that the NCCL of this rank writes into a file, if it reads its
    variables while they are set."""

    def __init__(self, path: Path, subsystem: str = "INIT", reset: Call | None = None) -> None:
        self._path, self._offset, self._reset = path, 0, reset
        known = nccl_settings() | os.environ
        self._before = {name: known.get(name) for name in (*VARIABLES, FILE)}
        os.environ.update(VARIABLES | {"NCCL_DEBUG_SUBSYS": subsystem, FILE: str(path)})

    def restore_variables(self) -> None:
        """NCCL has read the variables: they are no part of the run's environment."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def read_more(self) -> list[str]:
        """The lines since the last time; none where they cannot be read. Warnings are printed where
        the user wants them."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(MOST_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        lines = data.decode(errors="replace").splitlines()
        for line in lines if self._before["NCCL_DEBUG"] else ():
            if " NCCL WARN " in line:
                print_status(line)
        return lines

    def remove(self) -> list[str]:
        """Remove the file, whose last lines are returned, and let NCCL log as the user wants."""
        self.restore_variables()
        lines = self.read_more()
        if self._reset:
            self._reset()
        self._path.unlink(missing_ok=True)
        return lines


def uses_nccl(plan: Plan) -> bool:
    """Whether the backend of a plan is NCCL."""
    backend = backends.BACKENDS.get(plan.backend)
    return bool(backend and backend.is_nccl)


def may_log(plan: Plan) -> bool:
    """Whether the backend is NCCL, and the user has not set what it logs, but for warnings."""
    known = nccl_settings() | os.environ
    is_free = known.get("NCCL_DEBUG", "").upper() in ("", "WARN")
    others = (name in known for name in ("NCCL_DEBUG_SUBSYS", FILE))
    return uses_nccl(plan) and is_free and not any(others)


def start_log(plan: Plan, rank: int, scratch_dir: Path | None) -> NcclLog | None:
    """The log of rank 0; None on other ranks, with another backend, where the user has set what
    NCCL logs, where NCCL could not go on to print warnings, and where no file can be made."""
    if rank or not may_log(plan):
        return None
    warns = "NCCL_DEBUG" in nccl_settings() | os.environ
    reset = find_reset() if warns else None
    if warns and not reset:
        return None
    try:
        descriptor, path = tempfile.mkstemp(prefix="nccl-", suffix=".log", dir=scratch_dir)
    except OSError:
        return None
    os.close(descriptor)
    return NcclLog(Path(path), reset=reset)
