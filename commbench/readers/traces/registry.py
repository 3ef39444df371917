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
from commbench.readers.traces.source import Source, read_plain_pickle
from commbench.results.files import first_bytes, is_folder, read_whole, why_unreadable
from commbench.results.workload_file import is_workload
from commbench.units import format_count
from commbench.validation import by_name

Report = Callable[[str, float], None]
"""Called with the name of a file, and the part of all files that was read, 0 to 1."""
MOST_FILES = 65_536
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
    traces = []
    for number, file in enumerate(files):

        def report_part(done: float, name: str = file.name, before: int = number) -> None:
            report(name, (before + done) / len(files))

        traces.append(read_trace(file, report_part))
    _require_one_job(traces)
    ranks: dict[int, str] = {}
    for number, trace in enumerate(traces):
        if trace.rank is None and len(traces) > 1:
            traces[number] = trace = trace._replace(rank=number)
        if trace.rank is None:
            continue
        if trace.rank in ranks:
            raise UsageError(
                f"{ranks[trace.rank]} and {trace.path} are both of rank {trace.rank}",
                "give one trace of each rank",
            )
        ranks[trace.rank] = trace.path
    if len({trace.format for trace in traces}) > 1:
        names = " and ".join(sorted({trace.format for trace in traces}))
        raise UsageError(f"the traces are of different formats: {names}", "give those of one")
    return sorted(traces, key=lambda trace: trace.rank or 0)


def _require_one_job(traces: Sequence[RankTrace]) -> None:
    """Raise RecordsError for traces of torch.profiler that name different world sizes. Of the other
    formats, the size is that of the largest group that the rank used."""
    profiled = [trace for trace in traces if trace.format == KINETO.name]
    sizes = {trace.world_size: trace.path for trace in profiled if trace.world_size}
    if len(sizes) > 1:
        (size, path), (other_size, other_path), *_ = sizes.items()
        raise RecordsError(
            f"{path} is of a job with {format_count(size, 'rank')}, and {other_path} of one with "
            f"{format_count(other_size, 'rank')}",
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
    if len(files) > MOST_FILES:
        raise UsageError(f"there are {len(files)} traces", f"give at most {MOST_FILES}")
    return files


def _is_pickle(path: Path) -> bool:
    """Whether a file without a suffix is a pickle: flight recorders write such files."""
    return not path.suffix and first_bytes(path, 2) in _PICKLES


def read_trace(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The trace in one file; RecordsError where it is none."""
    if why := why_unreadable(path):
        raise RecordsError(f"cannot read {path}: {why}", "give a trace, or a folder of traces")
    if is_workload(path):
        raise RecordsError(
            f"{path} is a workload, not a trace",
            f"show it alone: commbench workload show {quote(str(path))}",
        )
    start = first_bytes(path, _START_BYTES)
    if not start and not path.stat().st_size:
        raise RecordsError(f"{path} is empty", _HINT)
    is_pickle = start[:2] in _PICKLES
    text = start.decode("utf-8", "replace").removeprefix("\ufeff")
    found = [each for each in TRACES.values() if each.starts.match(text)]
    if not (is_pickle or found):
        raise RecordsError(f"{path} is not a trace that commbench knows", _HINT)
    kind = FLIGHT_RECORDER if is_pickle else found[0]
    with Source(path, report) as source:
        records = source.records(kind.key, kind.facts)
        if is_pickle:
            source.facts = _unpickle(path, kind)
            records = iter(source.facts[kind.key])
            report(1.0)
        trace = kind.read(records, source)
    rank = rank_in_name(path.name) if trace.rank is None else trace.rank
    damaged = f"{source.damaged} records are damaged and were left out"
    notes = (*trace.notes, *([damaged] if source.damaged else ()))
    return trace._replace(
        path=str(path), format=kind.name, rank=rank, is_cut=source.is_cut, notes=notes
    )


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
