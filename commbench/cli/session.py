"""One `commbench run` from request to table: choose a place, plan, launch or join, report."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from commbench.cli.ask import Request
from commbench.cli.speak import say, tell
from commbench.errors import (
    INTERRUPTIONS,
    CommbenchError,
    Interrupted,
    RankError,
    RecordsError,
    UnavailableError,
    UsageError,
    WrongResultError,
    first_line,
    ignore_interruptions,
    of_system,
)
from commbench.plan import READY, Plan
from commbench.typed import LONGEST_TEXT

if TYPE_CHECKING:
    from commbench.launch.local import Nodes
    from commbench.launch.places import Place
    from commbench.records.journal import Progress
    from commbench.records.schema import Run
    from commbench.worker.seat import Seat
    from commbench.worker.task import Task

RESULTS = Path("results")
QUIET = "ERROR"
"""What torch's C++ warns of while nodes come and go is no news."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(request: Request, before: Progress | None = None) -> None:
    """Measure what was requested, or what is left of a run that came so far `before`: as a rank
    where somebody else started ranks, otherwise on ranks launched from here."""
    from commbench.launch.attached import find_seat

    seat = find_seat(request.master_addr, request.master_port)
    if request.launches > 1 and (seat or request.launcher == "torchrun"):
        raise UsageError(
            f"{request.launches} launches need commbench to launch the ranks itself",
            "leave out --launches here, and give several runs to `commbench compare`",
        )
    if not seat:
        _be_interruptible()
    place, plan, nodes = _plan(request, seat)
    if before:
        plan = _plan_of(before, plan)
    if seat:
        _join(request, place, plan, seat, before)
    else:
        _launch(request, place, plan, nodes, before)


def rehearse(request: Request) -> None:
    """Print what a run would do, and start nothing."""
    import shlex

    from commbench.launch.attached import find_seat
    from commbench.launch.local import torchrun_line
    from commbench.report.tables import plan_text

    place, plan, nodes = _plan(request, find_seat(request.master_addr, request.master_port))
    say(_choice(place, plan))
    line = [*torchrun_line(nodes), *request.arguments()]
    say(plan_text(plan, shlex.join(line)))
    refuse_nothing(plan)


def _plan(request: Request, seat: Seat | None) -> tuple[Place, Plan, Nodes]:
    """Where to measure, and the whole plan; raises CommbenchError before any rank is started."""
    import_torch()
    from commbench.launch.local import Nodes
    from commbench.launch.places import choose, find_offer

    per_node = seat.local_world_size if seat else request.ranks_per_node
    place = choose(find_offer(), request.backend, request.device, per_node)
    # Every rank must come to the same plan: nothing of its own node enters it.
    world_size = seat.world_size if seat else place.ranks_per_node * request.num_nodes
    nodes = Nodes(
        count=request.num_nodes,
        rank=request.node_rank,
        master_addr=request.master_addr or "127.0.0.1",
        master_port=request.master_port or 29500,
        ranks_per_node=place.ranks_per_node,
    )
    return place, request.plan(place.backend, place.device, world_size), nodes


def _be_interruptible() -> None:
    """End in two lines at a signal, also while no agent listens to it."""

    def stop(number: int, _: object) -> None:
        raise Interrupted(
            f"stopped by {signal.Signals(number).name}",
            "`commbench show` prints what there is of a run",
            signal_number=number,
        )

    for number in INTERRUPTIONS:
        signal.signal(number, stop)


def _plan_of(before: Progress, asked: Plan) -> Plan:
    """The plan of a run that is taken up again, if there are as many ranks again."""
    plan = before.run.header.plan
    if asked.world_size != plan.world_size:
        raise UsageError(
            f"{before.run.path} has {plan.world_size} ranks, and here are {asked.world_size}",
            "start as many as before; several nodes need --nnodes and --node-rank again",
        )
    return plan


