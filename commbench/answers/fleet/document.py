"""What a document of a fleet says: which nodes to drain and why, which to measure again, and which
are missing; the same as JSON, as JUnit XML and as lists of names; and a strip plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any

from commbench.answers.compare.document import run_warnings
from commbench.answers.fleet.fleet import (
    AGAIN,
    DRAIN,
    MISSING,
    PASS,
    VERDICTS,
    FleetResult,
    Group,
    Node,
)
from commbench.output.paragraphs import list_some
from commbench.stats.estimate import Estimate
from commbench.units import format_count, format_share
from commbench.views.as_json import fields_of
from commbench.views.cells import (
    P_VALUE,
    RATIO,
    RATIO_INTERVAL,
    TEXT,
    Column,
    in_brackets,
    ratio_interval_text,
    ratio_text,
)
from commbench.views.document import BAD, GOOD, Block, Document, Items, Pictures, Section, Table
from commbench.views.formats import HTML, JSON, View
from commbench.views.pictures import GREY, LIMIT, RATIOS, Axis, Curves, Look, Mark, Picture, Series

MOST_NAMED = 4
"""Nodes that the answer names."""
MOST_ROWS = 6
"""Nodes of the table of all that a terminal shows."""
MOST_EXPLAINED = 16
"""Nodes whose evidence is shown."""
MOST_RANGES = 4
MOST_WARNINGS = 4
TITLES = {
    DRAIN: "Drain: slow or wrong beyond doubt",
    AGAIN: "Measure again: undecided",
    MISSING: "Missing: without a complete run",
}
_LOOKS = {
    PASS: Look(GREY, "o", None, size=2.5), AGAIN: Look("#E69F00", "D", None, size=4),
    DRAIN: Look(LIMIT, "s", None, size=4),
}  # fmt: skip
_HEADING = {PASS: "pass", AGAIN: "again: undecided", DRAIN: "drain"}

_NODE = Column("node", lambda node: node.name, TEXT)
_TIMES = (
    Column("times as slow\nas its peers", lambda node: node.slowdown, RATIO),
    Column("95 %\ninterval", lambda node: node.slowdown, RATIO_INTERVAL),
    Column("chance in a\nsound fleet", lambda node: node.chance, P_VALUE, 5),
    Column("where", lambda node: node.where, TEXT, 1, is_wrapped=True),
)
_REASON = Column("why", lambda node: "; ".join(node.reasons), TEXT, 2, is_wrapped=True)


def document(fleet: FleetResult) -> Document:
    """The answer, the nodes by verdict with their evidence, and what the verdicts rest on."""
    blocks: list[Block] = []
    for verdict, title in TITLES.items():
        chosen = [node for node in fleet.nodes if node.verdict == verdict]
        times = () if verdict == MISSING else _TIMES
        columns = (_NODE, *times, *[_REASON] * any(node.reasons for node in chosen))
        if chosen:
            evidence = [
                Items(lines, node.name)
                for node in chosen[:MOST_EXPLAINED]
                if verdict != MISSING and (lines := evidence_lines(node))
            ]
            blocks.append(Section(title, [Table("", columns, chosen), *evidence]))
    compared = sorted(
        (node for node in fleet.nodes if node.slowdown),
        key=lambda node: (node.chance or 0.0, node.name),
    )
    all_columns = (_NODE, Column("verdict", lambda node: node.verdict, TEXT), *_TIMES[:-1])
    blocks += [
        Table("All nodes", all_columns, compared, brief=compared[:MOST_ROWS]),
        Items(advice(fleet), "What to do"),
        Items(notes(fleet), "What the verdicts rest on"),
        Pictures(lambda: fleet_pictures(fleet)),
    ]
    title = f"Fleet of {format_count(len(fleet.nodes), 'node')}"
    tone = GOOD if fleet.outcome == PASS else BAD
    return Document(title, (), [answer(fleet)], blocks, tone=tone)


def answer(fleet: FleetResult) -> str:
    """One sentence: how many nodes have each verdict, and the worst of those to drain."""
    counts, every = fleet.counts, len(fleet.nodes)
    words = {
        DRAIN: "drain", AGAIN: "measure again", MISSING: "missing", PASS: "pass",
    }  # fmt: skip
    if fleet.outcome == PASS:
        return f"PASS: all {format_count(every, 'node')} are alike."
    found = ", ".join(f"{words[v]} {counts[v]}" for v in VERDICTS if counts[v])
    named = [node for node in fleet.nodes if node.verdict == DRAIN]
    lines = "; ".join(map(_told, named[:MOST_NAMED]))
    more = f"; and {len(named) - MOST_NAMED} more" * (len(named) > MOST_NAMED)
    head = "DRAIN" if named else "NO VERDICT"
    return f"{head}: of {format_count(every, 'node')} {found}{f'. {lines}{more}' if named else ''}."


def _told(node: Node) -> str:
    """`node7 is 1.21 times as slow as its peers (1.18 … 1.24) in all_reduce 1M-64M`."""
    if node.reasons or not node.slowdown:
        return f"{node.name} has {'; '.join(node.reasons)}"
    slow = node.slowdown
    interval = in_brackets(ratio_interval_text(slow))
    return f"{node.name} is {ratio_text(slow)} times as slow as its peers{interval} in {node.where}"


def evidence_lines(node: Node) -> list[str]:
    """Where a node is slow and by how much, in what it differs from its peers, and the warnings of
    its run."""
    found = [
        f"{each.name}: {ratio_text(each.slowdown)} times as slow"
        f"{in_brackets(ratio_interval_text(each.slowdown))}"
        for each in node.evidence[:MOST_RANGES]
    ]
    more = sum(each.rows for each in node.evidence[MOST_RANGES:])
    found += [f"{format_count(more, 'more row')} slower than the tolerance"] if more else []
    found += node.different
    if node.run:
        warnings = [warning for _, warning in run_warnings([node.run])]
        found += [f"{w.name} ({w.which}): {w.message}" for w in warnings[:MOST_WARNINGS]]
    return found


def advice(fleet: FleetResult) -> list[str]:
    """What to do about nodes that do not pass."""
    counts = fleet.counts
    rules = (
        ("Take the nodes to drain out of use, and look at them: `commbench doctor`, `commbench "
         "pairs`, and the logs of their devices.", counts[DRAIN]),
        ("Measure the undecided nodes once more, when nothing else runs on them, and judge all "
         "runs again: the newest run of a node counts.", counts[AGAIN]),
        ("Find out why the missing nodes have no complete run; then measure them.",
         counts[MISSING]),
        ("Many nodes are slow in the same fleet: see whether they share a switch, a rack, a "
         "version or a generation of hardware.", 5 * counts[DRAIN] > len(fleet.nodes) > 5),
    )  # fmt: skip
    return [text for text, applies in rules if applies]


def notes(fleet: FleetResult) -> list[str]:
    """What was compared, what could have been seen, and what was left out."""
    found = [_group_note(group) for group in fleet.groups]
    if any(group.visible for group in fleet.groups):
        found.append(
            f"A sound fleet has a node named with a probability of at most "
            f"{format_share(fleet.false_alarms)}, if sound nodes differ with tails as those of "
            "Student's t (docs/fleet.md). Slower by at most "
            f"{format_share(fleet.tolerance)} passes."
        )
    if len(fleet.groups) > 1:
        found.append("Only nodes of the same hardware, backend and ranks are compared.")
    if fleet.superseded:
        runs = format_count(len(fleet.superseded), "older run")
        found.append(f"{runs} of these nodes: not used. {list_some(fleet.superseded, 3)}")
    if fleet.unexpected:
        found.append(f"Not in the list of nodes: {list_some(fleet.unexpected, 8)}.")
    return found


def _hardware(group: Group) -> str:
    facts = group.facts
    return facts["devices"] or facts["processor"] or facts["device"]


def _group_note(group: Group) -> str:
    facts = group.facts
    what = f"{format_count(group.nodes, 'node')}, each with {facts['world_size']} "
    what += f"{facts['backend']} ranks on {_hardware(group)}"
    if group.visible is None or group.spread is None:
        return f"{what}: not judged."
    whole, half = (format_share(ratio - 1) for ratio in group.visible)
    spread = format_share(group.spread)
    return (
        f"{what}, {format_count(group.cases, 'case')}: they differ by {spread} (standard "
        f"deviation). A node is named if it is about {whole} slower in all cases, or {half} in "
        "half of them."
    )


def as_json(fleet: FleetResult) -> dict[str, Any]:
    """The outcome, the lists, and everything about each node."""
    own = {"outcome": fleet.outcome, "exit_code": fleet.exit_code, "verdict": answer(fleet)}
    lists = {verdict: fleet.names(verdict) for verdict in VERDICTS}
    return own | lists | {"notes": notes(fleet), "advice": advice(fleet)} | fields_of(fleet)


VIEW = View(document, schema=1, data=as_json)


# Pictures.


def fleet_pictures(fleet: FleetResult) -> list[Picture]:
    """For each group a strip for each node: its times over those of its peers, a point per case."""
    panels = []
    for number, group in enumerate(fleet.groups):
        nodes = [node for node in fleet.nodes if node.group == number and node.ratios]
        if nodes:
            nodes.sort(key=lambda node: (-sum(map(log, node.ratios)) / len(node.ratios), node.name))
            panels.append(_strips(nodes, group))
    if not panels:
        return []
    worst = [_told(node) for node in fleet.nodes if node.verdict == DRAIN and node.slowdown]
    told = f" {'; '.join(worst[:MOST_NAMED])}." if worst else " No node is slow beyond doubt."
    return [
        Picture(
            "fleet", "Times of each node over those of its peers", f"{answer(fleet)}{told}", panels,
            ["A point is a case. The nodes with the longest times are on the left."],
        )
    ]  # fmt: skip


def _strips(nodes: Sequence[Node], group: Group) -> Curves:
    """A panel. The axis is logarithmic, so the places of nodes are equal ratios."""
    step = 1 / len(nodes)
    series = [
        Series(
            _HEADING[verdict], look,
            [(exp(at * step), Estimate(ratio)) for at, node in enumerate(nodes)
             if node.verdict == verdict for ratio in node.ratios], has_band=False,
        )
        for verdict, look in _LOOKS.items()
        if any(node.verdict == verdict for node in nodes)
    ]  # fmt: skip
    across = Axis(partial(_name_at, tuple(node.name for node in nodes)), "node")
    heading = f"{len(nodes)} nodes on {_hardware(group)}"
    level = Mark(Look("#222222", dashes=(), width=0.8), 1.0, text="")
    return Curves(heading, series, RATIOS, across, [level], 3.2)


def _name_at(names: Sequence[str], place: float) -> str:
    return names[min(len(names) - 1, max(0, round(log(place) * len(names))))]


# Files.


def fleet_files(fleet: FleetResult) -> dict[str, Callable[[], str | bytes]]:
    """What makes the content of each file of a folder, by name; lists have a name in each line."""
    lists = {
        f"{verdict}.txt": partial("".join, [f"{name}\n" for name in fleet.names(verdict)])
        for verdict in VERDICTS
    }
    return {
        **lists, "junit.xml": partial(fleet_junit, fleet),
        "fleet.json": partial(VIEW.write, fleet, JSON),
        "fleet.html": partial(VIEW.write, fleet, HTML),
    }  # fmt: skip


def write_files(fleet: FleetResult, folder: Path) -> list[Path]:
    """Write all files and the picture into a folder that is empty; their paths."""
    from commbench.results.files import write_new
    from commbench.views.draw import write_pictures

    written = []
    for name, make in fleet_files(fleet).items():
        write_new(folder / name, make())
        written.append(folder / name)
    pictures = fleet_pictures(fleet)
    return [*written, *(write_pictures(pictures, folder) if pictures else ())]


def fleet_junit(fleet: FleetResult) -> bytes:
    """The fleet as JUnit XML: a test case for each node, which fails unless the node passes."""
    from commbench.output import junit  # imports xml

    def make(node: Node) -> junit.JUnitCase:
        outcome = junit.PASSED if node.verdict == PASS else junit.FAILURE
        told = [_told(node)] if node.slowdown and not node.reasons else []
        lines = [node.verdict, *told, *node.reasons, *evidence_lines(node)]
        message = "" if node.verdict == PASS else "; ".join(lines)
        return junit.JUnitCase(node.name, outcome, message, node.verdict)

    ordered = sorted(fleet.nodes, key=lambda node: node.name)
    suite = junit.JUnitSuite("commbench fleet", [*map(make, ordered)])
    return junit.junit_xml([suite], answer(fleet))
