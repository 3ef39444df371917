"""Plans, batches and rows that are synthetic_rows, for tests that need no ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commbench.analysis.columns import COLUMNS, row_values, written_values
from commbench.analysis.rows import ResultRow, make_row
from commbench.plan.plan import Plan
from commbench.results.records import RankInfo
from commbench.results.schema import Batch, Measurement, RunHeader

HEADER_FIELDS = ("ranks", "overhead_s", "resolution_s", "environment", "launcher")
MEASUREMENT_FIELDS = ("stop_reason", "wrong", "first_wrong", "status", "reason", "reported")


def plan(**wishes: Any) -> Plan:
    """A plan of one all_reduce of 1 KiB on two gloo ranks, unless something else is wished."""
    usual: dict[str, Any] = {
        "operations": ("all_reduce",), "sizes": (1024,), "backend": "gloo", "device": "cpu",
        "world_size": 2,
    }  # fmt: skip
    return Plan(**(usual | wishes))


def batches(*samples_s: Sequence[float], **same: Any) -> tuple[Batch, ...]:
    """A batch for each sequence of samples; what else is said is the same in all of them."""
    return tuple(Batch(samples_s=tuple(samples), **same) for samples in samples_s)


def ranks(*cores: tuple[int, ...]) -> tuple[RankInfo, ...]:
    """Ranks of one host that were allowed to run on these cores."""
    return tuple(
        RankInfo(rank, "example", 1000 + rank, "cpu", own) for rank, own in enumerate(cores)
    )


def row(*found: Batch, **wishes: Any) -> ResultRow:
    """The row of the first case of a plan that has these batches; names that a header or a
    measurement has go there, all others into the plan."""
    header = {name: wishes.pop(name) for name in HEADER_FIELDS if name in wishes}
    measured = {name: wishes.pop(name) for name in MEASUREMENT_FIELDS if name in wishes}
    asked = plan(**wishes)
    return make_row(
        RunHeader(plan=asked, label="made-up", started="", **({"launcher": "local"} | header)),
        Measurement(case=asked.cases()[0], batches=found, **({"status": "ok"} | measured)),
    )


def written_row(row: ResultRow) -> dict[str, Any]:
    """The row as it is in results.csv, by the names of its columns."""
    return dict(zip(COLUMNS, written_values(row_values(row)), strict=True))