def _launch(
    request: Request, place: Place, plan: Plan, nodes: Nodes, before: Progress | None
) -> None:
    from commbench.launch.files import allow_files
    from commbench.launch.local import launch, launch_with_torchrun, start_method, torchrun_line
    from commbench.records.journal import JOURNAL, read_run

    refuse_nothing(plan)
    _say(_choice(place, plan, resumed=before is not None))
    writes, began = nodes.rank == 0, time.monotonic()
    tasks = _tasks(request, plan, writes, before)
    folder = tasks[0].folder
    had_bytes = (folder / JOURNAL).stat().st_size if writes else 0

    def give_up(error: CommbenchError) -> None:
        ignore_interruptions()
        if writes and (not before or _has_grown(folder / JOURNAL, had_bytes)):
            _give_up(folder, error, time.monotonic() - began)

    try:
        if request.launcher == "torchrun":
            allow_files(plan, nodes.ranks_per_node)
            _say("ranks are started by the torchrun command", request.verbose)
            place_of_run = ["--resume" if before else "--output", str(folder)]
            launch_with_torchrun([*request.arguments(), *place_of_run], torchrun_line(nodes))
        else:
            for task in tasks:
                began = time.monotonic()
                _say(f"launch {task.launch + 1} of {plan.launches}", plan.launches > 1)
                method, why = start_method(plan.device, nodes)
                _say(f"ranks are {method}ed by torchrun's agent: {why}", request.verbose)
                launch(task, nodes, method)
    except CommbenchError as error:
        give_up(error)
        raise
    except (OSError, MemoryError, ImportError) as error:
        trouble = of_system(error)
        give_up(trouble)
        raise trouble from error
    if writes:
        report(read_run(folder), request)


def _tasks(request: Request, plan: Plan, writes: bool, before: Progress | None) -> list[Task]:
    """What ranks are to do, launch by launch; the folder is there, if this node writes."""
    from commbench.records.journal import create_folder
    from commbench.worker.task import Task

    if before:
        from commbench.cli.unfinished import progress_text, tasks_left

        _say(progress_text(before))
        return tasks_left(before)
    folder = create_folder(request.output or new_folder(request.name)) if writes else RESULTS
    task = Task(plan=plan, label=request.name, folder=folder)
    return [replace(task, launch=number) for number in range(plan.launches)]


def _join(request: Request, place: Place, plan: Plan, seat: Seat, before: Progress | None) -> None:
    """Take part as a rank that somebody else started; rank 0 speaks and writes for all."""
    from commbench.launch.files import allow_files
    from commbench.launch.local import ERROR_DESK
    from commbench.records.journal import read_run
    from commbench.worker.desk import leave_error
    from commbench.worker.rank import run_rank
    from commbench.worker.task import Task

    speaks = seat.rank == 0
    desk = Path(os.environ[ERROR_DESK]) if ERROR_DESK in os.environ else None
    seat = replace(seat, desk=desk)
    if desk and seat.one_host:
        seat = replace(seat, meeting_point=f"file:{desk / 'ranks'}")
    if before:
        from commbench.cli.unfinished import progress_text, tasks_left

        _say(progress_text(before), speaks and not desk)
        (task,) = tasks_left(before)
    else:
        folder = request.output or new_folder(request.name)
        task = Task(plan=plan, label=request.name, folder=folder, folder_exists=bool(desk))
    if speaks and not desk:
        choice = _choice(place, plan, resumed=before is not None)
        _say(f"{choice}; joining {seat.launcher}'s ranks")
    try:
        allow_files(plan, serves=speaks)
        run_rank(task, seat, partial(_tell, desk, seat.rank))
    except Exception as error:
        told = error if isinstance(error, CommbenchError) else _failure(error, seat)
        if desk:
            leave_error(desk, seat.rank, told)
        if desk or not (told.speaks if isinstance(told, RankError) else speaks):
            sys.exit(told.exit_code)
        if told is error:
            raise
        raise told from error
    if speaks and not desk:
        report(read_run(task.folder), request)


def _failure(error: Exception, seat: Seat) -> RankError:
    """A collective that failed: another rank is gone, or the network. torch says what it saw."""
    return RankError(
        f"rank {seat.rank} on {gethostname()} failed: {first_line(error)}",
        "the first rank that failed tells most; COMMBENCH_TRACEBACK=1 shows where",
    )


def _tell(desk: Path | None, rank: int, error: RankError, speaks: bool) -> None:
    """Say that all ranks stand still, from a rank whose main thread does."""
    from commbench.cli import say_error
    from commbench.worker.desk import leave_error

    if desk:
        leave_error(desk, rank, error)
    elif speaks:
        say_error(error.message, error.hint, error.details)


