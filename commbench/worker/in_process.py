"""`commbench.measure()`: measures on a process group of the caller, and starts no ranks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from commbench.analysis.csv_file import write_run_folder
from commbench.errors import CommbenchError, RankError, UnavailableError, UsageError, reason_of
from commbench.host.environment import gather_facts
from commbench.plan.plan import Plan
from commbench.results.journal import encode_run
from commbench.results.journal_reader import decode_run
from commbench.results.schema import IN_PROCESS, Run
from commbench.worker.communicator import Communicator, connect
from commbench.worker.device import Accelerator, Cpu, Device
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.groups import find_shared_gpus, gloo_group
from commbench.worker.introduction import introduce
from commbench.worker.own_calls import CallError
from commbench.worker.rank import make_header, measure_cases
from commbench.worker.recorder import RunCollector
from commbench.worker.watchdog.rank_state import open_state

CONTROL_TIMEOUT = timedelta(minutes=30)
"""How long a rank waits for the others between measurements; torch's own default for gloo."""


def measure_on_group(
    make_plan: Callable[[str, str, int], Plan],
    group: Any = None,
    *,
    label: str,
    output: Path | None = None,
) -> Run:
    """Measure on an existing process group, from within the program that made it.

    Every rank of the group calls this with the same arguments, and every rank gets the same Run,
    with all samples. `make_plan` makes the plan for a backend, a device type and a number of ranks.
    None is the default group. The current CUDA device is measured where the group has NCCL,
    otherwise the CPU. With `output` rank 0 of the group writes the run into that folder.

    Nothing is initialised and nothing remains: the CPU mode and all variables stay as they are, and
    the process group for control traffic and the buffers are freed. Ranks in the Run, and the root,
    are those of the group. Raises a CommbenchError on every rank alike; where a rank is lost, the
    timeout of the group decides how long the others wait.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise UsageError(
            "there is no process group to measure",
            "call torch.distributed.init_process_group() first, or use commbench.run()",
        )
    if dist.get_rank(group) < 0:
        raise UsageError(
            "this rank is not in the process group", "call measure() on the ranks of the group only"
        )
    backend, device = _find_backend(group)
    task = LaunchTask(
        plan=make_plan(backend, device.torch_device.type, dist.get_world_size(group)),
        label=label,
        folder=output or Path(),
        folder_exists=output is None,
        logs_nccl=False,  # the program's own log is left alone
    )
    with _communicator(group, device) as comm:
        rank_context = RankContext(
            rank=comm.rank,
            world_size=comm.ranks,
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            launcher=IN_PROCESS,
            init_method="env://",
        )
        ranks = introduce(task, rank_context, comm)
        header = make_header(task, IN_PROCESS, comm, ranks, {} if comm.rank else gather_facts())
        state = open_state(None, comm.rank)
        collector = measure_cases(task, comm, state, header, ranks, RunCollector)
        path = str(output or "")
        lines = comm.share_value(list(encode_run(collector.run(path))) if collector else None)
        run = decode_run(lines)._replace(path=path)
        if output:
            comm.agree(None, lambda _: write_run_folder(task.folder, run))
        return run


@contextlib.contextmanager
def _communicator(group: Any, device: Device) -> Iterator[Communicator]:
    """A communicator of the ranks of a group, with a control group that ends with it.

    The control group is not registered with torch.distributed: making it involves nobody but its
    ranks, and group numbers, which have to be the same on all ranks of a job, stay as they are.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    store = _get_default_store()
    # Each rank counts its own calls on these ranks, so that all of them find the same new name.
    name = "commbench/" + hashlib.sha256(repr(members).encode()).hexdigest()[:16]
    number = store.add(f"{name}/calls of {rank}", 1)
    control = None
    try:
        own_store = dist.PrefixStore(f"{name}/{number}", store)
        control = gloo_group(own_store, rank, ranks, CONTROL_TIMEOUT)
        comm = Communicator(rank, ranks, device, group or dist.group.WORLD, control)
        comm.global_ranks = members
        comm.gpu_shared, _ = find_shared_gpus(comm)
        if device.is_async:
            connect(comm)  # memory is registered with a communicator that there is
        yield comm
    except CommbenchError:
        raise
    except (RuntimeError, OSError, CallError) as error:
        raise RankError(
            f"measuring failed on rank {rank} ({socket.gethostname()}): {reason_of(error)}",
            "read the errors of the other ranks, and check that all of them called measure()",
        ) from error
    finally:
        del control
        device.release_graphs()
        device.release_cached_memory()


def _find_backend(group: Any) -> tuple[str, Device]:
    """The backend of a group that is measured, and its device."""
    backends = dict(
        part.split(":", 1) for part in dist.get_backend_config(group).split(",") if ":" in part
    )
    if "cuda" in backends and torch.cuda.is_available():
        return backends["cuda"], Accelerator("cuda", torch.cuda.current_device())
    if "cpu" in backends:
        return backends["cpu"], Cpu()
    raise UnavailableError(
        f"the process group has no backend for this host: {dist.get_backend_config(group)}",
        "measure a group of the backend nccl with GPUs, or of gloo",
    )
