"""The table of the groups of a run: the time of each group, alone and together with the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from commbench.analysis.rows import ResultRow
from commbench.answers.show.rows import size_of
from commbench.plan.case import Case
from commbench.plan.groups import ALONE, TOGETHER
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import RunHeader
from commbench.stats.estimate import Estimate, ratio
from commbench.units import format_bytes, format_GBps
from commbench.views.cells import BYTES, RATIO_WITH_INTERVAL, TEXT, TIME, Column
from commbench.views.document import Block, Items, Table, Text
from commbench.views.long_tables import summarise

NO_GROUPS = "The run has no groups of ranks: it measured all ranks as one group."
STATISTICS = (
    "Each time is the median over iterations of the group's slowest rank. Interference is together "
    "over alone; its interval combines those of the two times as independent errors."
)
MEDIANS_ONLY = (
    "together, where no interval is given: the median of the medians of the batches, weighted by "
    "their iterations; the journal has no more of groups."
)
"""What the times of the table are."""


class GroupRow(NamedTuple):
    """One group at one size."""

    title: str
    """Its kind of call."""
    case: Case
    ranks: str
    together: Estimate | None
    """Its time in seconds when all groups call together."""
    alone: Estimate | None

    @property
    def interference(self) -> Estimate | None:
        """Its time when all groups call together over that when it calls alone."""
        return ratio(self.together, self.alone)


COLUMNS = (
    Column("size", lambda group: size_of(group.case), BYTES),
    Column("group", attrgetter("ranks"), TEXT),
    Column("alone", attrgetter("alone"), TIME, 8),
    Column("together", attrgetter("together"), TIME, 8),
    Column("interference", attrgetter("interference"), RATIO_WITH_INTERVAL, 8),
)


def groups_blocks(header: RunHeader, rows: Sequence[ResultRow]) -> list[Block]:
    """A table of the groups of each kind of call at each size; what its times are, and the bytes
    that leave a host, if there are several. Of many groups those that are slowed most, or that are
    slowest beside others of their kind, and the distribution."""
    groups = group_rows(rows)
    if not groups:
        return [Text(NO_GROUPS)]
    lacking = any(group.together and group.together.low is None for group in groups)
    notes = [STATISTICS, *[MEDIANS_ONLY] * lacking, *_host_notes(header, rows)]
    times: dict[tuple[str, int], list[float]] = {}
    for group in groups:
        if time := group.together or group.alone:
            times.setdefault((group.title, group.case.size_bytes), []).append(time.value)
    usual = {kind: median(found) for kind, found in times.items()}

    def slowness(group: GroupRow) -> float:
        time = group.together or group.alone or Estimate(0.0)
        over = group.interference or Estimate(
            time.value / usual.get((group.title, group.case.size_bytes), 1.0)
        )
        return over.value

    table = Table("Time of each group", COLUMNS, groups, attrgetter("title"))
    return [*summarise(table, slowness, COLUMNS[2:], "groups", COLUMNS[:1]), Items(notes)]


def group_rows(rows: Sequence[ResultRow]) -> list[GroupRow]:
    """The groups of each kind of call, by size, in the order of the plan."""
    found: dict[tuple[str, int, str], GroupRow] = {}
    for row in rows:
        case = row.measurement.case
        title = case.title_without("concurrency", "group_ranks")
        for ranks, time in row.group_times.items():
            key = (title, case.size_bytes, ranks)
            known = found.get(key, GroupRow(title, case, ranks, None, None))
            is_alone = case.concurrency == ALONE
            found[key] = known._replace(alone=time) if is_alone else known._replace(together=time)
    kinds = [*dict.fromkeys((title, size) for title, size, _ in found)]
    titles = [title for title, _ in kinds]

    def place(group: GroupRow) -> tuple[int, int]:
        return titles.index(group.title), kinds.index((group.title, group.case.size_bytes))

    return sorted(found.values(), key=place)


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


def _host_notes(header: RunHeader, rows: Sequence[ResultRow]) -> Iterator[str]:
    """What leaves the busiest host at the largest size of each kind, all groups together."""
    largest: dict[str, ResultRow] = {}
    for row in sorted(rows, key=lambda row: row.measurement.case.size_bytes):
        case = row.measurement.case
        if case.concurrency == TOGETHER and row.time:
            largest[case.title_without("concurrency", "group_ranks")] = row
    for title, row in largest.items():
        case = row.measurement.case
        sent = host_bytes(header, case)
        host = max(sent, key=sent.__getitem__, default="")
        if row.time and sent.get(host):
            yield (
                f"{title}: at {format_bytes(case.size_bytes)}, {format_bytes(round(sent[host]))} "
                f"leave {host} in one call of all groups together, "
                f"{format_GBps(sent[host] / row.time.median)} GB/s, if each group is a ring in "
                "the order of its ranks; no other host sends more."
            )
