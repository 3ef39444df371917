"""PARAM's communication benchmark (comms.py): lines that begin with `COMMS-RES`.

Its latencies are percentiles, minimum and maximum over ranks of each rank's mean over iterations.
Its bandwidths come from the median. Sizes are nccl-tests'. With `--z 1` a barrier precedes every
operation, and the operation is waited for. With `--z 0` all are launched, then waited for. Source:
PARAM's train/comms/pt/comms.py and its backends.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from commbench.errors import UsageError
from commbench.plan.dtypes import find_dtype
from commbench.plan.operations import OPERATIONS
from commbench.plan.timing_modes import ISOLATED, PIPELINED
from commbench.readers import cells
from commbench.readers.base import ImportedFile, RowCollector
from commbench.readers.source import COLLECTIVES, ImportHints, Line, SourceText

_OPERATIONS = {name: name for name in (*COLLECTIVES, "all_to_all")} | {
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
_RESULT = re.compile(r".{0,40}?\bCOMMS-RES(?:-(?P<label>[A-Za-z][\w.-]{0,199}))?(?=\s|$)")
_FACTS = {
    "groups": re.compile(r"\ballSizes:.*\bgroupSize (\d{1,9})\b"),
    "worlds": re.compile(r"\bworld_size'?: (\d{1,9})\b"),
    "backends": re.compile(r"\bbackend: (\w{1,40}) nw-stack:"),
    "blocking": re.compile(r"\bargs\.z: ([01])\b"),
}
"""What lines other than results say: sizes of process groups and of the world, backends, `--z`."""


class Result(NamedTuple):
    """One result and the columns that the header before it names."""

    label: str
    columns: tuple[str, ...]
    cells: list[str]


def is_param(source: SourceText) -> bool:
    """Whether a file has a result of PARAM."""
    return any(_RESULT.match(line.text) for line in source.lines)


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
    collector.read_rows(results, lambda line, result: _add(line.number, result, collector))
    if not facts["blocking"]:
        collector.note(
            "it does not say whether every operation was waited for: assumed --z 1, the default"
        )
    is_described = sizes and all(result.label for _, result in results)
    hinted = f"{hints.operation or 'such'} on {collector.ranks} ranks"
    collector.note_bandwidths("" if is_described else hinted)
    return collector.make_file(
        tool="param",
        timing=PIPELINED if "0" in facts["blocking"] else ISOLATED,
        backend=", ".join(sorted(facts["backends"])),
    )


def _add(line: int, result: Result, collector: RowCollector) -> None:
    if {"pair", "computing"} & {*result.columns}:
        collector.leave_out("another operation ran at the same time", line)
        return
    if not {*result.columns} >= _NEEDED:
        raise ValueError("the header before it has not all columns that are needed")
    row = cells.name_cells(result.columns, result.cells)
    name, _, rest = result.label.partition("-")
    if result.label and name not in _OPERATIONS:
        collector.leave_out(f"commbench has no operation for {name!r:.40}", line)
        return
    hints, path = collector.hints, collector.source.path
    chosen = hints.choose_operation(path, _OPERATIONS.get(name), line)
    operation = OPERATIONS[chosen]
    dtype = hints.choose_dtype(path, _parse_dtype(rest) if result.label else None, line)
    collector.add(
        line, chosen, dtype, cells.parse_size(row["size"]), row,
        "mean over iterations, median over ranks",
        reduce_op="sum" if operation.reduces else "",
        placement=operation.placements[0],
    )  # fmt: skip


def _parse_dtype(label: str) -> str:
    try:
        return find_dtype(label.partition("-")[0]).name
    except UsageError as error:
        raise ValueError(error.message) from None


def _find_results(source: SourceText, collector: RowCollector) -> list[tuple[Line, Result]]:
    """The results with their lines; those of other kinds of benchmark are left out."""
    results: list[tuple[Line, Result]] = []
    columns: tuple[str, ...] | None = None
    for line in source.lines:
        match = _RESULT.match(line.text)
        if not match:
            collector.note_lost_row(line)
            continue
        label, rest = match["label"] or "", line.text[match.end() :].split()
        if source.is_cut(line):
            collector.leave_out("the file ends within the line", line.number, is_fault=True)
        elif label.startswith("QUANT"):
            collector.leave_out("its data was quantised", line.number)
        elif label.startswith("pt2pt"):
            collector.leave_out("point-to-point results are not imported", line.number)
        elif rest and not label and not rest[0][0].isdigit():
            columns = ()  # of another kind of benchmark
            with suppress(ValueError):
                columns = tuple(cells.parse_columns(line.text[match.end() :], _COLUMNS))
        elif columns is None:
            raise source.damaged(line.number, "no header before it names its columns", len(results))
        else:
            results.append((line, Result(label, columns, rest)))
    return results
