"""COLUMNS: the table of the columns of results.csv, and their values for a row."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache, partial
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import find_causes
from commbench.analysis.figures import worst_numerics
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import cover_launches
from commbench.plan.backends import usual_launch_spread
from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS
from commbench.results.samples import without_samples
from commbench.results.schema import RunHeader, is_imported
from commbench.stats import Estimate, known
from commbench.units import GB, MICRO, format_known_time, scaled
from commbench.validation import by_name

TEXT, INTEGER, NUMBER = "text", "integer", "number"


class Column(NamedTuple):
    """One column."""

    name: str
    value: Callable[[ResultRow], Any]
    """Its value for a row, in SI units; None for a number that was not measured."""
    kind: str = NUMBER
    """TEXT (empty for no value), INTEGER, or NUMBER (written with seven digits)."""
    unit: float = 1.0
    """The number is divided by this."""
    is_signed: bool = False
    """Whether it may be below zero."""

    @property
    def field(self) -> str:
        """The field of a row that holds it, in SI units: `time_s`, `busbw_bytes_per_s`."""
        return _SI.sub(lambda found: _SI_NAMES[found[0]], self.name)

    def of_row(self, row: ResultRow) -> Any:
        """Its value for a row, with the digits that results.csv keeps: rows that are read from
        there are the same."""
        value = self.as_written(self.value(row))
        return value if value is None or self.unit == 1 else value * self.unit

    def as_written(self, value: Any) -> Any:
        """A value as it is in results.csv: in the column's unit and with seven digits."""
        return scaled(value, self.unit) if self.kind == NUMBER else value


_SI_NAMES = {"_us": "_s", "_GBps": "_bytes_per_s"}
_SI = re.compile("_us$|_GBps$")


def _of_time(name: str, field: str) -> Column:
    """A field of the row's Summary, in microseconds."""
    return Column(name, lambda row: getattr(row.time, field, None), NUMBER, MICRO)


def _of_estimate(name: str, find: Callable[[ResultRow], Any], unit: float = 1.0) -> list[Column]:
    """A figure of the row that is an Estimate, and the ends of its interval."""

    def part_of(row: ResultRow, part: str) -> float | None:
        return getattr(find(row), part, None)

    suffix = {1.0: "", MICRO: "_us", GB: "_GBps"}[unit]
    return [
        Column(f"{name}{end}{suffix}", partial(part_of, part=part), unit=unit)
        for part, end in (("value", ""), ("low", "_ci_low"), ("high", "_ci_high"))
    ]


def _of_overlap(name: str, field: str, unit: float = 1.0) -> list[Column]:
    """A figure of the row's Overlap."""
    found = _of_estimate(name, lambda row: getattr(row.overlap, field, None), unit)
    return [column._replace(is_signed=True) for column in found]


def known_nodes(header: RunHeader) -> int | None:
    """How many hosts there are; None where another tool's file names none."""
    return header.num_nodes if header.hosts or not is_imported(header) else None


def _counted(row: ResultRow, number: int | None) -> int | None:
    """A number, 0 for none; None for what another tool's file does not say."""
    return number or (None if is_imported(row.header) else 0)


def _work(row: ResultRow) -> str:
    """What an iteration computes; of several launches the last."""
    return next((batch.work for batch in reversed(without_samples(row.measurement.batches))), "")


def _wire_bytes(row: ResultRow) -> int | None:
    """Bytes that a rank sends, of a row with numerics."""
    sent = row.case.wire_bytes if row.measurement.numerics else None
    return None if sent is None else round(sent)


def _of_errors(name: str) -> Column:
    """The column of a figure of Numerics; it is None where no element was compared."""

    def find(row: ResultRow) -> float | None:
        found = worst_numerics(row.measurement.numerics)
        return getattr(found, name) if found and found.elements > found.not_finite else None

    return Column(name, find, is_signed=name in ("sqnr_db", "bias"))


def _same_bits(row: ResultRow) -> int | None:
    """1 where all ranks have the same bits, 0 where not; None where they have other elements."""
    found = worst_numerics(row.measurement.numerics)
    return None if found is None or found.same_on_ranks is None else int(found.same_on_ranks)


_DIMENSIONS = by_name(
    *(
        Column(d.field, attrgetter(f"case.{d.field}"), INTEGER if d.is_integer else TEXT)
        for d in DIMENSIONS
    )
)
_FORM_RATIO = _of_estimate("form_ratio", attrgetter("form_ratio"))
_INTERFERENCE = _of_estimate(
    "interference", lambda row: row.group_interference.get(row.worst_group)
)
"""Of the slowest group."""

