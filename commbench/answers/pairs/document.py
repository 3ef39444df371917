"""What a run says of pairs of ranks: slow parts, slowest pairs, the medians of ranks, and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from commbench.analysis.csv_file import make_csv
from commbench.analysis.diagnostic_figures import ranks_per_core
from commbench.analysis.rows import make_rows
from commbench.answers.pairs.matrix import (
    BANDWIDTH,
    LATENCY,
    Pair,
    PairMatrix,
    Quantity,
    RankMatrix,
    has_matrix,
    main_matrices,
    pair_matrices,
)
from commbench.answers.pairs.slow_parts import (
    ACROSS,
    ALL,
    BOTH,
    HOST,
    IN,
    INTERFACE,
    LINK,
    OUT,
    RANK,
    WITHIN,
    Diagnosis,
    Finding,
    find_slow,
)
from commbench.plan.pairs import QUICK
from commbench.plan.plan import Plan
from commbench.results.schema import Run
from commbench.units import format_bytes, format_count
from commbench.views.cells import NUMBER, RATIO, TEXT, Column, Unit
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
_CROWDED = (
    "Ranks share cores (see the warnings), which explains pairs that are much faster or slower: a "
    "rank waits until its core is free."
)
FEWEST_ITERATIONS = 200
"""What a matrix that scatters is to be measured with."""
_NOISY = 0.4
"""Where a link must be slower than this to be named, links are not judged."""
_HOPELESS = 0.01
"""Below this, how slow a link must be is not said: nobody has such a link."""
_PORT = "its cable, and its port of the switch"
NEXT = {
    (HOST, BOTH): f"the speed and the errors of its network interface (ethtool, ibstat), {_PORT}",
    (HOST, OUT): f"errors, pauses and traffic shaping of what it sends (ethtool -S, tc), {_PORT}",
    (HOST, IN): f"errors and drops of what it receives (ethtool -S), {_PORT}",
    (HOST, WITHIN): "the links between its GPUs (nvidia-smi topo -m), and other programs on it",
    (HOST, ALL): "other programs on it, and its power and clocks (commbench doctor)",
    (INTERFACE, ""): f"its speed and its errors (ethtool, ibstat), {_PORT}",
    (RANK, ""): "the clocks and the PCIe link of its GPU, and other programs on its cores",
    (LINK, ""): "the way between the two: cables between switches, and routing. Their other ways "
    "are not slow",
    (LINK, WITHIN): "the link between the two GPUs (nvidia-smi topo -m, nvidia-smi nvlink -s)",
}
"""What to check next, by kind of part and its scope or direction; the general one is ''."""
_PROGRAMS = "other programs on its cores"
ON_CPU = {
    (HOST, WITHIN): _PROGRAMS, (LINK, WITHIN): "other programs on their cores",
    (RANK, ""): f"its network card, cable and limits, and {_PROGRAMS}",
}  # fmt: skip
"""The same, where ranks have no GPU."""

Diagnosed = tuple[PairMatrix, Diagnosis]
"""A matrix, and what is slow in it."""


def diagnose_pairs(run: Run) -> list[Diagnosed]:
    """The matrices of a run; none for a run that does not measure pairs in rounds."""
    matrices = pair_matrices(run) if has_matrix(run.header.plan) else []
    return [(found, find_slow(found.matrix)) for found in matrices]


def pairs_answer(diagnosed: Sequence[Diagnosed]) -> Iterator[str]:
    """A sentence: which parts are slow and by how much, or that none is; and what was compared."""
    main = main_matrices(found for found, _ in diagnosed)
    judged = [(found, diagnosis) for found, diagnosis in diagnosed if found in main]
    if not judged:
        return
    pairs = {frozenset(pair) for pair in judged[0][0].matrix.values}
    ranks = len(frozenset[int]().union(*pairs))
    tested = [(f, d) for f, d in judged if d.findings or d.link_limit is not None]
    slow = [
        f"{name_part(found.matrix, each)} is {_times(each.ratio)} times as slow as its peers "
        f"({_name_matrix(found)})"
        for found, diagnosis in tested
        for each in diagnosis.findings
    ]
    sound = " and ".join(_name_matrix(found) for found, d in tested if not d.findings)
    if len(pairs) == 1:
        yield "Two ranks have one link, and no other to compare it with."
    elif slow:
        text = "; ".join(slow) + f"; nothing slow is seen in {sound}" * bool(sound)
        yield f"{text[0].upper()}{text[1:]}."
    elif not tested:
        yield f"{len(pairs)} pairs are too few to name a slow one."
    else:
        every = "all" if 2 * len(pairs) == ranks * (ranks - 1) else "only"
        is_noisy = any((d.link_limit or 1.0) < _NOISY for _, d in tested)
        what = "rank" if is_noisy else "rank, host or link"
        if is_noisy:
            yield "Cannot tell whether a link is slow: the values are too noisy."
        yield (
            f"No slow {what} is seen: {every} {len(pairs)} pairs of {ranks} ranks were compared by "
            f"{sound}."
        )


def _times(ratio: float) -> str:
    """How many times as slow something is that has this speed over that of its peers."""
    return f"{1 / ratio:.1f}" if ratio > 0.1 else f"{float(f'{1 / ratio:.2g}'):.0f}"


def _name_matrix(found: PairMatrix) -> str:
    return f"{found.matrix.quantity.name} at {format_bytes(found.size_bytes)}"


def pairs_blocks(run: Run, diagnosed: Sequence[Diagnosed]) -> Iterator[Block]:
    """For each kind of call between pairs what is slow, and the tables."""
    plan = run.header.plan
    for each in diagnosed:
        yield _matrix_section(*each, plan)
    if diagnosed and (ranks_per_core(make_rows(run)[0]) or 0) > 1:
        yield Text(_CROWDED)
    matrices = [found.matrix for found, _ in diagnosed]
    is_part = any(len(matrix.values) < matrix.ranks * (matrix.ranks - 1) for matrix in matrices)
    if is_part and QUICK in plan.pairs:
        yield Text(_NOT_ALL)


def _matrix_section(found: PairMatrix, diagnosis: Diagnosis, plan: Plan) -> Section:
    matrix = found.matrix
    unit = Unit(partial(format_value, matrix.quantity), is_decimal=True)
    number = len({frozenset(pair) for pair in matrix.values})
    ways = ""
    if matrix.quantity.has_direction:
        is_both = any(pair[::-1] in matrix.values for pair in matrix.values)
        ways = ", each direction alone" if is_both else ", one direction"
    at_once = ", all pairs of a round at once" if number > 1 else ""
    name, columns = matrix.quantity.name.capitalize(), _pair_columns(matrix, unit)
    blocks: list[Block] = [
        Text(f"{format_count(number, 'pair')}{ways}{at_once} ({found.title}). A value is the lower "
             "quartile of a pair's batches."),
        Table("Slow", _finding_columns(matrix, unit, plan.device), diagnosis.findings,
              tone=lambda _: BAD),
        Items([*describe_unknown(matrix, diagnosis, plan.iterations or 0)]),
        Table("Slowest pairs", columns[: 4 if number > 1 else 3],
              slowest_pairs(matrix, MOST_PAIRS)),
    ]  # fmt: skip
    if number > 1:
        blocks += [_grid(matrix, unit), _ranks_table(matrix, unit)]
    title = f"{name} between ranks, {format_bytes(found.size_bytes)}, {matrix.quantity.unit}"
    return Section(title, blocks)


def _finding_columns(matrix: RankMatrix, unit: Unit, device: str) -> tuple[Column, ...]:
    return (
        Column("slow part", partial(name_part, matrix), TEXT, is_wrapped=True),
        Column("value", attrgetter("value"), unit),
        Column("peers", attrgetter("peers"), unit),
        Column("speed over\nits peers", attrgetter("ratio"), RATIO),
        Column("values", lambda found: f"{found.pairs} of {found.pairs + found.peer_pairs}",
               NUMBER, 5),
        Column("check", partial(what_to_check, matrix, device), TEXT, 8, is_wrapped=True),
    )  # fmt: skip


def describe_unknown(matrix: RankMatrix, diagnosis: Diagnosis, iterations: int) -> Iterator[str]:
    """Sentences: how slow a link must be to be named, and what the matrix cannot tell. `iterations`
    are those that were asked for."""
    ranks = {rank for pair in matrix.values for rank in pair}
    limit = diagnosis.link_limit
    if limit is not None and not diagnosis.findings:
        slower = _times(limit)
        would_show = f", and only one {slower} times slower would show" * (limit >= _HOPELESS)
        yield (
            f"A single link would be named if it was more than {slower} times as slow as others."
            if limit >= _NOISY
            else f"The links cannot be judged: the values are too noisy{would_show}. Use "
            f"`--iters {max(FEWEST_ITERATIONS, 4 * iterations)}`."
        )
    is_across = any(found.scope == ACROSS for found in diagnosis.findings)
    hosts = {matrix.hosts[rank] for rank in ranks}
    if len(ranks) > 2 and len(hosts) == 2 and limit is not None and not is_across:
        yield "Of two hosts, one that is slow to the other would not show."


def what_to_check(matrix: RankMatrix, device: str, finding: Finding) -> str:
    """What to look at next, of ranks on this device."""
    kind, scope = finding.kind, finding.scope
    if kind == LINK:
        ends = (matrix.hosts[finding.ranks[0]], matrix.hosts[finding.to_ranks[0]])
        scope = WITHIN if ends[0] == ends[1] else ACROSS
    keys = ((kind, scope), (kind, finding.direction), (kind, ""))
    table = NEXT | ON_CPU if device == "cpu" else NEXT
    return next((table[key] for key in keys if key in table), NEXT[HOST, BOTH])


def name_part(matrix: RankMatrix, finding: Finding) -> str:
    """A slow part in words: `host node3 when it sends`, `the link from rank 0 to rank 5`."""
    first = finding.ranks[0]
    way = {OUT: " when it sends", IN: " when it receives"}.get(finding.direction, "")
    if finding.kind == LINK:
        one_each = len(finding.ranks) == len(finding.to_ranks) == 1
        ends = [
            f"rank {name_rank(matrix, ranks[0])}" if one_each else f"host {matrix.hosts[ranks[0]]}"
            for ranks in (finding.ranks, finding.to_ranks)
        ]
        if finding.direction == BOTH:
            return f"the link between {ends[0]} and {ends[1]}"
        return f"the link from {ends[0]} to {ends[1]}, in this direction only"
    if finding.kind == RANK:
        scope = {WITHIN: " within its host", ACROSS: " to other hosts"}.get(finding.scope, "")
        return f"rank {name_rank(matrix, first)}{way}{scope if len(set(matrix.hosts)) > 1 else ''}"
    host = f"host {matrix.hosts[first]}{way}"
    if finding.kind == INTERFACE:
        return f"interface {matrix.interfaces[first]} of {host}"
    return f"{host} between its own ranks" if finding.scope == WITHIN else host


def name_rank(matrix: RankMatrix, rank: int) -> str:
    """The rank, with its host where there are several."""
    several = len(set(matrix.hosts)) > 1
    return f"{rank} ({matrix.hosts[rank]})" if several else str(rank)


def format_value(quantity: Quantity, value: float) -> str:
    """The value in the unit of the quantity, with three digits."""
    text = f"{value / quantity.scale:#.3g}"
    return f"{float(text):.0f}" if "e+" in text else text.rstrip(".")


class PairRow(NamedTuple):
    """A pair with its value beside the median of all pairs."""

    pair: Pair
    value: float
    speed: float
    """Over the median of all pairs that are within a host, or across hosts, as this one is."""


def slowest_pairs(matrix: RankMatrix, most: int) -> list[PairRow]:
    """The slowest pairs by their speed over the median of pairs of the same kind, the slowest
    first, without those that are faster than it; of two ranks both ways."""
    hosts, quantity = matrix.hosts, matrix.quantity
    kinds: dict[bool, list[float]] = {}
    for (first, second), value in matrix.values.items():
        kinds.setdefault(hosts[first] == hosts[second], []).append(value)
    usual = {kind: median(values) for kind, values in kinds.items()}
    rows = []
    for (first, second), value in matrix.values.items():
        if quantity.has_direction or first < second:
            speed = value / usual[hosts[first] == hosts[second]]
            if not quantity.is_better_high:
                speed = 1 / speed
            rows.append(PairRow((first, second), value, speed))
    slow = [row for row in rows if row.speed <= 1 or len(rows) == 2]
    return sorted(slow, key=lambda row: (row.speed, row.pair))[:most]


def _pair_columns(matrix: RankMatrix, unit: Unit) -> tuple[Column, ...]:
    return (
        Column("from rank", lambda row: name_rank(matrix, row.pair[0]), TEXT),
        Column("to rank", lambda row: name_rank(matrix, row.pair[1]), TEXT, 8),
        Column("value", attrgetter("value"), unit),
        Column("speed over\nthe median", attrgetter("speed"), RATIO, 7),
    )


def _grid(matrix: RankMatrix, unit: Unit) -> Table:
    """The matrix: from the rank of a row to that of a column; without rows where it is large."""
    ranks = sorted({rank for pair in matrix.values for rank in pair})
    shown = ranks if len(ranks) <= MOST_COLUMNS else []

    def value_to(receiver: int) -> Callable[[int], float | None]:
        return lambda sender: matrix.value(sender, receiver)

    columns = [Column("from \\ to", str, TEXT)]
    columns += [Column(str(rank), value_to(rank), unit) for rank in shown]
    return Table("From each rank to each rank", columns, shown)


def _ranks_table(matrix: RankMatrix, unit: Unit) -> Table:
    """The medians of what each rank sends and receives; of many ranks a terminal shows the
    slowest."""
    values: tuple[dict[int, list[float]], ...] = ({}, {})
    for pair, value in matrix.values.items():
        for own, rank in zip(values, pair, strict=True):
            own.setdefault(rank, []).append(value)
    sent, received = ({rank: median(own[rank]) for rank in own} for own in values)

    def slowness(rank: int) -> float:
        known = [own[rank] for own in (sent, received) if rank in own]
        return max(1 / value if matrix.quantity.is_better_high else value for value in known)

    columns = [
        Column("rank", str, NUMBER),
        Column("host", lambda rank: matrix.hosts[rank], TEXT, 5),
        Column("interface", lambda rank: matrix.interfaces and matrix.interfaces[rank], TEXT, 3),
        Column("median\nto others", sent.get, unit, 8),
    ]
    if matrix.quantity.has_direction:
        columns.append(Column("median\nfrom others", received.get, unit, 8))
    ranks = sorted(sent.keys() | received.keys())
    slowest = sorted(sorted(ranks, key=slowness, reverse=True)[:MOST_RANKS])
    more = f"; a terminal shows the {MOST_RANKS} slowest" if len(slowest) < len(ranks) else ""
    return Table(f"Medians of each rank{more}", columns, ranks, brief=slowest)


def pairs_files(run: Run) -> dict[str, str]:
    """The CSV files of a run by their names: pairs.csv with a line for each ordered pair, and for
    each quantity a square: a line for each rank that sends, a column for each that receives."""
    if not has_matrix(run.header.plan) or not (matrices := pair_matrices(run)):
        return {}
    main = {found.matrix.quantity: found for found in main_matrices(matrices)}
    files = {"pairs.csv": make_csv([HEADINGS, *_csv_rows(main)])}
    for quantity, found in main.items():
        ranks = range(found.matrix.ranks)
        square = [[first, *(_written(found, (first, to)) for to in ranks)] for first in ranks]
        files[f"{quantity.name}.csv"] = make_csv([[quantity.unit, *ranks], *square])
    return files


def _csv_rows(main: dict[Quantity, PairMatrix]) -> Iterator[tuple[Any, ...]]:
    both = [main.get(quantity) for quantity in (LATENCY, BANDWIDTH)]
    sizes = [found and found.size_bytes for found in both]
    hosts = next(iter(main.values())).matrix.hosts
    for pair in sorted({pair for found in main.values() for pair in found.matrix.values}):
        values = [_written(found, pair) for found in both]
        yield (*pair, *(hosts[rank] for rank in pair), *values, *sizes)


def _written(found: PairMatrix | None, pair: Pair) -> str | None:
    """The value of a pair in the unit of its quantity; None where it was not measured."""
    value = found and found.matrix.values.get(pair)
    return f"{value / found.matrix.quantity.scale:.6g}" if found and value is not None else None
