"""What a run found out about its numbers: errors, bits that differ, and when compressing pays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis import figures
from commbench.analysis.diagnostics import has_waited
from commbench.analysis.row_names import short_titles
from commbench.analysis.rows import WAYS, ResultRow
from commbench.answers.show.formats import meanings
from commbench.answers.show.shapes import HAS_WAITED
from commbench.output.text import join_words
from commbench.plan.case import Case
from commbench.results.records import Numerics
from commbench.results.schema import Measurement
from commbench.stats import FASTER, TOLERANCE, UNDECIDED, Estimate, collect, decide
from commbench.units import format_bytes, format_count
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import Block, Facts, Folded, Items, Table
from commbench.views.formats import fields_of

GBIT = 1e9 / 8
REPEATS = "each repeats itself"
MOST_SENTENCES = 4
"""Of compressed forms in the answer; more are below their table."""
FEW = 3
"""Ways to one result of which every two are compared; of more, each with the first."""
_WAY = (*WAYS, "placement")


class NumericsRow(NamedTuple):
    """The numbers of a case, in SI units."""

    case: Case
    found: Numerics
    between_launches: figures.Difference | None
    """The largest difference of a launch from the first."""
    wire_bytes: float | None
    """Bytes that a rank sends."""
    plain_wire_bytes: float | None
    """Bytes that a rank sends in the direct call."""
    time_ratio: Estimate | None
    """Its time over that of the direct call."""
    codec: Estimate | None
    """Seconds of encoding, adding and decoding."""
    pays_below: Estimate | None
    """The speed of a link, in bytes per second, below which it is faster than the direct call."""
    has_waited: bool = False
    """Whether ranks waited for a core in one of the two: then it is undecided which is faster."""

    @property
    def verdict(self) -> str:
        """Whether it is faster than the direct call."""
        return UNDECIDED if self.has_waited else decide(self.time_ratio, TOLERANCE)

    @property
    def has_errors(self) -> bool:
        """Whether elements were compared with exact ones."""
        return self.found.elements > self.found.not_finite

    def as_json(self) -> dict[str, Any]:
        """Its figures; not the sampled bits."""
        own = fields_of(self.found, without=("sample", "codec_s"))
        return {"case": self.case.name, **own, **fields_of(self, without=("case", "found"))}


class Unlike(NamedTuple):
    """Two ways to one result whose bits differ, or not."""

    call: str
    a: str
    b: str
    difference: figures.Difference


@dataclass(frozen=True)
class NumericsResult:
    """The numbers of a run."""

    rows: tuple[NumericsRow, ...]
    measured: tuple[Measurement, ...]

    @property
    def unlike(self) -> tuple[Unlike, ...]:
        """How the ways to each result differ, that are not compressed."""
        return tuple(one for call, ways in self.ways for one in compare_ways(call, ways))

    @property
    def ways(self) -> Iterator[tuple[str, dict[str, Measurement]]]:
        """Each call, with the ways to its result."""
        exact = (found for found in self.measured if not found.case.call_form.compression)
        calls = collect((found.case.key(*_WAY), found) for found in exact)
        titles = short_titles({key: own[0].case for key, own in calls.items()}, _WAY)
        for key, own in calls.items():
            is_one_place = len({found.case.placement for found in own}) == 1
            name = f"{titles[key]} {format_bytes(own[0].case.size_bytes)}"
            yield name, {_way(found.case, is_one_place): found for found in own}

    def as_json(self) -> dict[str, Any]:
        """Its rows, and how the ways to each result differ."""
        return {"rows": self.rows, "differences": self.unlike}


def _way(case: Case, is_one_place: bool) -> str:
    name = case.call or case.form
    return name if is_one_place else f"{name} {case.placement}"


def find_numerics(rows: Sequence[ResultRow]) -> NumericsResult:
    """The numbers of the rows that have any, by kind and size."""
    measured = [row for row in rows if row.measurement.numerics]
    measured.sort(key=lambda row: row.case.size_bytes)
    kinds = [*dict.fromkeys(row.case.title for row in rows)]
    by_kind = sorted(measured, key=lambda row: kinds.index(row.case.title))
    return NumericsResult(tuple(map(_row, by_kind)), tuple(row.measurement for row in measured))


def _row(row: ResultRow) -> NumericsRow:
    measurement, case = row.measurement, row.case
    found = figures.worst_numerics(measurement.numerics)
    assert found is not None
    waited = any(has_waited(own.queued_share) for own in (row, row.reference) if own)
    return NumericsRow(
        case, found, figures.launches_difference(measurement.numerics, case.dtype),
        case.wire_bytes, figures.plain_wire_bytes(case), row.form_ratio,
        figures.codec_time(measurement.numerics), figures.paying_speed(measurement), waited,
    )  # fmt: skip


def compare_ways(call: str, ways: Mapping[str, Measurement]) -> Iterator[Unlike]:
    """How the results of some ways, by name, differ: every two of few, or each from the first."""
    pairs = [*combinations(ways.items(), 2)]
    for (a, first), (b, second) in pairs if len(ways) <= FEW else pairs[: len(ways) - 1]:
        dtype = first.case.dtype
        if first.numerics and second.numerics and second.case.dtype == dtype:
            found = figures.find_difference(first.numerics[0], second.numerics[0], dtype)
            if found:
                yield Unlike(call, a, b, found)


def difference_text(found: figures.Difference) -> str:
    """`differ in 35 % of elements, by at most 1 ULP`."""
    if not found.share:
        return "have the same bits"
    return f"differ in {cells.SHARE.write(found.share)} of elements, by at most {found.max_ulp} ULP"


def ways_sentence(call: str, ways: Mapping[str, Measurement]) -> str:
    """How the results of some ways differ, and whether each repeats itself; empty where they are
    not comparable."""
    found = [*compare_ways(call, ways)]
    if not found:
        return ""
    texts = [f"{one.a} and {one.b} {difference_text(one.difference)}" for one in found]
    if not any(one.difference.share for one in found):
        texts = [f"{join_words([*ways])} have the same bits"]
    odd = [name for name, way in ways.items() if not all(n.repeats for n in way.numerics)]
    does = f"{join_words(odd)} {'does' if len(odd) == 1 else 'do'}" if odd else ""
    texts.append(f"{does} not repeat the same bits" if odd else REPEATS)
    for name, way in ways.items():
        apart = figures.launches_difference(way.numerics, way.case.dtype)
        if apart and apart.share:
            texts.append(f"fresh launches of {name} {difference_text(apart)}")
    return f"{call}: {'; '.join(texts)}."


def sentences(result: NumericsResult) -> list[str]:
    """What the numbers of a run say: which bits differ, and when compressing pays."""
    largest: dict[Any, str] = {}
    for call, ways in result.ways:
        if len(ways) > 1:
            case = next(iter(ways.values())).case
            largest[case.key(*_WAY, "size_bytes")] = ways_sentence(call, ways)  # sizes ascend
    found = [*filter(None, largest.values())]
    odd = [row.case.name for row in result.rows if row.found.same_on_ranks is False]
    if odd:
        more = f" and {format_count(len(odd) - 1, 'more row')}" * (len(odd) > 1)
        found.append(f"Ranks have different bits in {odd[0]}{more}.")
    elif any(row.found.same_on_ranks for row in result.rows):
        found.append("All ranks have the same bits.")
    paying = paying_sentences(result)
    return [*found, *(paying if len(paying) <= MOST_SENTENCES else ())]


def paying_sentences(result: NumericsResult) -> list[str]:
    """When each compressed form pays."""
    kinds = collect((row.case.title, row) for row in result.rows if row.codec)
    titles = short_titles({kind: rows[0].case for kind, rows in kinds.items()}, WAYS)
    return [_pays(titles[kind], rows) for kind, rows in kinds.items()]


def _pays(title: str, rows: Sequence[NumericsRow]) -> str:
    """From which size a compressed form is faster here, and on which links it would be."""
    last, here = rows[-1], "it does not pay here"
    if faster := [*takewhile(lambda row: row.verdict == FASTER, reversed(rows))]:
        here = f"it pays here from {format_bytes(faster[-1].case.size_bytes)}"
    elif last.verdict == UNDECIDED:
        here = "undecided" + HAS_WAITED * last.has_waited
    error = f" (RMS error {last.found.rms_relative_error:.2g})" if last.has_errors else ""
    what, links = f"{last.case.form} of {title}{error} at {format_bytes(last.case.size_bytes)}", ""
    takes = last.time_ratio and cells.takes_text(last.time_ratio, what, "the direct call")
    if last.pays_below:
        speed = cells.ratio_with_interval_text(last.pays_below.scaled(1 / GBIT))
        links = f"; it pays on links slower than {speed} Gbit/s"
    return f"{takes or f'{what}: '}{here}{links}."


def _error(name: str) -> Any:
    return lambda row: getattr(row.found, name) if row.has_errors else None


def _is_true(name: str) -> Any:
    words = {True: "yes", False: "no", None: ""}
    return lambda row: words[getattr(row.found, name)]


_THREE = cells.Unit("{:.3g}".format)
_SPEED = cells.Unit(lambda found: cells.ratio_text(found.scaled(1 / GBIT)))
_SPEEDS = cells.Unit(lambda found: cells.ratio_interval_text(found.scaled(1 / GBIT)))
ERROR_COLUMNS = (
    cells.SIZE,
    Column("RMS\nerror", _error("rms_relative_error"), _THREE),
    Column("largest\nerror", _error("max_abs_error"), _THREE, 6),
    Column("largest\nULP", _error("max_ulp"), _THREE, 6),
    Column("SQNR\ndB", _error("sqnr_db"), cells.Unit("{:.1f}".format), 7),
    Column("bias", _error("bias"), cells.Unit("{:.1e}".format), 4),
    Column("not\nfinite", lambda row: row.found.not_finite or None, cells.NUMBER),
    Column("same\nbits", _is_true("same_on_ranks"), cells.TEXT),
    Column("repeats", _is_true("repeats"), cells.TEXT),
    Column(
        "launches\ndiffer in", lambda r: getattr(r.between_launches, "share", None), cells.SHARE, 5
    ),
)
PAYING_COLUMNS = (
    cells.SIZE,
    Column("bytes sent\nof direct", lambda row: row.wire_bytes / row.plain_wire_bytes, cells.RATIO),
    Column("time over\ndirect", attrgetter("time_ratio"), cells.RATIO),
    Column("95 %\ninterval", attrgetter("time_ratio"), cells.RATIO_INTERVAL, 6),
    Column("encoding,\ndecoding", attrgetter("codec"), cells.TIME),
    Column("pays below\nGbit/s", attrgetter("pays_below"), _SPEED),
    Column("95 %\ninterval ", attrgetter("pays_below"), _SPEEDS, 6),
)


def blocks(result: NumericsResult) -> list[Block]:
    """The tables of the errors, and of when compressing pays."""
    if not (rows := result.rows):
        return []
    titles = short_titles({row.case.title: row.case for row in rows})
    paying = [row for row in rows if row.codec and row.plain_wire_bytes]
    title = f"Numerics: {rows[0].found.data} data"
    return [
        Table(title, ERROR_COLUMNS, rows, lambda row: titles[row.case.title]),
        Table("Compressed forms", PAYING_COLUMNS, paying, lambda row: titles[row.case.title]),
        Items(told if len(told := paying_sentences(result)) > MOST_SENTENCES else ()),
        Folded("What the columns of numerics mean", [Facts(meanings("numerics"))]),
    ]


def bits_items(pairs: Iterable[tuple[Measurement, Measurement]], a: str, b: str) -> Items:
    """How the bits of two runs differ: the row in which they do most."""
    found = [
        (one.difference, first.case.name)
        for first, second in pairs
        for one in compare_ways("", {a: first, b: second})
    ]
    if not found:
        return Items(())
    most, where = max(found)
    text = f"{a} and {b} {difference_text(most)}"
    every = f" in all {format_count(len(found), 'row')}" if len(found) > 1 else ""
    return Items([f"{text} of the result{f' of {where}' if most.share else every}."])
