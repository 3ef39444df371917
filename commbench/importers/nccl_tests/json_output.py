"""nccl-tests' JSON output (option -J), versions 1 to 3. Source: nccl-tests' src/util.cu.

The document is not always valid JSON, and a crash cuts it off.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any, NamedTuple

from commbench.errors import RecordsError
from commbench.host.environment import VARIABLE_PREFIXES
from commbench.importers import cells
from commbench.importers.base import ImportedFile, RowCollector, unique
from commbench.importers.hints import ImportHints
from commbench.importers.nccl_tests.preamble import (
    RankDevice,
    count_ranks,
    describe_time,
    find_programs,
    parse_library_version,
    translate_program,
)
from commbench.importers.nccl_tests.rows import (
    CPU_TIME,
    PlacementCells,
    RowBuilder,
    RowKey,
    TableRun,
    parse_wrong,
)
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
_NEWEST = 3
_AVERAGES = {"0": "rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}
_MOST_DEVICES = 1024
_BARE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\w.])-?(?:nan|inf)(?![\w.])', re.DOTALL)
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_RESULTS = re.compile(r'"results"\s*:\s*\[')


def recognises(source: SourceText) -> bool:
    """Whether a file is a JSON object with a key that only nccl-tests writes."""
    return source.text.lstrip().startswith("{") and any(mark in source.text for mark in _MARKS)


def read(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    document, is_whole = _parse_document(source)
    collector = RowCollector(source, hints, unit="result")
    rows = RowBuilder(collector)
    try:
        config = _read_config(document, source)
        results = _get_list(document, "results")
        run = _make_run(config, source.path, hints)
    except LookupError as reason:
        raise RecordsError(
            f"{source.path} cannot be imported: {reason}", "give a file of another operation"
        ) from None
    except ValueError as error:
        raise _damaged(source, "its beginning", error, 0) from None
    for number, result in enumerate(results, start=1):
        try:
            _add(rows, run, number, _as_object(result))
        except ValueError as error:
            raise _damaged(source, f"result {number}", error, number - 1) from None
    _add_notes(document, config, is_whole, rows)
    return collector.make_file(
        tool="nccl-tests",
        tool_version="",
        format=NAME,
        timing=ISOLATED if config.is_blocking else PIPELINED,
        ranks=run.ranks,
        hosts=unique(device.host for device in config.devices),
        devices=unique(device.name for device in config.devices),
        backend="nccl",
        environment=config.environment,
    )


def _damaged(source: SourceText, where: str, error: ValueError, sound: int) -> RecordsError:
    return RecordsError(
        f"{source.path}, {where}, is damaged: {error!s:.200}",
        f"{sound} results before it can be read; mend or remove it",
    )


def _make_run(config: RunConfig, path: str, hints: ImportHints) -> TableRun:
    given = None if config.program is None else translate_program(config.program)
    ranks = hints.choose_ranks(path, [config.ranks])
    operation = hints.choose_operation(path, given, 1)
    is_hinted = None in (given, config.ranks)
    return TableRun(operation, ranks, config.statistic, config.iterations, is_hinted)


def _add(rows: RowBuilder, run: TableRun, number: int, result: dict[str, Any]) -> None:
    key = RowKey(
        size=_get_text(result, "size"),
        elements=_get_text(result, "count"),
        dtype=_get_text(result, "type"),
        reduce_op=_get_text(result, "redop", ""),
        root=_get_text(result, "root", "").strip(),  # padded to six characters
    )
    placements = []
    for name, placement in _PLACEMENTS.items():
        times = _get_object(result, name)
        if "cpu_time" in times:
            rows.collector.leave_out(CPU_TIME, number)
        elif times:
            per_iteration = _get_object(result, f"{name}_per_iter")
            placements.append(_make_cells(placement, times, per_iteration))
        else:
            rows.collector.leave_out(f"it has no {name} times", number)
    rows.add(run, number, key, placements)


def _make_cells(
    placement: str, times: dict[str, Any], per_iteration: dict[str, Any]
) -> PlacementCells:
    wrong = times.get("nwrong")
    return PlacementCells(
        placement=placement,
        time=_get_text(times, "time"),
        algbw=_get_text(times, "alg_bw", "nan"),
        busbw=_get_text(times, "bandwidith" if "bandwidith" in times else "bus_bw", "nan"),
        wrong=None if wrong is None else parse_wrong(_as_text(wrong), is_count=True),
        statistics={
            field: _get_text(per_iteration, name)
            for name, field in _STATISTICS.items()
            if name in per_iteration
        },
        samples=tuple(_as_text(sample) for sample in _get_list(per_iteration, "times_us")),
    )


def _add_notes(
    document: dict[str, Any], config: RunConfig, is_whole: bool, rows: RowBuilder
) -> None:
    collector = rows.collector
    if not is_whole:
        collector.note("the file was cut off: what follows its last whole result is missing")
    if config.skipped:
        collector.note(f"percentiles leave out the first {config.skipped} iterations")
    if config.is_blocking:
        collector.note("option -z: every operation is waited for; the time may hold a barrier")
    if config.has_graphs:
        collector.note("operations were launched by CUDA graphs (option -G)")
    for error in _get_list(document, "errors")[:1]:
        collector.note(f"nccl-tests reported: {error!s:.200}")
    rows.add_notes()


class RunConfig(NamedTuple):
    """What the document says of the run."""

    program: str | None
    devices: tuple[RankDevice, ...]
    """The first device of each process; others are not listed."""
    ranks: int | None
    iterations: int | None
    statistic: str
    is_blocking: bool
    has_graphs: bool
    skipped: int
    """Iterations at the beginning that percentiles leave out."""
    environment: dict[str, Any]


def _read_config(document: dict[str, Any], source: SourceText) -> RunConfig:
    """What a document says of its run; ValueError where it is damaged, RecordsError if newer."""
    version = _get_whole(document, "version")
    if version is not None and version > _NEWEST:
        raise RecordsError(
            f"{source.path} was written by a newer nccl-tests: its version is {version}",
            f"this commbench reads up to {_NEWEST}; the text output may be readable",
        )
    config = _get_object(document, "config")
    devices = tuple(_read_device(_as_object(device)) for device in _get_list(config, "devices"))
    devices_each = (_get_whole(config, "nthreads") or 1) * (_get_whole(config, "ngpus") or 1)
    arguments = [text for text in _get_list(document, "args") if isinstance(text, str)]
    iterations = _get_whole(config, "iterations")
    grouped = _get_whole(config, "aggregated_iterations") or 1
    programs = find_programs(PurePath(arguments[0]).name) if arguments else []
    return RunConfig(
        program=programs[0] if programs else None,
        devices=devices,
        ranks=_count_ranks(devices, devices_each),
        iterations=iterations,
        statistic=describe_time(iterations, grouped, _read_average(arguments)),
        is_blocking=_is_true(config.get("blocking_collectives")),
        has_graphs=bool(_get_whole(config, "graph")),
        skipped=_get_whole(config, "per_iter_skip") or 0,
        environment=_read_environment(document),
    )


def _read_device(device: dict[str, Any]) -> RankDevice:
    return RankDevice(
        cells.parse_whole(_get_text(device, "rank")),
        cells.parse_whole(_get_text(device, "group", "0")),
        _get_text(device, "hostname", ""),
        _get_text(device, "device_info", ""),
    )


def _count_ranks(devices: tuple[RankDevice, ...], each: int) -> int | None:
    """Ranks of the group that reports, where every process has `each` devices."""
    if not devices or each > _MOST_DEVICES:
        return None
    listed = [(device.rank + i, device.group) for device in devices for i in range(each)]
    return count_ranks(listed, each)


def _read_average(arguments: list[str]) -> str:
    """How the times of ranks are combined: option -a, by default the mean."""
    value = "1"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument in ("-a", "--average"):
            value = following
        elif argument.startswith(("-a", "--average=")):
            value = argument.removeprefix("-a").removeprefix("--average=")
    return _AVERAGES.get(value, f"combined over ranks by -a {value!r:.20}")


def _read_environment(document: dict[str, Any]) -> dict[str, Any]:
    """NCCL's version, and the variables that libraries read; the file holds all, with secrets."""
    texts = (entry for entry in _get_list(document, "env") if isinstance(entry, str))
    pairs = (entry.partition("=") for entry in texts)
    variables = {name: value for name, _, value in pairs if name.startswith(VARIABLE_PREFIXES)}
    code = document.get("nccl_version")
    known = {"nccl": parse_library_version(code)} if isinstance(code, JsonNumber) else {}
    return {**known, "variables": variables}


