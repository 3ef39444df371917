"""Are the times of a run those of a sound machine? Each row against published curves.

A curve has the times of one operation on one host, calls back to back: of `data/curves.csv`, or of
a run of the user's own. Of several versions of NCCL the geometric mean counts.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

from commbench.analysis.load import LoadedRun
from commbench.answers.expect.question import fabric_of, is_plain_case
from commbench.errors import UsageError
from commbench.output.paragraphs import join_words
from commbench.plan.backends import DEFAULT_MEMORY
from commbench.plan.case import Case
from commbench.plan.dtypes import DTYPES
from commbench.plan.fabrics import find_gpu
from commbench.plan.timing_modes import EAGER, PIPELINED
from commbench.readers.curves import COLUMNS, TIMING, is_curves, read_points
from commbench.readers.source import NCCL_TESTS, read_source
from commbench.results.files import is_file
from commbench.results.schema import OK
from commbench.stats.estimate import Estimate, combine_ratio
from commbench.stats.verdict import NOT_MEASURED, decide
from commbench.units import MICRO, format_bytes, seven_digits
from commbench.views.as_json import fields_of
from commbench.views.result import Result

PUBLISHED = "published:"
"""Begins the name of a system whose curves are meant, where a run may be given."""
TOLERANCES = ((16 << 20, 0.10), (1 << 20, 0.20), (0, 0.40))
"""From each size on: how far a sound machine may be from its curve. They follow from the
differences within `data/curves.csv`. Of the versions of NCCL on the H100, each against the others,
97 to 99 % of the rows from 1 MiB on are within, and 95 to 99 % below; of H100 and H200, B200 and
B300, GB200 and GB300 95 to 100 %. No row of the A100 from 16 MiB on is within those of the H100."""


class Curve(NamedTuple):
    """The times of one operation on one host."""

    system: str
    """The name of a system, or of its accelerator as the driver has it."""
    nccl: str
    """The version of NCCL; empty where it is not known."""
    operation: str
    dtype: str
    ranks: int
    sizes: tuple[int, ...]
    """Bytes, ascending."""
    times_s: tuple[float, ...]
    source: str
    timing: str = PIPELINED
    is_own: bool = False
    """Whether it is the user's own; then it counts instead of those that others published."""

    def time_at(self, size_bytes: int) -> float | None:
        """The time at a size, by a straight line between the logarithms of sizes and times; None
        beyond the ends of the curve."""
        if not self.sizes[0] <= size_bytes <= self.sizes[-1]:
            return None
        index = bisect_left(self.sizes, size_bytes)
        if self.sizes[index] == size_bytes:
            return self.times_s[index]
        low, high = self.sizes[index - 1 : index + 1]
        shorter, longer = self.times_s[index - 1 : index + 1]
        part = log(size_bytes / low) / log(high / low)
        return float(shorter * (longer / shorter) ** part)


class RowOnCurve(NamedTuple):
    """A row of a run beside the curves of its machine."""

    case: Case
    ratio: Estimate | None = None
    """Its time over that of the curves; None where they cannot be compared."""
    tolerance: float = 0.0
    curves: tuple[Curve, ...] = ()
    """Those that it was compared with; else the nearest ones."""
    reason: str = ""
    """Why it cannot be compared."""
    published_s: float = 0.0
    """The time of the curves."""

    @property
    def is_too_fast(self) -> bool:
        """Whether it is so much faster that a mistake is likely, such as in a unit: by the square
        of what a sound machine may differ."""
        most = self.ratio.ends[1] if self.ratio else 1.0
        return most * (1 + self.tolerance) ** 2 < 1

    @property
    def verdict(self) -> str:
        """Of stats.verdict: `same` for a sound machine, `slower`, `faster`, `undecided`, or
        `not measured` where there is nothing to compare with."""
        return decide(self.ratio, self.tolerance) if self.ratio else NOT_MEASURED


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
    verdict: str
    reason: str


