"""Formats of a line a measurement: curves in a CSV file, and PARAM's communication benchmark.

A CSV file of curves has system, nccl_version, operation, dtype, world_size, size_bytes, time_us,
and perhaps timing; or it is aiconfigurator's table nccl_perf, with elements and milliseconds.
Sizes are nccl-tests', times by default those of calls back to back. One system, version of NCCL and
number of ranks is a run; `commbench expect --save-curve` writes such files.

PARAM's comms.py prints lines that begin with `COMMS-RES`. Its latencies are percentiles, minimum
and maximum over ranks of each rank's mean over iterations. Its bandwidths come from the median.
Sizes are nccl-tests'. With `--z 1` a barrier precedes every operation, and the operation is waited
for. With `--z 0` all are launched, then waited for. Source: PARAM's train/comms/pt/comms.py and its
backends.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from commbench.errors import RecordsError, UsageError
from commbench.plan.dimensions import ISOLATED, PIPELINED, TIMING_MODES
from commbench.plan.dtypes import DTYPES, find_dtype
from commbench.plan.links import find_gpu, load_gpus
from commbench.plan.operations import OPERATIONS, find_operation
from commbench.readers import base
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
from commbench.readers.source import NCCL_TESTS, NO_HINTS, ImportHints, Line, SourceText

COLUMNS = ("system", "nccl_version", "operation", "dtype", "world_size", "size_bytes", "time_us")
TIMING = "timing"
NCCL_PERF = {
    "device": "system", "version": "nccl_version", "op_name": "operation", "nccl_dtype": "dtype",
    "num_gpus": "world_size", "message_size": "size_bytes", "latency": "time_us",
}  # fmt: skip
"""The columns of nccl_perf, by ours. Its sizes are elements, and its times are in ms."""


class Point(NamedTuple):
    """A line: the time of one size."""

    line: int
    system: str
    nccl: str
    operation: str
    dtype: str
    ranks: int
    size_bytes: int
    time_s: float
    timing: str = PIPELINED


def is_curves(source: SourceText) -> bool:
    """Whether the first line names a system and an operation."""
    columns = {*read_cells(table_lines(source)[:1])}
    return {"system", "operation"} <= columns or {"op_name", "num_gpus"} <= columns


def table_lines(source: SourceText) -> list[Line]:
    """The lines of a CSV file that are no comments."""
    return [line for line in source.lines if line.text and not line.text.startswith("#")]


def read_cells(lines: Sequence[Line]) -> list[str]:
    """The cells of one line; none without one. Before Python 3.11, csv refuses a NUL."""
    texts = (line.text.replace("\0", "") for line in lines)
    return [cell.strip() for cell in next(csv.reader(texts), [])]


def read_points(source: SourceText, collector: RowCollector | None = None) -> list[Point]:
    """Every line; a line in which the file ends is left out. Of two lines of one size the first
    counts in nccl_perf, as for aiconfigurator. RecordsError for a line that is damaged, UsageError
    for a system that is not known."""
    collector = collector or RowCollector(source, NO_HINTS)
    lines = table_lines(source)
    head = read_cells(lines[:1])
    columns = [NCCL_PERF.get(name, name) for name in head]
    is_perf = "op_name" in head
    if missing := [name for name in COLUMNS if name not in columns]:
        why = f"{source.path} has no column {' and no column '.join(missing)}"
        raise RecordsError(why, f"the columns of curves are {','.join(COLUMNS)}")
    points: dict[tuple[object, ...], Point] = {}

    def add(line: Line, row: list[str]) -> None:
        point = _point(line.number, base.name_cells(columns, row), is_perf)
        first = points.setdefault(point[1:7] + point[8:], point)
        if first is not point and is_perf:
            raise LeftOut("a line above has the same size")
        if first is not point:
            raise ValueError(f"line {first.line} has the same size")

    collector.read_rows([(line, read_cells([line])) for line in lines[1:]], add)
    if not points:
        raise RecordsError(f"{source.path} has no line below the first", "give a file of curves")
    for system in {point.system for point in points.values()}:
        if not find_gpu(system):
            names = ", ".join(gpu.name for gpu in load_gpus())
            hint = f"write one of these in the column system, or add it to data/gpus.csv: {names}"
            raise UsageError(f"the accelerator of {system!r:.40} is not known", hint)
    return [*points.values()]


def _point(line: int, row: dict[str, str], is_perf: bool) -> Point:
    """The point of a line of nccl_perf, or of curves."""
    timing, time = row.get(TIMING) or PIPELINED, row["time_us"]
    if timing not in TIMING_MODES:
        raise ValueError(f"the timing {timing!r:.40} is unknown")
    time_s = base.parse_seconds(time, base.MILLISECONDS if is_perf else base.MICROSECONDS)
    if time.startswith("-") or not time_s:
        raise ValueError(f"its time {time!r:.20} is not above 0")
    try:
        operation = find_operation(NCCL_TESTS.get(row["operation"], row["operation"])).name
        dtype = DTYPES[find_dtype(row["dtype"]).name]
    except UsageError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None
    size = base.parse_size(row["size_bytes"]) * (dtype.size_bytes if is_perf else 1)
    return Point(line, row["system"], row["nccl_version"], operation, dtype.name,
                 base.parse_whole(row["world_size"]), size, time_s, timing)  # fmt: skip


def read_curves(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The curves of one system, one version of NCCL and one number of ranks."""
    collector = RowCollector(source, hints)
    points = read_points(source, collector)
    for name, field, wanted in (
        ("system", "system", hints.system),
        ("nccl-version", "nccl", hints.nccl_version),
        (TIMING, TIMING, None),
    ):
        known = sorted({getattr(point, field) for point in points})
        if wanted is not None and wanted not in known:
            listed = ", ".join(known)
            raise UsageError(f"{source.path} has no --{name} {wanted!r:.40}", f"it has {listed}")
        if wanted is None and len(known) > 1:
            how = f"`commbench import FILE --{name} NAME` chooses"
            hint = f"{'keep the lines of one' if name == TIMING else how}: {', '.join(known)}"
            raise UsageError(f"{source.path} has {len(known)} values of {name}", hint)
        points = [point for point in points if wanted in (None, getattr(point, field))]
    collector.choose_ranks(point.ranks for point in points)
    for point in points:
        operation = OPERATIONS[point.operation]
        if point.ranks == collector.ranks:
            collector.add(
                point.line, point.operation, point.dtype, point.size_bytes,
                {"time": f"{point.time_s:.12g}"}, "mean", exponent=0,
                reduce_op="sum" if operation.reduces else "", placement=operation.placements[0],
            )  # fmt: skip
    return collector.make_file(
        tool="curves", timing=points[0].timing if points else PIPELINED, backend="nccl",
        devices=tuple({point.system: None for point in points}),
        environment={"nccl": points[0].nccl if points else ""},
    )  # fmt: skip


