"""Where a rank that commbench itself launched begins: a forked or spawned process."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from commbench.errors import CommbenchError, RankError
from commbench.worker.context import LOCAL, LaunchTask, RankContext
from commbench.worker.watchdog.error_files import log_path, record_error, stack_path


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerArgs:
    """What the launcher sends a rank to do."""

    task: LaunchTask
    scratch_dir: Path
    """A private folder of this launch: the meeting point, and what ranks report of their errors."""
    meets_in_file: bool
    launcher: int
    """Its process; ranks do not outlive it."""


TALKATIVE = (
    "COMMBENCH_TRACEBACK", "NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG", "TORCH_SHOW_CPP_STACKTRACES",
)  # fmt: skip
"""Variables that ask for more words of ranks: where one is set, people see them at once."""
PR_SET_PDEATHSIG = 1


def worker_main(worker_args: WorkerArgs) -> None:
    """Run as the rank that torchrun's variables name; exit with the code of what went wrong."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        # The launcher decides when to stop, and then a rank must go at once, also out of a
        # collective that never returns to Python.
        signal.signal(number, signal.SIG_DFL)
    _end_with(worker_args.launcher)
    rank_context = RankContext(
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_world_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        launcher=LOCAL,
        meeting_point=f"file:{worker_args.scratch_dir / 'ranks'}"
        if worker_args.meets_in_file
        else "env://",
        scratch_dir=worker_args.scratch_dir,
    )
    from commbench.worker.rank import run_rank

    verbose = os.environ.get("TORCH_CPP_LOG_LEVEL") in ("INFO", "WARNING")
    if not verbose and not any(name in os.environ for name in TALKATIVE):
        _write_to(
            log_path(worker_args.scratch_dir, rank_context.rank), is_reporter=not rank_context.rank
        )
        # A crash writes its stack here and not over the two lines that people read; that of its
        # own thread alone, for reading others' while they run can take for ever.
        stack = stack_path(worker_args.scratch_dir, rank_context.rank).open("w")
        faulthandler.enable(stack, all_threads=False)

    def tell(error: RankError, is_reporter: bool) -> None:  # noqa: ARG001 - the launcher reads one
        record_error(worker_args.scratch_dir, rank_context.rank, error)

    try:
        run_rank(worker_args.task, rank_context, tell)
    except CommbenchError as error:
        record_error(worker_args.scratch_dir, rank_context.rank, error)
        sys.exit(error.exit_code)
    except SystemExit as left:
        # torch's agent would take code 0 for a rank that is done.
        raise RuntimeError(f"something called sys.exit({left.code})") from left


def _end_with(launcher: int) -> None:
    """Have the kernel end this process when the launcher ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it was already over
        os._exit(1)


def _write_to(log: Path, is_reporter: bool) -> None:
    """Send what this rank and the libraries in it print to its log. Progress, which the one that
    speaks prints to sys.stderr, stays where people look."""
    terminal = os.dup(sys.stderr.fileno())
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if is_reporter:
        sys.stderr = os.fdopen(terminal, "w", buffering=1)
