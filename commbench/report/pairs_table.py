"""What a run says of pairs of ranks: slow parts, slowest pairs, the medians of ranks, and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY, Quantity, RankMatrix
from commbench.analysis.slow_parts import (
    ACROSS,
    BOTH,
    HOST,
    IN,
    LINK,
    OUT,
    RANK,
    WITHIN,
    Diagnosis,
    Finding,
    find_slow,
)
from commbench.output.paragraphs import fill
from commbench.output.table import BOLD, TableColumn, clean, fitting_table, style
from commbench.results.schema import Run
from commbench.spec.pairs import QUICK
from commbench.units import format_bytes, format_count

MOST_PAIRS = 5
"""The slowest pairs that are printed."""
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
    ways = ", each direction alone" if matrix.quantity.has_direction else ""
    head = f"{matrix.quantity.name} between ranks, {format_bytes(found.size_bytes)}, {unit}"
    about = f"{found.title}; the median of each of {pairs}{ways}; all pairs of a round at once."
    diagnosis = find_slow(matrix)
    lines = [
        style(clean(head[:1].upper() + head[1:]), BOLD),
        fill(clean(about), "  ", "  "),
        *(fill(clean(line), "  ", "    ") for line in describe_diagnosis(matrix, diagnosis)),
        *fitting_table(_PAIR_COLUMNS, slowest_pairs(matrix, MOST_PAIRS)),
    ]
    ranks = rank_medians(matrix)
    shown = sorted(ranks, key=_slowness, reverse=True)[:MOST_RANKS]
    if len(shown) < len(ranks):
        lines.append(f"  The {len(shown)} slowest of {len(ranks)} ranks, by their medians:")
    lines += fitting_table(_RANK_COLUMNS, sorted(shown, key=lambda one: one.rank))
    return "\n".join(lines)


def describe_diagnosis(matrix: RankMatrix, diagnosis: Diagnosis) -> list[str]:
    """Sentences: each slow part, or that there is none."""
    lines = [_describe_finding(matrix, finding) for finding in diagnosis.findings]
    if lines:
        return lines
    limit = diagnosis.link_limit
    if limit is None:
        return [
            f"There are too few pairs to tell whether one has a {_BAD[matrix.quantity.name]} "
            f"{matrix.quantity.name}."
        ]
    found = f"No rank, host or link has a {_BAD[matrix.quantity.name]} {matrix.quantity.name}."
    return [f"{found} A single link would be named below {limit:.2f} of the speed of its peers."]


_BAD = {BANDWIDTH.name: "low", LATENCY.name: "high"}


def _describe_finding(matrix: RankMatrix, finding: Finding) -> str:
    quantity = finding.quantity
    return (
        f"Slow: {_name_part(matrix, finding)}: {_number(quantity, finding.value)} {quantity.unit}, "
        f"where its peers have {_number(quantity, finding.peers)} {quantity.unit}: "
        f"{finding.ratio:.2f} of their speed ({format_count(finding.pairs, 'value')} against "
        f"{finding.peer_pairs})."
    )


def _name_part(matrix: RankMatrix, finding: Finding) -> str:
    """A slow part in words: `host node3 when it sends`, `the link from rank 0 to rank 5`."""
    first = finding.ranks[0]
    way = {OUT: " when it sends", IN: " when it receives"}.get(finding.direction, "")
    scope = {WITHIN: " within its host", ACROSS: " to other hosts"}.get(finding.scope, "")
    if finding.kind == LINK:
        one_each = len(finding.ranks) == len(finding.to_ranks) == 1
        ends = [
            f"rank {_end(matrix, ranks[0])}" if one_each else f"host {matrix.hosts[ranks[0]]}"
            for ranks in (finding.ranks, finding.to_ranks)
        ]
        if finding.direction == BOTH:
            return f"the link between {ends[0]} and {ends[1]}"
        return f"the link from {ends[0]} to {ends[1]}, in this direction only"
    if finding.kind == RANK:
        return f"rank {_end(matrix, first)}{way}{scope if len(set(matrix.hosts)) > 1 else ''}"
    host = f"host {matrix.hosts[first]}{way}{scope if finding.scope == WITHIN else ''}"
    return host if finding.kind == HOST else f"interface {matrix.interfaces[first]} of {host}"


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


def _number(quantity: Quantity, value: float | None) -> str:
    """The value in the unit of the quantity, with three digits."""
    if value is None:
        return ""
    text = f"{value / quantity.scale:#.3g}"
    return f"{float(text):.0f}" if "e+" in text else text.rstrip(".")


def _end(matrix: RankMatrix, rank: int) -> str:
    several = len(set(matrix.hosts)) > 1
    return f"{rank} ({matrix.hosts[rank]})" if several else str(rank)


_PAIR_COLUMNS = (
    TableColumn("slowest\nfrom rank", lambda row: _end(row.matrix, row.pair[0]), 8, is_left=True),
    TableColumn("to rank", lambda row: _end(row.matrix, row.pair[1]), 8, is_left=True),
    TableColumn("value", lambda row: _number(row.matrix.quantity, row.value), 9, is_decimal=True),
    TableColumn("speed over\nthe median", lambda row: f"{row.speed:.2f}", 7),
)
_RANK_COLUMNS = (
    TableColumn("rank", lambda row: str(row.rank), 9),
    TableColumn("host", lambda row: row.matrix.hosts[row.rank], 5, is_left=True),
    TableColumn(
        "interface", lambda r: r.matrix.interfaces[r.rank] if r.matrix.interfaces else "", 3,
        is_left=True,
    ),
    TableColumn(
        "median\nto others", lambda row: _number(row.matrix.quantity, row.row), 8, is_decimal=True
    ),
    TableColumn(
        "median\nfrom others",
        lambda row: _number(row.matrix.quantity, row.column)
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
