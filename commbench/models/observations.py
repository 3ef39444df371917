"""The measured times that models are fitted to: of runs, and of tables of published figures.

Calls of one operation that differ in more than size and ranks, as in the element type, are fitted
apart: each such variant is named by what its calls have and others do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, log
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.load import LoadedRun
from commbench.analysis.statistics import Z
from commbench.errors import UsageError
from commbench.importers.hints import ImportHints
from commbench.models.cost_models import ACROSS, kind_of
from commbench.models.machine import Point
from commbench.output.paragraphs import list_some
from commbench.results.schema import OK, RunHeader, is_imported
from commbench.spec.dimensions import DIMENSIONS, GROUP_FIELDS
from commbench.spec.groups import ALONE
from commbench.units import LARGEST_SIZE, format_count, parse_size

_FIXED = ("operation", "root", "placement", "size_bytes", "group", "group_ranks")
"""Dimensions that make no variant. A root is any rank; the same bytes travel in place and out of
place; groups differ in ranks and hosts."""
_VARYING = tuple(d for d in DIMENSIONS if d.field not in _FIXED)


_DTYPE = next(index for index, d in enumerate(_VARYING) if d.field == "dtype")


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
    def kind(self) -> str:
        """WITHIN or ACROSS."""
        return kind_of(self.point.world_size, self.point.ranks_per_node)

    @property
    def dtype(self) -> str:
        """The element type; empty for an operation without data, and of a table."""
        return self.words[_DTYPE] if self.words else ""


class LeaveOut(NamedTuple):
    """Which measurements a model is fitted without, to see how well it predicts them."""

    field: str
    """`world_size` or `size_bytes`."""
    low: int
    high: int

    def covers(self, point: Point) -> bool:
        """Whether the point is left out."""
        return bool(self.low <= getattr(point, self.field) <= self.high)


_LEFT_OUT = {"ranks": "world_size", "sizes": "size_bytes"}
_LEAVE_OUT_HINT = "write ranks=512, ranks=512-, sizes=1M-64M or sizes=-4K"


def parse_leave_out(text: str) -> list[LeaveOut]:
    """What `ranks=512`, `ranks=6-8`, `sizes=1M-,64K` leave out. Raises UsageError for anything
    else."""
    name, _, values = text.partition("=")
    if name.strip() not in _LEFT_OUT or not values.strip():
        raise UsageError(f"--leave-out {text!r} says neither ranks nor sizes", _LEAVE_OUT_HINT)
    field = _LEFT_OUT[name.strip()]
    return [_parse_range(field, value.strip(), text) for value in values.split(",")]


def _parse_range(field: str, value: str, text: str) -> LeaveOut:
    low, dash, high = (part.strip() for part in value.partition("-"))
    if not low and not high:
        raise UsageError(f"--leave-out {text!r} has an empty range", _LEAVE_OUT_HINT)
    first = parse_size(low) if low else 0
    last = parse_size(high) if high else LARGEST_SIZE if dash else first
    if first > last:
        raise UsageError(f"--leave-out {text!r}: the range is reversed", f"write {high}-{low}")
    return LeaveOut(field, first, last)


def observe(run: LoadedRun, ranks_per_node: int | None, notes: list[str]) -> list[Observation]:
    """The times of a run. `ranks_per_node` is for files that do not name the hosts. Adds to `notes`
    which rows are not used, and why."""
    unused: Counter[str] = Counter()
    found = []
    for index, row in enumerate(run.rows):
        if why := _why_unused(row):
            unused[why] += 1
            continue
        shape = _shape(run, index, row, ranks_per_node)
        if shape is None:
            unused["of groups whose hosts are not known"] += 1
        elif shape[0] < 2:
            unused["of one rank"] += 1
        else:
            selected, channels = _selection(run.header, row)
            known = uncertainty(*row.time)
            time_s = row.time_s
            point = Point(*shape, row.size_bytes, time_s, channels=channels, uncertainty=known)
            found.append(Observation(row.operation, point, (*_words(row), selected)))
    for why, number in unused.items():
        notes.append(f"{run.name}: {format_count(number, 'row')} not used: {why}.")
    header = run.header
    if found and ranks_per_node is None and header and is_imported(header) and not header.hosts:
        notes.append(
            f"{run.name} does not name its hosts: its ranks count as those of "
            f"{format_count(header.num_nodes, 'host')}; --ranks-per-node says how many one has."
        )
    return found


def uncertainty(time: float, low: float | None, high: float | None) -> float:
    """The standard deviation of log(time) by the wider side of a 95 % interval; 0 without one."""
    return max(log(time / low), log(high / time), 0.0) / Z if low and high else 0.0


def _why_unused(row: Any) -> str:
    if row.status != OK or not row.time_s:
        return "without a valid time"
    if row.step:
        return "steps of a workload, which are no single calls"
    if row.overlap:
        return "with a computation beside the call"
    return "of ranks that share a GPU" if row.gpu_shared else ""


def _shape(
    run: LoadedRun, index: int, row: Any, ranks_per_node: int | None
) -> tuple[int, int] | None:
    """How many ranks the group of a row has, and how many of them at most are on one host; None
    where that is not known."""
    header = run.header
    ranks = row.world_size
    if not ranks or not row.num_nodes:
        return None
    if run.run is None or header is None or not header.ranks:
        if row.group:
            return None
        most = ranks_per_node or ceil(ranks / row.num_nodes)
        return ranks, min(ranks, most)
    case = run.run.measurements[index].case
    groups = header.plan.groups_of(case) if case.group else (tuple(range(ranks)),)
    largest = max(map(len, groups))
    return largest, max(_most_on_a_host(header, group) for group in groups)


def _most_on_a_host(header: RunHeader, ranks: Iterable[int]) -> int:
    hosts = {rank.rank: rank.host for rank in header.ranks}
    return max(Counter(hosts.get(rank, "") for rank in ranks).values())


def _words(row: Any) -> tuple[str, ...]:
    """A word for each dimension of VARYING. All ranks as one group call alone."""
    words = []
    for dimension in _VARYING:
        value = getattr(row, dimension.field)
        if dimension.field in GROUP_FIELDS:
            value = value or ALONE
        words.append("" if value is None else str(value))
    return tuple(words)


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


def choose_observations(
    observations: Sequence[Observation], chosen: ImportHints
) -> list[Observation]:
    """The observations of the operation, the element type and the number of ranks in `chosen`; None
    chooses all. Those without an element type are of every one. UsageError where nothing remains.
    """
    found = list(observations)
    for option, value, name in (
        ("--op", chosen.operation, "operation"),
        ("--dtype", chosen.dtype, "dtype"),
        ("--ranks", chosen.ranks, "point.world_size"),
    ):
        value_of = attrgetter(name)
        known = sorted({value_of(each) for each in found} - {""})
        if value is not None:
            found = [each for each in found if value_of(each) in ("", value)]
        if known and not found:
            names = list_some([str(each) for each in known], 10)
            raise UsageError(f"no measured time has {option} {value}", f"measured: {names}")
    return found


def mark_left_out(
    observations: Sequence[Observation], leave_out: Sequence[LeaveOut]
) -> list[Observation]:
    """The observations, with those marked that are left out. UsageError where nothing is, or where
    nothing remains."""
    marked = [
        each._replace(
            point=each.point._replace(
                is_left_out=any(part.covers(each.point) for part in leave_out)
            )
        )
        for each in observations
    ]
    for part in leave_out:
        if not any(part.covers(each.point) for each in marked):
            raise UsageError(f"--leave-out: no measurement has {_describe(part)}", _LEAVE_OUT_HINT)
    if all(each.point.is_left_out for each in marked):
        raise UsageError("--leave-out leaves nothing to fit", "leave out fewer ranks or sizes")
    return marked


def _describe(part: LeaveOut) -> str:
    word = {field: name for name, field in _LEFT_OUT.items()}[part.field]
    one = part.low == part.high
    return f"{word} of {part.low}" if one else f"{word} from {part.low} to {part.high}"


def group_observations(
    observations: Sequence[Observation],
) -> dict[tuple[str, str, str], list[Point]]:
    """The points that one model is fitted to, in ascending order, by operation, kind of group and
    variant."""
    by_kind: dict[tuple[str, str], list[Observation]] = {}
    for each in observations:
        by_kind.setdefault((each.operation, each.kind), []).append(each)
    found: dict[tuple[str, str, str], list[Point]] = {}
    for (operation, kind), several in by_kind.items():
        differing = _differing({each.words for each in several if each.words})
        hosts = _ranks_per_node_apart([each.point for each in several]) if kind == ACROSS else ()
        for each in several:
            words = [each.words[index] for index in differing if each.words and each.words[index]]
            if each.point.ranks_per_node in hosts:
                words.append(f"{format_count(each.point.ranks_per_node, 'rank')} {PER_HOST}")
            found.setdefault((operation, kind, ", ".join(words)), []).append(each.point)
    return {key: sorted(points) for key, points in found.items()}


def _differing(variants: set[tuple[str, ...]]) -> list[int]:
    """The places at which the words differ."""
    columns = zip(*variants, strict=True)
    return [index for index, column in enumerate(columns) if len(set(column)) > 1]


def _ranks_per_node_apart(points: Sequence[Point]) -> set[int]:
    """The numbers of ranks per host that are fitted apart, because each was measured with several
    numbers of ranks; empty where one model has to do for all of them."""
    by_number: dict[int, set[int]] = {}
    for point in points:
        by_number.setdefault(point.ranks_per_node, set()).add(point.world_size)
    several = len(by_number) > 1 and all(len(ranks) > 1 for ranks in by_number.values())
    return set(by_number) if several else set()
