"""What a run says of pairs of ranks: slow parts, slowest pairs, the medians of ranks, and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10
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
from commbench.analysis.slow_parts import find_slow
from commbench.output.paragraphs import fill
from commbench.output.table import (
    BOLD,
    WIDTH,
    TableColumn,
    clean,
    fitting_table,
    style,
    table,
    width,
)
from commbench.report.pairs_sentences import describe_diagnosis, format_value, name_rank
from commbench.results.schema import Run
from commbench.spec.pairs import QUICK
from commbench.units import format_bytes, format_count

MOST_PAIRS = 5
"""The slowest pairs that are printed."""
MOST_COLUMNS = 10
"""Up to so many ranks the whole matrix is printed, if it is not too wide."""
MOST_RANKS = 16
"""Ranks with a row each; of more ranks the slowest are printed."""
HEADINGS = (
    "row", "column", "row_host", "column_host", "latency_us", "bandwidth_GBps", "latency_bytes",
    "bandwidth_bytes",
)  # fmt: skip
"""The columns of pairs.csv: a line for each ordered pair that was measured, from row to column."""


def pairs_text(run: Run) -> str:
    """For each kind of call between pairs what is slow, and the tables; empty for a run that does
    not measure pairs in rounds."""
    if not has_matrix(run.header.plan):
        return ""
    matrices = pair_matrices(run)
    texts = [_matrix_text(found) for found in matrices]
    is_part = any(len(m.values) < m.ranks * (m.ranks - 1) for _, _, m in matrices)
    if is_part and QUICK in run.header.plan.pairs:
        texts.append(fill(_NOT_ALL))
    return "\n\n".join(texts)


_NOT_ALL = (
    "The quick search measured some of the pairs: a single slow link may be among the others. "
    "Without --quick, all are measured."
)


def describe_pairs(run: Run) -> list[str]:
    """Sentences: what is slow between pairs of ranks; none for a run without such pairs."""
    matrices = pair_matrices(run) if has_matrix(run.header.plan) else []
    return [
        f"{found.matrix.quantity.name.capitalize()}, {format_bytes(found.size_bytes)}: {line}"
        for found in main_matrices(matrices)
        for line in describe_diagnosis(found.matrix, find_slow(found.matrix))
    ]


def _matrix_text(found: PairMatrix) -> str:
    matrix = found.matrix
    unit = matrix.quantity.unit
    pairs = format_count(len({frozenset(pair) for pair in matrix.values}), "pair")
    if not matrix.quantity.has_direction:
        ways = ""
    elif any(pair[::-1] in matrix.values for pair in matrix.values):
        ways = ", each direction alone"
    else:
        ways = ", one direction"
    head = f"{matrix.quantity.name} between ranks, {format_bytes(found.size_bytes)}, {unit}"
    is_one = len({frozenset(pair) for pair in matrix.values}) == 1
    at_once = "" if is_one else "; all pairs of a round at once"
    about = f"{found.title}; {pairs}{ways}{at_once}; lower quartile of batches."
    diagnosis = find_slow(matrix)
    lines = [
        style(clean(head[:1].upper() + head[1:]), BOLD),
        fill(clean(about), "  ", "  "),
        *(fill(clean(line), "  ", "    ") for line in describe_diagnosis(matrix, diagnosis)),
        *fitting_table(_ONE_PAIR if is_one else _PAIR_COLUMNS, slowest_pairs(matrix, MOST_PAIRS)),
    ]
    if is_one:
        return "\n".join(lines)
    if grid := grid_lines(matrix):
        return "\n".join([*lines, *grid])
    ranks = rank_medians(matrix)
    shown = sorted(ranks, key=_slowness, reverse=True)[:MOST_RANKS]
    if len(shown) < len(ranks):
        lines.append(f"  The {len(shown)} slowest of {len(ranks)} ranks, by their medians:")
    lines += fitting_table(_RANK_COLUMNS, sorted(shown, key=lambda one: one.rank))
    return "\n".join(lines)


def grid_lines(matrix: RankMatrix) -> list[str]:
    """The matrix as a table: from the rank of a row to that of a column, and the medians of rows
    and columns; empty where it is wider than a terminal."""
    ranks = sorted({rank for pair in matrix.values for rank in pair})
    if not 2 < len(ranks) <= MOST_COLUMNS:
        return []
    medians = {row.rank: row for row in rank_medians(matrix)}
    columns = [
        [matrix.value(row, column) for row in ranks] + [medians[column].column] for column in ranks
    ]
    columns.append([medians[row].row for row in ranks] + [None])
    scale = matrix.quantity.scale
    decimals = max(0, 2 - floor(log10(median(matrix.values.values()) / scale)))
    cells = [["" if v is None else f"{v / scale:.{decimals}f}" for v in own] for own in columns]
    headings = ["from \\ to", *map(str, ranks), "median"]
    for names in (name_rank(matrix, rank) for rank in ranks), map(str, ranks):
        rows = list(zip([*names, "median"], *cells, strict=True))
        lines = table(headings, rows, left=headings[0])
        if max(map(width, lines)) <= WIDTH:
            return lines
    return []


class PairRow(NamedTuple):
    """A pair with its value beside the median of all pairs."""

    matrix: RankMatrix
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
            rows.append(PairRow(matrix, (first, second), value, speed))
    return sorted(rows, key=lambda row: (row.speed, row.pair))[:most]


class RankRow(NamedTuple):
    """The medians of the values of one rank."""

    matrix: RankMatrix
    rank: int
    row: float | None
    """From this rank to others."""
    column: float | None
    """From others to this rank."""


def rank_medians(matrix: RankMatrix) -> list[RankRow]:
    """The medians of rows and columns; of ranks without any value there is none."""
    rows: dict[int, list[float]] = {}
    columns: dict[int, list[float]] = {}
    for (first, second), value in matrix.values.items():
        rows.setdefault(first, []).append(value)
        columns.setdefault(second, []).append(value)
    return [
        RankRow(
            matrix,
            rank,
            median(rows[rank]) if rank in rows else None,
            median(columns[rank]) if rank in columns else None,
        )
        for rank in sorted(rows.keys() | columns.keys())
    ]


def _slowness(row: RankRow) -> float:
    known = [value for value in (row.row, row.column) if value]
    return max(1 / v if row.matrix.quantity.is_better_high else v for v in known)


def _value(row: PairRow | RankRow, value: float | None) -> str:
    return format_value(row.matrix.quantity, value)


_PAIR_COLUMNS = (
    TableColumn(
        "slowest\nfrom rank", lambda row: name_rank(row.matrix, row.pair[0]), 8, is_left=True
    ),
    TableColumn("to rank", lambda row: name_rank(row.matrix, row.pair[1]), 8, is_left=True),
    TableColumn(
        "value", lambda row: format_value(row.matrix.quantity, row.value), 9, is_decimal=True
    ),
    TableColumn("speed over\nthe median", lambda row: f"{row.speed:.2f}", 7),
)
_ONE_PAIR = (_PAIR_COLUMNS[0]._replace(heading="from rank"), *_PAIR_COLUMNS[1:3])
_RANK_COLUMNS = (
    TableColumn("rank", lambda row: str(row.rank), 9),
    TableColumn("host", lambda row: row.matrix.hosts[row.rank], 5, is_left=True),
    TableColumn(
        "interface", lambda r: r.matrix.interfaces[r.rank] if r.matrix.interfaces else "", 3,
        is_left=True,
    ),
    TableColumn("median\nto others", lambda row: _value(row, row.row), 8, is_decimal=True),
    TableColumn(
        "median\nfrom others",
        lambda row: _value(row, row.column)
        if row.matrix.quantity.has_direction else "",
        8, is_decimal=True,
    ),
)  # fmt: skip


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