_OPERATIONS = {name: name for name in NCCL_TESTS.values() if name != "send_recv"} | {
    "all_to_all_single": "all_to_all",
    "all_gather_base": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
}
_COLUMNS = (
    (r"size \(B\)", "size"), (r"total-size \(B\)", "total"), ("nElementsPerRank", "count"),
    ("num-elements", "count"), ("nElementsPairPerRank", "pair"), (r"Latency\(us\):p50", "time"),
    ("p75", "p75"), ("p95", "p95_s"), ("Min", "minimum_s"), ("Max", "maximum_s"),
    (r"AlgBW\(GB/s\)", "algbw"), (r"BusBW\(GB/s\)", "busbw"),
    (r"TotalLatency\(us\):p50", "computing"), (r"CompLatency\(us\):p50", "computing"),
    ("TFlops", "computing"),
)  # fmt: skip
_NEEDED = {"size", "time", "algbw", "busbw"}
_LEFT_OUT = {"QUANT": "its data was quantised", "pt2pt": "point-to-point results are not imported"}
"""Why results whose labels begin so are left out."""
RESULT = re.compile(r".{0,40}?\bCOMMS-RES(?:-(?P<label>[A-Za-z][\w.-]{0,199}))?(?=\s|$)")
"""A line with a result of PARAM, or with the columns of results."""
_FACTS = {
    "groups": re.compile(r"\ballSizes:.*\bgroupSize (\d{1,9})\b"),
    "worlds": re.compile(r"\bworld_size'?: (\d{1,9})\b"),
    "backends": re.compile(r"\bbackend: (\w{1,40}) nw-stack:"),
    "blocking": re.compile(r"\bargs\.z: ([01])\b"),
}
"""What lines other than results say: sizes of process groups and of the world, backends, `--z`."""

