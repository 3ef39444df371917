"""Makes records of the JSON objects of a journal. Raises ValueError for invalid fields."""

from __future__ import annotations

from typing import Any

from commbench.results.schema import (
    Batch,
    LinkProbe,
    Measurement,
    RankInfo,
    ReportedTiming,
    RunEnd,
    RunHeader,
    WrongElement,
)
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.units import LARGEST_SIZE
from commbench.validation import brief, build, is_within_limits

LONGEST_S = 1e7
SHORTEST_S = 1e-15
"""A duration is 0 or lies between these, in seconds: any other is damaged, and would give an
infinite bandwidth."""
DEEPEST_FACT = 4
LONGEST_FACT = 1 << 17
"""Most characters of an environment fact: those of an environment variable."""


_BATCH_DURATIONS = tuple(name for name in Batch._fields if name.endswith("_s"))
_REPORTED_DURATIONS = tuple(name for name in ReportedTiming._fields if name.endswith("_s"))


def decode_header(line: dict[str, Any]) -> RunHeader:
    """The record of a header line."""
    values = dict(line)
    values["plan"] = Plan.from_json(values["plan"])
    values["ranks"] = tuple(build(RankInfo, rank) for rank in values["ranks"])
    values["link_probes"] = tuple(
        build(LinkProbe, probe) for probe in values.get("link_probes", ())
    )
    header = build(RunHeader, values)
    _require_range(header, 1, LARGEST_SIZE, "num_nodes")
    _require_range(header, 0, LARGEST_SIZE, "launch")
    _require_durations(header, "overhead_s", "resolution_s")
    for probe in header.link_probes:
        _require_range(probe, 0, LARGEST_SIZE, "size_bytes", "sender", "receiver")
        _require_durations(probe, "seconds")
    _require_plain_facts("environment", header.environment, DEEPEST_FACT)
    return header


def decode_measurement(line: dict[str, Any]) -> Measurement:
    """The record of a case line; the batches of the case have lines of their own."""
    values = dict(line)
    case = values["case"] = build(Case, values["case"])
    if case.operation not in OPERATIONS:
        raise ValueError(f"operation {brief(case.operation)} is unknown")
    if case.dtype and case.dtype not in DTYPES:
        raise ValueError(f"dtype {brief(case.dtype)} is unknown")
    numbers = (dimension.field for dimension in DIMENSIONS if dimension.is_integer)
    _require_range(case, 0, LARGEST_SIZE, *numbers, "count", "ranks")
    if values.get("first_wrong"):
        values["first_wrong"] = build(WrongElement, values["first_wrong"])
    if values.get("reported"):
        reported = values["reported"] = build(ReportedTiming, values["reported"])
        _require_range(reported, 0, LARGEST_SIZE, "iterations")
        _require_durations(reported, *_REPORTED_DURATIONS)
    measurement = build(Measurement, values)
    _require_range(measurement, 0, None, "wrong")
    return measurement


def decode_batch(line: dict[str, Any]) -> tuple[int, Batch]:
    """The index of the case and the record of a batch line."""
    values = dict(line)
    index = values.pop("case")
    if type(index) is not int:
        raise ValueError(f"case is {brief(index)}, not int")
    batch = build(Batch, values)
    if not batch.samples_s or batch.calls < 1:
        raise ValueError("a batch of a case has at least one iteration, of at least one call")
    _require_range(batch, 0, None, "warmup", "launch", "last_in", "switches")
    _require_durations(batch, *_BATCH_DURATIONS)
    return index, batch


def decode_end(line: dict[str, Any]) -> RunEnd:
    """The record of an end line."""
    end = build(RunEnd, line)
    _require_range(end, 0, None, "elapsed_s")
    return end


def _require_range(record: Any, low: float, high: float | None, *names: str) -> None:
    """Raise ValueError where a field, or an item of it, lies outside of [low, high]; None may."""
    for name in names:
        value = getattr(record, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not low <= number <= (number if high is None else high):
                raise ValueError(f"{name} is {brief(number)}")


def _require_durations(record: Any, *names: str) -> None:
    """Raise ValueError where a field, or an item of it, cannot be a duration in seconds."""
    for name in names:
        value = getattr(record, name)
        several = value if isinstance(value, tuple) else () if value is None else (value,)
        if wrong := [s for s in several if s and not SHORTEST_S <= s <= LONGEST_S]:
            raise ValueError(f"{name} is {brief(wrong[0])}")


def _require_plain_facts(name: str, value: Any, depth: int) -> None:
    """Raise ValueError for environment facts that are too deep or too long to show or write."""
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(f"{name} is nested deeper than {DEEPEST_FACT} levels")
        inner = value.items() if isinstance(value, dict) else ((name, item) for item in value)
        for key, item in inner:
            _require_plain_facts(str(key)[:40], item, depth - 1)
    elif not (len(value) <= LONGEST_FACT if isinstance(value, str) else is_within_limits(value)):
        raise ValueError(f"{name} is {brief(value)}")
