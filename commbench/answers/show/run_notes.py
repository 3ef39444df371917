"""What limits the figures of a run: warnings, slow links, how it ended, what a peak means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import DIAGNOSTICS, find_causes
from commbench.analysis.figures import find_peak_fraction, why_no_peak_fraction
from commbench.analysis.load import LoadedRun, distinct_names
from commbench.analysis.row_names import LONGEST, name_rows
from commbench.analysis.rows import ResultRow, make_rows
from commbench.analysis.statistics import median
from commbench.output.text import list_some, short_repr
from commbench.plan.links import Peak
from commbench.results.run_folder import RESULTS
from commbench.results.schema import Run, RunHeader, describe_end
from commbench.stats import collect
from commbench.units import format_count
from commbench.views.cells import BANDWIDTH, BYTES, RATIO, TEXT, TIME, Column
from commbench.views.document import Block, Folded, Items, Section, Table, Text, summarise

MOST_SHOWN = 2
"""Warnings that a terminal shows whole, the most important ones."""
MOST_NAMED = 3
"""Kinds of warnings that the line about the others names."""
MOST_CHARACTERS = 80
"""Of the names of rows below the explanation of a warning, which are three lines together."""


@short_repr("name", "which")
class RowsWarning(NamedTuple):
    """A diagnostic that applies to some rows of a run."""

    name: str
    which: str
    """The rows in a few words: `all rows`, `all_reduce 1M-64M`, `9 of 12 rows; most at 1M`."""
    message: str
    """What is wrong, and what to do."""
    explanation: str
    """What the message means, in sentences."""
    rows: str
    """The names of all these rows, as far as they fit a line; empty if they are all rows."""
    words: str = ""
    """What its name means, in a few words."""


def find_warnings(
    rows: Sequence[ResultRow],
    where: Callable[[ResultRow], str] | None = None,
    every: Sequence[ResultRow] | None = None,
    varied: Collection[str] = (),
) -> list[RowsWarning]:
    """The warnings about these rows, the most important first.

    `where` says under which setting, or in which run, a row was measured: `under plain`. Names have
    it where it is not all of them, and not the dimensions that are `varied`. Ranges of sizes in
    names are among `every` row of the run, by default these.
    """
    causes = [(row, find_causes(row)) for row in rows]
    timed = [row.case for row in rows if row.time]
    of_run = timed if every is None else [row.case for row in every if row.time]
    warnings = []

    places = {where(row) for row in rows} if where else set[str]()

    def name(some: Sequence[ResultRow], longest: int = LONGEST) -> tuple[str, str]:
        """The names of rows, and where they were measured."""
        cases = name_rows([row.case for row in some], of_run, longest, varied)
        if longest == LONGEST and cases.endswith(("more row", "more rows")):
            cases = f"{len(some)} of {len(timed)} rows"
        if not where or len(own := dict.fromkeys(map(where, some))) == len(places):
            return cases, ""
        first, *more = own
        return cases, f"{first} and {len(more)} more" if more[1:] else " and ".join(own)

    for diagnostic in DIAGNOSTICS:
        concerned = [(row, found[diagnostic]) for row, found in causes if diagnostic in found]
        if not concerned:
            continue
        own = [row for row, _ in concerned]
        named, names = ("all rows", ""), ""
        if len(own) < len(timed):
            named, names = name(own), " ".join(filter(None, name(own, MOST_CHARACTERS)))
        which = " ".join(filter(None, named))
        row, place = name([max(concerned, key=itemgetter(1))[0]])
        most = [f"at {row}"] * (row not in (named[0], name(own)[0])) + [place] * (place != named[1])
        if len({figure for _, figure in concerned}) > 1 and any(most):
            which += f"; most {' '.join(filter(None, most))}"
        texts = (diagnostic.describe(concerned), diagnostic.explanation, names, diagnostic.words)
        warnings.append(RowsWarning(diagnostic.name, which, *texts))
    return warnings


def run_warnings(
    runs: Sequence[LoadedRun], covers: Callable[[Any], bool] = bool
) -> list[tuple[str, RowsWarning]]:
    """Each warning about the cases that `covers` accepts, with the name of its run, the most
    important of all runs first; those that a results.csv names are without figures."""

    def find(run: Run) -> list[RowsWarning]:
        rows = make_rows(run)
        return find_warnings([row for row in rows if covers(row.case)], every=rows)

    found = [
        (name, warning)
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for warning in (find(run.run) if run.run else _recorded(run, covers))
    ]
    order = [diagnostic.name for diagnostic in DIAGNOSTICS]
    return sorted(found, key=lambda each: order.index(each[1].name))


def _recorded(run: LoadedRun, covers: Callable[[Any], bool]) -> Iterator[RowsWarning]:
    named = Counter(row.warnings for row in filter(covers, run.rows))
    texts = [({*text.split()}, number) for text, number in named.items()]
    for one in DIAGNOSTICS:
        concerned = (n for own, n in texts if one.name in own and own.isdisjoint(one.explained_by))
        if number := sum(concerned):
            rows = f"{number} of {format_count(len(run.rows), 'row')}"
            message = one.explanation.partition(". ")[0]
            yield RowsWarning(one.name, rows, message, one.explanation, "", one.words)


def warnings_section(
    found: Sequence[tuple[str, RowsWarning]],
    are_explained: bool = False,
    hint: str = "--verbose prints them",
    most: int = MOST_SHOWN,
) -> Block:
    """Warnings, each with the name of its run or without one, and what they mean. Unless they
    `are_explained`, a terminal has the first ones, so many at `most`, and a line about what the
    others are."""
    if not found:
        return Section("Warnings", [Text("None.")]) if are_explained else Items(())
    number = len(found) if are_explained else most
    shown, rest = found[:number], found[number:]
    explanations: dict[str, str] = {}
    for run, w in found:
        explanations.setdefault(w.name, f"{w.name}: {w.explanation}")
        explanations[w.name] += f" Rows{' of ' * bool(run)}{run}: {w.rows}." if w.rows else ""
    first, others = (
        Items([f"{run}{': ' * bool(run)}{w.name} ({w.which}): {w.message}" for run, w in some])
        for some in (shown, rest)
    )
    meaning = Section("What the warnings mean", [Items([*explanations.values()])])
    if are_explained:
        return Section("Warnings", [first, meaning])
    names = dict.fromkeys(f"{w.words} ({w.name})" for _, w in rest)
    number_of = format_count(len(rest), f"{'more ' * bool(shown)}warning")
    title = f"{number_of}: {list_some([*names], MOST_NAMED)}"
    folded = Folded(title, [others, meaning], hint) if rest else Folded(*meaning)
    return Section("Warnings", [first, folded])


def expectation_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Whether the bandwidth of these rows is plausible on their hardware, in a line; none where
    nothing is known of that."""
    if not rows or not _has_known_links(rows[0].header):
        return []
    from commbench.answers.expect.curve_document import range_lines
    from commbench.answers.expect.curves import curves_of_call
    from commbench.answers.expect.document import row_text
    from commbench.answers.expect.expectation import UNKNOWN, choose_row

    found, (ranges, how) = choose_row(rows), range_lines(rows)
    # The published curves judge their sizes.
    is_told = found and not (
        ranges and (found[1].verdict == UNKNOWN or curves_of_call(found[1].expectation.call))
    )
    return [*([row_text(*found)] if found and is_told else ()), *(ranges or how)]


