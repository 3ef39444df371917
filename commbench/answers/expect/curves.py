"""Are the times of a run those of a sound machine? Each row against published curves.

A curve has the times of one operation on one host, calls back to back: of `data/curves.csv`, or of
a run of the user's own. Of several versions of NCCL the geometric mean counts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from commbench.analysis import environment, figures, load
from commbench.answers.expect.bound import Call
from commbench.answers.expect.expectation import Expectation, Figure, nearest
from commbench.errors import UsageError
from commbench.output.text import join_words, span
from commbench.plan.backends import DEFAULT_MEMORY
from commbench.plan.dimensions import EAGER, PIPELINED
from commbench.plan.dtypes import DTYPES
from commbench.plan.links import Published, find_gpu
from commbench.readers.lines import is_curves, read_points
from commbench.readers.source import read_source
from commbench.results import files, schema
from commbench.stats import FASTER, NOT_MEASURED, SLOWER, Estimate, collect, combine_ratio, decide
from commbench.units import MICRO, format_bytes, format_count
from commbench.views.formats import Result, fields_of

PUBLISHED = "published:"
"""Begins the name of a system whose curves are meant, where a run may be given."""
LARGE = 16 << 20
TOLERANCES = ((LARGE, 0.10), (1 << 20, 0.20), (0, 0.40))
"""From each size on: how far a sound machine may be from its curve. They follow from the
differences within `data/curves.csv`. Of the versions of NCCL on the H100, each against the others,
97 to 98 % of the rows from 1 MiB on are within, and 91 to 96 % below; of H100 and H200, B200 and
B300, GB200 and GB300 95 to 100 %. No row of the A100 from 16 MiB on is within those of the H100."""
NO_GPU = "it names no GPU that commbench knows"
CURVES = "curves"
"""How a figure of theirs was measured."""
ADD_HINT = "add the GPU to commbench/data/gpus.csv"
_ROUNDING = 1e-6
_MANY = 0.1
"""Sound machines have fewer rows that are slow, or too fast to be true."""


class Curve(NamedTuple):
    """The times of one operation on one host."""

    system: str
    """The name of a system, or of its accelerator as the driver has it."""
    nccl: str
    """The version of NCCL; empty where it is not known."""
    operation: str
    dtype: str
    ranks: int
    source: str
    timing: str
    is_own: bool
    """Whether it is the user's own; then it counts instead of those that others published."""
    points: tuple[tuple[int, float], ...]
    """Sizes in bytes, ascending, with their times in seconds."""

    def time_at(self, size_bytes: int) -> float | None:
        """The time at a size, by a straight line between the logarithms of sizes and times; None
        beyond the ends of the curve."""
        return figures.interpolate(self.points, size_bytes)


class RowOnCurve(NamedTuple):
    """A row of a run beside the curves of its machine."""

    row: Any
    """Of results."""
    curves: tuple[Curve, ...] = ()
    """Those that it was compared with, or the nearest ones."""
    reason: str = ""
    """Why it cannot be compared."""
    ratio: Estimate | None = None
    """Its time over that of the curves; None where they cannot be compared."""
    tolerance: float = 0.0

    @property
    def case(self) -> Any:
        """What the row measured."""
        return self.row.case

    @property
    def known(self) -> dict[int, float]:
        """Published times of its size, by the number of ranks."""
        times = {curve.ranks: curve.time_at(self.row.size_bytes) for curve in self.curves}
        return {ranks: time for ranks, time in sorted(times.items()) if time}

    @property
    def nearest(self) -> dict[int, float]:
        """Those of the next smaller and larger numbers, where none are of its own number."""
        known, ranks = self.known, self.row.world_size
        return {} if ranks in (1, *known) else {near: known[near] for near in nearest(known, ranks)}

    @property
    def verdict(self) -> str:
        """Of stats.verdict: `same` for a sound machine, `slower`, `faster`, `undecided`, or
        `not measured` where there is nothing to compare with."""
        return decide(self.ratio, self.tolerance) if self.ratio else NOT_MEASURED

    @property
    def is_too_fast(self) -> bool:
        """Whether it is so much faster that a mistake is likely, such as in a unit: by the square
        of what a sound machine may differ."""
        most = max(self.tolerance, tolerance_at(self.row.size_bytes))
        return bool(self.ratio) and decide(self.ratio, (1 + most) ** 2 - 1) == FASTER


