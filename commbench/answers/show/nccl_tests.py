"""A run in the layout of nccl-tests 2.19, for scripts that read its tables.

nccl-tests is one program per operation, so cases that differ in more than size and placement
are in tables of their own. Data rows have 13 fields; every other line begins with `#`.
Comments name the differences between how commbench and nccl-tests measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from math import nan

from commbench import __version__
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.show.run_notes import run_end_text
from commbench.output.text import clean
from commbench.plan.dimensions import GRAPH, describe_timing
from commbench.plan.dtypes import DTYPES
from commbench.plan.operation import IN_PLACE, OUT_OF_PLACE
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import OK, WRONG, Run, RunHeader, is_imported
from commbench.stats import collect
from commbench.units import GB, MICRO, format_time

PLACEMENTS = (OUT_OF_PLACE, IN_PLACE)  # in the order of their columns

TIME, BANDWIDTH, WRONG_ELEMENTS = 7, 6, 6
WIDTHS = (12, 12, 8, 6, 6, *(TIME, BANDWIDTH, BANDWIDTH, WRONG_ELEMENTS) * 2)

HEADINGS = (
    "#",
    "#" + " " * 62 + "out-of-place" + " " * 23 + "in-place" + " " * 10,
    "#       size         count      type   redop    root"
    "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong ",
    "#        (B)    (elements)                          "
    "     (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         ",
)

Pair = tuple[ResultRow | None, ResultRow | None]
"""A line of the table: the rows of one size in each of PLACEMENTS; None where not measured."""


def nccl_tests_text(run: Run) -> str:
    """The tables of a run in nccl-tests' layout, separated by empty lines."""
    tables = collect((row.case.key("placement", "size_bytes"), row) for row in make_rows(run))
    texts = ["\n".join(_table(run, rows)) for rows in tables.values()]
    ending = run_end_text(run)
    return "\n\n".join([*texts, _comment(ending)] if ending else texts) + "\n"


def _table(run: Run, rows: list[ResultRow]) -> list[str]:
    pairs = _pairs([row for row in rows if _has_line(row)])
    left_out = [_left_out(row) for row in rows if not _has_line(row)]
    if not pairs:
        return left_out
    program = OPERATIONS[rows[0].case.operation].nccl_tests
    busbw = [row.busbw or 0.0 for pair in pairs for row in pair if row and row.time] or [nan]
    wrong = sum(row.measurement.wrong or 0 for row in rows)
    return [
        _origin(run),
        f"# Collective test starting: {program}",
        _parameters(run, rows[0].case.launch_mode),
        "#",
        "# Using devices",
        *_devices(run.header),
        "#",
        *map(_comment, _remarks(run.header, pairs)),
        *HEADINGS,
        *(_line(pair) for pair in pairs),
        *left_out,
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {sum(busbw) / len(busbw) / GB:g} ",
        "#",
        f"# Collective test concluded: {program}",
    ]


def _has_line(row: ResultRow) -> bool:
    case, status = row.case, row.measurement.status
    known = bool(OPERATIONS[case.operation].nccl_tests) and case.placement in PLACEMENTS
    return known and (status == WRONG or (status == OK and row.busbw is not None))


def _pairs(rows: list[ResultRow]) -> list[Pair]:
    """Rows by ascending size; a size that was measured several times makes several lines."""
    found: list[Pair] = []
    for _, own in sorted(collect((row.case.size_bytes, row) for row in rows).items()):
        first, second = ([r for r in own if r.case.placement == name] for name in PLACEMENTS)
        found += zip_longest(first, second)
    return found


def _line(pair: Pair) -> str:
    case = next(filter(None, pair)).case
    dtype = DTYPES[case.dtype]
    cells = [
        str(case.size_bytes),
        str(case.count),
        dtype.nccl_tests or dtype.name,
        "_".join(clean(case.reduce_op).split()) or "none",
        str(-1 if case.root is None else case.root),
    ]
    for row in pair:
        if row is None:
            cells += ["nan", "nan", "nan", "N/A"]  # scripts read numbers
            continue
        wrong = row.measurement.wrong
        cells += [
            _number(row.time.median / MICRO if row.time else nan, TIME),
            _number((nan if row.algbw is None else row.algbw) / GB, BANDWIDTH),
            _number((nan if row.busbw is None else row.busbw) / GB, BANDWIDTH),
            "N/A" if wrong is None else str(wrong),
        ]
    return "  ".join(f"{cell:>{wide}}" for cell, wide in zip(cells, WIDTHS, strict=True))


