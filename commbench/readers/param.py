"""PARAM's communication benchmark (comms.py): lines that begin with `COMMS-RES`.

Its latencies are percentiles, minimum and maximum over ranks of each rank's mean over iterations.
Its bandwidths come from the median. Sizes are nccl-tests'. With `--z 1` a barrier precedes every
operation, and the operation is waited for. With `--z 0` all are launched, then waited for. Source:
PARAM's train/comms/pt/comms.py and its backends.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TypeAlias

from commbench.errors import UsageError
from commbench.plan.dtypes import find_dtype
from commbench.plan.operations import OPERATIONS
from commbench.plan.timing_modes import ISOLATED, PIPELINED
from commbench.readers import base
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
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
_LEFT_OUT = {"QUANT": "its data was quantised", "pt2pt": "point-to-point results are not imported"}
"""Why results whose labels begin so are left out."""
_RESULT = re.compile(r".{0,40}?\bCOMMS-RES(?:-(?P<label>[A-Za-z][\w.-]{0,199}))?(?=\s|$)")
_FACTS = {
    "groups": re.compile(r"\ballSizes:.*\bgroupSize (\d{1,9})\b"),
    "worlds": re.compile(r"\bworld_size'?: (\d{1,9})\b"),
    "backends": re.compile(r"\bbackend: (\w{1,40}) nw-stack:"),
    "blocking": re.compile(r"\bargs\.z: ([01])\b"),
}
"""What lines other than results say: sizes of process groups and of the world, backends, `--z`."""

_Result: TypeAlias = tuple[str, list[str], list[str]]
"""The label of a result, the columns that the header before it names, and its cells."""


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
        if not (match := _RESULT.match(line.text)):
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
