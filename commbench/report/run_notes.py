"""What limits the figures of a run: warnings, slow links, how it ended, what a peak means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.diagnostics import DIAGNOSTICS, Diagnostic, find_causes
from commbench.analysis.peak import find_peak_fraction, why_no_peak_fraction
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import median
from commbench.output.paragraphs import list_some
from commbench.results.run_folder import RESULTS
from commbench.results.schema import INCOMPLETE, LinkProbe, Run, RunHeader
from commbench.views.cells import BANDWIDTH, BYTES, RATIO, TEXT, TIME, Column
from commbench.views.document import Block, Folded, Items, Section, Table, Text

if TYPE_CHECKING:
    from commbench.spec.case import Case
    from commbench.spec.links import Peak

MOST_CHARACTERS = 400
"""Of the names of rows below the explanation of a warning."""


class RowsWarning(NamedTuple):
    """A diagnostic that applies to some rows of a run."""

    name: str
    which: str
    """The rows in a few words: `all rows`, `all_reduce 1M-64M`."""
    message: str
    """What is wrong, and what to do."""
    explanation: str
    """What the message means, in sentences."""
    rows: str
    """The names of all these rows, as far as they fit a few lines; empty if they are all rows."""


def find_warnings(
    rows: Sequence[ResultRow], name_runs: Callable[[Sequence[ResultRow]], str] | None = None
) -> list[RowsWarning]:
    """The warnings about these rows, the most important first.

    `name_runs` says of which runs some of the rows are: `under plain`.
    """
    concerned: dict[Diagnostic, list[tuple[ResultRow, float]]] = {}
    for row in rows:
        for diagnostic, figure in find_causes(row).items():
            concerned.setdefault(diagnostic, []).append((row, figure))
    timed = [row for row in rows if row.time]
    warnings = []
    for diagnostic in (d for d in DIAGNOSTICS if d in concerned):
        own = [row for row, _ in concerned[diagnostic]]
        is_all = len(own) == len(timed)
        which = "all rows" if is_all else name_cases(own, timed, LONGEST)
        names = "" if is_all else name_cases(own, timed, MOST_CHARACTERS)
        if name_runs and not is_all:
            which, names = (f"{text} {name_runs(own)}" for text in (which, names))
        message = diagnostic.describe(concerned[diagnostic])
        found = RowsWarning(diagnostic.name, which, message, diagnostic.explanation, names)
        warnings.append(found)
    return warnings


def name_cases(rows: Sequence[ResultRow], every: Sequence[ResultRow], longest: int) -> str:
    """The names of some rows of `every` row: `all_reduce 1K-64K, 1M`."""
    return name_rows(_cases(rows), _cases(every), longest)


def _cases(rows: Iterable[ResultRow]) -> Iterator[Case]:
    return (row.measurement.case for row in rows)


def warnings_section(found: Sequence[RowsWarning], are_explained: bool = False) -> Block:
    """Warnings, and what they mean, which is folded unless they `are_explained`."""
    if not found:
        return (Section if are_explained else Folded)("Warnings", [Text("None.")])
    explanations = [
        f"{each.name}: {each.explanation}{f' Rows: {each.rows}.' if each.rows else ''}"
        for each in found
    ]
    lines = Items([f"{each.name} ({each.which}): {each.message}" for each in found])
    meaning = (Section if are_explained else Folded)(
        "What the warnings mean", [Items(explanations)]
    )
    return Section("Warnings", [lines, meaning])


def expectation_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Whether the bandwidth of these rows is plausible on their hardware, in a line; none where
    nothing is known of that."""
    if not rows or not _has_known_links(rows[0].header):
        return []
    from commbench.expect.document import row_text
    from commbench.expect.rows import choose_row

    found = choose_row(rows)
    return [row_text(found)] if found else []


def _has_known_links(header: RunHeader) -> bool:
    """Whether the links of a run may be known: not those of ranks on the CPUs of one host. Reading
    the tables of links takes time."""
    return header.plan.device != "cpu" or header.num_nodes > 1


def typed_name(run: Run) -> str:
    """The run as a command takes it: its label where it lies under results/, else its path."""
    path = Path(run.path)
    return run.name if path.parent == RESULTS else quote(run.path or run.name)


SLOWER = 1.6
"""A probe that takes so many times as long as the usual one is slow; scatter is smaller."""