class RangeOnCurve(NamedTuple):
    """Consecutive sizes of a call with one verdict."""

    call: str
    """The operation and what the call has besides."""
    low_bytes: int
    high_bytes: int
    rows: int
    ratio: Estimate | None
    """The geometric mean of the ratios of the rows; None where nothing can be compared."""
    tolerance: float
    """The smallest of the rows."""
    verdict: str
    reason: str


@dataclass(frozen=True, repr=False)
class OnCurves(Result, view="answers.expect.document", rows="rows"):
    """A run beside published curves."""

    run: load.LoadedRun
    system: str
    """Its accelerator; empty where it is not known."""
    rows: tuple[RowOnCurve, ...]
    tolerance: float | None = None
    """How far from its curve a sound machine may be, where that was given."""

    @property
    def ranges(self) -> tuple[RangeOnCurve, ...]:
        """The rows by ranges of sizes."""
        return find_ranges(self.rows)

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves that rows were compared with."""
        return tuple(dict.fromkeys(c for row in self.rows if row.ratio for c in row.curves))

    @property
    def is_slow(self) -> bool:
        """Whether more is slow than single sizes here and there, as it is on sound machines."""
        slow = [each.rows for each in self.ranges if each.verdict == SLOWER]
        return sum(slow) > _MANY * len(self.rows) or max(slow, default=0) > 1

    @property
    def too_fast(self) -> tuple[RowOnCurve, ...]:
        """The rows that are too fast to be true; none where they are few."""
        found = tuple(row for row in self.rows if row.is_too_fast)
        return found if len(found) > _MANY * len(self.rows) else ()

    def as_json(self) -> dict[str, Any]:
        """The system, the ranges, the rows and the curves without their points."""
        rows = [
            {"operation": row.case.operation, "size_bytes": row.case.size_bytes,
             "ratio": row.ratio, "tolerance": row.tolerance or None, "verdict": row.verdict,
             "reason": row.reason or None} for row in self.rows
        ]  # fmt: skip
        curves = [fields_of(curve, without=("points",)) for curve in self.curves]
        own = {"run": self.run.name, "system": self.system or None, "ranges": self.ranges}
        return {**own, "rows": rows, "curves": curves}


def find_ranges(rows: Iterable[RowOnCurve]) -> tuple[RangeOnCurve, ...]:
    """The rows of each call by size, divided where verdict or reason changes, and at the sizes of
    TOLERANCES."""

    def kind(row: RowOnCurve) -> tuple[str, float, str, str]:
        return row.case.title, tolerance_at(row.case.size_bytes), row.verdict, row.reason

    ordered = sorted(rows, key=lambda row: (row.case.title, row.case.size_bytes))
    found = []
    for (title, _, verdict, reason), group in groupby(ordered, kind):
        own = list(group)
        ratios = [row.ratio for row in own if row.ratio]
        ratio = combine_ratio(lambda *each: geometric_mean(each), *ratios) if ratios else None
        ends = own[0].case.size_bytes, own[-1].case.size_bytes
        part = min(row.tolerance for row in own)
        found.append(RangeOnCurve(title, *ends, len(own), ratio, part, verdict, reason))
    return tuple(found)


def make_curves(points: Iterable[tuple[tuple[Any, ...], int, float]]) -> tuple[Curve, ...]:
    """Curves of points; each is the fields of its curve, a size (bytes) and its time (s)."""
    found = collect((key, (size, time_s)) for key, size, time_s in points)
    firsts = {key: dict(reversed(own)) for key, own in found.items()}
    return tuple(Curve._make((*key, tuple(sorted(own.items())))) for key, own in firsts.items())


@cache
def load_curves() -> tuple[Curve, ...]:
    """Every curve in `data/curves.csv`, whose sizes double."""
    text = (resources.files("commbench") / "data" / "curves.csv").read_text(encoding="utf-8")
    return make_curves(
        ((system, nccl, operation, dtype, int(ranks), source, PIPELINED, False),
         int(smallest) << number, float(time) * MICRO)
        for system, nccl, operation, dtype, ranks, smallest, times, source
        in [*csv.reader(text.splitlines())][1:]
        for number, time in enumerate(times.split())
    )  # fmt: skip


def published_of(system: str) -> tuple[Curve, ...]:
    """The curves of a system; UsageError with those that there are if it has none."""
    gpu, curves = find_gpu(system), load_curves()
    found = tuple(curve for curve in curves if gpu and find_gpu(curve.system) == gpu)
    if not found:
        if any(curve.system == system for curve in curves):
            raise UsageError(f"there are curves of {system!r:.40}, but no such GPU", ADD_HINT)
        names = dict.fromkeys(curve.system for curve in curves if find_gpu(curve.system))
        known = f"there are {join_words([*names])}"
        raise UsageError(f"no curves of {system!r:.40} were published", known)
    return found


def curves_of_call(call: Call) -> list[Curve]:
    """The published curves of a call on one host with any algorithm, at its size if it has one."""
    gpu, size = call.fabric.gpu, call.size_bytes
    return [
        curve for curve in load_curves()
        if (curve.operation, curve.ranks, 1, None)
        == (call.operation, call.ranks, call.nodes, call.algorithm)
        and gpu == find_gpu(curve.system) and (size is None or curve.time_at(size))
    ]  # fmt: skip


def expect_on_curves(found: Expectation) -> Expectation:
    """What to expect of a call by the curves that judge a run, where they have its size; else what
    was expected."""
    call, known = found.call, curves_of_call(found.call)
    if not (call.size_bytes and call.fabric.gpu and known):
        return found
    time_s, part = _mean_time(known, call.size_bytes)
    gpu, busbw = call.fabric.gpu, call.size_bytes / time_s * call.factor
    versions, size = ", ".join(sorted({each.nccl for each in known})), format_bytes(call.size_bytes)
    one = Published(
        f"{call.ranks} x {gpu.what}", call.operation, call.ranks, 1, CURVES, size, busbw,
        gpu.name, gpu.link.name, versions, (), known[0].source,
    )  # fmt: skip
    # The other figures remain, but do not count at this size.
    others = (each._replace(busbw_bytes_per_s=None) for each in found.figures)
    low, high = busbw / (1 + part), busbw * (1 + part)
    return Expectation(call, found.bound, (Figure(one, busbw), *others), low, high)


def _mean_time(curves: Sequence[Curve], size_bytes: int) -> tuple[float, float]:
    """The geometric mean of the times of curves, in seconds, and how far a sound machine may be
    from it: as far as TOLERANCES say, or as the curves are, if that is more."""
    times = sorted(curve.time_at(size_bytes) or 0.0 for curve in curves)
    time_s = geometric_mean(times)
    apart = max(times[-1] / time_s, time_s / times[0]) - 1 + _ROUNDING
    return time_s, max(tolerance_at(size_bytes), apart)


def curves_of(run: load.LoadedRun) -> tuple[Curve, ...]:
    """The curves in the rows of a run on one host; none where its accelerator is not known. Of
    several placements the first counts."""
    system, source = system_of(run), str(run.path)
    nccl = str((run.header and run.header.environment.get("nccl")) or "")
    return make_curves(
        ((system, nccl, row.operation, row.dtype, row.world_size, source, row.timing, True),
         row.size_bytes, row.time_s)
        for row in run.rows
        if system and not why_no_curve(row)
    )  # fmt: skip


def read_curves(path: Path) -> tuple[Curve, ...]:
    """The curves of the user's own in a CSV of curves; none in a file of another kind."""
    source = read_source(path) if files.is_file(path) else None
    if source is None or not is_curves(source):
        return ()
    return make_curves(
        ((p.system, p.nccl, p.operation, p.dtype, p.ranks, str(path), p.timing, True),
         p.size_bytes, p.time_s)
        for p in read_points(source)
    )  # fmt: skip


