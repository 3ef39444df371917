"""The notes under the table of a run: timing modes compared, warnings, slow links, how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import hypot
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.diagnostics import DIAGNOSTICS, Diagnostic, find_causes
from commbench.analysis.nccl_log import describe_start_up
from commbench.analysis.peak import find_peak_fraction, why_no_peak_fraction
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import Summary, median
from commbench.output.paragraphs import fill, list_some
from commbench.output.table import BOLD, clean, style, table
from commbench.results.run_folder import RESULTS
from commbench.results.schema import INCOMPLETE, LinkProbe, Run, RunHeader
from commbench.spec.dimensions import IN_TITLE
from commbench.spec.timing_modes import BOTH, TIMING_MODES, expand_timing
from commbench.units import (
    format_bytes,
    format_count,
    format_decimals,
    format_GBps,
    format_known_time,
    format_time,
    known_decimals,
)

if TYPE_CHECKING:
    from commbench.spec.case import Case
    from commbench.spec.links import Peak

_TIMINGS = tuple(TIMING_MODES[name].heading for name in expand_timing(BOTH))
LONGEST_TITLE = 38
"""Characters of a title in the table of TIMING_HEADINGS, so that it fits 80 columns."""
TIMING_HEADINGS = (" / ".join(f"time {name}" for name in _TIMINGS), "size", *_TIMINGS, "ratio")


def timing_modes_text(rows: Sequence[ResultRow]) -> str:
    """A table of times in two timing modes and their ratio; empty where no case has both."""
    lines = compare_timing_modes(rows)
    if any(len(line[0]) > LONGEST_TITLE for line in lines):
        cases = [row.measurement.case for row in rows if row.time]
        ways = Counter(case.key("timing") for case in cases)
        cases = [case for case in cases if ways[case.key("timing")] > 1]
        alike = (d.field for d in IN_TITLE if len({getattr(c, d.field) for c in cases}) == 1)
        lines = compare_timing_modes(rows, {*alike} - {"operation"})
    return "\n".join(table(TIMING_HEADINGS, lines, left=TIMING_HEADINGS[0])) if lines else ""


def compare_timing_modes(
    rows: Sequence[ResultRow], without: Collection[str] = ()
) -> list[tuple[str, ...]]:
    """The cells under TIMING_HEADINGS for each case that was timed in both modes. Titles are
    `without` these dimensions."""
    first, second = (TIMING_MODES[name] for name in expand_timing(BOTH))
    times: dict[tuple[str, int], dict[str, Summary]] = {}
    for row in rows:
        if row.time:
            case = row.measurement.case
            found = times.setdefault((case.title_without("timing", *without), case.size_bytes), {})
            found[case.timing] = row.time
    lines: list[tuple[str, ...]] = []
    for (title, size), found in times.items():
        if first.name in found and second.name in found:
            one, other = found[first.name], found[second.name]
            shown = format_bytes(size) if size else ""
            cells = [
                format_known_time(time.median, time.low, time.high)[0] for time in (one, other)
            ]
            lines.append((title, shown, *cells, ratio_text(one, other)))
    return lines


def forms_text(rows: Sequence[ResultRow]) -> str:
    """A table for each kind of case that has other forms: the time of the direct call, and that of
    each form over it; empty where there are none."""
    texts = []
    for title, table_ in compare_forms(rows).items():
        head = f"{title}: time over that of {table_.reference}"
        headings = ("size", table_.reference, *table_.forms)
        lines = table(headings, table_.rows)
        texts.append("\n".join([style(fill(clean(head)), BOLD), *lines]))
    return "\n\n".join(texts)


class FormsTable(NamedTuple):
    """The forms of one kind of call, side by side."""

    reference: str
    """The form of the direct call."""
    forms: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """For each size: the size, the time of the direct call, and the ratio of each form."""


def compare_forms(rows: Sequence[ResultRow]) -> dict[str, FormsTable]:
    """The forms that were timed beside the direct call, by the title of that call."""
    kinds: dict[str, dict[int, dict[str, ResultRow]]] = {}
    for row in rows:
        if row.time and row.reference and row.reference.time:
            case = row.measurement.case
            found = kinds.setdefault(case.title_without("form"), {}).setdefault(case.size_bytes, {})
            found[row.reference.measurement.case.form] = row.reference
            found[case.form] = row
    tables = {}
    for title, sizes in kinds.items():
        reference, *forms = dict.fromkeys(name for found in sizes.values() for name in found)
        lines = []
        for size, found in sizes.items():
            direct = found[reference].time
            assert direct is not None
            cells = [
                ratio_text(found[form].time, direct) if form in found else "" for form in forms
            ]
            time = format_known_time(direct.median, direct.low, direct.high)[0]
            lines.append((format_bytes(size) if size else "", time, *cells))
        tables[title] = FormsTable(reference, tuple(forms), tuple(lines))
    return tables


def ratio_text(one: Summary | None, other: Summary | None) -> str:
    """The ratio of two medians, with at most two decimals and the digits that both intervals
    support together (the errors of a ratio add up as squares); empty where it is not known."""
    if not (one and other and other.median):
        return ""
    ratio = one.median / other.median
    half = ratio * hypot(one.precision or 0.0, other.precision or 0.0)
    decimals = min(2, known_decimals(ratio, max(0.0, ratio - half), ratio + half))
    return format_decimals(ratio, max(decimals, 0))


MOST_WARNINGS = 3
"""Warnings that are printed by default."""


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


def warnings_text(
    rows: Sequence[ResultRow],
    name_runs: Callable[[Sequence[ResultRow]], str] | None = None,
    most: int | None = MOST_WARNINGS,
    name: str = "RUN",
) -> str:
    """The warnings about these rows, one line each; empty if there are none.

    More than `most` warnings are only counted, with the command that prints them for the run called
    `name`. None gives all of them, each with an explanation and the names of its rows.
    """
    found = find_warnings(rows, name_runs)
    lines = []
    for warning in found[:most]:
        text = f"{warning.name} ({warning.which}): {warning.message}"
        lines.append(fill(text, "  ", "    "))
        if most is None:
            names = f" Rows: {warning.rows}." if warning.rows else ""
            lines.append(fill(f"{warning.explanation}{names}", "    ", "    "))
    if most is not None and len(found) > most:
        more = format_count(len(found) - most, "more warning")
        more += f": `commbench show {name} --warnings`"
        lines.append(fill(more, "  ", "    "))
    if not lines and most is None and any(row.time for row in rows):
        return "No problems found."
    return "\n".join([style("Warnings:", BOLD), *lines]) if lines else ""


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


def slow_links_text(header: RunHeader) -> str:
    """The hosts whose links are slower than those of the others; empty if there are none."""
    texts = [fill(text, "  ", "    ") for text in describe_slow_links(header)]
    return "\n".join([style("Slow links:", BOLD), *texts]) if texts else ""


def describe_slow_links(header: RunHeader) -> list[str]:
    """A sentence for each slow link, the slowest first."""
    hosts = {rank.rank: rank.host for rank in header.ranks}
    several = len(set(hosts.values())) > 1

    def name(rank: int) -> str:
        return f"{hosts[rank]} (rank {rank})" if several and rank in hosts else f"rank {rank}"

    texts = []
    for slow in find_slow_links(header.link_probes):
        probe = slow.probe
        speed = format_GBps(probe.size_bytes / probe.seconds)
        text = (
            f"{name(slow.culprit)} is the bottleneck: from {name(probe.sender)} to "
            f"{name(probe.receiver)}, {format_bytes(probe.size_bytes)} took "
            f"{format_time(probe.seconds)} ({speed} GB/s), {slow.times:.1f} times as long as "
            "between the other hosts."
        )
        texts.append(text)
    return texts


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
    return fill(f"Network interfaces: {'; '.join(parts)}.", rest="  ")


def start_up_text(header: RunHeader) -> str:
    """How long the ranks took to join; empty where that is not known."""
    text = describe_start_up(header)
    return fill(f"Start-up: {text}.", rest="  ") if text else ""


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
    return clean(f"{ended}: {run.end.reason}" if run.end.reason else f"{ended}.")


def peak_text(rows: Sequence[ResultRow], peak: Peak) -> str:
    """What the column `of peak` means, and why it may exceed 100 %."""
    shares = [share for row in rows if (share := find_peak_fraction(row, peak))]
    if not shares:
        why = f": {why_no_peak_fraction(rows[0], peak)}" if rows else ""
        return fill(f"There is no column `of peak`{why}.", rest="  ")
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
    return "\n".join(fill(text, rest="  ") for text in texts)
