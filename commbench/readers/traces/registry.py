"""TRACES, the table of formats of traces, and how a file's format is recognised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from commbench.errors import RecordsError, UsageError
from commbench.readers.traces.base import RankTrace, TraceFormat, rank_in_name
from commbench.readers.traces.kineto import KINETO
from commbench.readers.traces.other_formats import CHAKRA, FLIGHT_RECORDER, INSPECTOR
from commbench.readers.traces.plain_pickle import read_plain_pickle
from commbench.readers.traces.source import Source
from commbench.results.files import first_bytes, is_folder, is_workload, read_whole, why_unreadable
from commbench.units import format_count
from commbench.validation import by_name

Report = Callable[[str, float], None]
"""Called with the name of a file, and the part of all files that was read, 0 to 1."""
LARGEST_PICKLE_BYTES = 1 << 28
_START_BYTES = 1 << 12
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How pickles of protocol 2 and later begin."""
_SUFFIXES = (".json", ".pkl", ".pickle", ".jsonl", ".log", ".gz")
_HINT = (
    "give traces of torch.profiler (.json, .json.gz), the flight recorder, Chakra or NCCL Inspector"
)


TRACES = by_name(KINETO, FLIGHT_RECORDER, CHAKRA, INSPECTOR)


def read_traces(paths: Sequence[Path], report: Report = lambda _, __: None) -> list[RankTrace]:
    """The traces in files and in folders, one for each rank, in the order of ranks. Raises
    RecordsError for a file that is no trace, and UsageError for two traces of one rank."""
    files = find_files(paths)
    traces: list[RankTrace] = []
    for number, file in enumerate(files):

        def report_part(done: float, name: str = file.name, before: int = number) -> None:
            report(name, (before + done) / len(files))

        trace = read_trace(file, report_part)
        is_alone = trace.rank is not None or len(files) == 1
        traces.append(trace if is_alone else trace._replace(rank=number))
    _require_one_job(traces)
    return sorted(traces, key=lambda trace: trace.rank or 0)


def _require_one_job(traces: Sequence[RankTrace]) -> None:
    """Raise an error for traces of several jobs or formats, or two traces of one rank. Only that of
    torch.profiler names the world size; another one has that of the largest group of the rank."""
    first = traces[0]
    of_rank = {trace.rank: trace for trace in reversed(traces)}
    named = [trace for trace in traces if trace.world_size and trace.format == KINETO.name]
    for trace in traces:
        if (other := of_rank[trace.rank]) is not trace:
            both = f"{other.path} and {trace.path} are both of rank {trace.rank}"
            raise UsageError(both, "give one trace of each rank")
        if trace.format != first.format:
            names = " and ".join(sorted({trace.format, first.format}))
            raise UsageError(f"the traces are of different formats: {names}", "give those of one")
    for trace in named:
        if trace.world_size != named[0].world_size:
            raise RecordsError(
                f"{named[0].path} is of a job with {format_count(named[0].world_size or 0, 'rank')}"
                f", and {trace.path} of one with {format_count(trace.world_size or 0, 'rank')}",
                "give the traces of one job",
            )


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files, and those in folders whose names end like those of traces, but for workloads."""
    files: list[Path] = []
    for path in paths:
        if not is_folder(path):
            files.append(path)
            continue
        try:
            own = sorted(each for each in path.iterdir() if each.is_file())
        except OSError as error:
            raise RecordsError(f"cannot read {path}: {error.strerror}", _HINT) from None
        named = [
            each
            for each in own
            if (each.name.endswith(_SUFFIXES) or _is_pickle(each)) and not is_workload(each)
        ]
        if not named:
            raise RecordsError(f"{path} has no traces", _HINT)
        files += named
    return files


def _is_pickle(path: Path) -> bool:
    """Whether a file without a suffix is a pickle: flight recorders write such files."""
    return not path.suffix and first_bytes(path, 2) in _PICKLES


def read_trace(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The trace in one file; RecordsError where it is none."""
    if why := why_unreadable(path):
        raise RecordsError(f"cannot read {path}: {why}", "give a trace, or a folder of traces")
    if is_workload(path):
        show = f"show it alone: commbench workload show {quote(str(path))}"
        raise RecordsError(f"{path} is a workload, not a trace", show)
    start = first_bytes(path, _START_BYTES)
    with Source(path, report) as source:
        is_pickle = start[:2] in _PICKLES
        text = start.decode("utf-8", "replace").removeprefix("\ufeff")
        found = [each for each in TRACES.values() if each.starts.match(text)]
        kinds = [FLIGHT_RECORDER] if is_pickle else found
        if not kinds:
            raise RecordsError(f"{path} is not a trace that commbench knows", _HINT)
        records = source.records(kinds[0].key, kinds[0].facts)
        if is_pickle:
            source.facts = _unpickle(path, kinds[0])
            records = iter(source.facts[kinds[0].key])
            report(1.0)
        trace = kinds[0].read(records, source)
    damaged = f"{source.damaged} records are damaged and were left out"
    return trace._replace(
        path=str(path), format=kinds[0].name,
        calls=tuple(sorted(trace.calls, key=lambda call: call.begin_s or 0.0)),
        rank=rank_in_name(path.name) if trace.rank is None else trace.rank, is_cut=source.is_cut,
        notes=(*trace.notes, *([damaged] if source.damaged else ())),
    )  # fmt: skip


def _unpickle(path: Path, kind: TraceFormat) -> dict[str, Any]:
    """The values of a pickle, with a list of records; RecordsError where it is damaged, or is more
    than plain values."""
    try:
        values = read_plain_pickle(read_whole(path, LARGEST_PICKLE_BYTES, kind.hint))
    except ValueError as error:
        hint = "commbench reads pickles of plain values only, and runs nothing in them"
        raise RecordsError(f"{path} is no dump of the {kind.name}: {error}", hint) from None
    if not isinstance(values, dict) or not isinstance(values.get(kind.key), (list, tuple)):
        raise RecordsError(f"{path} is no dump of the {kind.name}: it has no {kind.key}", kind.hint)
    return values