def system_of(run: load.LoadedRun) -> str:
    """The name of the accelerators of a run; empty where they are not known, or shared."""
    fabric = environment.fabric_of(run.header) if run.header else None
    return fabric.gpu.name if fabric and fabric.gpu else ""


def why_no_curve(row: Any) -> str:
    """Why a row is no point of a curve; empty if it is one."""
    if (row.num_nodes or 1) != 1:
        return "there are no curves of several hosts"
    is_plain = row.case.is_plain and (row.launch_mode, row.memory) == (EAGER, DEFAULT_MEMORY)
    is_point = is_plain and row.status == schema.OK and row.time_s
    return "" if is_point else "there are no curves of such calls"


def tolerance_at(size_bytes: int) -> float:
    """How far from its curve a sound machine may be at a size, where curves do not differ more."""
    return next(part for least, part in TOLERANCES if size_bytes >= least)


def compare_row(
    row: Any, system: str, curves: Sequence[Curve], tolerance: float | None = None
) -> RowOnCurve:
    """A row of results beside the curves of a system; `tolerance` is by default that of its size
    in TOLERANCES, or how far the curves are from their mean, if that is more."""
    if why := why_no_curve(row):
        return RowOnCurve(row, reason=why)
    if not (gpu := find_gpu(system)):
        on_cpu = row.device == "cpu"
        why = "it ran on CPUs, and curves are of GPUs" if on_cpu else f"{NO_GPU}: {ADD_HINT}"
        return RowOnCurve(row, reason=why)
    found, size = tuple(curve for curve in curves if find_gpu(curve.system) == gpu), row.size_bytes
    if not found:
        return RowOnCurve(row, reason="curves are of other accelerators")
    for of_curve, wanted, words in (
        (lambda curve: curve.operation, row.operation, "curves are of {}"),
        (lambda curve: curve.ranks, row.world_size,
         f"it has {format_count(row.world_size, 'rank')}, and curves are of {{}} ranks"),
        (lambda curve: curve.timing, row.timing, "curves are of --timing {}"),
        (lambda curve: _width(curve.dtype), _width(row.dtype),
         "curves are of elements of {} bytes"),
    ):  # fmt: skip
        left = tuple(curve for curve in found if of_curve(curve) == wanted)
        if not left:
            known = ", ".join(map(str, sorted({*map(of_curve, found)})))
            same = tuple(curve for curve in found if curve.operation == row.operation)
            return RowOnCurve(row, same, words.format(known))
        found = left
    within = tuple(curve for curve in found if curve.time_at(size))
    if not within:
        known = span(format_bytes, [size for curve in found for size, _ in curve.points])
        return RowOnCurve(row, found, f"curves are of {known}")
    within = tuple(curve for curve in within if curve.is_own) or within
    time_s, part = _mean_time(within, size)
    part = part if tolerance is None else tolerance
    return RowOnCurve(row, within, "", row.time.scaled(1 / time_s), part)


def _width(dtype: str) -> int:
    return DTYPES[dtype].size_bytes if dtype in DTYPES else 0


def compare_run(
    run: load.LoadedRun, curves: Sequence[Curve], tolerance: float | None = None
) -> OnCurves:
    """Every row of a run beside the curves of its machine."""
    system = system_of(run)
    rows = tuple(compare_row(row, system, curves, tolerance) for row in run.rows)
    return OnCurves(run, system, rows, tolerance)
