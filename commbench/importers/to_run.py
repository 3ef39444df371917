"""An imported file as a run, so that everything that reads runs reads other tools' files too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from commbench.importers.base import ImportedFile, ImportedRow, unique
from commbench.results import schema
from commbench.spec.allocators import DEFAULT_MEMORY
from commbench.spec.backends import BACKENDS
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.plan import Plan
from commbench.spec.timing_modes import BOTH


def make_run(file: ImportedFile) -> schema.Run:
    """Make a run of the file's rows; those that repeat a case (run cycles) become its launches."""
    cases: dict[tuple[object, ...], list[ImportedRow]] = {}
    for row in file.rows:
        cases.setdefault(_make_case(file, 0, row).key(), []).append(row)
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
        plan=_plan(file),
        label=Path(file.path).stem,
        started="",
        launcher=file.tool,
        environment=environment,
        num_nodes=max(1, len(set(file.hosts))),
    )
    status = schema.INCOMPLETE if file.faults else schema.COMPLETE
    end = schema.RunEnd(status, "; ".join(file.faults))
    return schema.Run(file.path, header, measurements, end, launches=header.plan.launches)


def _plan(file: ImportedFile) -> Plan:
    """A plan that holds every case of the file; what the file does not say is left empty."""
    backend = file.backend or ""
    known = BACKENDS.get(backend)
    modes = unique(row.launch_mode for row in file.rows)
    return Plan(
        operations=unique(row.operation for row in file.rows),
        dtypes=unique(row.dtype for row in file.rows) or ("float32",),
        reduce_ops=unique(row.reduce_op for row in file.rows) or ("sum",),
        sizes=tuple(sorted({row.size_bytes for row in file.rows if row.size_bytes})),
        placement="both",
        backend=backend,
        device=known.devices[0] if known and len(known.devices) == 1 else "",
        world_size=file.ranks,
        cpu_mode="plain",
        warmup=file.warmup,
        timing=file.timing,
        launch_mode=modes[0] if len(modes) == 1 else BOTH,
        buffers=file.buffers,
        memory=unique(row.memory for row in file.rows) or (DEFAULT_MEMORY,),
        check=any(row.wrong is not None for row in file.rows),
    )


def _measurement(file: ImportedFile, index: int, rows: Sequence[ImportedRow]) -> schema.Measurement:
    first = rows[0]
    wrong = [row.wrong for row in rows if row.wrong is not None]
    several = len(rows) > 1
    bad = any(wrong)
    return schema.Measurement(
        case=_make_case(file, index, first),
        status=schema.WRONG if bad else schema.OK,
        reason=f"{file.tool} counted {sum(wrong)} wrong elements" if bad else "",
        wrong=sum(wrong) if wrong else None,
        batches=tuple(
            schema.Batch(samples_s=row.samples_s or (row.time_s,), launch=number)
            for number, row in enumerate(rows)
            if several or row.samples_s
        ),
        reported=None if several or first.samples_s else _reported(first),
    )


def _make_case(file: ImportedFile, index: int, row: ImportedRow) -> Case:
    """The case of a row, whose dimensions are fields of the row or of the file."""
    known = file._asdict() | row._asdict()
    dimensions = {d.field: known[d.field] for d in DIMENSIONS if d.field in known}
    return Case(index=index, **dimensions, count=row.count, ranks=file.ranks)


def _reported(row: ImportedRow) -> schema.ReportedTiming:
    """The reported timing; percentiles and extremes only where they are over iterations."""
    over_iterations = ("minimum_s", "p95_s", "p99_s", "maximum_s")
    names = ("mean_s", *(over_iterations if row.spread.startswith("iterations") else ()))
    times = {name: getattr(row, name) for name in names}
    return schema.ReportedTiming(row.time_s, row.statistic, iterations=row.iterations or 0, **times)