class SlowLink(NamedTuple):
    """A slow probe, and the rank whose host is the likely cause."""

    probe: LinkProbe
    times: float
    """How many times as long as the usual probe it took."""
    culprit: int
    """The host that both sends and receives slowly, where there is one; else the sender."""


def find_slow_links(link_probes: Sequence[LinkProbe]) -> tuple[SlowLink, ...]:
    """The slow probes, slowest first. The usual probe is the median; of two probes, the faster."""
    if len(link_probes) < 2:
        return ()
    ordered = sorted(probe.seconds for probe in link_probes)
    usual = ordered[0] if len(link_probes) == 2 else median(ordered)
    if not usual:
        return ()
    slow = [probe for probe in link_probes if probe.seconds > SLOWER * usual]
    receivers = {probe.receiver for probe in slow}
    both = {probe.sender for probe in slow} & receivers
    found = [
        SlowLink(
            probe,
            probe.seconds / usual,
            probe.receiver if probe.receiver in both and probe.sender not in both else probe.sender,
        )
        for probe in slow
    ]
    return tuple(sorted(found, key=lambda s: -s.times))


def slow_links_table(header: RunHeader) -> Table:
    """The slow links, the slowest first."""
    hosts = {rank.rank: rank.host for rank in header.ranks}
    several = len(set(hosts.values())) > 1

    def name(rank: int) -> str:
        return f"{hosts[rank]} (rank {rank})" if several and rank in hosts else f"rank {rank}"

    columns = (
        Column("bottleneck", lambda slow: name(slow.culprit), TEXT),
        Column("from", lambda slow: name(slow.probe.sender), TEXT, 8),
        Column("to", lambda slow: name(slow.probe.receiver), TEXT, 8),
        Column("size", lambda slow: slow.probe.size_bytes, BYTES, 1),
        Column("time", lambda slow: slow.probe.seconds, TIME, 7),
        Column("GB/s", lambda slow: slow.probe.size_bytes / slow.probe.seconds, BANDWIDTH, 6),
        Column("over the\nusual time", attrgetter("times"), RATIO),
    )
    return Table("Slow links", columns, find_slow_links(header.link_probes))


def interfaces_text(header: RunHeader) -> str:
    """The network interface and address of each host; empty for a single host."""
    interfaces: dict[str, dict[str, None]] = {}
    for rank in header.ranks:
        if rank.address:
            hosts = interfaces.setdefault(rank.interface or "an unknown interface", {})
            hosts[f"{rank.host} ({rank.address})"] = None
    if header.num_nodes < 2 or not interfaces:
        return ""
    parts = [f"{name} of {list_some(list(hosts), 8)}" for name, hosts in sorted(interfaces.items())]
    return f"Network interfaces: {'; '.join(parts)}."


_ENDED = {
    "failed": "This run failed", "interrupted": "This run was interrupted",
    INCOMPLETE: "This run cannot be used whole",
}  # fmt: skip


def run_end_text(run: Run) -> str:
    """How a run ended that is not complete; empty for a complete one."""
    if run.end is None:
        return "This run has not ended: it is still running, or it was cut off."
    if run.end.status == "complete":
        return f"This run is incomplete: {run.incomplete}." if run.incomplete else ""
    ended = _ENDED.get(run.end.status, f"This run ended as {run.end.status}")
    return f"{ended}: {run.end.reason}" if run.end.reason else f"{ended}."


def peak_notes(rows: Sequence[ResultRow], peak: Peak) -> list[str]:
    """What the column `of peak` means, and why it may exceed 100 %."""
    shares = [share for row in rows if (share := find_peak_fraction(row, peak))]
    if not shares:
        why = f": {why_no_peak_fraction(rows[0], peak)}" if rows else ""
        return [f"There is no column `of peak`{why}."]
    texts = [f"`of peak` is the {shares[0].bound} over {peak.text}."]
    if _has_known_links(rows[0].header):
        from commbench.expect.rows import peak_remark

        texts += filter(None, [peak_remark(rows[0].header, peak)])
    if any(1 < share.fraction <= share.ceiling for share in shares):
        texts.append(
            "It can exceed 100 % where the network itself reduces (NVLS, SHARP), because less data "
            f"then passes the link: up to {max(s.ceiling for s in shares):.5g} times the peak. "
            "`commbench explain` has the figures."
        )
    return texts
