"""One `commbench run` from request to table: choose a place, plan, launch or join, report."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from commbench.errors import (
    INTERRUPTIONS,
    Interrupted,
    UsageError,
)
from commbench.launch.process_setup import import_torch
from commbench.output.console import print_result
from commbench.runner.external_ranks import _join
from commbench.runner.launched_ranks import _launch
from commbench.runner.reporting import _choice
from commbench.runner.run_options import RunOptions
from commbench.spec.plan import Plan, require_ready_case

if TYPE_CHECKING:
    from commbench.launch.devices import Target
    from commbench.launch.elastic import NodeConfig
    from commbench.results.journal_reader import RunProgress
    from commbench.worker.context import RankContext


def run(request: RunOptions, before: RunProgress | None = None) -> None:
    """Measure what was requested, or what is left of a run that came so far `before`: as a rank
    where somebody else started ranks, otherwise on ranks launched from here."""
    from commbench.launch.external_launchers import detect_rank_context

    rank_context = detect_rank_context(request.master_addr, request.master_port)
    if request.launches > 1 and (rank_context or request.launcher == "torchrun"):
        raise UsageError(
            f"{request.launches} launches need commbench to launch the ranks itself",
            "leave out --launches here, and give several runs to `commbench compare`",
        )
    if not rank_context:
        _be_interruptible()
    place, plan, nodes = _plan(request, rank_context)
    if before:
        plan = _plan_of(before, plan)
    if rank_context:
        _join(request, place, plan, rank_context, before)
    else:
        _launch(request, place, plan, nodes, before)


def rehearse(request: RunOptions) -> None:
    """Print what a run would do, and start nothing."""
    import shlex

    from commbench.launch.external_launchers import detect_rank_context
    from commbench.launch.torchrun_command import torchrun_line
    from commbench.report.plan_table import plan_text

    place, plan, nodes = _plan(
        request, detect_rank_context(request.master_addr, request.master_port)
    )
    print_result(_choice(place, plan))
    line = [*torchrun_line(nodes), *request.arguments()]
    print_result(plan_text(plan, shlex.join(line)))
    require_ready_case(plan)


def _plan(request: RunOptions, rank_context: RankContext | None) -> tuple[Target, Plan, NodeConfig]:
    """Where to measure, and the whole plan; raises CommbenchError before any rank is started."""
    import_torch()
    from commbench.launch.devices import choose_target, detect_capabilities
    from commbench.launch.elastic import NodeConfig

    per_node = rank_context.local_world_size if rank_context else request.ranks_per_node
    place = choose_target(detect_capabilities(), request.backend, request.device, per_node)
    # Every rank must come to the same plan: nothing of its own node enters it.
    world_size = (
        rank_context.world_size if rank_context else place.ranks_per_node * request.num_nodes
    )
    nodes = NodeConfig(
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


def _plan_of(before: RunProgress, asked: Plan) -> Plan:
    """The plan of a run that is taken up again, if there are as many ranks again."""
    plan = before.run.header.plan
    if asked.world_size != plan.world_size:
        raise UsageError(
            f"{before.run.path} has {plan.world_size} ranks, and here are {asked.world_size}",
            "start as many as before; several nodes need --nnodes and --node-rank again",
        )
    return plan
