"""What a launcher passes to a rank, and the first function of a rank that the elastic agent
started, in a forked or spawned process. Needs no torch."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from commbench.errors import CommbenchError, handle_interruptions
from commbench.plan.case import FINISHED, Case
from commbench.plan.plan import Plan
from commbench.results.schema import RunHeader
from commbench.worker.watchdog.rank_state import log_path, record_error, stack_path

LOCAL = "local"
"""The launcher of ranks that commbench started itself."""


class RankContext(NamedTuple):
    """The number of a rank among the others, and how it joins them."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launcher: str
    """Who started it: `local`, `torchrun`, `srun`, `mpirun`."""
    init_method: str
    """`file:PATH` (one host), `tcp://HOST:PORT`, or `env://` (torchrun's variables)."""
    scratch_dir: Path | None = None
    """The folder for error files; None where nobody would read them."""

    @property
    def is_external(self) -> bool:
        """Whether a launcher other than commbench started the ranks, so that only they themselves
        can see how the others end."""
        return self.launcher != LOCAL and self.scratch_dir is None

    @property
    def is_single_node(self) -> bool:
        """Whether all ranks share this host."""
        return self.local_world_size == self.world_size


class LaunchTask(NamedTuple):
    """One launch of a run, the same for all of its ranks."""

    plan: Plan
    label: str
    folder: Path
    folder_exists: bool = True
    """False: rank 0 creates it, once all ranks have the same plan."""
    launch: int = 0
    """Its number, from 0."""
    is_silent: bool = False
    """Whether rank 0 shows no progress."""
    is_verbose: bool = False
    """Whether rank 0 prints each case that has ended, where its progress is no bar."""
    logs_nccl: bool = True
    """Whether what NCCL logs of its communicator is recorded."""
    resumed_from: RunHeader | None = None
    """The header of the run that is resumed: nothing it depends on may have changed since."""
    finished: frozenset[int] | None = None
    """Cases that this launch finished before it was interrupted; None: it was not resumed."""
    journal: str = "new"
    """A digest of the journal that is continued; all ranks need the same."""

    def cases(self) -> tuple[Case, ...]:
        """The cases of the plan; those that this launch has finished before are marked."""
        done, cases = self.finished or (), self.plan.cases()
        return tuple(c._replace(status=FINISHED) if c.index in done else c for c in cases)


class WorkerArgs(NamedTuple):
    """What the launcher passes to a rank."""

    tasks: tuple[LaunchTask, ...]
    """Launches, one after another in the same processes."""
    scratch_dir: Path
    """A private folder of this launch: the file store, logs and error files."""
    launcher_pid: int
    """Ranks end with this process."""


DEBUG_VARIABLES = (
    "COMMBENCH_TRACEBACK", "NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG", "TORCH_SHOW_CPP_STACKTRACES",
)  # fmt: skip
"""Variables that ask ranks for more output: where one is set, it goes to the terminal."""


def worker_main(worker_args: WorkerArgs) -> None:
    """Run as the rank that torchrun's variables name; exit with the code of what went wrong."""
    # The launcher decides when to stop. A rank then ends at once, even within a collective that
    # never returns to Python.
    handle_interruptions(signal.SIG_DFL)
    _end_with_process(worker_args.launcher_pid)
    scratch_dir = worker_args.scratch_dir
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    rank, ranks, local_rank, local_ranks = (int(os.environ[name]) for name in names)
    where = f"file:{scratch_dir / 'ranks'}" if ranks == local_ranks else "env://"
    rank_context = RankContext(rank, ranks, local_rank, local_ranks, LOCAL, where, scratch_dir)
    from commbench.worker.rank import run_rank

    verbose = os.environ.get("TORCH_CPP_LOG_LEVEL") in ("INFO", "WARNING")
    if not verbose and not any(name in os.environ for name in DEBUG_VARIABLES):
        _redirect_output(log_path(scratch_dir, rank), is_reporter=not rank)
        # A crash writes its stack to a file, so that the terminal shows only the two lines of the
        # error; of one thread only, because reading the others' while they run may never end.
        stack = stack_path(scratch_dir, rank).open("w")
        faulthandler.enable(stack, all_threads=False)

    try:
        run_rank(worker_args.tasks, rank_context, partial(record_error, scratch_dir, rank))
    except CommbenchError as error:
        record_error(scratch_dir, rank, error)
        sys.exit(error.exit_code)
    except SystemExit as left:
        # torch's agent would take code 0 for a rank that is done.
        raise RuntimeError(f"something called sys.exit({left.code})") from left


def _end_with_process(launcher_pid: int) -> None:
    """Make the kernel end this process when its parent, the launcher, ends in any way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != launcher_pid:  # it has ended already
        os._exit(1)


def _redirect_output(log: Path, is_reporter: bool) -> None:
    """Send what this rank and the libraries in it print to its log. The progress that the reporter
    prints to sys.stderr still goes to the terminal."""
    try:
        terminal = os.dup(sys.stderr.fileno())
    except (AttributeError, OSError):  # a script or a notebook has replaced it
        terminal = os.dup(2)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if is_reporter:
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
