"""The tables of the groups of a run: the time of each group, alone and together with the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commbench.analysis.rows import ResultRow, interference, make_rows
from commbench.output.paragraphs import fill
from commbench.output.table import BOLD, TableColumn, clean, fitting_table, style
from commbench.results.schema import Run, RunHeader
from commbench.spec.case import Case
from commbench.spec.groups import ALONE, TOGETHER
from commbench.spec.operations import OPERATIONS
from commbench.stats.estimate import Estimate
from commbench.units import format_bytes, format_GBps, format_known_time

NO_GROUPS = "The run has no groups of ranks: it measured all ranks as one group."
STATISTICS = (
    "Times: the median over iterations of the group's slowest rank, as in the table of the run. "
    "Interference is together over alone; its 95 % interval follows from those of the two times."
)
MEDIANS_ONLY = (
    "together, where no interval is given: the median of the medians of the batches, weighted by "
    "their iterations; the journal has no more of groups."
)
"""What the times of the table are."""


class GroupRow(NamedTuple):
    """One group at one size."""

    case: Case
    ranks: str
    together: Estimate | None
    """Its time in seconds when all groups call together."""
    alone: Estimate | None

    @property
    def interference(self) -> Estimate | None:
        """Its time when all groups call together over that when it calls alone."""
        if not (self.together and self.alone and self.together.value and self.alone.value):
            return None
        return interference(self.together, self.alone)


def groups_text(run: Run) -> str:
    """For each kind of call a table of the groups at each size; below it what its times are, and
    the bytes that leave a host, if there are several."""
    texts = []
    for title, rows in _kinds(run).items():
        groups = group_rows(rows)
        lines = fitting_table(_COLUMNS, groups)
        lacking = any(g.together and g.together.low is None for g in groups)
        found = [STATISTICS, *[MEDIANS_ONLY] * lacking, *_host_notes(run.header, rows)]
        notes = [fill(note, "  ", "  ") for note in found]
        texts.append("\n".join([style(clean(title), BOLD), *lines, *notes]))
    return "\n\n".join(texts) or NO_GROUPS


def group_tables(
    run: Run, most: int
) -> list[tuple[str, tuple[list[str], list[tuple[str, ...]], list[str]]]]:
    """For each kind of call whose groups were measured alone and together its title, and the
    headings, the rows (at most so many) and the headings of text of its table."""
    found = []
    for title, rows in _kinds(run).items():
        groups = group_rows(rows)
        if all(group.interference is None for group in groups):
            continue
        headings = [column.heading for column in _COLUMNS]
        cells = [tuple(column.cell(group) for column in _COLUMNS) for group in groups[:most]]
        left = [column.heading for column in _COLUMNS if column.is_left]
        found.append((title, (headings, cells, left)))
    return found


def _kinds(run: Run) -> dict[str, list[ResultRow]]:
    """The rows of groups that were timed, by the title of their case without the group."""
    kinds: dict[str, list[ResultRow]] = {}
    for row in make_rows(run):
        if row.measurement.case.group and row.time:
            title = row.measurement.case.title_without("concurrency", "group_ranks")
            kinds.setdefault(title, []).append(row)
    return kinds


def group_rows(rows: Sequence[ResultRow]) -> list[GroupRow]:
    """The groups of one kind of call, by size, in the order of the plan."""
    found: dict[tuple[int, str], GroupRow] = {}
    for row in rows:
        case = row.measurement.case
        for ranks, found_s in row.group_times.items():
            key = (case.size_bytes, ranks)
            known = found.get(key, GroupRow(case, ranks, None, None))
            found[key] = (
                known._replace(alone=found_s)
                if case.concurrency == ALONE
                else known._replace(together=found_s)
            )
    sizes = {size: None for size, _ in found}
    return [group for size in sizes for key, group in found.items() if key[0] == size]


def host_bytes(header: RunHeader, case: Case) -> dict[str, float]:
    """The bytes that leave each host in one call of all groups of a case; empty for one host.

    Each group is taken for a ring in the order of its ranks, in which every rank sends
    S x busbw factor; of an operation with different data for each rank (all_to_all) every rank
    sends S / n to each rank of another host.
    """
    hosts = {rank.rank: rank.host for rank in header.ranks}
    operation = OPERATIONS[case.operation]
    if len(set(hosts.values())) < 2 or not case.dtype or operation.busbw_factor is None:
        return {}
    found = dict.fromkeys(hosts.values(), 0.0)
    for group in header.plan.groups_of(case):
        wire_bytes = case.size_bytes * operation.busbw_factor(len(group))
        for index, rank in enumerate(group):
            if operation.is_personalized:
                others = sum(hosts[other] != hosts[rank] for other in group)
                found[hosts[rank]] += case.size_bytes / len(group) * others
            elif hosts[group[(index + 1) % len(group)]] != hosts[rank]:
                found[hosts[rank]] += wire_bytes
    return found


def _host_notes(header: RunHeader, rows: Sequence[ResultRow]) -> list[str]:
    """What leaves the busiest host at the largest size, all groups together."""
    together = [row for row in rows if row.measurement.case.concurrency == TOGETHER]
    if not together:
        return []
    row = max(together, key=lambda row: row.measurement.case.size_bytes)
    sent = host_bytes(header, row.measurement.case)
    if not sent or not row.time or not max(sent.values()):
        return []
    host = max(sent, key=lambda name: sent[name])
    return [
        f"At {format_bytes(row.measurement.case.size_bytes)}, {format_bytes(round(sent[host]))} "
        f"leave {clean(host)} in one call of all groups together, "
        f"{format_GBps(sent[host] / row.time.median)} GB/s, if each group is a ring in the order "
        "of its ranks; no other host sends more."
    ]


def _time(known: Estimate | None) -> str:
    return "" if known is None else format_known_time(*known)[0]


def _interference(group: GroupRow) -> str:
    return "" if group.interference is None else f"{group.interference.value:.2f}"


def _interval(group: GroupRow) -> str:
    found = group.interference
    if found is None or found.low is None or found.high is None:
        return ""
    return f"{found.low:.2f} … {found.high:.2f}"


_COLUMNS = (
    TableColumn("size", lambda g: format_bytes(g.case.size_bytes) if g.case.dtype else "", 9),
    TableColumn("group", lambda g: g.ranks, 9, is_left=True),
    TableColumn("alone", lambda g: _time(g.alone), 8),
    TableColumn("together", lambda g: _time(g.together), 8),
    TableColumn("interference", _interference, 8, is_decimal=True),
    TableColumn("95 % interval", _interval, 11),
)
