"""`commbench run --resume`: whether what was asked goes with the run, and what is left of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from commbench.errors import RecordsError, UsageError
from commbench.output.console import print_status
from commbench.results.journal import Journal
from commbench.results.journal_reader import RunProgress, read_progress, read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import RunEnd, RunHeader
from commbench.runner.run_options import RunOptions
from commbench.runner.tasks import COMPLETE, remaining_tasks
from commbench.spec.plan import Plan
from commbench.units import format_sizes

_OPTIONS = {
    "op": ("--op", "operations"),
    "sizes": ("--sizes", "sizes"),
    "minbytes": ("-b", "sizes"),
    "maxbytes": ("-e", "sizes"),
    "stepfactor": ("-f", "sizes"),
    "stepbytes": ("-i", "sizes"),
    "dtype": ("--dtype", "dtypes"),
    "reduce_op": ("--reduce-op", "reduce_ops"),
    "root": ("--root", "root"),
    "placement": ("--placement", "placement"),
    "rounding": ("--rounding", "rounding"),
    "iters": ("--iters", "iterations"),
    "warmup": ("--warmup", "warmup"),
    "precision": ("--precision", "precision"),
    "budget": ("--budget", "budget_s"),
    "timing": ("--timing", "timing"),
    "order": ("--order", "order"),
    "seed": ("--seed", "seed"),
    "launches": ("--launches", "launches"),
    "check": ("--check", "check"),
    "check_count": ("-c", "check"),
    "timeout": ("--timeout", "timeout_s"),
    "cpu_mode": ("--cpu-mode", "cpu_mode"),
    "backend": ("--backend", "backend"),
    "device": ("--device", "device"),
    "nproc_per_node": ("--nproc-per-node", "ranks_per_node"),
    "label": ("--label", "label"),
}
"""What options may repeat but not change, each with what it says of the run."""
_REFUSED = {
    "output": ("--output", "a run is resumed in its own folder"),
    "dry_run": ("--dry-run", "`commbench show` prints what there is"),
}


def resume(text: str, request: RunOptions, said: Collection[str]) -> None:
    """Measure what is left of the run that `text` names; `said` are the parameters that were given.

    Raises UsageError for an option that contradicts the run.
    """
    from commbench.runner import reporting, session

    for name, (option, why) in _REFUSED.items():
        if name in said:
            raise UsageError(f"{option} does not go with --resume", f"leave it out: {why}")
    path = _find(text, request)
    if path.is_file() and path.name != JOURNAL:
        raise RecordsError(f"{path} cannot be resumed", f"name a run folder, which has a {JOURNAL}")
    before = read_progress(path)
    folder, header = Path(before.run.path), before.run.header
    asked = _asked(request, header)
    kept = _facts(header.plan, _per_node(header), header.label)
    for name, (option, fact) in _OPTIONS.items():
        if name in said and asked[fact] != kept[fact]:
            here, there = _text(asked[fact]), _text(kept[fact])
            raise UsageError(
                f"{option} contradicts {folder}: {here} here, {there} there",
                f"leave {option} out to go on with this run, or --resume to begin another",
            )
    if remaining_tasks(before):
        session.run(_as_planned(request, header), before)
    elif reporting.is_reporter(request):
        _finish(before)
        print_status(f"{folder} is complete: there is nothing to resume")
        reporting.report(read_run(folder), replace(request, plots=False))


def _find(text: str, request: RunOptions) -> Path:
    from commbench.launch.external_launchers import detect_rank_context
    from commbench.results.run_folder import find_run

    try:
        return find_run(text)
    except RecordsError as error:
        rank_context = detect_rank_context(request.master_addr, request.master_port)
        if request.num_nodes == 1 and (not rank_context or rank_context.one_host):
            raise
        raise RecordsError(
            error.message, "every node reads the run that is resumed: copy its folder to this one"
        ) from None


def _finish(before: RunProgress) -> None:
    """Write what is missing of a run that was cut off after its last case, before its end."""
    from commbench.analysis.csv_file import ResultsCsv
    from commbench.analysis.rows import make_rows

    if before.run.end and before.run.end.status == COMPLETE:
        return
    folder = Path(before.run.path)
    Journal(folder).end(RunEnd(status=COMPLETE))
    ResultsCsv(folder).add(*make_rows(before.run))


def _per_node(header: RunHeader) -> int:
    """Ranks that each launcher started."""
    return len(header.ranks) // max(1, sum(not rank.local_rank for rank in header.ranks))


def _facts(plan: Plan, ranks_per_node: int | None, label: str) -> dict[str, Any]:
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return values | {"ranks_per_node": ranks_per_node, "label": label}


def _asked(request: RunOptions, header: RunHeader) -> dict[str, Any]:
    """What the options say, where they say nothing about the place with what the run says."""
    plan = header.plan
    asked = request.plan(
        request.backend or plan.backend, request.device or plan.device, plan.world_size
    )
    return _facts(asked, request.ranks_per_node, request.name)


def _as_planned(request: RunOptions, header: RunHeader) -> RunOptions:
    """The request that makes the same plan on as many ranks."""
    plan = header.plan
    known = {field.name for field in fields(RunOptions)} - {"peak"}  # only says how it is shown
    same = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name in known}
    return replace(request, **same, ranks_per_node=_per_node(header), label=header.label)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        numbers = bool(value) and isinstance(value[0], int)
        return format_sizes(value) if numbers else ", ".join(map(str, value))
    return "as needed" if value is None else str(value)