@dataclass(frozen=True, repr=False)
class OnCurves(Result, view="answers.expect.document", rows="rows"):
    """A run beside published curves."""

    run: LoadedRun
    system: str
    """Its accelerator; empty where it is not known."""
    rows: tuple[RowOnCurve, ...]

    @property
    def ranges(self) -> tuple[RangeOnCurve, ...]:
        """The rows by ranges of sizes."""
        return find_ranges(self.rows)

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves that rows were compared with."""
        return tuple(dict.fromkeys(c for row in self.rows if row.ratio for c in row.curves))

    def as_json(self) -> dict[str, Any]:
        """The system, the ranges, the rows and the curves without their points."""
        return {
            "run": self.run.name,
            "system": self.system or None,
            "ranges": self.ranges,
            "rows": [
                {"operation": row.case.operation, "size_bytes": row.case.size_bytes,
                 "ratio": row.ratio, "tolerance": row.tolerance or None, "verdict": row.verdict,
                 "reason": row.reason or None} for row in self.rows
            ],
            "curves": [fields_of(c, without=("sizes", "times_s")) for c in self.curves],
        }  # fmt: skip


def find_ranges(rows: Sequence[RowOnCurve]) -> tuple[RangeOnCurve, ...]:
    """The rows of each call by size, divided where verdict, tolerance or reason changes."""
    ordered = sorted(rows, key=lambda row: (row.case.title, row.case.size_bytes))
    groups = groupby(ordered, lambda r: (r.case.title, r.tolerance, r.verdict, r.reason))
    return tuple(_range(key, list(group)) for key, group in groups)


def _range(key: tuple[str, float, str, str], rows: Sequence[RowOnCurve]) -> RangeOnCurve:
    title, tolerance, verdict, reason = key
    sizes = [row.case.size_bytes for row in rows]
    ratios = [row.ratio for row in rows if row.ratio]
    ratio = combine_ratio(_geometric_mean, *ratios) if ratios else None
    return RangeOnCurve(title, sizes[0], sizes[-1], len(rows), ratio, tolerance, verdict, reason)


def _geometric_mean(*values: float) -> float:
    return exp(sum(map(log, values)) / len(values))


@cache
def load_curves() -> tuple[Curve, ...]:
    """Every curve in `data/curves.csv`, whose sizes double."""
    text = (resources.files("commbench") / "data" / "curves.csv").read_text(encoding="utf-8")
    found = []
    for line in csv.DictReader(text.splitlines()):
        row: dict[str, Any] = line
        times = tuple(float(time) * MICRO for time in row.pop("times").split())
        first = int(row.pop("smallest"))
        sizes = tuple(first << number for number in range(len(times)))
        row["ranks"] = int(row["ranks"])
        found.append(Curve(sizes=sizes, times_s=times, **row))
    return tuple(found)


def published_of(system: str) -> tuple[Curve, ...]:
    """The curves of a system; UsageError with those that there are if it has none."""
    gpu, curves = find_gpu(system), load_curves()
    found = tuple(curve for curve in curves if gpu and find_gpu(curve.system) == gpu)
    if not found:
        names = join_words([*dict.fromkeys(curve.system for curve in curves)])
        raise UsageError(f"no curves of {system!r:.40} were published", f"there are {names}")
    return found


def curves_of(run: LoadedRun) -> tuple[Curve, ...]:
    """The curves in the rows of a run on one host; none where its accelerator is not known. Of
    several placements the first counts."""
    system, source = system_of(run), str(run.path)
    nccl = str((run.header and run.header.environment.get("nccl")) or "")
    return make_curves(
        ((system, nccl, row.operation, row.dtype, row.world_size, source, row.timing),
         (row.size_bytes, row.time_s))
        for row in run.rows
        if system and _is_comparable(row) and (row.num_nodes or 1) == 1
    )  # fmt: skip


def read_curves(path: Path) -> tuple[Curve, ...]:
    """The curves of the user's own in a CSV of curves; none in a file of another kind."""
    source = read_source(path) if is_file(path) else None
    if source is None or not is_curves(source):
        return ()
    return make_curves(
        ((p.system, p.nccl, p.operation, p.dtype, p.ranks, str(path), p.timing),
         (p.size_bytes, p.time_s))
        for p in read_points(source)
    )  # fmt: skip


def make_curves(
    points: Iterable[tuple[tuple[Any, ...], tuple[int, float]]],
) -> tuple[Curve, ...]:
    """Curves of the user's own. A point is what its curve is of, in the order of the fields of
    Curve, and a size with its time."""
    found: dict[tuple[Any, ...], dict[int, float]] = {}
    for key, (size, time_s) in points:
        found.setdefault(key, {}).setdefault(size, time_s)
    curves = []
    for (*what, source, timing), times in found.items():
        sizes = tuple(sorted(times))
        times_s = tuple(times[size] for size in sizes)
        curves.append(Curve._make((*what, sizes, times_s, source, timing, True)))
    return tuple(curves)


def curves_csv(curves: Sequence[Curve]) -> str:
    """Curves as a CSV file, in the columns that `commbench import` reads."""
    lines = [",".join((*COLUMNS, TIMING))]
    lines += [
        f"{curve.system},{curve.nccl},{curve.operation},{curve.dtype},{curve.ranks},{size},"
        f"{seven_digits(time / MICRO)},{curve.timing}"
        for curve in curves
        for size, time in zip(curve.sizes, curve.times_s, strict=True)
    ]
    return "\n".join(lines) + "\n"


