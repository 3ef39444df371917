"""What the columns of the table of a run mean, in a sentence each."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.rows import ResultRow
from commbench.spec.timing_modes import describe_timing

_COLUMNS = {
    "size": "S: the larger of what one rank sends and what it receives in a call.",
    "count": "Elements of the tensor, or of one rank's block where S consists of blocks.",
    "time": "t: the slowest rank of each iteration, then the median of the iterations.",
    "interval": "The 95 % confidence interval of this median. A wide interval means noise.",
    "p5": "The 5th percentile: 5 % of the iterations took less. It is hardly disturbed.",
    "n": "Number of timed iterations.",
    "algbw": "S / t: how fast one call moves its data.",
    "busbw": "algbw x factor: at least one rank's link was this fast. Compare it with a link.",
    "wrong": "Wrong elements of the results. An empty cell: they were not checked.",
}
_OF_GROUPS = {
    "slowest group": "The ranks of the group with the longest time.",
    "interference": "The time of that group, all groups of the dimension together, over its time "
    "alone. 1: the groups do not slow each other.",
}


def column_meanings(rows: Sequence[ResultRow]) -> dict[str, str]:
    """What each column of the table of these rows means."""
    columns = dict(_COLUMNS)
    if all(row.measurement.wrong is None for row in rows):
        del columns["wrong"]
    if all(row.time is None or row.time.p5 is None for row in rows):
        del columns["p5"]
    if rows and all(row.measurement.reported for row in rows):
        columns["time"] = f"t: {describe_time(rows[0])}"
        columns = {name: text for name, text in columns.items() if name not in ("interval", "p5")}
    return columns | (_OF_GROUPS if any(row.worst_group for row in rows) else {})


def describe_time(row: ResultRow) -> str:
    """What the time of a row is: by its timing mode, or as another tool defines it."""
    reported = row.measurement.reported
    if reported is None:
        return describe_timing(row.measurement.case.timing).explanation
    tool = row.header.environment.get("tool") or "another tool"
    statistic = reported.statistic[:1].upper() + reported.statistic[1:]
    return f"{statistic}, as printed by {tool}. The samples are unknown."
