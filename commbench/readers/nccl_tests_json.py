"""nccl-tests' JSON output (option -J), versions 1 to 3: not always valid JSON, or cut off.

Source: nccl-tests' src/util.cu.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import PurePath
from typing import Any, TypeVar

from commbench.errors import RecordsError
from commbench.host.environment import VARIABLE_PREFIXES
from commbench.plan.operation import IN_PLACE, OUT_OF_PLACE
from commbench.readers import base, nccl_tests
from commbench.readers.base import ImportedFile, LeftOut, RowCollector
from commbench.readers.nccl_tests import NcclTestsTable, RankDevice
from commbench.readers.source import ImportHints, Line, SourceText

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
_OPTIONS = {
    "nthreads": "nThread", "ngpus": "nGpus", "iterations": "iters", "graph": "graph",
    "aggregated_iterations": "agg iters", "minimum_bytes": "minBytes", "maximum_bytes": "maxBytes",
    "step_factor": "step(factor)", "step_bytes": "step(bytes)",
}  # fmt: skip
"""Keys in `config` by the names that the text output gives them."""
_BLOCKING = "option -z: every operation is waited for; the time may include a barrier"
_MOST_DEVICES = 1024
_BARE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\w.])-?(?:nan|inf)(?![\w.])', re.DOTALL)
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_RESULTS = re.compile(r'"results"\s*:\s*\[')
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str, strict=False)
"""Numbers stay as they were written."""


def is_json(source: SourceText) -> bool:
    """Whether a file is a JSON object with a key that only nccl-tests writes."""
    return source.text.lstrip().startswith("{") and any(mark in source.text for mark in _MARKS)


def read_json(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The file's rows."""
    document, is_whole = _parse_document(source)
    collector = RowCollector(source, hints, unit="result")
    try:
        table = _read_table(document, source)
        environment = _read_environment(document)
        table.operation(collector)
        collector.choose_ranks([table.known_ranks])
        results = enumerate(_get(document, "results", []), start=1)
        _add_notes(document, table, is_whole, collector)
    except LeftOut as left_out:
        hint = "give a file of another operation"
        raise RecordsError(f"{source.path} cannot be imported: {left_out.reason}", hint) from None
    except ValueError as error:
        why = f"{source.path}, its beginning, is damaged: {error!s:.200}"
        raise RecordsError(why, "repair or remove it") from None
    collector.read_rows(
        ((Line(number, ""), result) for number, result in results),
        lambda line, result: _add(table, collector, line.number, result),
    )
    return nccl_tests.make_file(collector, [table], environment=environment)


def _add(table: NcclTestsTable, collector: RowCollector, number: int, result: Any) -> None:
    result = _require(result, dict, "it")
    key = {name: _get(result, name) for name in ("size", "count", "type")}
    key |= {name: _get(result, name, "").strip() for name in ("redop", "root")}  # both padded
    placements = []
    for name, placement in _PLACEMENTS.items():
        times, iterations = _get(result, name, {}), _get(result, f"{name}_per_iter", {})
        if "cpu_time" in times:
            collector.leave_out(nccl_tests.CPU_TIME, number)
        elif times:
            found = {k: v for k, v in (times | iterations).items() if k in _NAMES and v is not None}
            row = {"time": _get(times, "time"), "algbw": "nan", "busbw": "nan"}
            row |= {_NAMES[key]: _require(value, str, f"its {key}") for key, value in found.items()}
            samples = [_require(s, str, "a time") for s in _get(iterations, "times_us", [])]
            placements.append(nccl_tests.PlacementCells(placement, row, samples))
        else:
            collector.leave_out(f"it has no {name} times", number, is_fault=True)
    table.add(collector, number, key, placements)


def _add_notes(
    document: dict[str, Any], table: NcclTestsTable, is_whole: bool, collector: RowCollector
) -> None:
    if not is_whole:
        what = "everything after its last complete result is missing"
        collector.note(f"the file was cut off: {what}", is_fault=True)
    if _get(document, "out_of_bounds", {}).get("okay") in ("false", False):
        collector.note("nccl-tests says that values are out of bounds", is_fault=True)
    if skipped := _get_whole(_get(document, "config", {}), "per_iter_skip"):
        collector.note(f"percentiles leave out the first {skipped} iterations")
    if table.blocking:
        collector.note(table.blocking)
    nccl_tests.note_launch_mode(table, collector)
    for error in _get(document, "errors", [])[:1]:
        collector.note(f"nccl-tests reported: {error!s:.200}", is_fault=True)


