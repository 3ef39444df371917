"""PARAM's communication benchmark (comms.py): lines that begin with `COMMS-RES`.

Its latencies are percentiles, minimum and maximum over ranks of each rank's mean over iterations;
bandwidths come from the median. Sizes are nccl-tests'. With `--z 1` a barrier precedes every
operation and it is waited for; with `--z 0` all are launched, then waited for. Source: PARAM's
train/comms/pt/comms.py and its backends.
"""

from __future__ import annotations

from commbench.dtypes import DTYPES, find_dtype
from commbench.errors import UsageError
from commbench.operations import OPERATIONS
from commbench.plan import ISOLATED
from commbench.records.importers import cells
from commbench.records.importers.asked import Asked
from commbench.records.importers.bandwidth import Agreement
from commbench.records.importers.collect import Collection
from commbench.records.importers.foreign import PIPELINED, ForeignFile, ForeignRow
from commbench.records.importers.names import PARAM
from commbench.records.importers.param_lines import Result, facts_of, is_param, results_of
from commbench.records.importers.source import Source

NAME = "param"

_STATISTICS = ("minimum_s", "maximum_s", "p95_s")


def sniff(source: Source) -> bool:
    """Whether there is a result of PARAM."""
    return is_param(source)


def read(source: Source, asked: Asked) -> ForeignFile:
    """The file's rows."""
    collection, agreement = Collection(source, asked), Agreement()
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


def _add(result: Result, ranks: int, collection: Collection, agreement: Agreement) -> None:
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
    added = ForeignRow(
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
