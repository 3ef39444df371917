"""Heat maps of a matrix of pairs: from the rank of a row to the rank of a column.

The scale begins at 0, so that half the bandwidth is half of the scale. Of more than MOST_DRAWN
ranks there are two pictures: the medians of hosts, and the ranks around what is slow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from commbench.analysis.rank_matrix import Pair, RankMatrix
from commbench.analysis.slow_parts import BOTH, IN, LINK, OUT, Finding
from commbench.output.plot_style import Picture
from commbench.report.heatmap_drawing import MOST_VALUES, Sheet, draw_sheet, format_values

MOST_DRAWN = 256
"""Up to so many ranks are drawn in one picture, each pair as a cell."""
MOST_BLOCKS = 64
"""Rows of the picture of hosts."""


def heat_maps(
    matrix: RankMatrix,
    findings: Sequence[Finding] = (),
    notes: Sequence[str] = (),
) -> list[Picture]:
    """The pictures of a matrix with at least one value; `notes` are printed below the title."""
    what = _What(matrix, tuple(findings))
    name, title = matrix.quantity.name, f"{matrix.quantity.name.capitalize()} between"
    if matrix.ranks <= MOST_DRAWN:
        sheets = {name: what.cut(f"{title} ranks", range(matrix.ranks), notes)}
    else:
        ranks = choose_ranks(matrix, findings)
        shown = f"{len(ranks)} of {matrix.ranks} ranks: slow ones, and others"
        sheets = {
            name: what.reduce(f"{title} hosts", [*notes, "A cell is the median of its pairs"]),
            f"{name}-part": what.cut(f"{title} ranks", ranks, [*notes, shown]),
        }
    return [
        Picture(name, sheet.title, _describe(sheet), draw_sheet(sheet))
        for name, sheet in sheets.items()
    ]


class _What:
    """The matrix of the pictures, in the unit of the pictures."""

    def __init__(self, matrix: RankMatrix, findings: tuple[Finding, ...]) -> None:
        self._matrix, self._findings = matrix, findings
        self._unit, scale = _choose_unit(matrix)
        self._values = {p: value / scale for p, value in matrix.values.items() if p[0] != p[1]}
        self._racks = find_racks(matrix.hosts)

    def cut(self, title: str, ranks: Sequence[int], notes: Sequence[str]) -> Sheet:
        """Some ranks of the matrix."""
        at = {rank: row for row, rank in enumerate(ranks)}
        return Sheet(
            title,
            (*notes, "From the rank of a row to the rank of a column"),
            self._unit,
            self._matrix.quantity.is_better_high,
            {(at[a], at[b]): v for (a, b), v in self._values.items() if a in at and b in at},
            self._medians(at),
            len(ranks),
            tuple(map(str, ranks)),
            tuple(self._matrix.hosts[rank] for rank in ranks),
            tuple(self._racks[rank] for rank in ranks),
            tuple(mark for finding in self._findings for mark in _marks(finding, at)),
            has_diagonal=False,
        )

    def _medians(self, at: dict[int, int]) -> tuple[dict[int, float], dict[int, float]]:
        """The medians of rows and of columns over all ranks: of pairs across hosts, if any."""
        hosts = self._matrix.hosts
        across = {p: v for p, v in self._values.items() if hosts[p[0]] != hosts[p[1]]}
        rows: dict[int, list[float]] = {}
        columns: dict[int, list[float]] = {}
        for (a, b), value in (across or self._values).items():
            if a in at:
                rows.setdefault(at[a], []).append(value)
            if b in at:
                columns.setdefault(at[b], []).append(value)
        found = [{at: median(values) for at, values in each.items()} for each in (rows, columns)]
        return found[0], found[1]

    def reduce(self, title: str, notes: Sequence[str]) -> Sheet:
        """The medians of hosts, or of neighbouring hosts or ranks."""
        blocks, names = _make_blocks(self._matrix)
        gathered: dict[Pair, list[float]] = {}
        for (a, b), value in self._values.items():
            gathered.setdefault((blocks[a], blocks[b]), []).append(value)
        racks = {block: self._racks[rank] for rank, block in reversed(list(enumerate(blocks)))}
        return Sheet(
            title,
            (*notes, "From the host of a row to the host of a column, in the same order"),
            self._unit,
            self._matrix.quantity.is_better_high,
            {pair: median(values) for pair, values in gathered.items()},
            self._medians(dict(enumerate(blocks))),
            len(names),
            names,
            (),
            tuple(racks[block] for block in range(len(names))),
            tuple(
                m for finding in self._findings for m in _marks(finding, dict(enumerate(blocks)))
            ),
            has_diagonal=True,
        )


def find_racks(hosts: Sequence[str]) -> list[int]:
    """The number of the rack of each host, by its name without its last number: of r12n03 and
    r12n04 it is r12n. All are 0 where the names do not say which hosts belong together."""
    stems = [re.sub(r"\d+\D*$", "", host.split(".")[0]) for host in hosts]
    numbers = {stem: number for number, stem in enumerate(dict.fromkeys(stems))}
    is_known = 1 < len(numbers) < len(set(hosts))
    return [numbers[stem] if is_known else 0 for stem in stems]


def choose_ranks(matrix: RankMatrix, findings: Sequence[Finding]) -> list[int]:
    """Ranks for a picture of a part of a large matrix: those of the findings, ranks that were
    measured with them, and ranks from everywhere."""
    slow = [rank for each in findings for rank in (*each.ranks[:4], *each.to_ranks[:4])]
    chosen = dict.fromkeys(slow[: MOST_VALUES // 2])
    for _ in range(2):  # those that were measured with them, and then with those
        met = sorted({b for a, b in matrix.values if a in chosen and b not in chosen})
        step = max(1, len(met) // (MOST_VALUES // 2))
        chosen |= dict.fromkeys(met[::step][: (MOST_VALUES - len(chosen)) // 2])
    step = max(1, matrix.ranks // MOST_VALUES)
    sample = [*range(0, matrix.ranks, step), *range(matrix.ranks)]
    for rank in sample:
        if len(chosen) == min(MOST_VALUES, matrix.ranks):
            break
        chosen[rank] = None
    return sorted(chosen)


def _choose_unit(matrix: RankMatrix) -> tuple[str, float]:
    """The unit in which most values have one to three digits before the decimal point, and what
    values are divided by for it."""
    units = {True: (("MB/s", 1e6), ("GB/s", 1e9)), False: (("us", 1e-6), ("ms", 1e-3))}
    choices = units[matrix.quantity.is_better_high]
    middle = median(matrix.values.values()) if matrix.values else 1.0
    return choices[1] if middle >= 0.9995 * choices[1][1] else choices[0]


def _make_blocks(matrix: RankMatrix) -> tuple[list[int], tuple[str, ...]]:
    """The block of each rank, and the name of each block: a host, or several neighbours."""
    hosts = list(dict.fromkeys(matrix.hosts))
    places = {name: number for number, name in enumerate(hosts)}
    if len(hosts) < 4:
        per = -(-matrix.ranks // MOST_BLOCKS)
        names = [f"rank {start}" for start in range(0, matrix.ranks, per)]
        return [rank // per for rank in range(matrix.ranks)], tuple(names)
    per = -(-len(hosts) // MOST_BLOCKS)
    names = hosts[::per] if per == 1 else [f"{name} …" for name in hosts[::per]]
    return [places[name] // per for name in matrix.hosts], tuple(names)


def _marks(finding: Finding, at: dict[int, int]) -> list[tuple[set[int], set[int]]]:
    """The rows and the columns that a finding frames; none is all of them."""
    first = {at[rank] for rank in finding.ranks if rank in at}
    second = {at[rank] for rank in finding.to_ranks if rank in at}
    if not first or (finding.kind == LINK and not second):
        return []
    if finding.kind == LINK:
        return [(first, second), *([(second, first)] if finding.direction == BOTH else [])]
    marks: list[tuple[set[int], set[int]]] = []
    if finding.direction in (BOTH, OUT):
        marks.append((first, set()))
    if finding.direction in (BOTH, IN):
        marks.append((set(), first))
    return marks


def _describe(sheet: Sheet) -> str:
    """What can be seen, with its main values."""
    values = sorted(sheet.values.values())
    low, middle, high = format_values([values[0], median(values), values[-1]], 1)
    text = (
        f"{sheet.rows} rows and columns: lowest {low}, median {middle}, highest {high} {sheet.unit}"
    )
    return f"{text}; {'frames around what is slow' if sheet.findings else 'nothing is slow'}."