def _has_known_links(header: RunHeader) -> bool:
    """Whether the links of a run may be known: not those of ranks on the CPUs of one host. Reading
    the tables of links takes time."""
    return header.plan.device != "cpu" or header.num_nodes > 1


def typed_name(run: Run) -> str:
    """The run as a command takes it: its label where it lies under results/, else its path."""
    return run.name if Path(run.path).parent == RESULTS else quote(run.path or run.name)


SLOWER = 1.6
"""A probe that takes so many times as long as the usual one is slow; scatter is smaller."""


def slow_links_tables(header: RunHeader) -> list[Table]:
    """The slow probes, the slowest first; of many the slowest, and the distribution. Usual is the
    median; of two probes, the faster."""
    probes = header.link_probes
    ordered = sorted(probe.seconds for probe in probes)
    usual = (ordered[0] if len(probes) == 2 else median(ordered)) if len(probes) > 1 else 0.0
    slow = [probe for probe in probes if usual and probe.seconds > SLOWER * usual]
    hosts = {rank.rank: rank.host for rank in header.ranks}
    several = len({*hosts.values()}) > 1

    def name(rank: int) -> str:
        return f"{hosts[rank]} (rank {rank})" if several and rank in hosts else f"rank {rank}"

    columns = (
        Column("from", lambda probe: name(probe.sender), TEXT),
        Column("to", lambda probe: name(probe.receiver), TEXT, 8),
        Column("size", lambda probe: probe.size_bytes, BYTES, 1),
        Column("time", lambda probe: probe.seconds, TIME, 7),
        Column("GB/s", lambda probe: probe.size_bytes / probe.seconds, BANDWIDTH, 6),
        Column("over the\nusual time", lambda probe: probe.seconds / usual, RATIO),
    )
    table = Table("Slow links", columns, sorted(slow, key=lambda probe: -probe.seconds))
    return summarise(table, lambda probe: probe.seconds, columns[-1:], "links")


def interfaces_text(header: RunHeader) -> str:
    """The network interface and address of each host; empty for a single host."""
    known = dict.fromkeys(
        (rank.interface or "an unknown interface", f"{rank.host} ({rank.address})")
        for rank in header.ranks if rank.address
    )  # fmt: skip
    parts = [f"{name} of {list_some(hosts, 8)}" for name, hosts in sorted(collect(known).items())]
    return f"Network interfaces: {'; '.join(parts)}." if parts and header.num_nodes > 1 else ""


def run_end_text(run: Run) -> str:
    """How a run ended that is not complete; empty for a complete one."""
    if why := describe_end(run.end):
        return f"This run {why.removeprefix('it ').removesuffix('.')}."
    return f"This run is incomplete: {run.incomplete}." if run.incomplete else ""


def peak_notes(rows: Sequence[ResultRow], peak: Peak) -> Iterator[str]:
    """What the column `of peak` means, and why it may exceed 100 %."""
    shares = [share for row in rows if (share := find_peak_fraction(row, peak))]
    if not shares:
        why = f": {why_no_peak_fraction(rows[0], peak)}" if rows else ""
        yield f"There is no column `of peak`{why}."
        return
    yield f"`of peak` is the {shares[0].bound} over {peak.text}."
    if _has_known_links(rows[0].header):
        from commbench.analysis.environment import peak_remark

        yield from filter(None, [peak_remark(rows[0].header, peak)])
    if any(1 < share.fraction <= share.ceiling for share in shares):
        most = max(share.ceiling for share in shares)
        yield f"Where the network itself reduces (NVLS, SHARP), up to {most:.5g} is possible."
