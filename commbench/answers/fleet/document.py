"""What a document of a fleet says: which nodes to drain and why, which to measure again, and which
are missing; the same as JSON, as JUnit XML and as lists of names; and a strip plot."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from commbench.answers.fleet import fleet as judged
from commbench.answers.fleet.fleet import FleetResult, Group, Node
from commbench.answers.fleet.nodes import Past
from commbench.answers.fleet.slow_nodes import LEAST_NODES
from commbench.answers.history.cuts import FEWEST
from commbench.answers.history.document import rows_of
from commbench.answers.history.history import causes_text
from commbench.answers.show.run_notes import run_warnings
from commbench.output.text import list_some
from commbench.stats import Estimate, collect
from commbench.units import format_count, format_rough_percent, format_share, format_times_up
from commbench.views import cells
from commbench.views.cells import Column
from commbench.views.document import BAD, GOOD, Block, Document, Items, Pictures, Section, Table
from commbench.views.formats import View, fields_of, write_verdict_files
from commbench.views.pictures import GREY, LIMIT, RATIOS, Axis, Curves, Look, Mark, Picture, Series

ENOUGH_NODES, FAR_TIMES = 8, 10.0
"""With fewer nodes the limit is far higher: by simulation of slow_nodes with normal times, it is 28
deviations of a node for 5 nodes, 14 for 6, and 9 to 10 for 8 to 24."""
MOST_NAMED = 4
"""Nodes that the answer names."""
MOST_ROWS, MOST_EXPLAINED = 6, 16
"""Nodes of the table of all that a terminal shows; nodes whose evidence is shown."""
MOST_RANGES, MOST_WARNINGS, MOST_CHANGES = 4, 4, 3
TITLES = {
    judged.DRAIN: "Drain: slow or wrong beyond doubt",
    judged.AGAIN: "Measure again: undecided",
    judged.MISSING: "Missing: without a complete run",
}
_LOOKS = {
    judged.PASS: ("pass", Look(GREY, "o", None, size=2.5)),
    judged.AGAIN: ("again: undecided", Look("#E69F00", "D", None, size=4)),
    judged.DRAIN: ("drain", Look(LIMIT, "s", None, size=4)),
}

_ADVICE = {
    judged.DRAIN: "Take the nodes to drain out of use, and look at them: `commbench doctor`, "
    "`commbench pairs`, and the logs of their devices.",
    judged.AGAIN: "Measure the undecided nodes once more, when nothing else runs on them, and "
    "judge all runs again: the newest run of a node counts.",
    judged.MISSING: "Find out why the missing nodes have no complete run; then measure them.",
}

_NODE = Column("node", lambda node: node.name, cells.TEXT)
_TIMES = (
    Column("times as long\nas its peers", lambda node: node.slowdown, cells.RATIO),
    Column("95 %\ninterval", lambda node: node.slowdown, cells.RATIO_INTERVAL),
    Column("chance in a\nsound fleet", lambda node: node.chance, cells.P_VALUE, 5),
    Column("where", lambda node: node.where, cells.TEXT, 1, is_wrapped=True),
)
_REASON = Column("why", lambda node: "; ".join(node.reasons), cells.TEXT, 2, is_wrapped=True)


def document(fleet: FleetResult) -> Document:
    """The answer, the nodes by verdict with their evidence, and what the verdicts rest on."""
    blocks: list[Block] = [Pictures(lambda: fleet_pictures(fleet))]
    for verdict, title in TITLES.items():
        chosen = [node for node in fleet.nodes if node.verdict == verdict]
        times = () if verdict == judged.MISSING else _TIMES
        if chosen:
            columns = (_NODE, *times, _REASON)
            evidence = [
                Items(lines, node.name)
                for node in chosen[:MOST_EXPLAINED]
                if verdict != judged.MISSING and (lines := evidence_lines(node))
            ]
            title = "Not judged" if _are_too_few(fleet) else title
            blocks.append(Section(title, [Table("", columns, chosen), *evidence]))
    compared = [node for node in fleet.nodes if node.slowdown]
    compared.sort(key=lambda node: (node.chance or 0.0, node.name))
    verdicts = Column("verdict", lambda node: node.verdict, cells.TEXT)
    blocks += [
        Table("All nodes", (_NODE, verdicts, *_TIMES[:-1]), compared, brief=compared[:MOST_ROWS]),
        Items(advice(fleet), "What to do"),
        Items(notes(fleet), "What the verdicts rest on"),
    ]
    title = f"Fleet of {format_count(len(fleet.nodes), 'node')}"
    tone = GOOD if fleet.outcome == judged.PASS else BAD
    return Document(title, (), [answer(fleet)], blocks, tone=tone)


def _are_too_few(fleet: FleetResult) -> bool:
    """Whether no node has enough peers."""
    return all(any(why.startswith(judged.TOO_FEW) for why in n.reasons) for n in fleet.nodes)


def answer(fleet: FleetResult) -> str:
    """How many nodes have each verdict, and the worst of those to drain."""
    every = format_count(len(fleet.nodes), "node")
    if fleet.outcome == judged.PASS:
        by = format_rough_percent(fleet.tolerance)
        return f"PASS: none of {every} is over {by} slower than the others.{_least(fleet.groups)}"
    if _are_too_few(fleet):
        return f"NO VERDICT: {every} cannot be judged: a fleet needs {LEAST_NODES} nodes or more."
    words = {judged.DRAIN: "to drain", judged.AGAIN: "to measure again", judged.PASS: "sound"}
    found = ", ".join(
        f"{len(names)} {words.get(each, each)}" for each, names in fleet.lists.items() if names
    )
    lines = [_told(node) for node in fleet.nodes if node.verdict == judged.DRAIN]
    head = "DRAIN" if lines else "NO VERDICT"
    named = "; ".join(lines[:MOST_NAMED]) + "; and others" * (len(lines) > MOST_NAMED)
    named = f" {named}." if lines else ""
    return f"{head}: of {every}, {found}.{named}{_least(fleet.groups)}"


def _least(groups: Sequence[Group]) -> str:
    """How slow a node must be to be named, in the group where it must be slowest."""
    if not (known := [group.least for group in groups if group.least is not None]):
        return ""
    nodes = min(group.nodes for group in groups if group.least == max(known))
    if 1 + max(known) > FAR_TIMES and nodes < ENOUGH_NODES:
        few = f"{format_count(nodes, 'node')} are too few to name a slow one"
        return f" {few}: measure {ENOUGH_NODES} or more."
    percent, times = format_rough_percent(max(known)), format_times_up(1 + max(known))
    by = f"{percent} longer" if max(known) < 1 else f"{times} times as long"
    return f" A node that takes {by} in all cases would be named."


def _told(node: Node) -> str:
    """`node7 takes 1.21 (1.18 … 1.24) times as long as its peers in all_reduce 1M-64M`."""
    slow = node.slowdown
    if node.reasons or not slow:
        return f"{node.name}: {'; '.join(node.reasons)}"
    times = cells.ratio_with_interval_text(slow)
    return f"{node.name} takes {times} times as long as its peers in {node.where}"


def evidence_lines(node: Node) -> list[str]:
    """Where a node is slow and by how much, in what it differs from its peers, and the warnings of
    its run."""
    slow = ((each.name, each.slowdown) for each in node.evidence[:MOST_RANGES])
    found = [f"{name}: {cells.times_text(slowdown, 'as long')}" for name, slowdown in slow]
    more = sum(each.rows for each in node.evidence[MOST_RANGES:])
    found += [f"{format_count(more, 'more row')} slower than the tolerance"] if more else []
    found += since_lines(node.past) if node.past else []
    if node.run:
        warnings = [warning for _, warning in run_warnings([node.run])]
        found += [f"{w.name} ({w.which}): {w.message}" for w in warnings[:MOST_WARNINGS]]
    return found


def since_lines(past: Past) -> list[str]:
    """Since when a node is as slow as it is, by its own history, and what changed then."""
    runs = past.trend.runs
    if not past.changes:
        known = f"Its history has {format_count(len(runs), 'run')}"
        if len(runs) < FEWEST:
            return [f"{known}; a step needs {FEWEST}"]
        return [f"{known} since {past.trend.moment(runs[0])} UTC, and no step up in these cases"]
    return [
        f"{rows_of(change, past.trend)}: {cells.times_text(change.ratio, 'as long as before')} "
        f"since {past.trend.moment(change.run)} UTC; {causes_text(change)}"
        for change in past.changes[:MOST_CHANGES]
    ]


def advice(fleet: FleetResult) -> list[str]:
    """What to do about nodes that do not pass."""
    if _are_too_few(fleet):
        return [f"Give the runs of {LEAST_NODES} nodes or more: nodes are judged by their peers."]
    return [text for verdict, text in _ADVICE.items() if fleet.lists[verdict]]


def notes(fleet: FleetResult) -> list[str]:
    """What was compared, what the verdicts assume, and what was left out."""
    found = [_group_note(group) for group in fleet.groups]
    if any(group.spread is not None for group in fleet.groups):
        found.append(
            "A sound fleet has a node named with a probability of "
            f"{format_share(fleet.false_alarms)} at most, if its nodes differ with tails as those "
            f"of Student's t. A node that is slower by {format_share(fleet.tolerance)} at most "
            "passes."
        )
    if fleet.history:
        found.append(
            f"The runs are the newest of each node in {fleet.history}, which has only the valid "
            "rows of complete runs."
        )
    if older := fleet.superseded:
        found.append(f"Not used, because these nodes have newer runs: {list_some(older, 3)}.")
    if others := fleet.unexpected:
        found.append(f"Not in the list of nodes: {list_some(others, 8)}.")
    return found


def _hardware(group: Group) -> str:
    facts = group.facts
    return facts["devices"] or facts["processor"] or facts["device"]


def _group_note(group: Group) -> str:
    facts, found = group.facts, "not judged"
    if group.spread is not None:
        found = f"they differ by {format_rough_percent(group.spread)} in a usual case"
    return (
        f"{format_count(group.nodes, 'node')} of {facts['world_size']} {facts['backend']} ranks on "
        f"{_hardware(group)}, {format_count(group.cases, 'case')}: {found}."
    )


def as_json(fleet: FleetResult) -> dict[str, Any]:
    """The outcome, the lists, and everything about each node."""
    own = {"outcome": fleet.outcome, "exit_code": fleet.exit_code, "verdict": answer(fleet)}
    return own | fleet.lists | {"notes": notes(fleet), "advice": advice(fleet)} | fields_of(fleet)


VIEW = View(document, schema=1, data=as_json)


# Pictures.


def fleet_pictures(fleet: FleetResult) -> list[Picture]:
    """For each group a strip for each node: its times over those of its peers, a point per case."""
    members = collect((node.group, node) for node in fleet.nodes if node.ratios)
    groups = enumerate(fleet.groups)
    panels = [_strips(members[number], group) for number, group in groups if number in members]
    title = "Times of each node over those of its peers"
    note = "A point is a case. The nodes with the longest times are on the left."
    return [Picture("fleet", title, answer(fleet), panels, [note])] if panels else []


def _strips(nodes: Sequence[Node], group: Group) -> Curves:
    """A panel. The axis is logarithmic, so the places of nodes are equal ratios."""
    nodes = sorted(nodes, key=lambda node: (-fmean(map(log, node.ratios)), node.name))
    step, last = 1 / len(nodes), len(nodes) - 1
    series = [
        Series(
            word, look,
            [(exp(at * step), Estimate(ratio)) for at, node in enumerate(nodes)
             if node.verdict == verdict for ratio in node.ratios], has_band=False,
        )
        for verdict, (word, look) in _LOOKS.items()
        if any(node.verdict == verdict for node in nodes)
    ]  # fmt: skip

    def name_at(place: float) -> str:
        return nodes[min(last, max(0, round(log(place) * len(nodes))))].name

    heading = f"{len(nodes)} nodes on {_hardware(group)}"
    level = Mark(Look("#222222", dashes=(), width=0.8), 1.0, text="")
    return Curves(heading, series, RATIOS, Axis(name_at, "node"), [level], 3.2)


# Files.


def write_files(fleet: FleetResult, folder: Path) -> list[Path]:
    """Write the lists, with a name in each line, the other formats and the picture into an empty
    folder; their paths."""
    from commbench.views.draw import write_pictures

    pictures, nodes = fleet_pictures(fleet), sorted(map(_reasons, fleet.nodes))
    files = write_verdict_files(
        folder, "fleet", fleet.lists, (VIEW, fleet), nodes, answer(fleet), judged.DRAIN
    )
    return [*files, *(write_pictures(pictures, folder) if pictures else ())]


def _reasons(node: Node) -> tuple[str, str, str]:
    """The name, the verdict, and why a node does not pass."""
    reasons = [] if node.verdict == judged.PASS else [_told(node), *evidence_lines(node)]
    return node.name, node.verdict, "; ".join(reasons)
