"""nccl-tests' JSON output (option -J), versions 1 to 3: not always valid JSON, or cut off.

Source: nccl-tests' src/util.cu.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any, TypeVar

from commbench.errors import RecordsError
from commbench.host.environment import VARIABLE_PREFIXES
from commbench.plan.dimensions import ROTATING
from commbench.plan.operation import IN_PLACE, OUT_OF_PLACE
from commbench.readers import cells
from commbench.readers.base import ImportedFile, RowCollector, unique
from commbench.readers.nccl_tests import (
    CPU_TIME,
    NcclTestsTable,
    PlacementCells,
    Preamble,
    RankDevice,
    add_notes,
    find_programs,
    note_launch_mode,
    parse_library_version,
)
from commbench.readers.source import ImportHints, SourceText

T = TypeVar("T")

_PLACEMENTS = {"out_of_place": OUT_OF_PLACE, "in_place": IN_PLACE}
_NAMES = {
    "time": "time", "alg_bw": "algbw", "bus_bw": "busbw", "bandwidith": "busbw", "nwrong": "wrong",
    "min_us": "minimum_s", "max_us": "maximum_s", "avg_us": "mean_s", "p50_us": "p50_s",
    "p95_us": "p95_s", "p99_us": "p99_s",
}  # fmt: skip
"""Keys of a placement's times by the names that commbench.readers.nccl_tests gives them."""
_MARKS = ('"nccl_version"', '"average_bus_bandwidth"', '"out_of_bounds"', '"out_of_place"')
_NEWEST = 3
_AVERAGES = {"0": "rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}
_INTEGERS = {
    "threads": "nthreads", "gpus": "ngpus", "iterations": "iterations",
    "grouped": "aggregated_iterations", "graphs": "graph", "smallest": "minimum_bytes",
    "largest": "maximum_bytes", "factor": "step_factor", "step": "step_bytes",
}  # fmt: skip
"""Preamble's names of keys in `config`."""
_BLOCKING = "option -z: every operation is waited for; the time may include a barrier"
_MOST_DEVICES = 1024
_BARE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\w.])-?(?:nan|inf)(?![\w.])', re.DOTALL)
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_RESULTS = re.compile(r'"results"\s*:\s*\[')


def is_json(source: SourceText) -> bool:
    """Whether a file is a JSON object with a key that only nccl-tests writes."""
    return source.text.lstrip().startswith("{") and any(mark in source.text for mark in _MARKS)