def nccl_perf_csv(curves: Sequence[Curve]) -> str:
    """Curves in the columns of aiconfigurator's table nccl_perf."""
    names = {ours: theirs for theirs, ours in NCCL_TESTS.items()}
    lines = [
        "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency"
    ]
    for curve in curves:
        dtype = DTYPES[curve.dtype]
        what = (
            f"commbench,{curve.nccl},{curve.system},{names.get(curve.operation, curve.operation)},"
            f"NCCL,{dtype.nccl_tests or dtype.name},{curve.ranks}"
        )
        lines += [
            f"{what},{size // dtype.size_bytes},{seven_digits(1e3 * time)}"
            for size, time in zip(curve.sizes, curve.times_s, strict=True)
        ]
    return "\n".join(lines) + "\n"


def system_of(run: LoadedRun) -> str:
    """The name of the accelerators of a run; empty where they are not known, or shared."""
    fabric = fabric_of(run.header) if run.header else None
    return fabric.gpu.name if fabric and fabric.gpu else ""


def _is_comparable(row: Any) -> bool:
    is_plain = is_plain_case(row.case) and (row.launch_mode, row.memory) == (EAGER, DEFAULT_MEMORY)
    return is_plain and row.status == OK and bool(row.time_s)


def tolerance_at(size_bytes: int) -> float:
    """How far from its curve a sound machine may be at a size."""
    return next(tolerance for size, tolerance in TOLERANCES if size_bytes >= size)


def compare_row(
    row: Any, system: str, curves: Sequence[Curve], tolerance: float | None = None
) -> RowOnCurve:
    """A row of results beside the curves of a system; `tolerance` is by default tolerance_at."""
    case, size = row.case, row.size_bytes
    if not _is_comparable(row) or (row.num_nodes or 1) != 1:
        where = "of several hosts" if (row.num_nodes or 1) != 1 else "of such calls"
        return RowOnCurve(case, reason=f"there are no curves {where}")
    if not system:
        return RowOnCurve(case, reason="there are no curves of its processors")
    found = tuple(curves)
    for of_curve, wanted, words in (
        (lambda curve: find_gpu(curve.system), find_gpu(system), lambda *_: "other accelerators"),
        (lambda curve: curve.operation, row.operation, lambda known, _: _listed(known)),
        (lambda curve: curve.ranks, row.world_size, lambda known, _: f"{_listed(known)} ranks"),
        (lambda curve: curve.timing, row.timing, lambda known, _: f"--timing {_listed(known)}"),
        (lambda curve: _width(curve.dtype), _width(row.dtype), lambda known, _: (
            f"elements of {_listed(known)} bytes")),
        (lambda curve: curve.time_at(size) is not None, True, lambda _, of: _sizes(of)),
    ):  # fmt: skip
        left = tuple(curve for curve in found if of_curve(curve) == wanted)
        if not left or not wanted:
            known = {*map(of_curve, found)} if wanted else set()
            return RowOnCurve(case, curves=found, reason=f"curves are of {words(known, found)}")
        found = left
    found = tuple(curve for curve in found if curve.is_own) or found
    times = [curve.time_at(size) or 0.0 for curve in found]
    published_s = _geometric_mean(*times)
    part = tolerance_at(size) if tolerance is None else tolerance
    return RowOnCurve(case, row.time.scaled(1 / published_s), part, found, "", published_s)


def _width(dtype: str) -> int:
    return DTYPES[dtype].size_bytes if dtype in DTYPES else 0


def _listed(values: Collection[Any]) -> str:
    return ", ".join(map(str, sorted(values)))


def _sizes(curves: Sequence[Curve]) -> str:
    ends = min(curve.sizes[0] for curve in curves), max(curve.sizes[-1] for curve in curves)
    return " to ".join(map(format_bytes, ends))


def compare_run(
    run: LoadedRun, curves: Sequence[Curve], tolerance: float | None = None
) -> OnCurves:
    """Every row of a run beside the curves of its machine."""
    system = system_of(run)
    rows = tuple(compare_row(row, system, curves, tolerance) for row in run.rows)
    return OnCurves(run, system, rows)


def sizes_are_elements(rows: Sequence[RowOnCurve]) -> bool:
    """Whether every time is what the curves have at the size times the width of the dtype, and not
    at the size: sizes were probably given in elements."""
    compared = [row for row in rows if row.ratio and row.case.size_bytes >= TOLERANCES[0][0]]

    def times(row: RowOnCurve) -> Iterator[float]:
        size = row.case.size_bytes * _width(row.case.dtype)
        known = [(curve.time_at(row.case.size_bytes), curve.time_at(size)) for curve in row.curves]
        yield from (above / at for at, above in known if at and above)

    expected = [(row.ratio.value, [*times(row)]) for row in compared if row.ratio]
    return bool(expected) and all(
        found and abs(ratio / _geometric_mean(*found) - 1) < TOLERANCES[0][1] and ratio > 1.5
        for ratio, found in expected
    )