_Result: TypeAlias = tuple[str, list[str], list[str]]
"""The label of a result, the columns that the header before it names, and its cells."""


def read_param(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    collector = RowCollector(source, hints)
    facts = {
        name: {value for line in source.lines for value in pattern.findall(line.text)}
        for name, pattern in _FACTS.items()
    }
    results = _find_results(source, collector)
    sizes = sorted(map(int, facts["groups"] or facts["worlds"]))
    if results:
        collector.choose_ranks(sizes)
    collector.read_rows(results, lambda line, result: _add(line.number, *result, collector))
    if not facts["blocking"]:
        collector.note(
            "it does not say whether every operation was waited for: assumed --z 1, the default"
        )
    is_described = sizes and all(label for _, (label, *_) in results)
    hinted = f"{hints.operation or 'such'} on {collector.ranks} ranks"
    collector.note_bandwidths("" if is_described else hinted)
    return collector.make_file(
        tool="param",
        timing=PIPELINED if "0" in facts["blocking"] else ISOLATED,
        backend=", ".join(sorted(facts["backends"])),
    )


def _find_results(source: SourceText, collector: RowCollector) -> list[tuple[Line, _Result]]:
    """The results with their lines."""
    results: list[tuple[Line, _Result]] = []
    columns: list[str] | None = None
    for line in source.lines:
        if not (match := RESULT.match(line.text)):
            collector.note_lost_row(line)
            continue
        label, rest = match["label"] or "", line.text[match.end() :].split()
        if rest and not label and not rest[0][0].isdigit():
            columns = []  # of another kind of benchmark
            with suppress(ValueError):
                columns = base.parse_columns(line.text[match.end() :], _COLUMNS)
        elif columns is None:
            raise source.damaged(line.number, "no header before it names its columns", len(results))
        else:
            results.append((line, (label, columns, rest)))
    return results


def _add(
    line: int, label: str, columns: list[str], row: list[str], collector: RowCollector
) -> None:
    for begin, why in _LEFT_OUT.items():
        if label.startswith(begin):
            raise LeftOut(why)
    if {"pair", "computing"} & {*columns}:
        raise LeftOut("another operation ran at the same time")
    if not {*columns} >= _NEEDED:
        raise ValueError("the header before it has not all columns that are needed")
    named = base.name_cells(columns, row)
    name, _, rest = label.partition("-")
    if label and name not in _OPERATIONS:
        raise LeftOut(f"commbench has no operation for {name!r:.40}")
    hints, path = collector.hints, collector.source.path
    chosen = hints.choose_operation(path, _OPERATIONS.get(name), line)
    try:
        given = find_dtype(rest.partition("-")[0]).name if label else None
    except UsageError as error:
        raise ValueError(error.message) from None
    operation = OPERATIONS[chosen]
    collector.add(
        line, chosen, hints.choose_dtype(path, given, line), base.parse_size(named["size"]), named,
        "mean over iterations, median over ranks",
        reduce_op="sum" if operation.reduces else "",
        placement=operation.placements[0],
    )  # fmt: skip
