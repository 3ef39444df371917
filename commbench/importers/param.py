"""PARAM's communication benchmark (comms.py): lines that begin with `COMMS-RES`.

Its latencies are percentiles, minimum and maximum over ranks of each rank's mean over iterations;
bandwidths come from the median. Sizes are nccl-tests'. With `--z 1` a barrier precedes every
operation and it is waited for; with `--z 0` all are launched, then waited for. Source: PARAM's
train/comms/pt/comms.py and its backends.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from commbench.errors import UsageError
from commbench.importers import cells
from commbench.importers.bandwidth_check import BandwidthCheck
from commbench.importers.base import ImportedFile, ImportedRow
from commbench.importers.collector import RowCollector
from commbench.importers.hints import ImportHints
from commbench.importers.names import PARAM
from commbench.importers.text_source import Line, SourceText
from commbench.spec.dtypes import DTYPES, find_dtype
from commbench.spec.operations import OPERATIONS
from commbench.spec.timing_modes import ISOLATED, PIPELINED

NAME = "param"

_STATISTICS = ("minimum_s", "maximum_s", "p95_s")


def sniff(source: SourceText) -> bool:
    """Whether there is a result of PARAM."""
    return is_param(source)


def read(source: SourceText, asked: ImportHints) -> ImportedFile:
    """The file's rows."""
    collection, agreement = RowCollector(source, asked), BandwidthCheck()
    facts = facts_of(source)
    results = results_of(source, collection)
    ranks = asked.settle_ranks(sorted(facts.groups or facts.worlds) or [None]) if results else 0
    for result in results:
        try:
            _add(result, ranks, collection, agreement)
        except ValueError as error:
            number = result.line.number
            raise source.damaged(number, error, len(collection.rows)) from None
    if not facts.blocking:
        collection.note("whether it waited for every operation is not printed: --z 1, its default")
    told = facts.groups | facts.worlds and all(result.label for result in results)
    said = "" if told else f"{asked.operation or 'such'} on {ranks} ranks"
    if disagreement := agreement.verdict(source.path, said):
        collection.note(disagreement)
    return collection.file(
        tool="param",
        tool_version="",
        format=NAME,
        timing=PIPELINED if "0" in facts.blocking else ISOLATED,
        ranks=ranks,
        hosts=(),
        devices=(),
        backend=", ".join(sorted(facts.backends)) or None,
    )


def _add(result: Result, ranks: int, collection: RowCollector, agreement: BandwidthCheck) -> None:
    number = result.line.number
    if "pair" in result.columns or "computing" in result.columns:
        collection.leave_out("something else ran at the same time", number)
        return
    if not {"size", "time", "algbw", "busbw"} <= set(result.columns):
        raise ValueError("the header before it does not name what it needs")
    if len(result.cells) != len(result.columns):
        raise ValueError(
            f"it has {len(result.cells)} cells, and the header {len(result.columns)} columns"
        )
    row = dict(zip(result.columns, result.cells, strict=True))
    name, _, rest = result.label.partition("-")
    if result.label and name not in PARAM:
        collection.leave_out(f"commbench has no operation for {name!r:.40}", number)
        return
    told = PARAM[name] if result.label else None
    operation = OPERATIONS[collection.asked.settle_operation(told, number)]
    dtype = collection.asked.settle_dtype(_dtype(rest) if result.label else None, number)
    if not collection.wanted(number, operation.name, dtype):
        return
    size = cells.size(row["size"])
    count = size // (ranks if operation.blocks else 1) // DTYPES[dtype].size_bytes
    time_s = cells.seconds(row["time"])
    if time_s is None or not count:
        why = f"its time is {row['time']!r:.20}" if count else "nothing was moved (size 0)"
        collection.leave_out(why, number)
        return
    statistics = {name: cells.seconds(row[name]) for name in _STATISTICS if name in row}
    added = ImportedRow(
        operation=operation.name,
        dtype=dtype,
        reduce_op="sum" if operation.reduces else "",
        root=None,
        placement=operation.placements[0],
        size_bytes=size,
        count=count,
        time_s=time_s,
        statistic="mean over iterations, median over ranks",
        line=number,
        algbw=cells.bandwidth(row["algbw"]),
        busbw=cells.bandwidth(row["busbw"]),
    ).with_statistics(statistics, "ranks, of each rank's mean")
    collection.rows.append(added)
    agreement.see(added, ranks, cells.MICROSECONDS, row["time"], row["busbw"])


