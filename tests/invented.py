"""Plans, visits and rows that are invented, for tests that need no ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commbench.analysis.rows import Row, row_of
from commbench.plan import Plan
from commbench.records.schema import Header, Measurement, Rank, Visit

HEADER_FIELDS = ("ranks", "overhead_s", "resolution_s")
MEASUREMENT_FIELDS = ("stop_reason", "wrong", "first_wrong", "status", "reason", "reported")


def plan(**wishes: Any) -> Plan:
    """A plan of one all_reduce of 1 KiB on two gloo ranks, unless something else is wished."""
    usual: dict[str, Any] = {
        "operations": ("all_reduce",), "sizes": (1024,), "backend": "gloo", "device": "cpu",
        "world_size": 2,
    }  # fmt: skip
    return Plan(**(usual | wishes))


def visits(*samples_s: Sequence[float], **same: Any) -> tuple[Visit, ...]:
    """A visit for each sequence of samples; what else is said is the same in all of them."""
    return tuple(Visit(samples_s=tuple(samples), **same) for samples in samples_s)


def ranks(*cores: tuple[int, ...]) -> tuple[Rank, ...]:
    """Ranks of one host that were allowed to run on these cores."""
    return tuple(Rank(rank, "example", 1000 + rank, "cpu", own) for rank, own in enumerate(cores))


def row(*found: Visit, **wishes: Any) -> Row:
    """The row of the first case of a plan that has these visits; names that a header or a
    measurement has go there, all others into the plan."""
    header = {name: wishes.pop(name) for name in HEADER_FIELDS if name in wishes}
    measured = {name: wishes.pop(name) for name in MEASUREMENT_FIELDS if name in wishes}
    asked = plan(**wishes)
    return row_of(
        Header(plan=asked, label="made-up", started="", launcher="local", **header),
        Measurement(case=asked.cases()[0], visits=found, **({"status": "ok"} | measured)),
    )
