"""Heat maps of the pairs of ranks of runs: from the rank of a row to the rank of a column.

The scale begins at 0, so that half the bandwidth is half of the scale. Of more than MOST_DRAWN
ranks there are the medians of hosts.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from math import floor, inf, log10
from statistics import median
from typing import NamedTuple

from commbench.analysis.diagnostics import waited_answer
from commbench.analysis.environment import find_crowd
from commbench.analysis.rows import make_rows
from commbench.answers.pairs.document import diagnose_pairs, pairs_answer
from commbench.answers.pairs.matrix import Pair, RankMatrix, main_matrices
from commbench.answers.pairs.slow_parts import BOTH, IN, LINK, OUT, Finding
from commbench.results.schema import Run
from commbench.stats import collect
from commbench.units import format_bytes
from commbench.views.cells import number_texts
from commbench.views.pictures import Cell, ColourBar, Frame, HeatMap, Look, Picture

MOST_DRAWN = 256
"""Up to so many ranks are drawn in one picture, each pair as a cell."""
MOST_BLOCKS = 64
"""Rows of the picture of hosts."""
MOST_VALUES = 32
"""Up to so many rows have values in their cells."""
LONGEST_HOST = 18
SLOW = Look("#B2182B", fill=0)
COLOURS = {True: "Blues", False: "Purples"}
"""By whether a high value is good: dark is high."""
_ALIKE = 2.0
"""Values within hosts and across hosts have one scale if their medians differ by less."""
_LATENCY_LIMIT = 4.0
"""A latency of so many medians has the darkest colour, and so have all above it."""


class Rows(NamedTuple):
    """What the rows of a picture are, which are its columns, too."""

    of_rank: Sequence[int]
    """The row of each rank."""
    names: Sequence[str]
    hosts: Sequence[str]
    """Of each row; blocks of ranks have names of their own."""
    what: str = "rank"


def pair_pictures(runs: Sequence[Run]) -> list[Picture]:
    """For each run that measured pairs of ranks in rounds, a heat map of each quantity."""
    pictures: list[Picture] = []
    for run in runs:
        diagnosed = diagnose_pairs(run)
        main = main_matrices(matrix for matrix, _ in diagnosed)
        found = [(matrix, own.findings) for matrix, own in diagnosed if matrix in main]
        notes = [*waited_answer(make_rows(run)), f"{run.name}: {run.header.describe_ranks()}",
                 "All pairs of a round at once; " * (run.header.plan.world_size > 2)
                 + "lower quartile of a pair's batches",
                 *pairs_answer(diagnosed, find_crowd([run.header]))]  # fmt: skip
        pictures += [draw_pairs(found, notes)] if found else []
    return pictures


def draw_pairs(
    found: Sequence[tuple[RankMatrix, Sequence[Finding]]], notes: Sequence[str] = ()
) -> Picture:
    """The picture of matrices of the same ranks, each with at least one value, and of what is slow
    in them."""
    rows, panels, texts = _make_rows(found[0][0]), [], []
    if rows.what == "host":
        notes = [*notes, "A cell is the median of its pairs"]
    for matrix, findings in found:
        quantity, row_of = matrix.quantity, rows.of_rank
        gathered = collect(
            ((row_of[a], row_of[b]), value / quantity.scale)
            for (a, b), value in matrix.values.items()
        )
        values = {place: median(own) for place, own in gathered.items()}
        panels.append(_heat_map(matrix, findings, rows, values))
        low, middle, high = format_values([f(values.values()) for f in (min, median, max)], 1)
        marks = "frames around what is slow" if panels[-1].frames else "no slow part is seen"
        texts.append(
            f"{panels[-1].heading}, {len(rows.hosts)} rows and columns: lowest {low}, "
            f"median {middle}, highest {high} {quantity.unit}; {marks}."
        )
    what = " and ".join(matrix.quantity.name for matrix, _ in found).capitalize()
    return Picture("pairs", f"{what} between {rows.what}s", " ".join(texts), panels, notes)


def _heat_map(
    matrix: RankMatrix, findings: Sequence[Finding], rows: Rows, values: Mapping[Pair, float]
) -> HeatMap:
    number, hosts, quantity = len(rows.hosts), rows.hosts, matrix.quantity
    kinds = {p: f", {'within' if hosts[p[0]] == hosts[p[1]] else 'across'} hosts" for p in values}
    scales = {kind: [values[p] for p in values if kinds[p] == kind] for kind in kinds.values()}
    middles = [median(own) for own in scales.values()]
    if max(middles) < _ALIKE * min(middles):
        kinds, scales = dict.fromkeys(values, ""), {"": [*values.values()]}
    limit = inf if quantity.is_better_high else _LATENCY_LIMIT
    most = {kind: min(max(own), limit * median(own)) for kind, own in scales.items()}
    texts = format_values([*values.values()], number)
    if matrix.intervals and rows.what == "rank":
        texts = [number_texts(matrix.estimate(pair), quantity.scale)[0] for pair in values]
    has_blocks, spans = rows.names == rows.hosts, _spans(hosts)
    cells = {} if has_blocks else {(row, row): Cell(None) for row in range(number)}
    for (place, value), text in zip(values.items(), texts, strict=True):
        shade = min(1.0, value / most[kinds[place]])
        cells[place] = Cell(shade, text if number <= MOST_VALUES else "")
    bars = [
        ColourBar(quantity.unit + kind, most[kind], max(scales[kind]) > most[kind])
        for kind in sorted(scales)
    ]
    names = {row + 0.5: name for row, name in enumerate(rows.names)}
    size = f", {format_bytes(matrix.size_bytes)}" if matrix.size_bytes else ""
    return HeatMap(
        quantity.name.capitalize() + size,
        names if has_blocks or len(spans) == 1 else _row_labels(rows, spans),
        {} if has_blocks else names, cells, (number, number),
        [frame for each in findings for frame in _frames(each, rows)],
        # Lines between hosts with several ranks.
        [(row, 0.8) for row, _ in spans[1:]] if 2 * len(spans) <= number else [],
        COLOURS[quantity.is_better_high], bars,
        down=f"from {rows.what}", across=f"to {rows.what}", is_of_pairs=True,
    )  # fmt: skip


def _row_labels(rows: Rows, spans: Sequence[Pair]) -> dict[float, str]:
    """Ranks, or hosts where there are several; both where a rank is alone on its host."""
    return {
        (start + end) / 2: rows.hosts[start][:LONGEST_HOST]
        + (f"  {rows.names[start]}" if end == start + 1 else "")
        for start, end in spans
    }


def _spans(values: Sequence[object]) -> list[tuple[int, int]]:
    """The first row of each run of equal values, and the row after its last."""
    starts = [row for row in range(len(values)) if row == 0 or values[row] != values[row - 1]]
    return list(pairwise([*starts, len(values)]))


def _runs(chosen: Container[int], number: int) -> list[tuple[int, int]]:
    """Runs of chosen rows, each with the row after its last."""
    flags = [row in chosen for row in range(number)]
    return [(start, end) for start, end in _spans(flags) if flags[start]]


def format_values(values: Sequence[float], rows: int) -> list[str]:
    """The values with equally many decimals, in few characters."""
    middle = median(values)
    decimals = 0 if middle >= 40 else 1 if middle >= 4 else max(2, 2 - floor(log10(middle)))
    decimals = max(0, decimals - (rows > MOST_VALUES // 2))
    return [f"{value:.{decimals}f}" for value in values]


def _make_rows(matrix: RankMatrix) -> Rows:
    """A row for each rank; of many for each host, or for several neighbours, or for some ranks
    where hosts are few."""
    ranks = range(matrix.ranks)
    if matrix.ranks <= MOST_DRAWN:
        return Rows(ranks, [*map(str, ranks)], matrix.hosts)
    is_of_hosts = len(set(matrix.hosts)) >= 4
    units = matrix.hosts if is_of_hosts else [f"rank {rank}" for rank in ranks]
    different = list(dict.fromkeys(units))
    per = -(-len(different) // MOST_BLOCKS)
    at = {unit: number // per for number, unit in enumerate(different)}
    more = " …" if per > 1 and is_of_hosts else ""
    names = [f"{unit}{more}" for unit in different[::per]]
    return Rows([at[unit] for unit in units], names, names, "host")


def _frames(finding: Finding, rows: Rows) -> list[Frame]:
    """The frames around what a finding says: rows, columns, or the cells of a link."""
    number = len(rows.hosts)
    ends: list[Container[int]] = [
        {rows.of_rank[rank] for rank in ranks} for ranks in (finding.ranks, finding.to_ranks)
    ]
    first, second = ends if finding.kind == LINK else (ends[0], range(number))
    is_both = finding.direction == BOTH
    areas = [(first, second)] * (is_both or finding.direction == OUT)
    areas += [(second, first)] * (is_both or finding.direction == IN)
    return [
        Frame("slow", SLOW, top, left, bottom - top, right - left)
        for down, across in areas
        for top, bottom in _runs(down, number)
        for left, right in _runs(across, number)
    ]
