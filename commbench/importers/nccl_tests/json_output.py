"""nccl-tests' JSON output (option -J), versions 1 to 3. Source: nccl-tests' src/util.cu."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, NamedTuple

from commbench.errors import RecordsError
from commbench.host.environment import VARIABLE_PREFIXES
from commbench.importers import cells
from commbench.importers.base import ImportedFile, each
from commbench.importers.collector import RowCollector
from commbench.importers.hints import ImportHints
from commbench.importers.nccl_tests.json_document import (
    JsonNumber,
    as_object,
    as_text,
    document_of,
    is_true,
    list_of,
    object_of,
    text_of,
    whole_of,
)
from commbench.importers.nccl_tests.names import library_version, operation_of, programs_in
from commbench.importers.nccl_tests.preamble import RankDevice, ranks_of, statistic
from commbench.importers.nccl_tests.rows import (
    PlacementCells,
    RowBuilder,
    RowKey,
    TableRun,
    wrong_elements,
)
from commbench.importers.nccl_tests.table import CPU_TIME
from commbench.importers.text_source import SourceText
from commbench.spec.operations import IN_PLACE, OUT_OF_PLACE
from commbench.spec.timing_modes import ISOLATED, PIPELINED

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


def sniff(source: SourceText) -> bool:
    """Whether it is a JSON object with a key that only nccl-tests writes."""
    return source.text.lstrip().startswith("{") and any(mark in source.text for mark in _MARKS)


def read(source: SourceText, asked: ImportHints) -> ImportedFile:
    """The file's rows."""
    document, whole = document_of(source)
    collection = RowCollector(source, asked, place="result")
    rows = RowBuilder(collection)
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


def _damaged(source: SourceText, where: str, error: ValueError, sound: int) -> RecordsError:
    return RecordsError(
        f"{source.path}, {where}, is damaged: {error!s:.200}",
        f"{sound} results before it can be read; mend or remove it",
    )


def _run(config: RunConfig, asked: ImportHints) -> TableRun:
    told = None if config.program is None else operation_of(config.program)
    ranks = asked.settle_ranks([config.ranks])
    operation = asked.settle_operation(told, 1)
    asked_for = None in (told, config.ranks)
    return TableRun(operation, ranks, config.statistic, config.iterations, asked_for)


def _add(rows: RowBuilder, run: TableRun, number: int, result: dict[str, Any]) -> None:
    key = RowKey(
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


def _timed(placement: str, cells: dict[str, Any], per_iteration: dict[str, Any]) -> PlacementCells:
    wrong = cells.get("nwrong")
    return PlacementCells(
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


def _note(document: dict[str, Any], config: RunConfig, whole: bool, rows: RowBuilder) -> None:
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


NEWEST = 3


_AVERAGES = {"0": "rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}


_MOST_DEVICES = 1024


class RunConfig(NamedTuple):
    """What is told about a run."""

    program: str | None
    devices: tuple[RankDevice, ...]
    """The first device of each process: others are not listed."""
    ranks: int | None
    iterations: int | None
    statistic: str
    blocking: bool
    graphs: bool
    skipped: int
    """Iterations that percentiles leave out."""
    environment: dict[str, Any]


def config_of(document: dict[str, Any], source: SourceText) -> RunConfig:
    """What a document tells; ValueError where it is damaged, RecordsError where it is newer."""
    version = whole_of(document, "version")
    if version is not None and version > NEWEST:
        raise RecordsError(
            f"{source.path} was written by a newer nccl-tests: its version is {version}",
            f"this commbench reads up to {NEWEST}; the text output may be readable",
        )
    config = object_of(document, "config")
    devices = tuple(_device(as_object(device)) for device in list_of(config, "devices"))
    each = (whole_of(config, "nthreads") or 1) * (whole_of(config, "ngpus") or 1)
    arguments = [text for text in list_of(document, "args") if isinstance(text, str)]
    iterations = whole_of(config, "iterations")
    grouped = whole_of(config, "aggregated_iterations") or 1
    programs = programs_in(PurePath(arguments[0]).name) if arguments else []
    return RunConfig(
        program=programs[0] if programs else None,
        devices=devices,
        ranks=_world(devices, each),
        iterations=iterations,
        statistic=statistic(iterations, grouped, _average(arguments)),
        blocking=is_true(config.get("blocking_collectives")),
        graphs=bool(whole_of(config, "graph")),
        skipped=whole_of(config, "per_iter_skip") or 0,
        environment=_environment(document),
    )


def _device(device: dict[str, Any]) -> RankDevice:
    return RankDevice(
        cells.whole(text_of(device, "rank")),
        cells.whole(text_of(device, "group", "0")),
        text_of(device, "hostname", ""),
        text_of(device, "device_info", ""),
    )


def _world(devices: tuple[RankDevice, ...], each: int) -> int | None:
    """Ranks of the group that reports, where every process has `each` devices."""
    if not devices or each > _MOST_DEVICES:
        return None
    listed = [(device.rank + i, device.group) for device in devices for i in range(each)]
    return ranks_of(listed, each)


def _average(arguments: list[str]) -> str:
    """How times of ranks are combined: option -a, by default the mean."""
    value = "1"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument in ("-a", "--average"):
            value = following
        elif argument.startswith(("-a", "--average=")):
            value = argument.removeprefix("-a").removeprefix("--average=")
    return _AVERAGES.get(value, f"combined over ranks by -a {value!r:.20}")


def _environment(document: dict[str, Any]) -> dict[str, Any]:
    """NCCL's version, and the variables that libraries read: the file holds all, secrets too."""
    texts = (entry for entry in list_of(document, "env") if isinstance(entry, str))
    pairs = (entry.partition("=") for entry in texts)
    variables = {name: value for name, _, value in pairs if name.startswith(VARIABLE_PREFIXES)}
    code = document.get("nccl_version")
    known = {"nccl": library_version(code)} if isinstance(code, JsonNumber) else {}
    return {**known, "variables": variables}