_LATER = ("step", "variant", "call")
"""Dimensions whose columns came after others."""
COLUMNS: dict[str, Column] = by_name(
    Column("label", lambda row: row.header.label, TEXT),
    _DIMENSIONS["operation"],
    Column("backend", lambda row: row.header.plan.backend, TEXT),
    Column("device", lambda row: row.header.plan.device, TEXT),
    Column("world_size", lambda row: row.header.plan.world_size, INTEGER),
    Column("num_nodes", lambda row: known_nodes(row.header), INTEGER),
    _DIMENSIONS["dtype"],
    _DIMENSIONS["reduce_op"],
    _DIMENSIONS["root"],
    _DIMENSIONS["placement"],
    _DIMENSIONS["timing"],
    Column("cpu_mode", lambda row: row.header.plan.cpu_mode, TEXT),
    _DIMENSIONS["size_bytes"],
    Column("count", lambda row: row.case.count, INTEGER),
    Column("iterations", lambda row: _counted(row, row.time and row.time.iterations), INTEGER),
    Column("stop_reason", lambda row: row.stop_reason, TEXT),
    *_of_estimate("time", lambda row: row.time and row.time.estimate, MICRO),
    _of_time("time_min_us", "minimum"),
    _of_time("time_mean_us", "mean"),
    _of_time("time_p95_us", "p95"),
    _of_time("time_p99_us", "p99"),
    _of_time("time_max_us", "maximum"),
    Column("algbw_GBps", lambda row: row.algbw, unit=GB),
    *_of_estimate("busbw", attrgetter("known_busbw"), GB),
    Column("entry_skew_us", lambda row: row.interference.entry_skew_s, unit=MICRO),
    Column("slowest_rank", lambda row: row.slowest_rank, INTEGER),
    Column("wrong", lambda row: row.measurement.wrong, INTEGER),
    Column("status", lambda row: row.measurement.status, TEXT),
    Column("gpu_shared", lambda row: _counted(row, int(row.header.gpu_shared)), INTEGER),
    Column("calls", lambda row: row.interference.calls, INTEGER),
    Column(
        "batches", lambda row: _counted(row, row.time and len(row.measurement.batches)), INTEGER
    ),
    Column("launches", lambda row: _counted(row, len(row.launch_medians)), INTEGER),
    Column("launch_min_us", lambda row: min(row.launch_medians, default=None), unit=MICRO),
    Column("launch_max_us", lambda row: max(row.launch_medians, default=None), unit=MICRO),
    Column("operation_us", lambda row: row.time and row.interference.operation_s, unit=MICRO),
    Column("stalled_share", lambda row: row.interference.stalled_share),
    Column("queued_share", lambda row: row.queued_share),
    Column("switches_per_iteration", lambda row: row.interference.switches_per_iteration),
    Column("warnings", lambda row: " ".join(d.name for d in find_causes(row)), TEXT),
    *_of_estimate("time_p5", lambda row: row.time and row.time.p5, MICRO),
    *(column for name, column in _DIMENSIONS.items() if name not in _LATER),
    Column("messages_per_s", lambda row: row.messages_per_s),
    Column("aggregate_GBps", lambda row: row.aggregate_bandwidth, unit=GB),
    Column("num_tensors", lambda row: row.case.num_tensors, INTEGER),
    _FORM_RATIO[0],
    Column("nccl_algorithm", lambda row: row.nccl_selection[0], TEXT),
    Column("nccl_protocol", lambda row: row.nccl_selection[1], TEXT),
    Column("nccl_channels", lambda row: row.nccl_selection[2], TEXT),
    Column("group_size", lambda row: row.case.ranks, INTEGER),
    Column("groups", lambda row: len(row.header.plan.groups_of(row.case)), INTEGER),
    Column("worst_group", lambda row: row.worst_group, TEXT),
    _INTERFERENCE[0],
    Column("sent_max_over_mean", lambda row: row.case.load and row.case.load.sent),
    Column("received_max_over_mean", lambda row: row.case.load and row.case.load.received),
    Column("worst_rank", lambda row: row.case.load and row.case.load.worst_rank, INTEGER),
    Column("logical_GBps", lambda row: row.logical_bandwidth, unit=GB),
    Column("wire_GBps", lambda row: row.busbw if row.case.load else None, unit=GB),
    *_of_overlap("hidden_share", "hidden"),
    *_of_overlap("computation_slowdown", "computation_slowdown"),
    *_of_overlap("communication_slowdown", "communication_slowdown"),
    *_of_overlap("overlap_gain", "gain"),
    *_of_overlap("computation_at_once", "computation_s", MICRO),
    *_of_overlap("communication_at_once", "communication_s", MICRO),
    Column("imb_overlap", lambda row: row.overlap and row.overlap.imb_hidden, is_signed=True),
    Column("osu_overlap", lambda row: row.overlap and row.overlap.osu_hidden, is_signed=True),
    Column("work", _work, TEXT),
    Column("group_bytes", lambda row: row.group_bytes, INTEGER),
    *_INTERFERENCE[1:],
    *(_DIMENSIONS[name] for name in _LATER),
    Column("wire_bytes", _wire_bytes, INTEGER),
    *map(_of_errors, ("rms_relative_error", "max_abs_error", "max_ulp", "sqnr_db", "bias")),
    Column("same_bits", _same_bits, INTEGER),
    *_FORM_RATIO[1:],
)
"""New columns are appended. No column is renamed without a new schema."""

