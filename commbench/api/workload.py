"""Workloads from Python: the collective calls of a training step, as `commbench.workload`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.api.runs import ignore

if TYPE_CHECKING:
    from commbench.analysis.trace import TraceAnalysis
    from commbench.spec.workload import Workload

_Report = Callable[[str, float], None]


def analyse(*traces: str | Path, report: _Report = lambda _, __: ignore("")) -> TraceAnalysis:
    """What the traces of a job say: the figures of each operation, who waits for whom, and how much
    communication is exposed.

    Each of `traces` is the file of a rank, or a folder of such files: traces of torch.profiler,
    dumps of the flight recorder, Chakra execution traces in JSON, or output of NCCL Inspector.
    `report` is called with the name of a file and the part of it that was read, 0 to 1. Raises
    RecordsError for a file that cannot be read.
    """
    from commbench.analysis.trace import analyse_traces
    from commbench.importers.traces.registry import read_traces

    return analyse_traces(read_traces([Path(trace) for trace in traces], report))


def load(
    *paths: str | Path, name: str | None = None, report: _Report = lambda _, __: ignore("")
) -> Workload:
    """The workload in a file that `commbench workload` wrote, or that of traces, as `analyse` takes
    them. `name` is by default that of the file, or of the folder of several files."""
    from commbench.analysis.trace_workload import trace_workload
    from commbench.results.workload_file import is_workload, read_workload

    first = Path(paths[0])
    if len(paths) == 1 and is_workload(first):
        found = read_workload(first)
        return found._replace(name=name) if name else found
    named = first if len(paths) == 1 else first.resolve().parent
    default = named.name.partition(".")[0] or named.resolve().name
    return trace_workload(analyse(*paths, report=report), (name or default)[:200])


def save(workload: Workload, path: str | Path) -> None:
    """Write a workload into a new file; raises RecordsError where that is not possible."""
    from commbench.results.workload_file import write_workload

    write_workload(Path(path), workload)