def _dtype(label: str) -> str:
    try:
        return find_dtype(label.partition("-")[0]).name
    except UsageError as error:
        raise ValueError(error.message) from None


_COLUMNS = (
    (r"size \(B\)", "size"),
    (r"total-size \(B\)", "total"),
    ("nElementsPerRank", "count"),
    ("num-elements", "count"),
    ("nElementsPairPerRank", "pair"),
    (r"Latency\(us\):p50", "time"),
    ("p75", "p75"),
    ("p95", "p95_s"),
    ("Min", "minimum_s"),
    ("Max", "maximum_s"),
    (r"AlgBW\(GB/s\)", "algbw"),
    (r"BusBW\(GB/s\)", "busbw"),
    (r"TotalLatency\(us\):p50", "computing"),
    (r"CompLatency\(us\):p50", "computing"),
    ("TFlops", "computing"),
)


_RESULT = re.compile(r".{0,40}?\bCOMMS-RES(?:-(?P<label>[A-Za-z][\w.-]{0,199}))?(?=\s|$)")


_GROUP = re.compile(r"\ballSizes:.*\bgroupSize (\d{1,9})\b")


_WORLD = re.compile(r"'world_size': (\d{1,9})\b|\bworld_size: (\d{1,9})\b")


_BACKEND = re.compile(r"\bbackend: (\w{1,40}) nw-stack:")


_BLOCKING = re.compile(r"\bargs\.z: ([01])\b")


class Result(NamedTuple):
    """One result and the columns that the header before it names."""

    line: Line
    label: str
    columns: tuple[str, ...]
    cells: list[str]


class ParamFacts(NamedTuple):
    """What other lines tell."""

    groups: set[int]
    worlds: set[int]
    backends: set[str]
    blocking: set[str]


def is_param(source: SourceText) -> bool:
    """Whether there is a result of PARAM."""
    return any(_RESULT.match(line.text) for line in source.lines)


def facts_of(source: SourceText) -> ParamFacts:
    """What the file tells about the run."""
    facts = ParamFacts(set(), set(), set(), set())
    for line in source.lines:
        facts.groups.update(int(n) for n in _GROUP.findall(line.text))
        facts.worlds.update(int(a or b) for a, b in _WORLD.findall(line.text))
        facts.backends.update(_BACKEND.findall(line.text))
        facts.blocking.update(_BLOCKING.findall(line.text))
    return facts


def results_of(source: SourceText, collection: RowCollector) -> list[Result]:
    """The results; those of other kinds of benchmark are left out."""
    results: list[Result] = []
    columns: tuple[str, ...] | None = None
    for line in source.lines:
        match = _RESULT.match(line.text)
        if not match:
            collection.see_noise(line)
            continue
        label, rest = match["label"] or "", line.text[match.end() :].split()
        if source.is_cut(line):
            collection.leave_out("the file ends within the line", line.number)
        elif label.startswith("QUANT"):
            collection.leave_out("its data was quantised", line.number)
        elif label.startswith("pt2pt"):
            collection.leave_out("point to point is not imported", line.number)
        elif rest and not label and not rest[0][0].isdigit():
            columns = _header(line.text[match.end() :])
        elif columns is None:
            raise source.damaged(line.number, "no header before it names its columns", len(results))
        else:
            results.append(Result(line, label, columns, rest))
    return results


def _header(text: str) -> tuple[str, ...]:
    """The columns; none where they are those of another kind of benchmark."""
    try:
        return tuple(cells.columns(text, _COLUMNS))
    except ValueError:
        return ()
