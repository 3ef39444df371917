"""Makes the plan of a run from its options; launch/devices.py has the defaults."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from commbench.errors import INTERRUPTIONS, CommbenchError, UsageError
from commbench.launch import devices
from commbench.launch.launchers import RAY, NodeConfig, detect_rank_context, torchrun_line
from commbench.plan.pairs import QUICK
from commbench.plan.plan import USUAL_LAUNCHES, Plan
from commbench.results.journal_reader import RunProgress
from commbench.results.schema import Run
from commbench.runner.option import USER
from commbench.runner.run_options import RunOptions
from commbench.units import format_count
from commbench.worker.entrypoint import RankContext


class RunListener:
    """Receives the messages of a run, but not its progress: rank 0 shows that. This one takes no
    notice of them, and prints the last one."""

    def status(self, line: str) -> None:
        """One line about what happens now."""

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        """The run has ended, with all its cases or with an error that is raised next."""

    def hung(self, error: CommbenchError) -> None:
        """All ranks hang, this one too; called by another thread, before this process is ended."""
        from commbench.output.console import print_error

        print_error(error.message, error.hint, error.details)


class PlannedRun(NamedTuple):
    """A run that can be started."""

    options: RunOptions
    plan: Plan
    target: devices.Target
    nodes: NodeConfig
    rank_context: RankContext | None
    """This process among ranks that an external launcher started; None: ranks are launched here."""
    progress: RunProgress | None
    """What there is of a run that is resumed; None for a new one."""

    @property
    def is_reporter(self) -> bool:
        """Whether this process writes and reports the run: rank 0, or the launcher of node 0."""
        rank = self.rank_context.rank if self.rank_context else self.options.node_rank
        return rank == 0

    @property
    def summary(self) -> str:
        """One line that says what was chosen and why."""
        why = "as before" if self.progress else self.target.why
        verb = "would measure" if self.options.dry_run else "measuring"
        who = format_count(self.plan.world_size, f"{self.plan.backend} rank")
        line = f"{verb} with {who} on {self.plan.device}, cpu mode {self.plan.cpu_mode} ({why})"
        if self.target.gpu_shared:
            line += "; ranks share a GPU: these times do not measure performance"
        ranks, cores = self.target.ranks_per_node, len(os.sched_getaffinity(0))
        starts_ranks = not (self.rank_context or self.options.dry_run)
        if self.plan.device == "cpu" and starts_ranks and ranks > cores:
            line += f"; {ranks} ranks share {format_count(cores, 'core')}"
        if starts_ranks and self.nodes.count > 1:
            where = f"{self.nodes.master_addr}:{self.nodes.master_port}"
            line += f"; waits up to {self.plan.timeout_s:g} s for all nodes at {where}"
        return line

    @property
    def torchrun_line(self) -> list[str]:
        """The torchrun command that measures the same on the same ranks."""
        return [*torchrun_line(self.nodes), *self.options.arguments(USER)]


def find_rank_context(options: RunOptions) -> RankContext | None:
    """This process among ranks that an external launcher started; None where there is none, or
    --launcher says what starts ranks from here."""
    if "launcher" in options.given:
        return None
    return detect_rank_context(options.master_addr, options.master_port)


def plan_run(options: RunOptions, progress: RunProgress | None = None) -> PlannedRun:
    """Choose the target and make the plan, or take that of a run that is resumed.

    Raises CommbenchError before any rank is started.
    """
    rank_context = find_rank_context(options)
    is_single = options.nnodes == 1 and "nnodes" not in options.given and not rank_context
    if options.master_addr and is_single:
        raise UsageError("--master-addr has no effect on one node", "leave it out, or add --nnodes")
    if options.launches is None:
        is_soak = options.duration is not None or options.cycles is not None
        is_fixed = is_soak or options.iters is not None or QUICK in options.pairs
        options = replace(options, launches=1 if is_fixed else USUAL_LAUNCHES)
    devices.import_torch()
    from commbench.worker.groups import make_nccl_options

    per_node = rank_context.local_world_size if rank_context else options.ranks_per_node
    if options.launcher == RAY and not rank_context:
        from commbench.launch.ray_cluster import ray_capabilities

        capabilities = ray_capabilities(options.nnodes)
    else:
        capabilities = devices.detect_capabilities()
    asked, is_external = (options.backend, options.device, per_node), rank_context is not None
    target = devices.choose_target(
        capabilities, *asked, is_external=is_external, nodes=options.nnodes
    )
    # Every rank must come to the same plan: nothing of its own node enters it.
    world_size = rank_context.world_size if rank_context else target.ranks_per_node * options.nnodes
    plan = options.plan(target.backend, target.device, world_size)
    make_nccl_options(plan)  # raises where there are none
    nodes = node_config(options, target.ranks_per_node)
    plan = _require_same_ranks(progress, plan) if progress else plan
    return PlannedRun(options, plan, target, nodes, rank_context, progress)


def node_config(options: RunOptions, ranks_per_node: int) -> NodeConfig:
    """This node among those that run the same command."""
    meeting = {"master_addr": options.master_addr, "master_port": options.master_port}
    given: dict[str, Any] = {name: value for name, value in meeting.items() if value}
    return NodeConfig(
        count=options.nnodes, rank=options.node_rank, ranks_per_node=ranks_per_node, **given
    )


def _require_same_ranks(progress: RunProgress, requested: Plan) -> Plan:
    """The plan of a run that is resumed; UsageError where there are not as many ranks again."""
    plan = progress.run.header.plan
    if requested.world_size != plan.world_size:
        there, here = plan.world_size, requested.world_size
        why = f"{progress.run.path} has {there} ranks, and this command starts {here}"
        hint = "start the same number; with several nodes, give --nnodes and --node-rank again"
        raise UsageError(why, hint)
    return plan


@contextmanager
def restored_process_state() -> Iterator[None]:
    """Put back signal handlers, environment variables, cores, scheduling policy, the number of
    torch's threads and garbage collection as they were.

    Meanwhile torch has one compute thread, as in every rank that is forked from this process.
    """
    variables = dict(os.environ)
    collects = gc.isenabled()
    cores, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    priority = os.sched_getparam(0)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in INTERRUPTIONS} if is_main else {}
    torch: Any = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    if torch:
        text = os.environ.get("OMP_NUM_THREADS", "1")
        torch.set_num_threads(int(text) if text.isdecimal() and int(text) else 1)
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(threads)
        for number, handler in handlers.items():
            if handler is not None:  # None: it was not set from Python
                signal.signal(number, handler)
        with suppress(OSError):  # a policy that may be left need not be one that may be entered
            os.sched_setscheduler(0, policy, priority)
        os.sched_setaffinity(0, cores)
        (gc.enable if collects else gc.disable)()
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