TEXTS = frozenset(column.name for column in COLUMNS.values() if column.kind == TEXT)
INTEGERS = frozenset(column.name for column in COLUMNS.values() if column.kind == INTEGER)
KEY = tuple(_DIMENSIONS)
"""Rows of two files measure the same case if these columns are equal."""
DEFAULTS = {name: Case._field_defaults[name] for name in KEY if name in Case._field_defaults}
"""The values of KEY columns that an older file lacks."""
UNDISTURBED_TIMES = ("time_p5_us", "time_p5_ci_low_us", "time_p5_ci_high_us")
"""The time of undisturbed calls, and the ends of its interval."""
TIMES = ("time_us", "time_ci_low_us", "time_ci_high_us")
FEW = ("backend", "launches", "iterations", "time_min_us", "time_max_us")
"""What the interval of few samples needs; see Row.time."""
NEEDED = (*(name for name in KEY if name not in DEFAULTS), *TIMES, "status")
"""What a results.csv must have. Older files may lack other columns."""


class Row:
    """What the named tuples of columns have in common. Their fields are in SI units."""

    __slots__ = ()

    def __reduce__(self: Any) -> Any:
        return make_row, (self.columns, tuple(self))

    def __repr__(self: Any) -> str:
        if {*KEY, *TIMES}.difference(self.columns):
            return tuple.__repr__(self)
        if self.time is None:
            return f"<Row: {self.case.name}: {self.status}>"
        took, interval = format_known_time(self.time_s, self.time_ci_low_s, self.time_ci_high_s)
        return f"<Row: {self.case.name}: {took}{f' ({interval})' if interval else ''}>"

    @property
    def case(self) -> Case:
        """The case that the row measured, with index and count 0."""
        return Case(index=0, count=0, **{name: getattr(self, name) for name in KEY})

    @property
    def time(self: Any) -> Estimate | None:
        """The median time in seconds, with an interval also where samples are few and launches are
        known; see cover_launches."""
        found = known(self.time_s, self.time_ci_low_s, self.time_ci_high_s)
        if found is None or found.has_interval or not {*FEW}.issubset(self.columns):
            return found
        return cover_launches(
            found, self.launches or 0, usual_launch_spread(self.backend),
            self.iterations or 0, self.time_min_s, self.time_max_s,
        )  # fmt: skip

    @property
    def undisturbed(self: Any) -> Estimate | None:
        """The time of undisturbed calls in seconds: the 5th percentile."""
        return known(self.time_p5_s, self.time_p5_ci_low_s, self.time_p5_ci_high_s)

    @property
    def busbw(self: Any) -> Estimate | None:
        """The bus bandwidth in bytes/s, with the interval that follows from that of the time."""
        return _inverse(self.busbw_bytes_per_s, self.time)

    @property
    def algbw(self: Any) -> Estimate | None:
        """The algorithm bandwidth in the same way."""
        return _inverse(self.algbw_bytes_per_s, self.time)


def _inverse(bandwidth: float | None, time: Estimate | None) -> Estimate | None:
    if bandwidth is None or time is None:
        return known(bandwidth)
    return time.map(lambda seconds: bandwidth * (time.value / seconds) if seconds else inf)


@cache
def row_type(columns: tuple[str, ...]) -> Any:
    """The type of a row of these columns, a named tuple; None: a number that was not measured."""
    fields: Any = namedtuple("Fields", [COLUMNS[name].field for name in columns])  # type: ignore[misc]
    return type("RowOfColumns", (Row, fields), {"__slots__": (), "columns": columns})


def make_row(columns: tuple[str, ...], values: Iterable[Any]) -> Any:
    """A row of these columns."""
    return row_type(columns)(*values)


def row_values(row: ResultRow, columns: Collection[str] = COLUMNS) -> list[Any]:
    """The values of a row for these columns, in SI units."""
    return [COLUMNS[name].of_row(row) for name in columns]


def written_values(values: Iterable[Any], columns: Collection[str] = COLUMNS) -> Iterator[Any]:
    """The values of these columns of a row as they are in results.csv."""
    return (COLUMNS[name].as_written(value) for name, value in zip(columns, values, strict=True))
