"""What a history says of a slow node: since when it is as slow, and what changed then."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from commbench.answers.fleet.nodes import NodeRun, node_of
from commbench.answers.history.history import Change, Trend, find_trend
from commbench.answers.history.records import System
from commbench.answers.history.store import History
from commbench.plan.case import Case


class Past(NamedTuple):
    """What the history says of a slow node."""

    trend: Trend
    """All series of the node's system."""
    changes: tuple[Change, ...]
    """Those to longer times of its slow cases that still last, the newest first."""

    def as_json(self) -> dict[str, Any]:
        """The changes, and how many runs there are."""
        return {"history": self.trend.path, "runs": len(self.trend.runs), "changes": self.changes}


def find_past(history: History, one: NodeRun, slow: Collection[Case]) -> Past:
    """The changes of the slow cases of a node, as `commbench history show` finds them. Of several
    systems of the node that fit the run, the one with the newest run counts."""
    assert one.run
    row = one.run.rows[0]
    ran_as = (row.backend, row.device, row.world_size, row.num_nodes or 1, bool(row.gpu_shared))

    def fits(system: System) -> bool:
        return node_of(system.node) == one.name and system[3:] == ran_as

    newest = next((run.system for run in history.runs()[::-1] if fits(run.system)), None)
    keys = {case.key() for case in slow}
    trend = find_trend(history, keep=lambda system, _: system == newest)
    return Past(trend, tuple(change for change in trend.changes if _lasts(change, keys)))


def _lasts(change: Change, keys: Collection[tuple[Any, ...]]) -> bool:
    """Whether times rose, and any of these cases had no step since."""
    return change.ratio.value > 1 and any(
        step.case.key() in keys and step.number == len(step.found.fit.steps) - 1
        for step in change.steps
    )
