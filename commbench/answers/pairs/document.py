"""What a run says of pairs of ranks: slow parts, slowest pairs, the medians of ranks, and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from commbench.analysis.csv_file import make_csv
from commbench.analysis.environment import find_crowd
from commbench.answers.pairs import matrix as matrices
from commbench.answers.pairs import slow_parts as parts
from commbench.answers.pairs.matrix import BANDWIDTH, LATENCY, Pair, RankMatrix
from commbench.answers.pairs.slow_parts import Diagnosis, Finding, find_slow
from commbench.output.text import join_words, read_sections
from commbench.plan.pairs import QUICK
from commbench.plan.plan import Plan
from commbench.results.schema import Run
from commbench.stats import Estimate, collect, np
from commbench.units import format_bytes, format_count, format_times_up
from commbench.views.cells import NUMBER, RATIO, TEXT, Column, Unit, in_brackets, number_texts
from commbench.views.document import BAD, MOST_LISTED, Block, Items, Section, Table, Text, summarise

MOST_PAIRS = 5
"""The slowest pairs that are shown."""
MOST_COLUMNS = 8
"""Up to so many ranks the whole matrix is shown."""
MOST_RANKS = 16
"""Ranks with a row each in a terminal; of more ranks the slowest are shown."""
MOST_SQUARE = 1024
"""Ranks of which there is a file with a place for each pair; the list of pairs has them all."""
MOST_IN_JSON = 256
"""Ranks of which JSON has the values of all pairs."""
HEADINGS = (
    "row", "column", "row_host", "column_host", "latency_us", "bandwidth_GBps", "latency_bytes",
    "bandwidth_bytes", "latency_ci_low_us", "latency_ci_high_us", "bandwidth_ci_low_GBps",
    "bandwidth_ci_high_GBps",
)  # fmt: skip
"""The columns of pairs.csv: a line for each ordered pair that was measured, from row to column."""
_TEXTS = Path(__file__).with_name("checks.txt")
FEWEST_ITERATIONS = 200
"""What a matrix that scatters is to be measured with."""
_NAMED = (
    " A rank is named if most of its pairs are slow, and a link if its pair is slower than the "
    "other pairs of its ranks."
)
_NOISY = 0.4
"""Where a link must be slower than this to be named, links are not judged."""
_UNKNOWN = 0.01
"""Where something must be slower than this to be named, no figure says how slow."""

Diagnosed = tuple[RankMatrix, Diagnosis]
"""A matrix, and what is slow in it."""


def diagnose_pairs(run: Run) -> list[Diagnosed]:
    """The matrices of a run; none for a run that does not measure pairs in rounds."""
    return [(matrix, find_slow(matrix)) for matrix in matrices.matrices_of_rounds(run)]


def pairs_answer(diagnosed: Sequence[Diagnosed], crowd: str = "") -> Iterator[str]:
    """A sentence: which parts are slow and by how much, or that none is; and what was compared.
    `crowd` is that of find_crowd."""
    main = matrices.main_matrices(matrix for matrix, _ in diagnosed)
    own = [(matrix, found) for matrix, found in diagnosed if matrix in main]
    tested = [each for each in own if each[1].findings or each[1].link_limit is not None]
    slow = [
        f"{name_part(matrix, each)} is {_times(each.ratio)} times as slow as its peers "
        f"({_name_matrix(matrix)})"
        for matrix, found in tested
        for each in found.findings
    ]
    sound = " and ".join(_name_matrix(matrix) for matrix, found in tested if not found.findings)
    pairs = {frozenset(pair) for matrix in main[:1] for pair in matrix.values}
    ranks = len(frozenset[int]().union(*pairs))
    if len(pairs) == 1:
        known = ", ".join(map(_link_text, main))
        yield f"Two ranks have one link, and no other to compare it with: {known}."
    elif slow:
        text = "; ".join(slow) + f"; nothing slow is seen in {sound}" * bool(sound)
        yield f"{text[0].upper()}{text[1:]}."
    elif pairs and not tested:
        yield f"{len(pairs)} pairs are too few to name a slow one."
    elif pairs:
        every = "all" if 2 * len(pairs) == ranks * (ranks - 1) else "only"
        compared = f"{every} {len(pairs)} pairs of {ranks} ranks were compared by {sound}"
        judged = [each for each in tested if (each[1].rank_limit or 0.0) >= _NOISY]
        is_noisy = any((found.link_limit or 1.0) < _NOISY for _, found in tested)
        if is_noisy:
            what = "a link" if judged else "a rank or a link"
            why = f"; {crowd}" * bool(crowd)
            yield f"Cannot tell whether {what} is slow: the values are too noisy{why}."
        what = "rank" if is_noisy else "rank, host or link"
        text = f"no slow {what} is seen: {compared}." if judged else f"{compared}."
        limits = [
            f"{format_times_up(1 / found.rank_limit)} times as slow in {matrix.quantity.name}"
            for matrix, found in tested
            if found.rank_limit and found.rank_limit >= _UNKNOWN
        ]
        few = "; the values are too few and too noisy to show less" * (is_noisy and not judged)
        shows = f" A rank that is {join_words(limits, 'or')} would show{few}." if limits else ""
        yield f"{text[0].upper()}{text[1:]}{shows}"


def _times(ratio: float) -> str:
    """How many times as slow something is that has this speed over that of its peers."""
    return f"{1 / ratio:.1f}" if ratio > 0.1 else f"{float(f'{1 / ratio:.2g}'):.0f}"


def _link_text(matrix: RankMatrix) -> str:
    """The values of its pairs: `bandwidth 0.80 (0.71 … 0.89) and 1.01 GB/s at 4 MiB`."""
    both = (number_texts(matrix.estimate(p), matrix.quantity.scale) for p in matrix.values)
    texts = dict.fromkeys(text + in_brackets(interval) for text, interval in both)
    size, unit = format_bytes(matrix.size_bytes), matrix.quantity.unit
    return f"{matrix.quantity.name} {join_words([*texts])} {unit} at {size}"


def _name_matrix(matrix: RankMatrix) -> str:
    return f"{matrix.quantity.name} at {format_bytes(matrix.size_bytes)}"


def pairs_blocks(run: Run, diagnosed: Sequence[Diagnosed]) -> Iterator[Block]:
    """For each kind of call between pairs what is slow, and the tables."""
    plan, crowd = run.header.plan, find_crowd([run.header])
    for matrix, diagnosis in diagnosed:
        yield _matrix_section(matrix, diagnosis, plan, crowd)
    is_part = any(len(m.values) < m.ranks * (m.ranks - 1) for m, _ in diagnosed)
    if is_part and QUICK in plan.pairs:
        yield Text(read_sections(_TEXTS)["not all pairs"].strip())


def _matrix_section(matrix: RankMatrix, diagnosis: Diagnosis, plan: Plan, crowd: str) -> Section:
    quantity = matrix.quantity
    unit = Unit(lambda value: number_texts(value, quantity.scale)[0], is_decimal=True)
    interval = Unit(lambda value: number_texts(value, quantity.scale)[1])
    number = len({frozenset(pair) for pair in matrix.values})
    ways = ""
    if quantity.has_direction:
        is_both = any(pair[::-1] in matrix.values for pair in matrix.values)
        ways = ", each direction alone" if is_both else ", one direction"
    at_once = ", all pairs of a round at once" if number > 1 else ""
    several = "" if matrix.intervals else " Intervals need `--launches 3`."
    several += _NAMED * bool(diagnosis.findings)
    slow = (
        Column("slow part", partial(name_part, matrix), TEXT, is_wrapped=True),
        Column(f"value\n{quantity.unit}", attrgetter("value"), unit),
        Column("peers", attrgetter("peers"), unit),
        Column("speed over\nits peers", attrgetter("ratio"), RATIO),
        Column("values", lambda f: f"{f.pairs} of {f.pairs + f.peer_pairs}", NUMBER, 5),
        Column("check", partial(what_to_check, matrix, plan.device), TEXT, 8, is_wrapped=True),
    )
    pairs = (
        Column("from rank", lambda row: name_rank(matrix, row[0][0]), TEXT),
        Column("to rank", lambda row: name_rank(matrix, row[0][1]), TEXT, 8),
        Column(f"value\n{quantity.unit}", itemgetter(1), unit),
        Column("95 %\ninterval", itemgetter(1), interval, 5),
        Column("speed over\nthe median", itemgetter(2), RATIO, 7),
    )
    blocks: list[Block] = [
        Text(f"{format_count(number, 'pair')}{ways}{at_once} ({matrix.title})." + several),
        Table("Slow", slow, diagnosis.findings, tone=lambda _: BAD),
        Items([*describe_unknown(matrix, diagnosis, plan.iterations or 0, crowd)]),
        Table("Slowest pairs", pairs[: 5 if number > 1 else 4], slowest_pairs(matrix)),
    ]  # fmt: skip
    if number > 1:
        blocks += [_grid(matrix, unit), *_ranks_tables(matrix, unit)]
    size = format_bytes(matrix.size_bytes)
    return Section(f"{quantity.name.capitalize()} between ranks, {size}, {quantity.unit}", blocks)


def describe_unknown(
    matrix: RankMatrix, diagnosis: Diagnosis, iterations: int, crowd: str = ""
) -> Iterator[str]:
    """Sentences: how slow a link must be to be named, and what the matrix cannot tell. `iterations`
    are those that were asked for, `crowd` is that of find_crowd."""
    limit, findings = diagnosis.link_limit, diagnosis.findings
    if limit is None:
        return
    if not findings and limit >= _NOISY:
        yield f"A single link would be named if it was more than {_times(limit)} times as slow."
    elif not findings:
        use = f"Use `--iters {max(FEWEST_ITERATIONS, 4 * iterations)}`"
        more = f"{crowd}: give each its own" if crowd else use
        only = f"only one {_times(limit)} times as slow would show"
        only = only if limit >= _UNKNOWN else "the values are too noisy"
        yield f"The links cannot be judged: {only}. {more}."
    ranks = {rank for pair in matrix.values for rank in pair}
    is_across = any(found.scope == parts.ACROSS for found in findings)
    if len(ranks) > 2 and len({matrix.hosts[rank] for rank in ranks}) == 2 and not is_across:
        yield "Of two hosts, one that is slow to the other would not show."


def what_to_check(matrix: RankMatrix, device: str, finding: Finding) -> str:
    """What to look at next, of ranks on this device; of checks.txt the text that fits best."""
    kind, scope = finding.kind, finding.scope
    if kind == parts.LINK and matrix.hosts[finding.ranks[0]] == matrix.hosts[finding.to_ranks[0]]:
        scope = parts.WITHIN
    texts = read_sections(_TEXTS)
    names = [f"{kind} {scope}", f"{kind} {finding.direction}", kind]
    on_device = [f"{name} on {device}" for name in names]
    return next(texts[name].strip() for name in (*on_device, *names, parts.HOST) if name in texts)


def name_part(matrix: RankMatrix, finding: Finding) -> str:
    """A slow part in words: `host node3 when it sends`, `the link from rank 0 to rank 5`."""
    first = finding.ranks[0]
    way = {parts.OUT: " when it sends", parts.IN: " when it receives"}.get(finding.direction, "")
    if finding.kind == parts.LINK:
        one_each = len(finding.ranks) == len(finding.to_ranks) == 1
        ends = [
            f"rank {name_rank(matrix, ranks[0])}" if one_each else f"host {matrix.hosts[ranks[0]]}"
            for ranks in (finding.ranks, finding.to_ranks)
        ]
        if finding.direction == parts.BOTH:
            return f"the link between {ends[0]} and {ends[1]}"
        return f"the link from {ends[0]} to {ends[1]}, in this direction only"
    if finding.kind == parts.RANK:
        scopes = {parts.WITHIN: " within its host", parts.ACROSS: " to other hosts"}
        scope = scopes.get(finding.scope, "") if len(set(matrix.hosts)) > 1 else ""
        return f"rank {name_rank(matrix, first)}{way}{scope}"
    host = f"host {matrix.hosts[first]}{way}"
    if finding.kind == parts.INTERFACE:
        return f"interface {matrix.interfaces[first]} of {host}"
    return f"{host} between its own ranks" if finding.scope == parts.WITHIN else host


def name_rank(matrix: RankMatrix, rank: int) -> str:
    """The rank, with its host where there are several."""
    return f"{rank} ({matrix.hosts[rank]})" if len({*matrix.hosts}) > 1 else str(rank)


def slowest_pairs(matrix: RankMatrix) -> list[tuple[Pair, Estimate | None, float]]:
    """The slowest pairs, each with its value and its speed over the median of pairs of the same
    kind: within a host or across hosts. The slowest is first; those that are faster than the median
    are left out; of two ranks both ways are there."""
    cells = matrices.make_cells(matrix)
    speeds = cells.quality.copy()
    for of_class in (cells.is_within, ~cells.is_within):
        if of_class.any():
            speeds[of_class] -= np.median(speeds[of_class])
    pairs = zip(cells.senders.tolist(), cells.receivers.tolist(), strict=True)
    rows = [
        (pair, matrix.estimate(pair), speed)
        for pair, speed in zip(pairs, np.exp(speeds).tolist(), strict=True)
    ]
    slow = [row for row in rows if row[2] <= 1 or len(rows) == 2]
    return sorted(slow, key=itemgetter(2, 0))[:MOST_PAIRS]


def _grid(matrix: RankMatrix, unit: Unit) -> Table:
    """The matrix: from the rank of a row to that of a column; without rows where it is large."""
    ranks = sorted({rank for pair in matrix.values for rank in pair})
    shown = ranks if len(ranks) <= MOST_COLUMNS else []
    columns = [Column("from \\ to", itemgetter(0), TEXT)]
    columns += [Column(str(to), itemgetter(place), unit) for place, to in enumerate(shown, 1)]
    rows = [(rank, *(matrix.estimate((rank, to)) for to in shown)) for rank in shown]
    return Table("From each rank to each rank", columns, rows)


def _ranks_tables(matrix: RankMatrix, unit: Unit) -> list[Table]:
    """The medians of what each rank sends and receives; of more than MOST_RANKS a terminal shows
    the slowest, and of many so does a file, with their distribution."""
    both = [collect((p[end], value) for p, value in matrix.values.items()) for end in (0, 1)]
    rows = [
        (rank, *(median(own[rank]) if rank in own else None for own in both))
        for rank in sorted({*both[0], *both[1]})
    ]

    def slowness(row: tuple[float | None, ...]) -> float:
        known = [*filter(None, row[1:])]
        return -min(known) if matrix.quantity.is_better_high else max(known)

    slowest = sorted(rows, key=slowness, reverse=True)
    columns = [
        Column("rank", itemgetter(0), NUMBER),
        Column("host", lambda row: matrix.hosts[row[0]], TEXT, 5),
        Column("interface", lambda row: matrix.interfaces and matrix.interfaces[row[0]], TEXT, 3),
        Column("median\nto others", itemgetter(1), unit, 8),
        Column("median\nfrom others", itemgetter(2), unit, 8),
    ]
    is_told = MOST_RANKS < len(rows) <= MOST_LISTED
    more = f"; a terminal shows the {MOST_RANKS} slowest" if is_told else ""
    shown = columns if matrix.quantity.has_direction else columns[:4]
    table = Table(f"Medians of each rank{more}", shown, rows, brief=sorted(slowest[:MOST_RANKS]))
    return summarise(table, slowness, shown[3:], "ranks")


def pairs_files(run: Run) -> dict[str, str]:
    """The CSV files of a run by their names: pairs.csv with a line for each ordered pair, and for
    each quantity of up to MOST_SQUARE ranks a square: a line for each rank that sends, a column for
    each that receives."""
    if not (main := matrices.main_matrices(matrices.matrices_of_rounds(run))):
        return {}
    both = [{m.quantity: m for m in main}.get(quantity) for quantity in (LATENCY, BANDWIDTH)]
    sizes, hosts = [matrix and matrix.size_bytes for matrix in both], main[0].hosts
    lines: list[tuple[Any, ...]] = [HEADINGS]
    for pair in sorted({pair for matrix in main for pair in matrix.values}):
        found = [_written(matrix, pair) for matrix in both]
        values, ends = [own[0] for own in found], [end for own in found for end in own[1:]]
        lines.append((*pair, *(hosts[rank] for rank in pair), *values, *sizes, *ends))
    files = {"pairs.csv": make_csv(lines)}
    for matrix in main if main[0].ranks <= MOST_SQUARE else ():
        ranks = range(matrix.ranks)
        square = [[first, *(_written(matrix, (first, to))[0] for to in ranks)] for first in ranks]
        files[f"{matrix.quantity.name}.csv"] = make_csv([[matrix.quantity.unit, *ranks], *square])
    return files


def _written(matrix: RankMatrix | None, pair: Pair) -> list[str | None]:
    """The value of a pair and the ends of its interval in the unit of its quantity; None for what
    is not known."""
    found = (matrix and matrix.estimate(pair)) or (None, None, None)
    scale = matrix.quantity.scale if matrix else 1.0
    return [None if each is None else f"{each / scale:.6g}" for each in found]


def pairs_json(run: Run) -> list[dict[str, Any]]:
    """The values of pairs in seconds and bytes/s, of up to MOST_IN_JSON ranks."""
    return [
        {"from": pair[0], "to": pair[1], "quantity": matrix.quantity.name,
         "size_bytes": matrix.size_bytes, "value": matrix.estimate(pair)}
        for matrix in matrices.matrices_of_rounds(run) if matrix.ranks <= MOST_IN_JSON
        for pair in sorted(matrix.values)
    ]  # fmt: skip