def _number(value: float, wide: int) -> str:
    """The number with two decimals if they fit into the width, else one, none, or an exponent."""
    texts = [format(value, form) for form in (".2f", ".1f", ".0f", ".1e", ".0e")]
    return next((text for text in texts if len(text) <= wide), texts[-1])


def _origin(run: Run) -> str:
    """Who measured a run, and when; of an imported run its file."""
    header, known = run.header, run.header.environment.get
    if is_imported(header):
        where = f"imported from {known('imported_from', '')} ({known('tool', '')})"
        return _comment(f"commbench {__version__}, run {run.name}, {where}")
    return _comment(f"commbench {header.commbench}, run {run.name}, started {header.started}")


def _parameters(run: Run, launch_mode: str) -> str:
    plan = run.header.plan
    sizes = sorted(set(plan.sizes)) or [0]
    unknown = "unknown" if is_imported(run.header) else "adaptive"
    reported = {m.reported.iterations for m in run.measurements if m.reported} - {0}
    iterations = reported.pop() if len(reported) == 1 else plan.iterations or unknown
    warmup = unknown if plan.warmup is None else plan.warmup
    return (
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {_step(sizes)} "
        f"warmup iters: {warmup} iters: {iterations} agg iters: 1 "
        f"validation: {int(plan.check)} graph: {int(launch_mode == GRAPH)} unalign: 0"
    )


def _step(ascending: Sequence[int]) -> str:
    """The step between sizes: `2(factor)`, `1048576(bytes)`, or `listed` for an irregular one."""
    factors = {high / low for low, high in pairwise(ascending)}
    differences = {high - low for low, high in pairwise(ascending)}
    if len(factors) == 1 and min(factors).is_integer():
        return f"{min(factors):.0f}(factor)"
    return f"{min(differences)}(bytes)" if len(differences) == 1 else "listed"


def _devices(header: RunHeader) -> Iterator[str]:
    """A line for each rank; of an imported run, whose ranks are not recorded, one line."""
    if is_imported(header):
        yield f"#  {clean(header.describe_ranks())}"
        return
    for rank in header.ranks:
        device, _, name = clean(rank.device).partition(" ")
        kind, _, index = device.partition(":")
        yield (
            f"#  Rank {rank.rank:2} Group  0 Pid {rank.pid:6} on {clean(rank.host):>10} "
            f"device {index or '0':>2} [n/a] {name or kind}"
        )


def _remarks(header: RunHeader, pairs: list[Pair]) -> Iterator[str]:
    """How these numbers differ from nccl-tests' own."""
    plan, measurement = header.plan, next(filter(None, pairs[0])).measurement
    case, reported = measurement.case, measurement.reported
    kind = case.title_without("operation", "dtype", "reduce_op", "placement", "root", "timing")
    ranks = f"{case.ranks} {plan.backend} ranks, {plan.device}"
    yield f"{case.operation} of {case.dtype}, {ranks}" + f", {kind}" * bool(kind)
    yield f"time: {reported.statistic if reported else describe_timing(case.timing).nccl_tests}"
    for column, name in enumerate(("out-of-place", "in-place")):
        if missing := sum(pair[column] is None for pair in pairs):
            lines = f"{missing} of {len(pairs)} lines"
            yield f"{name} was not measured in {lines}: its columns are nan"
    if header.gpu_shared:
        yield "ranks share a GPU: these times do not measure performance"


def _left_out(row: ResultRow) -> str:
    """A comment about a row that has no line in the table: its time, or why it has none."""
    status, reason = row.measurement.status, row.measurement.reason
    if status == OK and row.time:
        reason = f"{format_time(row.time.median)}; nccl-tests has no such line"
    return _comment(f"{row.case.name}: {status}: {reason}")


def _comment(text: str) -> str:
    return f"# {clean(text)}"
