"""Judgements from Python: the nodes of a fleet, compared with each other; those of an allocation,
tested before a job; is a bandwidth plausible, and is a run as fast as those of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.analysis.environment import ALGORITHMS
from commbench.answers.expect import curves, expectation
from commbench.answers.expect.bound import Call
from commbench.api.runs import export, hints_for, ignore, load_rows
from commbench.errors import Interrupted, UsageError, wrong_value
from commbench.plan import links
from commbench.plan.operations import DEFAULT_OPERATION, find_operation
from commbench.readers.source import ImportHints
from commbench.results.run_folder import empty_folder, new_folder
from commbench.units import parse_size, parse_time, parse_tolerance
from commbench.validation import choose, require_within

if TYPE_CHECKING:
    from commbench.analysis.load import LoadedRun
    from commbench.answers.check.rules import Rule
    from commbench.answers.expect.curves import OnCurves
    from commbench.answers.expect.expectation import Answer
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
    from commbench.answers.history.store import History

    chance, within = parse_tolerance(false_alarms), parse_tolerance(tolerance)
    if not 1e-9 <= chance <= 0.5:
        raise UsageError(
            f"--false-alarms {false_alarms} is not from 1e-7% to 50%", "write --false-alarms 1%"
        )
    expected = expected_nodes(nodes)
    folder = None if output is None else empty_folder(Path(output))
    hints = ImportHints(ranks, op, dtype)
    with History(db) if history or db else nullcontext() as kept:
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
    from commbench.launch.hosts import allocated_hosts, find_starter
    from commbench.runner.jobs import parse_variables

    require_within("--limit", limit, 30, 1_000_000)
    require_within("--stage-limit", stage_limit, 5, 1_000_000)
    require_within("--at-once", at_once, 1, 1_000_000)
    require_within("--nproc-per-node", nproc_per_node, 1, 1_000_000)
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


_WITHOUT = "--link or --nic alone"


def expect(
    gpu: str | None = None,
    *,
    nodes: int = 1,
    gpus_per_node: int | None = None,
    nic: str | None = None,
    link: str | None = None,
    op: str | None = None,
    size: str | int | None = None,
    algorithm: str | None = None,
    nccl: str | None = None,
    tolerance: str | float | None = None,
    busbw: str | float | None = None,
    algbw: str | float | None = None,
    time: str | float | None = None,
) -> Answer:
    """What bandwidth to expect of hardware, and whether one of `busbw`, `algbw` and `time` is
    plausible (docs/expect.md).

    `gpu` is gb300, gb200, b300, b200, gh200, h200-nvl, h200, h100-pcie, h100-nvl, h100, h800,
    a100-pcie, a100, v100-pcie, v100, p100-pcie, p100, l40s, rtx-pro-6000, rtx5090, mi250x, mi300x,
    mi325x, mi350x, mi355x, or the name of a device. `nic` is the network of a node, such as
    "8x400G" or "efa", `link` the speed of an accelerator's links, one way. The bandwidths are texts
    such as "430GB/s" or bytes/s, `time` is "4.2ms" or seconds, `size` "1G" or bytes; `tolerance` is
    how far below the figures of others is still plausible.

    The `verdict` of the result is "plausible", "low", "high", "impossible" or "unknown"; empty
    without a bandwidth. Raises UsageError for an option that is wrong or missing.
    """
    model = links.choose_gpu(gpu, "--gpu", _WITHOUT) if gpu else None
    if not gpu and not (nic or link):
        why = "no hardware is given"
        hint = f"give --gpu, such as --gpu h100; or {_WITHOUT}; or `commbench expect RUN`"
        raise UsageError(why, hint)
    in_rack = model and model.connects and model.connects > links.LARGEST_NODE
    per_node = (4 if in_rack else 8) if gpus_per_node is None else gpus_per_node
    require_within("--nodes", nodes, 1, 1 << 20)
    require_within("--gpus-per-node", per_node, 1, 1 << 20)
    if nodes * per_node < 2:
        raise UsageError("one rank communicates with nobody", "give --nodes or --gpus-per-node")
    fabric = links.make_fabric(model, links.parse_nics(nic, model) if nic else None)
    if link:
        own = links.parse_peak(link, "--link")
        if not own.source:
            own = own._replace(what="the given link", per="accelerator")
        fabric = fabric._replace(link=own)
    operation = find_operation(op or DEFAULT_OPERATION)
    if operation.busbw_factor is None:
        raise UsageError(f"{operation.name} has no bandwidth", "give another --op: all_reduce")
    if algorithm:
        choose("--algorithm", algorithm, dict.fromkeys(ALGORITHMS))
    if nccl and not nccl.replace(".", "").isdecimal():
        raise wrong_value(nccl, "is no version", "write for example 2.27.7", "--nccl")
    size_bytes = None if size is None else parse_size(str(size))
    call = Call(
        fabric, operation.name, nodes * per_node, nodes, size_bytes, algorithm or None, nccl or None
    )
    below = expectation.BELOW if tolerance is None else parse_tolerance(tolerance)
    found = expectation.find_expectation(call, below)
    found = curves.expect_on_curves(found) if tolerance is None else found
    given = {"busbw": busbw, "algbw": algbw, "time": time}
    bandwidth = _given_busbw(call, {n: value for n, value in given.items() if value is not None})
    judgement = None if bandwidth is None else expectation.judge(found, bandwidth)
    return expectation.Answer(found, judgement, expectation.find_demands(call))


def _given_busbw(call: Call, given: dict[str, str | float]) -> float | None:
    """The bus bandwidth in bytes/s that a bandwidth or a time means."""
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise UsageError(f"{names} say the same thing", "give one of them")
    for name, value in given.items():
        is_time = name == "time"
        if isinstance(value, str):
            number = parse_time(value) if is_time else links.parse_bandwidth(value, f"--{name}")
        else:
            number = float(value)
            if not is_time and 0 < number < 1e6:
                hint = f"write {name}={number:g}e9, or {name}='{number:g}GB/s'"
                raise UsageError(f"{name}={value} is {number:g} bytes per second", hint)
        if not 0 < number < 1e30:
            raise UsageError(f"--{name} is {value}", "write a number above 0 and below 1e30")
        if name == "busbw":
            return number
        if name == "algbw":
            return number * call.factor
        if call.size_bytes is None:
            raise UsageError("--time needs the size of the message", "add --size, such as 1G")
        return call.size_bytes / number * call.factor
    return None


def expect_run(
    run: AnyRun,
    *,
    published: str | Path | Sequence[str | Path] = (),
    tolerance: str | float | None = None,
    save_curve: str | Path | None = None,
    ranks: int | None = None,
    op: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> OnCurves:
    """Each row of a run beside published curves of machines with its accelerators (docs/expect.md).

    `published` are files and runs with curves of your own. `tolerance` is how far a sound machine
    may be from its curve; by default it depends on the size. `save_curve` is a new file, into which
    the curves of the run are written. `ranks` and `op` are those of `load`. Raises UsageError where
    a file has no curves.
    """
    loaded = load_rows(run, hints=hints_for([run], ranks, op), notify=notify)
    known = published_curves(published, notify)
    part = None if tolerance is None else parse_tolerance(tolerance)
    if save_curve is not None:
        export(loaded, "curves", save_curve)
        notify(f"curves written to {save_curve}")
    return curves.compare_run(loaded, known, part)


def published_curves(
    files: str | Path | Sequence[str | Path], notify: Callable[[str], None] = ignore
) -> tuple[curves.Curve, ...]:
    """The curves of commbench, and those in files and runs. UsageError where one has none."""
    found = [*curves.load_curves()]
    for file in [files] if isinstance(files, (str, Path)) else files:
        own = curves.read_curves(Path(file)) or curves.curves_of(load_rows(file, notify=notify))
        if not own:
            why = f"{file} has no curves: no plain calls on one host with known accelerators"
            raise UsageError(why, "leave it out")
        found += own
    return tuple(found)


def expected_rules(
    run: LoadedRun,
    expect: str,
    published: str | Path | Sequence[str | Path],
    tolerance: str | float | None,
    notify: Callable[[str], None],
) -> tuple[list[Rule], links.Hardware | None]:
    """The rules of `check` for the hardware that `expect` describes, or for published curves, and
    that hardware. Raises UsageError for hardware that is not known."""
    from commbench.answers.check import expected

    part = None if tolerance is None else parse_tolerance(tolerance)
    if expect == expected.PUBLISHED:
        return [expected.curve_rule(run, published_curves(published, notify), part)], None
    if expect.strip() == expected.FROM_RUN:
        hardware = expected.hardware_of(run)
    else:
        hardware = links.parse_hardware(expect, "--expect", expected.FROM_RUN)
    within = expectation.BELOW if part is None else part
    return [*expected.expectation_rules(run, hardware, within)], hardware
