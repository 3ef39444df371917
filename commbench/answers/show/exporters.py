"""EXPORTERS: the table of formats in which `export` writes a run.

Compilers and planners read measured times instead of their own: nccl-perf (aiconfigurator),
autoparallel, inductor (both: answers.cost.other_formats).

OpenMetrics is for Prometheus and other readers of its format. Source: OpenMetrics 1.0
(prometheus/OpenMetrics, specification/OpenMetrics.md). The lines of a family are together. Names
end in their unit. Labels escape backslash, quotation mark and line feed. The text ends with # EOF.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from commbench.analysis.columns import KEY, known_nodes, written_values
from commbench.analysis.csv_file import make_csv
from commbench.analysis.environment import time_statistic
from commbench.analysis.load import LoadedRun, index_rows
from commbench.answers.expect.curves import Curve, curves_of, make_curves
from commbench.answers.pairs.document import pairs_json
from commbench.answers.show.formats import NCCL_TESTS
from commbench.answers.show.nccl_tests import nccl_tests_text
from commbench.errors import UnavailableError, UsageError
from commbench.output.text import clean, join_words
from commbench.plan.dtypes import DTYPES
from commbench.plan.operations import OPERATIONS
from commbench.readers.lines import COLUMNS, TIMING
from commbench.readers.source import NCCL_TESTS as NCCL_TESTS_NAMES
from commbench.readers.source import OF_FILES
from commbench.results.schema import OK, is_imported
from commbench.units import MICRO, seven_digits
from commbench.views.cells import BANDWIDTH, NUMBER, SIZE, TEXT, TIME, TIME_INTERVAL, Column
from commbench.views.formats import as_json
from commbench.views.markdown import escape, table

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""


def csv_parts(source: LoadedRun) -> Iterator[str]:
    """The rows as in results.csv."""
    lines = chain([source.columns], (written_values(row, source.columns) for row in source.rows))
    while some := [*islice(lines, 1000)]:
        yield make_csv(some)


def json_facts(source: LoadedRun) -> dict[str, Any]:
    """The name, and plan and environment where a journal holds them."""
    if not (header := source.header):
        return {"name": source.name, "run": None}
    names = ("label", "started", "launcher", "hosts", "environment")
    facts = {name: getattr(header, name) for name in names} | {"num_nodes": known_nodes(header)}
    known, plan = [*OF_FILES] if is_imported(header) else [], header.plan.as_json()
    return {"name": source.name, "run": facts | {"plan": {n: plan[n] for n in known or plan}}}


def json_parts(source: LoadedRun) -> Iterator[str]:
    """The rows, and plan and environment where a journal holds them; null for unknown values.
    Samples are in the journal itself, which is JSON lines."""
    document: dict[str, Any] = {"schema": SCHEMA, **json_facts(source)}
    if source.run and (pairs := pairs_json(source.run)):
        document["pairs"] = as_json(pairs)
    document["rows"] = []
    yield json.dumps(document, indent=1, allow_nan=False).removesuffix("]\n}")
    for number, row in enumerate(source.rows):
        written = dict(zip(source.columns, written_values(row, source.columns), strict=True))
        text = json.dumps(written, indent=1, allow_nan=False).replace("\n", "\n  ")
        yield f"{',' if number else ''}\n  {text}"
    yield "\n ]\n}\n" if source.rows else "]\n}\n"


MARKDOWN_COLUMNS = (
    Column("case", attrgetter("case.title"), TEXT),
    SIZE,
    Column("time", attrgetter("time"), TIME),
    Column("95 % interval", attrgetter("time"), TIME_INTERVAL),
    Column("n", lambda row: row.iterations if row.time else None, NUMBER),
    Column("algbw GB/s", attrgetter("algbw"), BANDWIDTH),
    Column("busbw GB/s", attrgetter("busbw"), BANDWIDTH),
    Column("status", attrgetter("status"), TEXT),
)


def markdown_text(source: LoadedRun) -> str:
    """A table with a row per case, for an issue or a page."""
    rows = [[column.cell(row) for column in MARKDOWN_COLUMNS] for row in source.rows]
    lines = table([column.heading for column in MARKDOWN_COLUMNS], rows, left=("case", "status"))
    return "\n".join([f"### {escape(source.name)}", "", *lines]) + "\n"


def parquet_bytes(source: LoadedRun) -> bytes:
    """Apache Parquet, written by pandas and pyarrow."""
    if find_spec("pyarrow") is None:
        why = "parquet needs pyarrow, which is not installed"
        raise UnavailableError(why, "pip install 'pyarrow>=15'")
    content: bytes = source.frame().to_parquet(index=False)
    return content


def nccl_tests_table(source: LoadedRun) -> str:
    """The tables that nccl-tests would print; UsageError without the samples of a journal."""
    if source.run is None:
        why = f"{NCCL_TESTS} needs the samples of the run, and {source.path} has none"
        raise UsageError(why, "give the run folder or its run.jsonl")
    return nccl_tests_text(source.run)


_NCCL_PERF = ("framework", "version", "device", "op_name", "kernel_source", "nccl_dtype",
              "num_gpus", "message_size", "latency")  # fmt: skip


def curves_table(source: LoadedRun) -> str:
    """Curves, in the columns that `commbench import` reads."""
    return make_csv([(*COLUMNS, TIMING), *(
        (curve.system, curve.nccl, curve.operation, curve.dtype, curve.ranks, size,
         seven_digits(time_s / MICRO), curve.timing)
        for curve in _curves(source) for size, time_s in curve.points
    )])  # fmt: skip


def nccl_perf_table(source: LoadedRun) -> str:
    """The table nccl_perf of aiconfigurator, as its collector/network/collect_nccl.py writes it
    (ai-dynamo/aiconfigurator, 2026-08). It looks times up by name of the operation, dtype (half or
    int8), GPUs and elements; the times are in ms."""
    names = {ours: theirs for theirs, ours in NCCL_TESTS_NAMES.items()}
    dtypes = {2: "half", 1: "int8"}
    rows = [
        ("commbench", curve.nccl, curve.system, names.get(curve.operation, curve.operation), "NCCL",
         dtypes[width], curve.ranks, size // width, seven_digits(1e3 * time_s))
        for curve in _curves(source) if (width := DTYPES[curve.dtype].size_bytes) in dtypes
        for size, time_s in curve.points
    ]  # fmt: skip
    if source.rows and not rows:
        raise UsageError(f"{source.name} has no elements of 1 or 2 bytes, which are all that "
                         "aiconfigurator knows", "measure with --dtype float16")  # fmt: skip
    return make_csv([_NCCL_PERF, *rows])


def autoparallel_text(source: LoadedRun) -> str:
    """The table of AutoParallel's simulator, with measured times instead of predicted ones."""
    from commbench.answers.cost import other_formats as others

    curves = _calls_known_to(others.SIMULATED, source)
    inputs = {key: others.inputs_of(*key) for key in curves}
    first = max(curve.points[0][0] // inputs[key] for key, curve in curves.items())
    last = min(curve.points[-1][0] // inputs[key] for key, curve in curves.items())
    sizes = [size for power in range(20, 50) if first <= (size := 1 << power) <= last]
    if not sizes:
        raise UsageError(f"{source.name} has no size of 1 MiB or more that all its calls have",
                         "measure with --sizes 1M-8G")  # fmt: skip
    return others.autoparallel_table(sizes, {
        key: [curve.time_at(size * inputs[key]) or 0.0 for size in sizes]
        for key, curve in curves.items()
    })  # fmt: skip


def inductor_text(source: LoadedRun) -> str:
    """The trace that Inductor reads, with measured times instead of predicted ones."""
    from commbench.answers.cost.other_formats import ESTIMATED, inductor_trace

    return inductor_trace([
        (name, ranks, size, time_s)
        for (name, ranks), curve in _calls_known_to(ESTIMATED, source).items()
        for size, time_s in curve.points
    ])  # fmt: skip


def _calls_known_to(calls: Collection[str], source: LoadedRun) -> dict[tuple[str, int], Curve]:
    """The curves of a run by operation and ranks, of the calls of torch that a reader knows, on any
    number of hosts; the first of several dtypes, timings or placements counts. UsageError without
    any."""
    curves = make_curves(
        (("", "", row.operation, "", row.world_size, "", "", True), row.size_bytes, row.time_s)
        for row in source.rows
        if OPERATIONS[row.operation].torch_call in calls and row.case.is_plain
        and row.status == OK and row.time_s
    )  # fmt: skip
    if not curves:
        known = [name for name, each in OPERATIONS.items() if each.torch_call in calls]
        raise UsageError(f"{source.name} has no times of {join_words(known)}", "measure these")
    return {(curve.operation, curve.ranks): curve for curve in curves}


def _curves(source: LoadedRun) -> tuple[Curve, ...]:
    """The curves of a run; UsageError where no row is a point of one."""
    if not (curves := curves_of(source)) and source.rows:
        why = "no plain calls on one host with known accelerators"
        raise UsageError(f"{source.name} has no curves: {why}", "give another run")
    return curves


FAMILIES = {
    "time_seconds": ("time_s", "Time of a call: {statistic}"),
    "time_ci_low_seconds": ("time_ci_low_s", "Lower end of the 95 % interval of the median time"),
    "time_ci_high_seconds": ("time_ci_high_s", "Upper end of the 95 % interval of the median time"),
    "time_p95_seconds": ("time_p95_s", "95th percentile of the time"),
    "time_p99_seconds": ("time_p99_s", "99th percentile of the time"),
    "algbw_bytes_per_second": ("algbw_bytes_per_s", "Algorithm bandwidth: size over time"),
    "busbw_bytes_per_second": (
        "busbw_bytes_per_s", "Bus bandwidth: algorithm bandwidth times the operation's factor"
    ),
    "iterations": ("iterations", "Timed iterations"),
    "wrong_elements": ("wrong", "Wrong elements over all ranks"),
}  # fmt: skip
"""The metrics, gauges with a sample for each row: the field, and the help. Values that were not
measured have no sample; a metric without a sample is left out."""
_UNITS = ("bytes_per_second", "seconds", "elements")
"""What the name of a metric ends in."""

_LABELS = (
    "label", *KEY[:-1], "cpu_mode", "backend", "device", "world_size", "num_nodes", "size_bytes",
)  # fmt: skip
"""Columns that become labels; empty ones are left out, which means the same."""


def openmetrics(source: LoadedRun) -> str:
    """The text. Raises RecordsError where two rows would be the same time series."""
    index_rows(source)
    rows = source.rows
    labels = [_labels(row) for row in rows]
    lines: list[str] = []
    values = [(n, [getattr(r, field) for r in rows], text) for n, (field, text) in FAMILIES.items()]
    ok = "row_ok", [int(row.status == OK) for row in rows], "1: measured, with right results"
    for family, own, about in [*values, ok]:
        name, samples = f"commbench_{family}", zip(own, labels, strict=True)
        if found := [f"{name}{label} {v:.10g}" for v, label in samples if v is not None]:
            statement = about.format(statistic=time_statistic(source))
            lines += [f"# TYPE {name} gauge"]
            lines += [f"# UNIT {name} {unit}" for unit in _UNITS if name.endswith(unit)]
            lines += [f"# HELP {name} {_escaped(statement)}", *found]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(row: Any) -> str:
    known = ((name, getattr(row, name)) for name in _LABELS)
    texts = [f'{name}="{_escaped(str(value))}"' for name, value in known if value not in ("", None)]
    return f"{{{','.join(texts)}}}"


def _escaped(text: str) -> str:
    """A label's value: line feeds have an escape of their own, other control characters none."""
    text = "\n".join(map(clean, text.split("\n")))
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


EXPORTERS: dict[str, Callable[[LoadedRun], str | bytes | Iterable[str]]] = {
    "csv": csv_parts,
    "json": json_parts,
    "markdown": markdown_text,
    NCCL_TESTS: nccl_tests_table,
    "parquet": parquet_bytes,
    "openmetrics": openmetrics,
    "curves": curves_table,
    "nccl-perf": nccl_perf_table,
    "autoparallel": autoparallel_text,
    "inductor": inductor_text,
}
"""What writes the content of a file, or its parts. Bytes are not printed to a terminal."""
EXPORT_ENDINGS = {
    ".csv": "csv", ".json": "json", ".md": "markdown", ".parquet": "parquet",
    ".prom": "openmetrics",
}  # fmt: skip
"""The format of a file, by the ending of its name."""
