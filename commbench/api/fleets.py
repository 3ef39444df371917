"""The nodes of a fleet, compared with each other; those of an allocation, tested before a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.api.runs import ignore
from commbench.errors import Interrupted, UsageError
from commbench.readers.source import ImportHints
from commbench.results.run_folder import empty_folder, new_folder
from commbench.units import parse_tolerance
from commbench.validation import require_within

if TYPE_CHECKING:
    from commbench.answers.fleet.fleet import FleetResult
    from commbench.answers.preflight.preflight import PreflightResult
    from commbench.api.runs import AnyRun
    from commbench.runner.run_options import RunOptions


def fleet(
    *runs: AnyRun,
    nodes: str | Path | Sequence[str] | None = None,
    false_alarms: str | float = "1%",
    tolerance: str | float = "2%",
    history: bool = False,
    db: str | Path | None = None,
    output: str | Path | None = None,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> FleetResult:
    """Say which nodes of a fleet are slower than their peers, from a run of each (docs/fleet.md).

    A run is a Run, a path or a label, also of a results.csv, "NAME=PATH", or a folder of runs.
    `nodes` are the names that there should be, or a file with them. `false_alarms` is the
    probability that a sound fleet has a node to drain, a part or a text such as "1%". A node that
    is slower by at most `tolerance` passes. With `history`, or a `db` that is another history than
    results/history.sqlite, the history says since when a node is slow; without runs the newest run
    of each node of it is judged. `output` is a new folder for the lists, the page, the
    picture, JSON and JUnit XML. `ranks`, `op`, `dtype` are those of `load`; `notify` gets the paths
    of the files. Raises UsageError for values that make no sense, RecordsError for what is no run.
    """
    from commbench.answers.fleet.document import write_files
    from commbench.answers.fleet.fleet import judge_fleet
    from commbench.answers.fleet.nodes import expected_nodes, read_nodes, recorded_nodes
    from commbench.answers.history.store import HISTORY, History

    chance, within = parse_tolerance(false_alarms), parse_tolerance(tolerance)
    if not 1e-9 <= chance <= 0.5:
        raise UsageError(
            f"--false-alarms {false_alarms} is not from 1e-7% to 50%", "write --false-alarms 1%"
        )
    expected = expected_nodes(nodes)
    folder = None if output is None else empty_folder(Path(output))
    hints = ImportHints(ranks, op, dtype)
    with History(Path(db or HISTORY)) if history or db else nullcontext() as kept:
        read = read_nodes(runs, hints) if runs or not kept else recorded_nodes(kept)
        found = judge_fleet(read, expected, chance, within, kept)
    if kept and not runs:
        found = replace(found, history=str(kept.path))
    for path in write_files(found, folder) if folder else ():
        notify(str(path))
    return found


def preflight(
    run: RunOptions,
    words: Sequence[str],
    *,
    hosts: str | Path | Sequence[str] | None = None,
    need: int | None = None,
    start: str | None = None,
    nproc_per_node: int | None = None,
    env: Sequence[str] = (),
    limit: float = 600.0,
    stage_limit: float = 120.0,
    at_once: int = 64,
    tolerance: str | float = "10%",
    output: str | Path | None = None,
    notify: Callable[[str], None] = ignore,
) -> PreflightResult:
    """Say which hosts of an allocation may take part in a job (docs/fleet.md).

    `run` are the options of `commbench run` that `words` hold. `hosts` are names or a file with
    them, by default those of Slurm; `need` of them have to be good, by default all. `start` is a
    name of HOST_STARTERS or a command with {host}. `env` are variables NAME=VALUE of every rank.
    `limit` is in seconds, for everything, and `stage_limit` for each run; `at_once` runs go at
    once. A host that is slower by `tolerance` at most is good. `output` is a new folder for the
    lists, the page, JSON, JUnit XML, journals and logs. Raises UsageError for values that make no
    sense, UnavailableError where hosts cannot be found, and at a signal Interrupted, whose `run` is
    the result.
    """
    from commbench.answers.fleet.nodes import expected_nodes
    from commbench.answers.preflight.document import write_files
    from commbench.answers.preflight.preflight import PreflightOptions, run_preflight
    from commbench.jobs.scripts import parse_variables
    from commbench.launch.hosts import allocated_hosts, find_starter

    for flag, value, low in (
        ("--limit", limit, 30), ("--stage-limit", stage_limit, 5), ("--at-once", at_once, 1),
        ("--nproc-per-node", nproc_per_node, 1),
    ):  # fmt: skip
        require_within(flag, value, low, 1_000_000)
    starter = find_starter(start)
    names = expected_nodes(hosts) or allocated_hosts()
    if not names:
        raise UsageError("there are no hosts", "write --hosts node1,node2, or name a file")
    options = PreflightOptions(
        hosts=tuple(names), need=len(names) if need is None else need, starter=starter, run=run,
        words=tuple(words), ranks_per_host=nproc_per_node, variables=dict(parse_variables(env)),
        limit_s=limit, stage_limit_s=stage_limit, at_once=at_once,
        tolerance=parse_tolerance(tolerance),
        folder=new_folder("preflight") if output is None else Path(output),
    )  # fmt: skip
    try:
        result = run_preflight(options, notify)
    except Interrupted as error:
        write_files(error.run)
        raise
    write_files(result)
    return result
