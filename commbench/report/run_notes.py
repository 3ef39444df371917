"""What is said under a table: the two ways of timing compared, and what to be warned about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill

from commbench.analysis.diagnostics import DIAGNOSTICS, Diagnostic, diagnose_row
from commbench.analysis.peak import share_of_peak, why_no_share
from commbench.analysis.rows import ResultRow
from commbench.analysis.slow_links import slow_links
from commbench.output.table import BOLD, clean, style, table
from commbench.results.schema import Run, RunHeader
from commbench.spec.links import Peak
from commbench.spec.timing_modes import BOTH, TIMING_MODES, expand_timing
from commbench.units import format_bytes, format_GBps, format_time

WIDTH = 100


def both_ways_text(rows: Sequence[ResultRow]) -> str:
    """The time of the first of both timing modes over that of the second, where both were measured;
    empty where not."""
    first, second = (TIMING_MODES[name] for name in expand_timing(BOTH))
    times: dict[tuple[str, int], dict[str, ResultRow]] = {}
    for row in rows:
        if row.time:
            case = row.measurement.case
            times.setdefault((case.title_without("timing"), case.size_bytes), {})[case.timing] = row
    lines = [
        (
            title,
            format_bytes(size) if size else "",
            *_both_ways(found[first.name], found[second.name]),
        )
        for (title, size), found in times.items()
        if first.name in found and second.name in found
    ]
    if not lines:
        return ""
    title = f"{first.heading} over {second.heading}"
    headings = (title, "size", first.heading, second.heading, "ratio")
    return "\n".join(table(headings, lines, left=title))


def _both_ways(one: ResultRow, other: ResultRow) -> tuple[str, str, str]:
    assert one.time and other.time
    ratio = f"{one.time.median / other.time.median:.2f}" if other.time.median else ""
    return format_time(one.time.median), format_time(other.time.median), ratio


def warnings_text(
    rows: Sequence[ResultRow], where: Callable[[Sequence[ResultRow]], str] | None = None
) -> str:
    """What to be warned about, each with the rows concerned and what to do; empty where nothing.

    `where` says in a few words which rows some are; without it their sizes or kinds do.
    """
    concerned: dict[Diagnostic, list[tuple[ResultRow, float]]] = {}
    for row in rows:
        for diagnostic, figure in diagnose_row(row).items():
            concerned.setdefault(diagnostic, []).append((row, figure))
    timed = sum(row.time is not None for row in rows)
    texts = []
    for diagnostic in (d for d in DIAGNOSTICS if d in concerned):
        found = concerned[diagnostic]
        which = "all rows"
        if len(found) < timed:
            which = (where or _where)([row for row, _ in found])
        texts.append(
            fill(
                f"{diagnostic.name} ({clean(which)}): {diagnostic.describe(found)}.",
                width=WIDTH, initial_indent="  ", subsequent_indent="    ",
            )
        )  # fmt: skip
    return "\n".join([style("Be warned:", BOLD), *texts]) if texts else ""


def slow_links_text(header: RunHeader) -> str:
    """Which hosts' links are slower than the others'; empty where none is."""
    hosts = {rank.rank: rank.host for rank in header.ranks}
    several = len(set(hosts.values())) > 1

    def name(rank: int) -> str:
        return clean(
            f"{hosts[rank]} (rank {rank})" if several and rank in hosts else f"rank {rank}"
        )

    texts = [
        fill(
            f"{name(slow.culprit)} is the bottleneck: from {name(slow.probe.sender)} to "
            f"{name(slow.probe.receiver)}, {format_bytes(slow.probe.size_bytes)} took "
            f"{format_time(slow.probe.seconds)} "
            f"({format_GBps(slow.probe.size_bytes / slow.probe.seconds)} GB/s), {slow.times:.1f} times "  # noqa: E501
            "as long as between the other hosts.",
            width=WIDTH, initial_indent="  ", subsequent_indent="    ",
        )
        for slow in slow_links(header.link_probes)
    ]  # fmt: skip
    return "\n".join([style("Slow links:", BOLD), *texts]) if texts else ""


def ways_text(header: RunHeader) -> str:
    """Through which interface and address each host talks, where there are several hosts."""
    ways: dict[str, dict[str, None]] = {}
    for rank in header.ranks:
        if rank.address:
            hosts = ways.setdefault(rank.interface or "an unknown interface", {})
            hosts[f"{rank.host} ({rank.address})"] = None
    if header.num_nodes < 2 or not ways:
        return ""
    parts = [f"{name} of {_listed(list(hosts))}" for name, hosts in sorted(ways.items())]
    text = f"Hosts talk through {'; '.join(parts)}."
    return fill(clean(text), width=WIDTH, subsequent_indent="  ")


def _listed(hosts: Sequence[str]) -> str:
    more = len(hosts) - 8
    return ", ".join(hosts[:8]) + (f" and {more} more" if more > 0 else "")


def _where(rows: Sequence[ResultRow]) -> str:
    """Which rows, in a few words: the sizes, or the kinds where there are several."""
    if len({row.measurement.case.title for row in rows}) > 1 or not rows[0].measurement.case.dtype:
        shown = [row.measurement.case.name for row in rows[:2]]
    else:
        shown = [format_bytes(row.measurement.case.size_bytes) for row in rows[:6]]
    more = len(rows) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


_ENDED = {"failed": "This run failed", "interrupted": "This run was interrupted"}


def ending_text(run: Run) -> str:
    """What to say of a run that is not complete; empty for one that is."""
    if run.end is None:
        return "This run has not ended: it still goes on, or was cut off."
    if run.end.status == "complete":
        return ""
    ended = _ENDED.get(run.end.status, f"This run ended as {run.end.status}")
    return clean(f"{ended}: {run.end.reason}" if run.end.reason else f"{ended}.")


def peak_text(rows: Sequence[ResultRow], peak: Peak) -> str:
    """What the column of shares is of, and why a share may exceed 100 %."""
    shares = [share for row in rows if (share := share_of_peak(row, peak))]
    texts = [f"Of peak: what the links had to carry, over {peak.text}"]
    if shares:
        texts[0] += f" ({shares[0].bound} bound)."
    elif rows:
        texts[0] += f"; there are no shares: {why_no_share(rows[0], peak)}."
    if any(1 < share.fraction <= share.ceiling for share in shares):
        texts.append(
            "Above 100 % is no error here: a network that itself reduces (NVLS, SHARP) moves less "
            f"than the bound says, so that {max(s.ceiling for s in shares):.5g} times the peak is "
            "the limit. `commbench explain` has the figures."
        )
    return "\n".join(
        fill(text, width=WIDTH, initial_indent="  ", subsequent_indent="  ") for text in texts
    )
