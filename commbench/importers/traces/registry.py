"""TRACES, the table of formats of traces, and how a file's format is recognised."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from commbench.errors import RecordsError, UsageError
from commbench.importers.traces import chakra, flight_recorder, inspector, kineto
from commbench.importers.traces.base import RankTrace
from commbench.results.files import is_folder, why_unreadable
from commbench.results.workload_file import is_workload
from commbench.units import format_count

Report = Callable[[str, float], None]
"""Called with the name of a file, and the part of all files that was read, 0 to 1."""
MOST_FILES = 65_536
_START_BYTES = 1 << 12
_SUFFIXES = (
    ".json",
    ".json.gz",
    ".pkl",
    ".pickle",
    ".jsonl",
    ".jsonl.gz",
    ".log",
    ".log.gz",
    ".gz",
)
_HINT = (
    "give only traces: torch.profiler (.json, .json.gz), flight recorder, Chakra (JSON), NCCL "
    "Inspector"
)


class TraceFormat(NamedTuple):
    """One format of traces."""

    name: str
    recognises: Callable[[str], bool]
    """Whether a file is of this format, by its first characters."""
    read: Callable[[Path, Callable[[float], None]], RankTrace]


TRACES = {
    module.NAME: TraceFormat(module.NAME, module.recognises, module.read)
    for module in (kineto, flight_recorder, chakra, inspector)
}


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
    sizes = {t.world_size: t.path for t in traces if t.world_size and t.format == kineto.NAME}
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
            raise RecordsError(f"{path} has no traces", f"name the files; {_HINT}")
        files += named
    if len(files) > MOST_FILES:
        raise UsageError(f"there are {len(files)} traces", f"give at most {MOST_FILES}")
    return files


def _is_pickle(path: Path) -> bool:
    """Flight recorders write files without a suffix."""
    return not path.suffix and flight_recorder.is_pickle(_first_bytes(path))


def read_trace(path: Path, report: Callable[[float], None] = lambda _: None) -> RankTrace:
    """The trace in one file; RecordsError where it is none."""
    if why := why_unreadable(path):
        raise RecordsError(f"cannot read {path}: {why}", "give a trace, or a folder of traces")
    if is_workload(path):
        raise RecordsError(
            f"{path} is a workload, not a trace",
            f"show it alone: commbench workload show {quote(str(path))}",
        )
    start = _first_bytes(path)
    if not start and not path.stat().st_size:
        raise RecordsError(f"{path} is empty", _HINT)
    if flight_recorder.is_pickle(start):
        return flight_recorder.read_pickle(path, report)
    text = start.decode("utf-8", "replace").removeprefix("\ufeff")
    for trace_format in TRACES.values():
        if trace_format.recognises(text):
            return trace_format.read(path, report)
    raise RecordsError(f"{path} is not a trace that commbench knows", _HINT)


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(_START_BYTES)
    except OSError as error:
        raise RecordsError(
            f"cannot read {path}: {error.strerror}", "check its permissions"
        ) from None
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return zlib.decompressobj(31).decompress(raw, _START_BYTES)
    except zlib.error:
        return b""