def _read_table(document: dict[str, Any], source: SourceText) -> NcclTestsTable:
    """What a document says of its run; ValueError where it is damaged, RecordsError if newer."""
    version = _get_whole(document, "version")
    if version is not None and version > _NEWEST:
        why = f"{source.path} was written by a newer nccl-tests: its version is {version}"
        hint = f"this commbench reads up to {_NEWEST}; the text output may be readable"
        raise RecordsError(why, hint)
    config = _get(document, "config", {})
    arguments = [text for text in _get(document, "args", []) if isinstance(text, str)]
    programs = nccl_tests.find_programs(PurePath((arguments or [""])[0]).name)
    numbers = {key: number for key in _OPTIONS if (number := _get_whole(config, key)) is not None}
    table = NcclTestsTable(
        program=next(iter(programs), None),
        options={_OPTIONS[key]: n for key, n in numbers.items() if n or key == "graph"},
        over_ranks=_read_average(arguments),
        # A boolean is also written as a text or as a number.
        blocking=_BLOCKING if config.get("blocking_collectives") in _TRUE else "",
    )
    each = table.options.get("nThread", 1) * table.options.get("nGpus", 1)
    for device in _get(config, "devices", []):
        # The first of a process; the others, of the ranks that follow, are not listed.
        first = RankDevice(
            rank=base.parse_whole(_get(_require(device, dict, "a device"), "rank")),
            group=base.parse_whole(_get(device, "group", "0")),
            host=_get(device, "hostname", ""),
            name=_get(device, "device_info", ""),
        )
        ranks = range(first.rank, first.rank + min(each, _MOST_DEVICES))
        table.devices += [first._replace(rank=rank) for rank in ranks]
    return table


_TRUE = (True, "true", "1", "2", "3")


def _read_average(arguments: list[str]) -> str:
    """How the times of ranks are combined: option -a, by default the mean."""
    values = re.findall(r" (?:-a|--average)[ =]?(\S*)", " ".join(arguments)) or ["1"]
    return _AVERAGES.get(values[-1], f"combined over ranks by -a {values[-1]!r:.20}")


def _read_environment(document: dict[str, Any]) -> dict[str, Any]:
    """NCCL's version, and the variables that libraries read; the file holds all, with secrets."""
    texts = (entry for entry in _get(document, "env", []) if isinstance(entry, str))
    pairs = (entry.partition("=") for entry in texts)
    variables = {name: value for name, _, value in pairs if name.startswith(VARIABLE_PREFIXES)}
    code = _get_whole(document, "nccl_version")
    nccl = {"nccl": nccl_tests.parse_library_version(str(code))} if code else {}
    return nccl | {"variables": variables}


def _parse_document(source: SourceText) -> tuple[dict[str, Any], bool]:
    """The document with its numbers as texts, and whether it is whole, not cut off after its last
    whole result.

    Raises RecordsError with the line where it is damaged.
    """
    text = _BARE.sub(lambda m: m[0] if m[0].startswith('"') else f'"{m[0]}"', source.text).strip()
    results: list[Any] = []
    line = 1
    try:
        return _require(_DECODER.decode(text), dict, "the document"), True
    except json.JSONDecodeError as error:
        line = source.text[: len(source.text) - len(source.text.lstrip())].count("\n")
        line += error.lineno
    except (RecursionError, ValueError):
        pass
    begin = _RESULTS.search(text)
    at = begin.end() if begin else 0
    with suppress(ValueError, RecursionError):
        while begin and (between := _BETWEEN.match(text, at)):
            result, at = _DECODER.raw_decode(text, between.end())
            results.append(result)
    rest = text[at:]
    is_ended = '"end_time"' in rest and rest.endswith("}")
    with suppress(ValueError, RecursionError):
        if begin and rest.count('"size"') <= 1 and not is_ended:
            beginning = _require(_DECODER.decode(text[: begin.end()] + "]}"), dict, "it")
            return beginning | {"results": results}, False
    raise source.damaged(line, "it is no JSON object, or nested too deeply", len(results))


def _require(value: Any, kind: type[T], what: str) -> T:
    """A value of this kind; ValueError for another one."""
    if not isinstance(value, kind):
        raise ValueError(f"{what} is {value!r:.40}")
    return value


def _get(values: dict[str, Any], name: str, default: Any = None) -> Any:
    """The value of a key, of the kind of the default; without one, a text or number that has to be
    there and not to be null."""
    value = values.get(name)
    kind = str if default is None else type(default)
    return _require(default if value is None else value, kind, f"its {name}")


def _get_whole(values: dict[str, Any], name: str) -> int | None:
    """The whole number of a key, None where it is missing or null."""
    return None if values.get(name) is None else base.parse_whole(_get(values, name))
