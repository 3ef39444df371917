"""Is a bandwidth plausible, and is a run as fast as those of others, from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.analysis.environment import ALGORITHMS
from commbench.answers.expect.bound import Call
from commbench.answers.expect.expectation import (
    BELOW,
    Answer,
    find_demands,
    find_expectation,
    judge,
)
from commbench.api.runs import export, ignore, load_rows
from commbench.errors import UsageError
from commbench.plan.links import (
    LARGEST_NODE,
    Link,
    choose_gpu,
    find_link,
    make_fabric,
    parse_hardware,
    parse_nics,
    parse_peak,
)
from commbench.plan.operations import DEFAULT_OPERATION, find_operation
from commbench.units import parse_size, parse_time, parse_tolerance
from commbench.validation import choose, require_within

if TYPE_CHECKING:
    from commbench.analysis.load import LoadedRun
    from commbench.answers.check.rules import Rule
    from commbench.answers.expect.curves import Curve, OnCurves
    from commbench.api.runs import AnyRun
    from commbench.plan.links import Hardware

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
    plausible (docs/models.md).

    The options are those of `commbench expect`; numbers are in bytes, seconds, and bytes per
    second. The `verdict` of the result is "plausible", "low", "high", "impossible" or "unknown";
    empty without a bandwidth. Raises UsageError for an option that is wrong or missing.
    """
    model = choose_gpu(gpu, "--gpu", _WITHOUT) if gpu else None
    if not gpu and not (nic or link):
        raise UsageError(
            "no hardware is given", f"give RUN, or --gpu, such as --gpu h100; or {_WITHOUT}"
        )
    in_rack = model and model.connects and model.connects > LARGEST_NODE
    per_node = (4 if in_rack else 8) if gpus_per_node is None else gpus_per_node
    for name, number in (("--nodes", nodes), ("--gpus-per-node", per_node)):
        require_within(name, number, 1, 1 << 20)
    if nodes * per_node < 2:
        raise UsageError("one rank communicates with nobody", "give --nodes or --gpus-per-node")
    fabric = make_fabric(model, parse_nics(nic, model) if nic else None)
    if link:
        own = parse_peak(link, "--link")
        given_link = Link(
            own.name, (), "the given link", own.bytes_per_second, "accelerator", "", ""
        )
        fabric = fabric._replace(link=find_link(own.name) if own.source else given_link)
    operation = find_operation(op or DEFAULT_OPERATION)
    if operation.busbw_factor is None:
        raise UsageError(f"{operation.name} has no bandwidth", "give another --op: all_reduce")
    if algorithm:
        choose("--algorithm", algorithm, dict.fromkeys(ALGORITHMS))
    size_bytes = None if size is None else parse_size(str(size))
    call = Call(
        fabric, operation.name, nodes * per_node, nodes, size_bytes, algorithm or None, nccl or None
    )
    found = find_expectation(call, BELOW if tolerance is None else parse_tolerance(tolerance))
    given = {"busbw": busbw, "algbw": algbw, "time": time}
    bandwidth = _given_busbw(call, {n: value for n, value in given.items() if value is not None})
    judgement = None if bandwidth is None else judge(found, bandwidth)
    return Answer(found, judgement, find_demands(call))


def _given_busbw(call: Call, given: dict[str, str | float]) -> float | None:
    """The bus bandwidth in bytes/s that a bandwidth or a time means."""
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise UsageError(f"{names} say the same thing", "give one of them")
    for name, value in given.items():
        if isinstance(value, str):
            number = parse_time(value) if name == "time" else _parse_bandwidth(value, f"--{name}")
        else:
            number = float(value)
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


def _parse_bandwidth(text: str, option: str) -> float:
    """A bandwidth with a unit that has one meaning, in bytes/s."""
    peak = parse_peak(text, option, takes_links=False)
    if peak.is_per_node:
        hint = f"busbw is of one accelerator: write {text.strip().removesuffix('/node')}"
        raise UsageError(f"{option} {text!r} is the speed of a node", hint)
    return peak.bytes_per_second


def expect_run(
    run: AnyRun,
    *,
    published: Sequence[str | Path] = (),
    tolerance: str | float | None = None,
    save_curve: str | Path | None = None,
    ranks: int | None = None,
    op: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> OnCurves:
    """Each row of a run beside published curves of machines with its accelerators (docs/models.md).

    `published` are files and runs with curves of your own. `tolerance` is how far a sound machine
    may be from its curve; by default it depends on the size. `save_curve` is a new file, into which
    the curves of the run are written. `ranks` and `op` are those of `load`. Raises UsageError where
    a file has no curves.
    """
    from commbench.answers.expect.curves import compare_run

    loaded = load_rows(run, ranks=ranks, op=op, notify=notify)
    curves = published_curves(published, notify)
    part = None if tolerance is None else parse_tolerance(tolerance)
    if save_curve is not None:
        export(loaded, "curves", save_curve)
        notify(f"curves written to {save_curve}")
    return compare_run(loaded, curves, part)


def published_curves(
    files: Sequence[str | Path], notify: Callable[[str], None] = ignore
) -> tuple[Curve, ...]:
    """The curves of commbench, and those in files and runs. UsageError where one has none."""
    from commbench.answers.expect.curves import curves_of, load_curves, read_curves

    found = [*load_curves()]
    for file in files:
        own = read_curves(Path(file)) or curves_of(load_rows(file, notify=notify))
        if not own:
            raise UsageError(
                f"{file} has no curves: no plain calls on one host with known accelerators",
                "leave it out",
            )
        found += own
    return tuple(found)


def expected_rules(
    run: LoadedRun,
    expect: str,
    published: Sequence[str | Path],
    tolerance: str | float | None,
    notify: Callable[[str], None],
) -> tuple[list[Rule], Hardware | None]:
    """The rules of `check` for the hardware that `expect` describes, or for published curves, and
    that hardware. Raises UsageError for hardware that is not known."""
    from commbench.answers.check import expected

    part = None if tolerance is None else parse_tolerance(tolerance)
    if expect == expected.PUBLISHED:
        return [expected.curve_rule(run, published_curves(published, notify), part)], None
    if expect.strip() == expected.FROM_RUN:
        hardware = expected.hardware_of(run)
    else:
        hardware = parse_hardware(expect, "--expect", expected.FROM_RUN)
    within = BELOW if part is None else part
    return [*expected.expectation_rules(run, hardware, within)], hardware
