"""nccl-tests' JSON output (option -J), versions 1 to 3. Source: nccl-tests' src/util.cu."""

from __future__ import annotations

from typing import Any

from commbench.errors import RecordsError
from commbench.operations import IN_PLACE, OUT_OF_PLACE
from commbench.plan import ISOLATED
from commbench.records.importers.asked import Asked
from commbench.records.importers.collect import Collection
from commbench.records.importers.foreign import PIPELINED, ForeignFile, each
from commbench.records.importers.nccl_config import Config, config_of
from commbench.records.importers.nccl_document import (
    as_object,
    as_text,
    document_of,
    list_of,
    object_of,
    text_of,
)
from commbench.records.importers.nccl_names import operation_of
from commbench.records.importers.nccl_rows import Key, Rows, Run, Timed, wrong_elements
from commbench.records.importers.nccl_table import CPU_TIME
from commbench.records.importers.source import Source

NAME = "nccl-tests-json"

_PLACEMENTS = {"out_of_place": OUT_OF_PLACE, "in_place": IN_PLACE}
_STATISTICS = {
    "min_us": "minimum_s",
    "max_us": "maximum_s",
    "avg_us": "mean_s",
    "p50_us": "p50_s",
    "p95_us": "p95_s",
    "p99_us": "p99_s",
}
_MARKS = ('"nccl_version"', '"average_bus_bandwidth"', '"out_of_bounds"', '"out_of_place"')


def sniff(source: Source) -> bool:
    """Whether it is a JSON object with a key that only nccl-tests writes."""
    return source.text.lstrip().startswith("{") and any(mark in source.text for mark in _MARKS)


def read(source: Source, asked: Asked) -> ForeignFile:
    """The file's rows."""
    document, whole = document_of(source)
    collection = Collection(source, asked, place="result")
    rows = Rows(collection)
    try:
        config = config_of(document, source)
        results = list_of(document, "results")
        run = _run(config, asked)
    except LookupError as reason:
        raise RecordsError(
            f"{source.path} cannot be imported: {reason}", "give a file of another operation"
        ) from None
    except ValueError as error:
        raise _damaged(source, "its beginning", error, 0) from None
    for number, result in enumerate(results, start=1):
        try:
            _add(rows, run, number, as_object(result))
        except ValueError as error:
            raise _damaged(source, f"result {number}", error, number - 1) from None
    _note(document, config, whole, rows)
    return collection.file(
        tool="nccl-tests",
        tool_version="",
        format=NAME,
        timing=ISOLATED if config.blocking else PIPELINED,
        ranks=run.ranks,
        hosts=each(device.host for device in config.devices),
        devices=each(device.name for device in config.devices),
        backend="nccl",
        environment=config.environment,
    )


def _damaged(source: Source, where: str, error: ValueError, sound: int) -> RecordsError:
    return RecordsError(
        f"{source.path}, {where}, is damaged: {error!s:.200}",
        f"{sound} results before it can be read; mend or remove it",
    )


def _run(config: Config, asked: Asked) -> Run:
    told = None if config.program is None else operation_of(config.program)
    ranks = asked.settle_ranks([config.ranks])
    operation = asked.settle_operation(told, 1)
    asked_for = None in (told, config.ranks)
    return Run(operation, ranks, config.statistic, config.iterations, asked_for)


def _add(rows: Rows, run: Run, number: int, result: dict[str, Any]) -> None:
    key = Key(
        size=text_of(result, "size"),
        elements=text_of(result, "count"),
        dtype=text_of(result, "type"),
        reduce_op=text_of(result, "redop", ""),
        root=text_of(result, "root", "").strip(),  # padded to six characters
    )
    timed = []
    for name, placement in _PLACEMENTS.items():
        cells = object_of(result, name)
        if "cpu_time" in cells:
            rows.collection.leave_out(CPU_TIME, number)
        elif cells:
            timed.append(_timed(placement, cells, object_of(result, f"{name}_per_iter")))
        else:
            rows.collection.leave_out(f"it has no {name} times", number)
    rows.add(run, number, key, timed)


def _timed(placement: str, cells: dict[str, Any], per_iteration: dict[str, Any]) -> Timed:
    wrong = cells.get("nwrong")
    return Timed(
        placement=placement,
        time=text_of(cells, "time"),
        algbw=text_of(cells, "alg_bw", "nan"),
        busbw=text_of(cells, "bandwidith" if "bandwidith" in cells else "bus_bw", "nan"),
        wrong=None if wrong is None else wrong_elements(as_text(wrong), is_count=True),
        statistics={
            field: text_of(per_iteration, name)
            for name, field in _STATISTICS.items()
            if name in per_iteration
        },
        samples=tuple(as_text(sample) for sample in list_of(per_iteration, "times_us")),
    )


def _note(document: dict[str, Any], config: Config, whole: bool, rows: Rows) -> None:
    collection = rows.collection
    if not whole:
        collection.note("the file was cut off: what follows its last whole result is missing")
    if config.skipped:
        collection.note(f"percentiles leave out the first {config.skipped} iterations")
    if config.blocking:
        collection.note("option -z: every operation is waited for; the time may hold a barrier")
    if config.graphs:
        collection.note("operations were launched by CUDA graphs (option -G)")
    for error in list_of(document, "errors")[:1]:
        collection.note(f"nccl-tests reported: {error!s:.200}")
    rows.note()
