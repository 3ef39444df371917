"""What a run says of pairs of ranks: slow parts, slowest pairs, the medians of ranks, and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from commbench.analysis.csv_file import make_csv
from commbench.analysis.pair_values import (
    Pair,
    PairMatrix,
    has_matrix,
    main_matrices,
    pair_matrices,
)
from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY, RankMatrix
from commbench.analysis.slow_parts import Diagnosis, Finding, find_slow
from commbench.report.pairs_sentences import (
    describe_unknown,
    format_value,
    name_part,
    name_rank,
    what_to_check,
)
from commbench.results.schema import Run
from commbench.spec.pairs import QUICK
from commbench.units import format_bytes, format_count
from commbench.views.cells import DECIMAL, NUMBER, RATIO, TEXT, Column
from commbench.views.document import BAD, Block, Items, Section, Table, Text

MOST_PAIRS = 5
"""The slowest pairs that are shown."""
MOST_COLUMNS = 8
"""Up to so many ranks the whole matrix is shown."""
MOST_RANKS = 16
"""Ranks with a row each in a terminal; of more ranks the slowest are shown."""
HEADINGS = (
    "row", "column", "row_host", "column_host", "latency_us", "bandwidth_GBps", "latency_bytes",
    "bandwidth_bytes",
)  # fmt: skip
"""The columns of pairs.csv: a line for each ordered pair that was measured, from row to column."""
_NOT_ALL = (
    "The quick search measured some of the pairs: a single slow link may be among the others. "
    "Without --quick, all are measured."
)


Diagnosed = tuple[PairMatrix, Diagnosis]
"""A matrix, and what is slow in it."""


def diagnose_pairs(run: Run) -> list[Diagnosed]:
    """The matrices of a run; none for a run that does not measure pairs in rounds."""
    matrices = pair_matrices(run) if has_matrix(run.header.plan) else []
    return [(found, find_slow(found.matrix)) for found in matrices]


def pairs_answer(diagnosed: Sequence[Diagnosed]) -> Iterator[str]:
    """A sentence on the slow parts of each main matrix."""
    main = main_matrices(found for found, _ in diagnosed)
    for found, diagnosis in diagnosed:
        matrix = found.matrix
        slow = [
            f"{name_part(matrix, each)} has {each.ratio:.2f} of the speed of its peers"
            for each in diagnosis.findings
        ]
        if not slow and diagnosis.link_limit is not None:
            slow = ["no slow rank, host or link is seen"]
        if slow and found in main:
            what = f"{matrix.quantity.name.capitalize()}, {format_bytes(found.size_bytes)}"
            yield f"{what}: {'; '.join(slow)}."


def pairs_blocks(run: Run, diagnosed: Sequence[Diagnosed]) -> Iterator[Block]:
    """For each kind of call between pairs what is slow, and the tables."""
    for each in diagnosed:
        yield _matrix_section(*each)
    matrices = [found.matrix for found, _ in diagnosed]
    is_part = any(len(matrix.values) < matrix.ranks * (matrix.ranks - 1) for matrix in matrices)
    if is_part and QUICK in run.header.plan.pairs:
        yield Text(_NOT_ALL)


def _matrix_section(found: PairMatrix, diagnosis: Diagnosis) -> Section:
    matrix = found.matrix
    number = len({frozenset(pair) for pair in matrix.values})
    if not matrix.quantity.has_direction:
        ways = ""
    elif any(pair[::-1] in matrix.values for pair in matrix.values):
        ways = ", each direction alone"
    else:
        ways = ", one direction"
    at_once = "" if number == 1 else "; all pairs of a round at once"
    name, unit = matrix.quantity.name.capitalize(), matrix.quantity.unit
    columns = _pair_columns(matrix)[: 4 if number > 1 else 3]
    blocks: list[Block] = [
        Text(f"{found.title}; {format_count(number, 'pair')}{ways}{at_once}; lower quartile of "
             "batches."),
        _findings_table(matrix, diagnosis.findings),
        Items([*describe_unknown(matrix, diagnosis)]),
        Table("Slowest pairs", columns, slowest_pairs(matrix, MOST_PAIRS)),
    ]  # fmt: skip
    if number > 1:
        blocks += [_grid(matrix), _ranks_table(matrix)]
    return Section(f"{name} between ranks, {format_bytes(found.size_bytes)}, {unit}", blocks)


def _findings_table(matrix: RankMatrix, findings: Sequence[Finding]) -> Table:
    """The slow parts, the one that explains most first."""
    shown = partial(format_value, matrix.quantity)
    columns = (
        Column("slow part", partial(name_part, matrix), TEXT, is_wrapped=True),
        Column("value", lambda found: shown(found.value), DECIMAL),
        Column("peers", lambda found: shown(found.peers), DECIMAL),
        Column("speed over\nits peers", attrgetter("ratio"), RATIO),
        Column("values", lambda found: f"{found.pairs} of {found.pairs + found.peer_pairs}",
               NUMBER, 5),
        Column("check", partial(what_to_check, matrix), TEXT, 8, is_wrapped=True),
    )  # fmt: skip
    return Table("Slow", columns, findings, tone=lambda _: BAD)


class PairRow(NamedTuple):
    """A pair with its value beside the median of all pairs."""

    pair: Pair
    value: float
    speed: float
    """Over the median of all pairs that are within a host, or across hosts, as this one is."""


def slowest_pairs(matrix: RankMatrix, most: int) -> list[PairRow]:
    """The slowest pairs by their speed over the median of pairs of the same kind, the slowest
    first."""
    kinds: dict[bool, list[float]] = {}
    hosts, quantity = matrix.hosts, matrix.quantity
    for (first, second), value in matrix.values.items():
        kinds.setdefault(hosts[first] == hosts[second], []).append(value)
    middle = {kind: median(values) for kind, values in kinds.items()}
    rows = []
    for (first, second), value in matrix.values.items():
        if quantity.has_direction or first < second:
            usual = middle[hosts[first] == hosts[second]]
            speed = value / usual if quantity.is_better_high else usual / value
            rows.append(PairRow((first, second), value, speed))
    return sorted(rows, key=lambda row: (row.speed, row.pair))[:most]


def _pair_columns(matrix: RankMatrix) -> tuple[Column, ...]:
    return (
        Column("from rank", lambda row: name_rank(matrix, row.pair[0]), TEXT),
        Column("to rank", lambda row: name_rank(matrix, row.pair[1]), TEXT, 8),
        Column("value", lambda row: format_value(matrix.quantity, row.value), DECIMAL),
        Column("speed over\nthe median", attrgetter("speed"), RATIO, 7),
    )


class RankRow(NamedTuple):
    """The medians of the values of one rank."""

    rank: int
    to_others: float | None
    from_others: float | None


def rank_medians(matrix: RankMatrix) -> list[RankRow]:
    """The medians of what ranks send and receive; of ranks without any value there is none."""
    sent: dict[int, list[float]] = {}
    received: dict[int, list[float]] = {}
    for (first, second), value in matrix.values.items():
        sent.setdefault(first, []).append(value)
        received.setdefault(second, []).append(value)
    return [
        RankRow(rank, *(median(own[rank]) if rank in own else None for own in (sent, received)))
        for rank in sorted(sent.keys() | received.keys())
    ]


def _grid(matrix: RankMatrix) -> Table:
    """The matrix: from the rank of a row to that of a column; without rows where it is large."""
    ranks = sorted({rank for pair in matrix.values for rank in pair})
    shown = ranks if len(ranks) <= MOST_COLUMNS else []

    def value_to(receiver: int) -> Callable[[int], str]:
        return lambda sender: format_value(matrix.quantity, matrix.value(sender, receiver))

    columns = [Column("from \\ to", str, TEXT)]
    columns += [Column(str(rank), value_to(rank), DECIMAL) for rank in shown]
    return Table("From each rank to each rank", columns, shown)


def _ranks_table(matrix: RankMatrix) -> Table:
    """The medians of each rank; of many ranks a terminal shows the slowest."""

    def slowness(row: RankRow) -> float:
        known = [value for value in row[1:] if value]
        return max(1 / v if matrix.quantity.is_better_high else v for v in known)

    def shown(name: str) -> Callable[[RankRow], str]:
        return lambda row: format_value(matrix.quantity, getattr(row, name))

    columns = [
        Column("rank", attrgetter("rank"), NUMBER),
        Column("host", lambda row: matrix.hosts[row.rank], TEXT, 5),
        Column("interface", lambda r: matrix.interfaces and matrix.interfaces[r.rank], TEXT, 3),
        Column("median\nto others", shown("to_others"), DECIMAL, 8),
    ]
    if matrix.quantity.has_direction:
        columns.append(Column("median\nfrom others", shown("from_others"), DECIMAL, 8))
    rows = rank_medians(matrix)
    slowest = sorted(sorted(rows, key=slowness, reverse=True)[:MOST_RANKS])
    title = "Medians of each rank"
    if len(slowest) < len(rows):
        title += f"; a terminal shows the {MOST_RANKS} slowest"
    return Table(title, columns, rows, brief=slowest)


def pairs_csv(matrices: Sequence[PairMatrix]) -> str:
    """The values of the main matrices of a run, a line for each ordered pair; with a headline."""
    return make_csv([HEADINGS, *_csv_rows(main_matrices(matrices))])


def _csv_rows(matrices: Sequence[PairMatrix]) -> Iterator[tuple[Any, ...]]:
    by_quantity = {found.matrix.quantity: found for found in matrices}
    pairs = sorted({pair for found in matrices for pair in found.matrix.values})
    for first, second in pairs:
        values: list[Any] = []
        for quantity in (LATENCY, BANDWIDTH):
            found = by_quantity.get(quantity)
            value = found.matrix.value(first, second) if found else None
            values.append(None if value is None else f"{value / quantity.scale:.6g}")
        hosts = matrices[0].matrix.hosts
        sizes = [by_quantity[q].size_bytes if q in by_quantity else None
                 for q in (LATENCY, BANDWIDTH)]  # fmt: skip
        yield (first, second, hosts[first], hosts[second], *values, *sizes)


def square_csv(matrix: RankMatrix) -> str:
    """A matrix as CSV: a line for each rank that sends, a column for each that receives; an empty
    field for what was not measured. The first line and the first column have the ranks."""
    ranks = range(matrix.ranks)
    scale = matrix.quantity.scale
    lines: list[list[Any]] = [[matrix.quantity.unit, *ranks]]
    for first in ranks:
        values = [matrix.value(first, second) for second in ranks]
        lines.append([first, *(None if v is None else f"{v / scale:.6g}" for v in values)])
    return make_csv(lines)


def pairs_files(run: Run) -> dict[str, str]:
    """The CSV files of a run by their names: pairs.csv, and a square one for each quantity."""
    matrices = pair_matrices(run)
    if not has_matrix(run.header.plan) or not matrices:
        return {}
    return {"pairs.csv": pairs_csv(matrices)} | {
        f"{found.matrix.quantity.name}.csv": square_csv(found.matrix)
        for found in main_matrices(matrices)
    }
