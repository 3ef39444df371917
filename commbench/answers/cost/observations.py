"""The measured times that models are fitted to: of runs, and of tables of published figures.

Calls of one operation that differ in more than size and ranks, as in the element type, are fitted
apart: each such variant is named by what its calls have and others do not.

A table of published figures is a CSV with a line for each measured call:

    operation,world_size,ranks_per_node,size_bytes,busbw_GBps
    all_reduce,32,8,1048576,16

The time is `time_us`, or follows from `busbw_GBps` (1e9 bytes/s). Its 95 % interval may be given as
`time_low_us` and `time_high_us`. Lines that begin with # are comments, and other columns are
ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import DIAGNOSTICS
from commbench.analysis.load import LoadedRun
from commbench.answers.cost.cost_models import ACROSS, kind_of
from commbench.answers.cost.machine import WARNING, Point, uncertainty
from commbench.errors import CommbenchError, RecordsError
from commbench.output.text import join_words
from commbench.plan import dimensions, operations
from commbench.plan.case import Case
from commbench.plan.groups import ALONE
from commbench.readers.base import is_whole, name_cells
from commbench.readers.lines import read_cells, table_lines
from commbench.readers.source import parse_source
from commbench.results.files import read_whole, reading
from commbench.results.schema import OK, RunHeader, is_imported
from commbench.stats import collect
from commbench.units import GB, LARGEST_SIZE, MICRO, format_count
from commbench.validation import brief

_SAME = ("operation", "root", "placement", "size_bytes", "group", "group_ranks")
"""Dimensions that make no variant. A root is any rank; the same bytes travel in place and out of
place; groups differ in ranks and hosts."""
VARYING = tuple(d.field for d in dimensions.DIMENSIONS if d.field not in _SAME)
FORCED_BY = ("NCCL_ALGO", "NCCL_PROTO")
"""Variables that make NCCL use an algorithm or a protocol."""
SELECTED = "NCCL"
"""The first word of a variant that is an algorithm and a protocol of NCCL."""
PER_HOST = "per host"
"""The end of a variant that is a number of ranks per host."""


class Observation(NamedTuple):
    """One measured time."""

    operation: str
    point: Point
    words: tuple[str, ...] = ()
    """What the call has besides: a word for each dimension of VARYING, and what NCCL was made to
    use. None of a table."""

    @property
    def dtype(self) -> str:
        """The element type; empty for an operation without data, and of a table."""
        return self.words[VARYING.index("dtype")] if self.words else ""


def observe(run: LoadedRun, ranks_per_node: int | None, notes: list[str]) -> list[Observation]:
    """The times of a run. `ranks_per_node` is for files that do not name the hosts. Adds to `notes`
    what warns of the times, and which rows are not used and why."""
    unused: Counter[str] = Counter()
    found, warned = [], set[str]()
    for index, row in enumerate(run.rows):
        why = _why_unused(row)
        shape = (0, 0) if why else _shape(run, index, row, ranks_per_node)
        why = why or {0: "of groups whose hosts are not known", 1: "of one rank"}.get(shape[0], "")
        if why:
            unused[why] += 1
            continue
        selected, channels = _selection(run.header, row)
        known = uncertainty(*row.time)
        point = Point(*shape, row.size_bytes, row.time_s, channels=channels, uncertainty=known)
        words = (_word(name, getattr(row, name)) for name in VARYING)
        warned.update((row.warnings or "").split())
        found.append(Observation(row.operation, point, (*words, selected)))
    if doubts := [each.words for each in DIAGNOSTICS if each.name in warned]:
        notes.append(f"{WARNING}the times of {run.name} have warnings: {join_words(doubts)}.")
    for why, number in unused.items():
        notes.append(f"{run.name}: {format_count(number, 'row')} not used: {why}.")
    header = run.header
    if found and ranks_per_node is None and header and is_imported(header) and not header.hosts:
        notes.append(
            f"{run.name} does not name its hosts: its ranks count as those of "
            f"{format_count(header.num_nodes, 'host')}; --ranks-per-node says how many one has."
        )
    return found


def _why_unused(row: Any) -> str:
    if row.status != OK or not row.time_s:
        return "without a valid time"
    if row.step:
        return "steps of a workload, which are no single calls"
    if row.overlap:
        return "with a computation beside the call"
    return "of ranks that share a GPU" if row.gpu_shared else ""


def _word(name: str, value: Any) -> str:
    """A value of a dimension. All ranks as one group call alone."""
    if name in dimensions.GROUP_FIELDS:
        value = value or ALONE
    return "" if value is None else str(value)


def _shape(run: LoadedRun, index: int, row: Any, ranks_per_node: int | None) -> tuple[int, int]:
    """As group_shape; 0 where it is not known."""
    header, ranks = run.header, row.world_size
    if not ranks or not (nodes := row.num_nodes or (header and header.num_nodes)):
        return 0, 0
    if run.run is None or header is None or not header.ranks:
        most = ranks_per_node or ceil(ranks / nodes)
        return (0, 0) if row.group else (ranks, min(ranks, most))
    return group_shape(header, run.run.measurements[index].case)


def group_shape(header: RunHeader, case: Case) -> tuple[int, int]:
    """How many ranks the groups of a case have, and how many of them at most are on one host."""
    if not header.ranks:
        return case.ranks, ceil(case.ranks / max(1, header.num_nodes))
    groups = header.plan.groups_of(case) if case.group else (tuple(range(case.ranks)),)
    hosts = {rank.rank: rank.host for rank in header.ranks}
    on_hosts = [Counter(hosts.get(rank, "") for rank in group) for group in groups]
    return max(map(len, groups)), max(max(of_group.values()) for of_group in on_hosts)


def _selection(header: RunHeader | None, row: Any) -> tuple[str, int]:
    """NCCL's algorithm and protocol, such as `NCCL ring simple`, and its channels. Empty where the
    run let NCCL choose, because that choice belongs to its times; and where its log does not say
    it."""
    channels = int(row.nccl_channels) if str(row.nccl_channels or "").isdigit() else 0
    variables = header.environment.get("variables") if header else None
    forced = isinstance(variables, dict) and any(variables.get(name) for name in FORCED_BY)
    names = (row.nccl_algorithm or "", row.nccl_protocol or "")
    if not forced or not all(name.isidentifier() for name in names):
        return "", channels
    return f"{SELECTED} {' '.join(names).lower()}", channels


def group_observations(
    observations: Sequence[Observation],
) -> dict[tuple[str, str, str], list[Point]]:
    """The points that one model is fitted to, in ascending order, by operation, kind of group and
    variant."""
    kinds = (((each.operation, kind_of(*each.point[:2])), each) for each in observations)
    found: dict[tuple[str, str, str], list[Point]] = {}
    for (operation, kind), several in collect(kinds).items():
        columns = zip(*{each.words for each in several if each.words}, strict=True)
        differing = [index for index, column in enumerate(columns) if len(set(column)) > 1]
        hosts = _ranks_per_node_apart([each.point for each in several]) if kind == ACROSS else ()
        for each in several:
            words = [each.words[index] for index in differing if each.words and each.words[index]]
            if each.point.ranks_per_node in hosts:
                words.append(f"{format_count(each.point.ranks_per_node, 'rank')} {PER_HOST}")
            found.setdefault((operation, kind, ", ".join(words)), []).append(each.point)
    return {key: sorted(points) for key, points in found.items()}


def _ranks_per_node_apart(points: Sequence[Point]) -> set[int]:
    """The numbers of ranks per host that are fitted apart, because each was measured with several
    numbers of ranks; empty where one model has to do for all of them."""
    by_number = collect((point.ranks_per_node, point.world_size) for point in points)
    several = len(by_number) > 1 and all(len({*ranks}) > 1 for ranks in by_number.values())
    return set(by_number) if several else set()


def observe_curves(curves: Sequence[Any]) -> list[Observation]:
    """The times of curves (expect.curves), which are of one host."""
    return [
        Observation(curve.operation, Point(curve.ranks, curve.ranks, size, time_s))
        for curve in curves
        for size, time_s in curve.points
    ]


# Tables of published figures

NEEDED = ("operation", "world_size", "ranks_per_node", "size_bytes")
FIGURES = ("time_us", "busbw_GBps")
SYSTEM = "system"
"""A column of curves, which are of one host."""
PREDICTED = {"model", "doublings_of_ranks"}
"""Columns that only a table of predictions has."""
_LARGEST_BYTES = 1 << 26
_MOST_RANKS = 1 << 24
_HINT = f"its first line names the columns {', '.join(NEEDED)} and {' or '.join(FIGURES)}"
_HEAD_BYTES = 1 << 16
ROUNDED = 1.001
"""A time may lie outside its interval by this factor: both are rounded."""


def table_columns(path: Path) -> set[str]:
    """The columns of a table of published figures; none for any other file, such as the
    results.csv of a run."""
    try:
        with reading(path, _HINT) as file:
            head = file.read(_HEAD_BYTES).decode("utf-8-sig", "replace")
    except RecordsError:
        return set()
    names = read_cells(table_lines(parse_source(str(path), head))[:1])
    is_of_run = {"status", "dtype"} <= set(names)
    is_table = len(names) > 2 and len({*NEEDED, *FIGURES} & set(names)) > 1
    return set(names) if is_table and not is_of_run else set()


def read_published(path: Path) -> list[Observation]:
    """The figures in a table. RecordsError names the column that is missing, or the line that is
    wrong."""
    try:
        text = read_whole(path, _LARGEST_BYTES, _HINT).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RecordsError(f"{path} is not text", _HINT) from None
    lines = table_lines(parse_source(str(path), text))
    names = read_cells(lines[:1])
    needed = [name for name in NEEDED if not (SYSTEM in names and name == "ranks_per_node")]
    missing = [name for name in needed if name not in names]
    if not missing and not {*FIGURES} & {*names}:
        missing = [" or ".join(FIGURES)]
    if missing:
        problem = f"has no column {', '.join(missing)}" if lines else "is empty"
        raise RecordsError(f"{path} {problem}", _HINT)
    if len(set(names)) < len(names):
        raise RecordsError(f"{path} has two columns of one name", "remove one of them")
    found: list[Observation] = []
    systems: dict[str, None] = {}
    for line in lines[1:]:
        try:
            row = name_cells(names, read_cells([line]))
            systems.setdefault(row.get(SYSTEM, ""))
            found.append(_read_row({"ranks_per_node": row.get("world_size", ""), **row}))
        except (ValueError, CommbenchError) as error:
            hint = getattr(error, "hint", "correct the line")
            raise RecordsError(f"{path}, line {line.number}: {error.args[0]}", hint) from None
    if len(systems) > 1:
        hint = "keep the lines of one system, or write published:SYSTEM for what commbench has"
        raise RecordsError(f"{path} has curves of {', '.join(systems)}", hint)
    if not found:
        raise RecordsError(f"{path} has no figures", "give at least one line below the first")
    return found


def _read_row(row: dict[str, str]) -> Observation:
    operation = operations.find_operation(row["operation"])
    ranks = _integer(row, "world_size", 2, _MOST_RANKS)
    per_node = _integer(row, "ranks_per_node", 1, _MOST_RANKS)
    size = _integer(row, "size_bytes", int(operation.has_data), LARGEST_SIZE)
    if row.get("time_us"):
        time_s = _number(row, "time_us") * MICRO
    elif row.get("busbw_GBps") and operation.busbw_factor:
        time_s = size * operation.busbw_factor(ranks) / (_number(row, "busbw_GBps") * GB)
    else:
        raise ValueError(f"{operation.name} has no time")
    time_us, deviation = time_s / MICRO, 0.0
    if row.get("time_low_us") and row.get("time_high_us"):
        low, high = _number(row, "time_low_us"), _number(row, "time_high_us")
        if not low / ROUNDED <= time_us <= high * ROUNDED:
            raise ValueError(
                f"the time {time_us:g} us is not in its interval {low:g} to {high:g} us"
            )
        deviation = uncertainty(time_us, low, high)
    return Observation(operation.name, Point(ranks, per_node, size, time_s, uncertainty=deviation))


def _integer(row: dict[str, str], name: str, least: int, most: int) -> int:
    text = row[name]
    if not (is_whole(text) and least <= int(text) <= most):
        raise ValueError(f"{name} is {brief(text)}, not a whole number from {least} to {most}")
    return int(text)


def _number(row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = 0.0
    if not (isfinite(value) and 1e-9 <= value <= 1e13):
        raise ValueError(f"{name} is {brief(row[name])}, not a number above 0")
    return value