def speaks(request: Request) -> bool:
    """Whether this process is the one that prints what came out."""
    from commbench.launch.attached import find_seat

    seat = find_seat(request.master_addr, request.master_port)
    return (seat.rank if seat else request.node_rank) == 0


def report(run: Run, request: Request) -> None:
    """Table, plots and where everything is; raises WrongResultError if anything was wrong."""
    from commbench.cli.look import text_of

    say(text_of(run, request.format, request.peak))
    for file in _plots(run) if request.plots else ():
        _say(str(file))
    _say(f"results are in {run.path}")
    wrong = [m for m in run.measurements if m.wrong]
    if wrong:
        raise WrongResultError(
            f"{wrong[0].wrong} elements of {wrong[0].case.name} are wrong; {wrong[0].reason}"
            + (f" (and {len(wrong) - 1} more cases)" if wrong[1:] else ""),
            "do not trust these times, nor this machine's communication, before it is explained",
        )


def _plots(run: Run) -> list[Path]:
    from commbench.report.plots import MORE_SIZES_NEEDED, draw, has_curve

    if not has_curve([run]):
        _say(MORE_SIZES_NEEDED)
        return []
    return draw([run], Path(run.path))


def _give_up(folder: Path, error: CommbenchError, elapsed_s: float) -> None:
    """Show and keep what there is of a run that did not end well, `elapsed_s` after its ranks were
    started."""
    from rich.console import Console

    from commbench.analysis.rows import rows_of
    from commbench.records.journal import Journal, forget_empty, read_run
    from commbench.records.schema import End
    from commbench.report.results_csv import ResultsCsv
    from commbench.report.tables import run_text

    console = Console(stderr=True)
    if console.is_terminal:
        console.show_cursor(True)
    try:
        run = read_run(folder)
    except RecordsError:
        forget_empty(folder)
        return
    status = "interrupted" if isinstance(error, Interrupted) else "failed"
    reason = error.message[:LONGEST_TEXT]
    end = End(status=status, reason=reason, elapsed_s=round(elapsed_s, 6))
    try:
        Journal(folder).end(end)
        if run.measurements:
            ResultsCsv(folder).add(*rows_of(run))  # with what cases that were cut off had given
    except RecordsError as trouble:
        _say(f"how the run ended is not written down: {trouble.message}")
    if run.measurements:
        say(run_text(run._replace(end=end._replace(reason=""))))  # the error follows and tells it
    _say(f"what was measured is kept; `commbench run --resume {folder}` goes on with it")


def _has_grown(journal: Path, from_bytes: int) -> bool:
    """Whether ranks wrote to a journal; not if it is gone."""
    try:
        return journal.stat().st_size > from_bytes
    except OSError:
        return False


def refuse_nothing(plan: Plan) -> None:
    """Raise UnavailableError when every case is known to be impossible."""
    cases = plan.cases()
    if any(case.status == READY for case in cases):
        return
    reasons = dict.fromkeys(case.reason for case in cases)
    raise UnavailableError(
        f"nothing is left to measure: {'; '.join(list(reasons)[:3])}",
        "`commbench ops` lists operations; another dtype, reduce op, placement or size may do",
    )


def _choice(place: Place, plan: Plan, resumed: bool = False) -> str:
    """One line that says what was chosen and why; of a run that is resumed, its journal chose."""
    why = "as the run began" if resumed else place.why
    line = (
        f"measuring with {plan.world_size} {plan.backend} ranks on {plan.device}, "
        f"cpu mode {plan.cpu_mode} ({why})"
    )
    if place.gpu_shared:
        line += "; ranks share a GPU: functional only, times are no measure of performance"
    return line


def new_folder(name: str) -> Path:
    """A folder `results/<time>-<name>` that does not exist yet."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(path for path in map(RESULTS.joinpath, names) if not path.exists())


def import_torch() -> None:
    """Import torch, once for this process and all ranks forked from it.

    One compute thread per process: torchrun's default, and a thread of a numeric library would make
    forking unsafe. Without collecting garbage meanwhile: an import makes much and drops little, and
    collecting takes a fifth of its time.
    """
    import gc

    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", QUIET)
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.enable()


def _say(line: str, condition: bool = True) -> None:
    if condition:
        tell(line)
