"""Makes records of the JSON objects of a journal. Raises ValueError or UsageError
for invalid fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import inf
from typing import Any, TypeVar

from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS, require_known
from commbench.plan.plan import Plan
from commbench.plan.splits import parse_imbalance
from commbench.results import schema
from commbench.results.records import Check, LinkProbe, Numerics, RankInfo, StartUp, WrongElement
from commbench.results.samples import MANY, decode_rank_times
from commbench.units import LARGEST_SIZE
from commbench.validation import brief, build, is_within_limits, texts_of

T = TypeVar("T")

LONGEST_S = 1e7
SHORTEST_S = 1e-15
"""A duration is 0 or lies between these, in seconds: any other is damaged, and would give an
infinite bandwidth."""
DEEPEST_FACT = 4
LONGEST_FACT = 1 << 17
"""Most characters of an environment fact: those of an environment variable."""


_COUNTING = (schema.RunHeader, LinkProbe, schema.ReportedTiming, Case)
"""Records whose numbers are at most LARGEST_SIZE."""
_OTHER_LIMITS: dict[tuple[Any, str], tuple[float, float]] = {
    (schema.RunHeader, "num_nodes"): (1, LARGEST_SIZE),
    (schema.Batch, "temperature_c"): (-inf, inf),
    (schema.RunEnd, "elapsed_s"): (0, inf),
    (Numerics, "bias"): (-inf, inf),
    (Numerics, "sqnr_db"): (-inf, inf),
}


@cache
def _limits_of(record: Any) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each field with numbers, or of each item of it: numbers
    are not negative, and fields whose names end so are durations."""
    found = {}
    for name, text in texts_of(record).items():
        if text.removeprefix("tuple[").startswith(("int", "float")):
            is_duration = name.endswith(("_s", "seconds"))
            number = (0, LARGEST_SIZE if record in _COUNTING else inf)
            usual = (SHORTEST_S, LONGEST_S) if is_duration else number
            found[name] = _OTHER_LIMITS.get((record, name), usual)
    return found


def decode_header(line: dict[str, Any]) -> schema.RunHeader:
    """The record of a header line."""
    plan, ranks = Plan.from_json(line["plan"]), _decode_ranks(line["ranks"])
    header = _build(schema.RunHeader, line | {"plan": plan, "ranks": ranks})
    _require_plain_facts("environment", header.environment, DEEPEST_FACT)
    return header


def _decode_ranks(found: Any) -> Any:
    """The ranks of a header, as a list; before schema 4 they were one."""
    if not isinstance(found, dict):
        return found
    number, same, each = found["number"], found["same"], found["each"]
    if any(len(column) != number for column in each.values()):
        raise ValueError(f"ranks are not {brief(number)}")
    rows: Any = zip(*each.values(), strict=True) if each else [()] * number
    return [same | dict(zip(each, row, strict=True)) for row in rows]


def decode_measurement(line: dict[str, Any]) -> schema.Measurement:
    """The record of a case line; the batches of the case have lines of their own."""
    line = line | {"rank_times": tuple(map(decode_rank_times, line.get("rank_times", ())))}
    found = _build(schema.Measurement, line)
    case = found.case
    for dimension in DIMENSIONS:
        require_known(dimension.field, getattr(case, dimension.field))
    if case.imbalance:
        parse_imbalance(case.imbalance)  # UsageError where no blocks follow from it
    if why := schema.contradiction(found.status, found.wrong):
        raise ValueError(why)
    return found


_BATCH = b'{"kind": "batch"'
_SAMPLES = _BATCH + b', "samples_s": '
"""How journal.py begins the line of a batch."""


def split_batch(line: bytes) -> tuple[list[float], dict[str, Any]] | None:
    """The samples of a batch line, numbers within no limits, and its other fields; None for any
    other line, and for one that needs a closer look."""
    if not line.startswith(_SAMPLES):
        return None
    import orjson

    samples, _, others = line[len(_SAMPLES) :].partition(b"]")
    if b"u" in samples or b"l" in samples:  # true, false or null
        return None
    try:
        numbers, values = orjson.loads(samples + b"]"), orjson.loads(_BATCH + others)
    except orjson.JSONDecodeError:
        return None
    is_usual = numbers and "samples_s" not in values and type(values.get("case")) is int
    return (numbers, values) if is_usual else None


def are_durations(samples: Sequence[float]) -> bool:
    """Whether numbers are within the limits of durations; false for none."""
    low, high = (min(samples), max(samples)) if len(samples) < MANY else _ends(samples)
    if not high <= LONGEST_S:
        return False
    return low >= SHORTEST_S or all(n == 0 or n >= SHORTEST_S for n in samples)


def _ends(samples: Sequence[float]) -> tuple[float, float]:
    import numpy

    whole = numpy.frombuffer(samples)  # type: ignore[call-overload]
    return whole.min(), whole.max()


def decode_batch(values: dict[str, Any]) -> schema.Batch:
    """The record of the fields of a batch."""
    batch = _build(schema.Batch, values)
    if batch.calls < 1:
        raise ValueError("a batch of a case has iterations of at least one call")
    return batch


def decode_check(values: dict[str, Any]) -> Check:
    """The record of the fields of a check."""
    check = _build(Check, values)
    if check.calls < 1 or len(check.wrong_ranks) != len(check.wrong_elements):
        raise ValueError("a check is of at least one call, and of each wrong rank has the elements")
    return check


def decode_end(line: dict[str, Any]) -> schema.RunEnd:
    """The record of an end line."""
    end = _build(schema.RunEnd, line)
    for host, risen in end.risen.items():
        if not isinstance(risen, dict):
            raise ValueError(f"risen of {brief(host)} is {brief(risen)}")
        for name, value in risen.items():
            if type(value) is not int or not 0 < value <= LARGEST_SIZE:
                raise ValueError(f"{brief(name)} of {brief(host)} is {brief(value)}")
    return end


def _build(record: type[T], values: dict[str, Any]) -> T:
    """A record of these values; ValueError where one has a wrong type or is out of its limits."""
    built = build(record, values, **_RECORDS.get(record, {}))
    limits = _limits_of(record)  # type: ignore[arg-type]  # it is hashable
    for name, value in values.items():
        if name not in limits or value is None or value == []:
            continue
        low, high = limits[name]
        several = value if isinstance(value, list) else (value,)
        if low <= min(several) and max(several) <= high:  # fast path
            continue
        if wrong := [n for n in several if not low <= n <= high and (n or low >= 1)]:
            raise ValueError(f"{name} is {brief(wrong[0])}")
    return built


_KINDS: dict[Any, dict[str, Any]] = {
    schema.RunHeader: {"ranks": RankInfo, "link_probes": LinkProbe, "start_up": StartUp},
    schema.Measurement: {
        "case": Case, "first_wrong": WrongElement, "reported": schema.ReportedTiming,
        "numerics": Numerics,
    },
    Check: {"first_wrong": WrongElement},
}  # fmt: skip
_RECORDS = {
    record: {name: partial(_build, kind) for name, kind in kinds.items()}
    for record, kinds in _KINDS.items()
}
"""What makes the records within a record."""


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