def read_json(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    document, is_whole = _parse_document(source)
    collector = RowCollector(source, hints, unit="result")
    number = 0
    try:
        preamble = _read_preamble(document, source)
        environment = _read_environment(document)
        results = _get(document, "results", list, [])
        preamble.known_operation  # noqa: B018 - one that commbench lacks is the first reason
        collector.choose_ranks([preamble.known_ranks])
        table = NcclTestsTable(collector, preamble, line=1)
        for number, result in enumerate(results, start=1):
            _add(table, collector, number, _require(result, dict, "it"))
        _add_notes(document, preamble, is_whole, collector)
        add_notes(collector, [table])
    except LookupError as reason:
        raise RecordsError(
            f"{source.path} cannot be imported: {reason}", "give a file of another operation"
        ) from None
    except ValueError as error:
        where = f"result {number}" if number else "its beginning"
        raise RecordsError(
            f"{source.path}, {where}, is damaged: {error!s:.200}",
            "repair or remove it",
        ) from None
    return collector.make_file(
        tool="nccl-tests",
        timing=preamble.timing,
        hosts=unique(device.host for device in preamble.devices),
        devices=unique(device.name for device in preamble.devices),
        backend="nccl",
        buffers=ROTATING,
        environment=environment,
    )


def _add(
    table: NcclTestsTable, collector: RowCollector, number: int, result: dict[str, Any]
) -> None:
    key = {name: _get(result, name, str) for name in ("size", "count", "type")}
    for name in ("redop", "root"):
        key[name] = _get(result, name, str, "").strip()  # root is padded to six characters
    placements = []
    for name, placement in _PLACEMENTS.items():
        times = _get(result, name, dict, {})
        iterations = _get(result, f"{name}_per_iter", dict, {})
        if "cpu_time" in times:
            collector.leave_out(CPU_TIME, number)
        elif times:
            found = {k: v for k, v in (times | iterations).items() if k in _NAMES and v is not None}
            row = {_NAMES[key]: _require(value, str, f"its {key}") for key, value in found.items()}
            row = {"time": _get(times, "time", str), "algbw": "nan", "busbw": "nan"} | row
            samples = [_require(s, str, "a time") for s in _get(iterations, "times_us", list, [])]
            placements.append(PlacementCells(placement, row, samples))
        else:
            collector.leave_out(f"it has no {name} times", number, is_fault=True)
    table.add(number, key, placements)


def _add_notes(
    document: dict[str, Any], preamble: Preamble, is_whole: bool, collector: RowCollector
) -> None:
    if not is_whole:
        what = "everything after its last complete result is missing"
        collector.note(f"the file was cut off: {what}", is_fault=True)
    if _get(document, "out_of_bounds", dict, {}).get("okay") in ("false", False):
        collector.note("nccl-tests says that values are out of bounds", is_fault=True)
    if skipped := _get_whole(_get(document, "config", dict, {}), "per_iter_skip"):
        collector.note(f"percentiles leave out the first {skipped} iterations")
    if preamble.blocking:
        collector.note(preamble.blocking)
    note_launch_mode(preamble, collector)
    for error in _get(document, "errors", list, [])[:1]:
        collector.note(f"nccl-tests reported: {error!s:.200}", is_fault=True)


def _read_preamble(document: dict[str, Any], source: SourceText) -> Preamble:
    """What a document says of its run; ValueError where it is damaged, RecordsError if newer."""
    version = _get_whole(document, "version")
    if version is not None and version > _NEWEST:
        raise RecordsError(
            f"{source.path} was written by a newer nccl-tests: its version is {version}",
            f"this commbench reads up to {_NEWEST}; the text output may be readable",
        )
    config = _get(document, "config", dict, {})
    arguments = [text for text in _get(document, "args", list, []) if isinstance(text, str)]
    integers = {name: _get_whole(config, key) for name, key in _INTEGERS.items()}
    preamble = Preamble(
        program=next(iter(find_programs(PurePath(arguments[0]).name)), None) if arguments else None,
        integers={
            name: number
            for name, number in integers.items()
            if number or (name == "graphs" and number is not None)
        },
        over_ranks=_read_average(arguments),
        blocking=_BLOCKING if _is_true(config.get("blocking_collectives")) else "",
    )
    each = preamble.integers.get("threads", 1) * preamble.integers.get("gpus", 1)
    for device in _get(config, "devices", list, []):
        # The first of a process; the others, of the ranks that follow, are not listed.
        first = RankDevice(
            rank=cells.parse_whole(_get(_require(device, dict, "a device"), "rank", str)),
            group=cells.parse_whole(_get(device, "group", str, "0")),
            host=_get(device, "hostname", str, ""),
            name=_get(device, "device_info", str, ""),
        )
        ranks = range(first.rank, first.rank + min(each, _MOST_DEVICES))
        preamble.devices += [first._replace(rank=rank) for rank in ranks]
    return preamble


def _read_average(arguments: list[str]) -> str:
    """How the times of ranks are combined: option -a, by default the mean."""
    values = re.findall(r" (?:-a|--average)[ =]?(\S*)", " ".join(arguments)) or ["1"]
    return _AVERAGES.get(values[-1], f"combined over ranks by -a {values[-1]!r:.20}")


def _read_environment(document: dict[str, Any]) -> dict[str, Any]:
    """NCCL's version, and the variables that libraries read; the file holds all, with secrets."""
    texts = (entry for entry in _get(document, "env", list, []) if isinstance(entry, str))
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
    """The document with its numbers as JsonNumbers, and whether it is whole, not cut off.

    Raises RecordsError with the line where it is damaged.
    """
    text = _BARE.sub(lambda m: m[0] if m[0].startswith('"') else f'"{m[0]}"', source.text).strip()
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        results, begin, rest = _parse_whole_results(text)
        is_ended = '"end_time"' in rest and rest.endswith("}")
        if begin and rest.count('"size"') <= 1 and not is_ended:
            return _parse_beginning(source, text[:begin]) | {"results": results}, False
        line = source.text[: len(source.text) - len(source.text.lstrip())].count("\n")
        raise source.damaged(line + error.lineno, "it is no JSON", len(results)) from None
    except (RecursionError, ValueError):
        raise source.damaged(1, "it is no JSON, or nested too deeply", 0) from None
    if not isinstance(document, dict):
        raise source.damaged(1, "it is no JSON object", 0)
    return document, True


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


def _parse_beginning(source: SourceText, text: str) -> dict[str, Any]:
    try:
        document = _DECODER.decode(text + "]}")
    except (ValueError, RecursionError):
        raise source.damaged(1, "it is no JSON, or nested too deeply", 0) from None
    return document if isinstance(document, dict) else {}


def _require(value: Any, kind: type[T], what: str) -> T:
    """A value of this kind; ValueError for another one. A number is a text, as it was written."""
    if not isinstance(value, kind):
        raise ValueError(f"{what} is {value!r:.40}")
    return value


def _get(values: dict[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """The value of a key, which without a default has to be there and not to be null."""
    value = values.get(name)
    return _require(default if value is None else value, kind, f"its {name}")


def _get_whole(values: dict[str, Any], name: str) -> int | None:
    """The whole number of a key, None where it is missing or null."""
    return None if values.get(name) is None else cells.parse_whole(_get(values, name, str))


def _is_true(value: object) -> bool:
    """Whether a value means true: booleans are written as text or as numbers, too."""
    return value is True or value == "true" or (isinstance(value, JsonNumber) and value != "0")
