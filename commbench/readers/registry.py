"""IMPORTERS, the table of other tools' file formats, how a file's format is recognised, and an
imported file as a run, so that everything that reads runs reads other tools' files too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from commbench.errors import RecordsError
from commbench.plan.backends import BACKENDS
from commbench.plan.case import Case
from commbench.plan.dimensions import BOTH
from commbench.plan.plan import Plan
from commbench.readers import lines, mpi, nccl_tests_json, nccl_tests_text
from commbench.readers.base import ImportedFile, ImportedRow, unique
from commbench.readers.source import NO_HINTS, ImportHints, SourceText, read_source
from commbench.results import schema
from commbench.stats import collect


class Importer(NamedTuple):
    """One file format of another tool."""

    recognises: Callable[[SourceText], bool]
    """Whether a file is of this format, by its content."""
    read: Callable[[SourceText, ImportHints], ImportedFile]


IMPORTERS = {
    "nccl-tests (JSON)": Importer(nccl_tests_json.is_json, nccl_tests_json.read_json),
    "nccl-tests (text)": Importer(nccl_tests_text.is_text, nccl_tests_text.read_text),
    "OSU": Importer(lambda source: source.has(mpi.OSU.title), mpi.read_osu),
    "IMB": Importer(lambda source: source.has(mpi.IMB.title, mpi.IMB.header), mpi.read_imb),
    "PARAM": Importer(lambda source: source.has(lines.RESULT), lines.read_param),
    "curves (CSV)": Importer(lines.is_curves, lines.read_curves),
}
"""By the names by which messages and the help call them."""


def import_run(path: Path, hints: ImportHints = NO_HINTS) -> schema.Run:
    """The results in another tool's file as a run; raises RecordsError where it cannot be read,
    UsageError where a hint is missing, is invalid or contradicts the file."""
    hints = hints.validate()
    return make_run(import_text(read_source(path), hints))


_OF_TRACES = "`commbench workload show FILE` reads traces"
_OWN_JSON = re.compile(r'\s*\{\s*"schema"\s*:\s*\d')


def import_text(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The results in the text of another tool's file."""
    what = f"{source.path} is not the output of a tool that commbench knows"
    if _OWN_JSON.match(source.text):
        why = f"{what}: it is JSON that commbench wrote"
        raise RecordsError(why, "give the run that it was made of")
    if source.text.startswith("SQLite format 3"):
        db = f"--db {quote(source.path)}"
        hint = f"`commbench history show {db}`, or `commbench check RUN --against history {db}`"
        raise RecordsError(f"{source.path} is a history, not a run", hint)
    found = [name for name, importer in IMPORTERS.items() if importer.recognises(source)]
    if not found:
        damaged = ", or a results.csv with its first line" if source.path.endswith(".csv") else ""
        hint = f"give the output of one of these: {', '.join(IMPORTERS)}{damaged}; {_OF_TRACES}"
        raise RecordsError(what + _why_unknown(source.text.strip()), hint)
    if len(found) > 1:
        why = f"{source.path} contains results of {' and '.join(found)}"
        raise RecordsError(why, "write the results of each tool into a file of its own")
    return IMPORTERS[found[0]].read(source, hints)


def _why_unknown(text: str) -> str:
    """Why the text of a file is of no format, as far as that is known; empty if it is not."""
    if not text.startswith("{"):
        return "" if text else ": it is empty"
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return ""
    return ": it is not valid JSON"


def make_run(file: ImportedFile) -> schema.Run:
    """Make a run of the file's rows; those that repeat a case (run cycles) become its launches."""
    cases = collect((row.case.key(), row) for row in file.rows)
    measurements = tuple(
        _measurement(file, index, rows) for index, rows in enumerate(cases.values())
    )
    environment = {
        **file.environment,
        "imported_from": Path(file.path).name,
        "tool": f"{file.tool} {file.tool_version}".strip(),
        "devices": list(file.devices),
        "hosts": list(file.hosts),
        "notes": list(file.notes),
    }
    header = schema.RunHeader(
        plan=_plan(file, [row.case for row in file.rows]),
        label=Path(file.path).stem,
        started="",
        launcher="",
        environment=environment,
        num_nodes=max(1, len(set(file.hosts))),
    )
    status = schema.INCOMPLETE if file.faults else schema.COMPLETE
    end = schema.RunEnd(status, "; ".join(file.faults))
    return schema.Run(file.path, header, measurements, end, launches=header.plan.launches)


def _plan(file: ImportedFile, cases: Sequence[Case]) -> Plan:
    """A plan that holds every case of the file; what the file does not say is left empty."""
    devices = BACKENDS[file.backend].devices if file.backend in BACKENDS else ()
    only = devices[0] if len(devices) == 1 else ""
    modes = unique(case.launch_mode for case in cases)
    return Plan(
        operations=unique(case.operation for case in cases),
        dtypes=unique(case.dtype for case in cases) or ("float32",),
        reduce_ops=unique(case.reduce_op for case in cases) or ("sum",),
        sizes=tuple(sorted({case.size_bytes for case in cases if case.size_bytes})),
        placement="both",
        backend=file.backend,
        device=only if file.device is None else file.device,
        world_size=file.ranks,
        cpu_mode="",
        warmup=file.warmup,
        timing=file.timing,
        launch_mode=modes[0] if len(modes) == 1 else BOTH,
        buffers=cases[0].buffers,
        memory=unique(case.memory for case in cases),
        check=any(row.wrong is not None for row in file.rows),
    )


def _measurement(file: ImportedFile, index: int, rows: Sequence[ImportedRow]) -> schema.Measurement:
    first = rows[0]
    wrong = [row.wrong for row in rows if row.wrong is not None]
    has_batches = len(rows) > 1 or bool(first.samples_s)
    return schema.Measurement(
        case=first.case._replace(index=index),
        status=schema.WRONG if any(wrong) else schema.OK,
        reason=f"{file.tool} counted {sum(wrong)} wrong elements" if any(wrong) else "",
        wrong=sum(wrong) if wrong else None,
        batches=tuple(
            schema.Batch(samples_s=row.samples_s or (row.reported.time_s,), launch=number)
            for number, row in enumerate(rows)
            if has_batches
        ),
        reported=None if has_batches else first.reported,
    )