class JsonNumber(str):
    """A JSON number as it was written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(
    parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber, strict=False
)


def _parse_document(source: SourceText) -> tuple[dict[str, Any], bool]:
    """The document with its numbers as JsonNumbers, and whether it is whole.

    A document that is cut off has the results before the cut. Raises RecordsError with the line
    where it is damaged.
    """
    text = _BARE.sub(_quote, source.text).strip()
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        results, begin, rest = _parse_whole_results(text)
        if begin and _is_cut(rest):
            return _parse_beginning(source, text[:begin]) | {"results": results}, False
        line = source.text[: len(source.text) - len(source.text.lstrip())].count("\n")
        raise source.damaged(line + error.lineno, error.msg, len(results)) from None
    except (RecursionError, ValueError) as error:
        raise source.damaged(1, error, 0) from None
    if not isinstance(document, dict):
        raise source.damaged(1, "it is no JSON object", 0)
    return document, True


def _quote(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'"{match[0]}"'


def _parse_whole_results(text: str) -> tuple[list[Any], int, str]:
    """The whole results before the damage, where their list begins (0: nowhere), and the rest."""
    begin = _RESULTS.search(text)
    if not begin:
        return [], 0, text
    results: list[Any] = []
    at = begin.end()
    while True:
        try:
            between = _BETWEEN.match(text, at)
            result, at = _DECODER.raw_decode(text, between.end() if between else at)
        except (ValueError, RecursionError):
            return results, begin.end(), text[at:]
        results.append(result)


def _is_cut(rest: str) -> bool:
    """Whether only the end of the file is missing, from what follows its whole results."""
    is_ended = '"end_time"' in rest and rest.endswith("}")
    return rest.count('"size"') <= 1 and not is_ended


def _parse_beginning(source: SourceText, text: str) -> dict[str, Any]:
    try:
        document = _DECODER.decode(text + "]}")
    except (ValueError, RecursionError) as error:
        raise source.damaged(1, error, 0) from None
    return document if isinstance(document, dict) else {}


def _as_object(value: Any) -> dict[str, Any]:
    """A value that is an object; ValueError if it is none."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} stands where an object has to")
    return value


def _as_text(value: Any) -> str:
    """A text, or a number as written; ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} stands where a number or a text has to")
    return value


def _get_object(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of a key, empty where it is missing or null."""
    value = values.get(name)
    return {} if value is None else _as_object(value)


def _get_list(values: dict[str, Any], name: str) -> list[Any]:
    """The list of a key, empty where it is missing or null."""
    value = values.get(name)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"its {name} is {value!r:.40}")
    return value or []


def _get_text(values: dict[str, Any], name: str, default: str | None = None) -> str:
    """The text, or the number as written, of a key that has to be there."""
    value = values.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def _get_whole(values: dict[str, Any], name: str) -> int | None:
    """The whole number of a key, None where it is missing or null."""
    return None if values.get(name) is None else cells.parse_whole(_get_text(values, name))


def _is_true(value: object) -> bool:
    """Whether a value means true: booleans are written as text or as numbers, too."""
    return value is True or value == "true" or (isinstance(value, JsonNumber) and value != "0")
