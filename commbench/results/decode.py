"""What a journal holds, as records, and the integer version of its format."""

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
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import Plan
from commbench.units import LARGEST_SIZE
from commbench.validation import brief, build, is_modest

LONGEST_S = 1e7


SHORTEST_S = 1e-15
"""No measurement lasts longer, or shorter without being 0: what says so is damaged, and its
bandwidth would have no end."""


DEEPEST_FACT = 4


LONGEST_FACT = 1 << 17
"""Most characters of a fact of the environment: those of a variable."""


def line_of(kind: str, record: Any) -> dict[str, Any]:
    """The JSON object that stands for a record in a journal."""
    return {"kind": kind} | {name: _plain(value) for name, value in record._asdict().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Plan):
        return value.as_json()
    if hasattr(value, "_asdict"):
        return {name: _plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value


def header_of(line: dict[str, Any]) -> RunHeader:
    """The header that a journal's first line stands for."""
    values = dict(line)
    values["plan"] = Plan.from_json(values["plan"])
    values["ranks"] = tuple(build(RankInfo, rank) for rank in values["ranks"])
    values["link_probes"] = tuple(
        build(LinkProbe, probe) for probe in values.get("link_probes", ())
    )
    header = build(RunHeader, values)
    _refuse_beyond(header, 1, LARGEST_SIZE, "num_nodes")
    _refuse_beyond(header, 0, LARGEST_SIZE, "launch")
    _refuse_durations(header, "overhead_s", "resolution_s")
    for probe in header.link_probes:
        _refuse_beyond(probe, 0, LARGEST_SIZE, "size_bytes", "sender", "receiver")
        _refuse_durations(probe, "seconds")
    _refuse_odd_facts("environment", header.environment, DEEPEST_FACT)
    return header


def measurement_of(line: dict[str, Any]) -> Measurement:
    """The measurement of a journal's case line; its batches have lines of their own."""
    values = dict(line)
    case = values["case"] = build(Case, values["case"])
    if case.operation not in OPERATIONS:
        raise ValueError(f"operation {brief(case.operation)} is unknown")
    if case.dtype and case.dtype not in DTYPES:
        raise ValueError(f"dtype {brief(case.dtype)} is unknown")
    _refuse_beyond(case, 0, LARGEST_SIZE, "size_bytes", "count", "root")
    if values.get("first_wrong"):
        values["first_wrong"] = build(WrongElement, values["first_wrong"])
    if values.get("reported"):
        told = values["reported"] = build(ReportedTiming, values["reported"])
        _refuse_beyond(told, 0, LARGEST_SIZE, "iterations")
        _refuse_durations(told, *(name for name in ReportedTiming._fields if name.endswith("_s")))
    measurement = build(Measurement, values)
    _refuse_beyond(measurement, 0, None, "wrong")
    return measurement


def batch_of(line: dict[str, Any]) -> tuple[int, Batch]:
    """The index of the case, and the batch, that a journal's batch line stands for."""
    values = dict(line)
    index = values.pop("case")
    if type(index) is not int:
        raise ValueError(f"case is {brief(index)}, not int")
    batch = build(Batch, values)
    if not batch.samples_s or batch.calls < 1:
        raise ValueError("a batch of a case has at least one iteration, of at least one call")
    _refuse_beyond(batch, 0, None, "warmup", "launch", "last_in", "switches")
    _refuse_durations(batch, *(name for name in Batch._fields if name.endswith("_s")))
    return index, batch


def end_of(line: dict[str, Any]) -> RunEnd:
    """The end that a journal's last line stands for."""
    end = build(RunEnd, line)
    _refuse_beyond(end, 0, None, "elapsed_s")
    return end


def _refuse_beyond(record: Any, low: float, high: float | None, *names: str) -> None:
    """Raise ValueError where a number, or one of several, lies outside; None is none."""
    for name in names:
        value = getattr(record, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not low <= number <= (number if high is None else high):
                raise ValueError(f"{name} is {brief(number)}")


def _refuse_durations(record: Any, *names: str) -> None:
    """Raise ValueError where seconds cannot be the length of anything."""
    for name in names:
        value = getattr(record, name)
        several = value if isinstance(value, tuple) else () if value is None else (value,)
        if not several:
            continue
        shortest = min(several)
        if shortest < SHORTEST_S:
            shortest = min((s for s in several if s), default=SHORTEST_S)
        if shortest < SHORTEST_S or max(several) > LONGEST_S:
            wrong = shortest if shortest < SHORTEST_S else max(several)
            raise ValueError(f"{name} is {brief(wrong)}")


def _refuse_odd_facts(name: str, value: Any, depth: int) -> None:
    """Raise ValueError for facts that could not be shown or written again."""
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(f"{name} is nested deeper than {DEEPEST_FACT} levels")
        inner = value.items() if isinstance(value, dict) else ((name, item) for item in value)
        for key, item in inner:
            _refuse_odd_facts(str(key)[:40], item, depth - 1)
    elif not (len(value) <= LONGEST_FACT if isinstance(value, str) else is_modest(value)):
        raise ValueError(f"{name} is {brief(value)}")
