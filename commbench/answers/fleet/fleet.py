"""Compares the runs of nodes, one run per node, with each other: which nodes are slow beyond doubt,
which are to be measured again, and which are missing.

Nodes are peers if they have the same devices, processor, backend, numbers of ranks and of nodes,
and CPU mode. `slow_nodes` has the statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, isfinite, log, log1p
from statistics import median
from typing import Any, NamedTuple

from commbench.analysis.environment_diff import NEEDED_FACTS, environment_facts
from commbench.analysis.load import LoadedRun, index_rows
from commbench.analysis.row_names import format_range, name_rows, named_bytes
from commbench.analysis.statistics import Z
from commbench.answers.compare.comparison import row_kind
from commbench.answers.compare.pooling import random_effects
from commbench.answers.fleet.nodes import NodeRun
from commbench.answers.fleet.slow_nodes import (
    LEAST_NODES,
    ORDERED,
    Part,
    Scores,
    find_slow_nodes,
    make_parts,
)
from commbench.errors import GATE_FAILS, NO_VERDICT_REACHED, UsageError
from commbench.plan.case import Case
from commbench.results.schema import CUT_OFF, FAILED, OK
from commbench.stats.estimate import Estimate
from commbench.units import format_count
from commbench.views.as_json import fields_of
from commbench.views.result import Result

PASS, DRAIN, AGAIN, MISSING = "pass", "drain", "again", "missing"
VERDICTS = (DRAIN, AGAIN, MISSING, PASS)
"""Slow or wrong beyond doubt; to be measured again; without a complete run; none of these."""
FALSE_ALARMS, TOLERANCE = 0.01, 0.02
DOUBT = 5.0
"""A node that is not named is undecided up to so many times the probability of a false alarm."""
MOST_QUEUED = 0.5
"""The part of the time that ranks may wait for a core."""
WIDEST = 2.0
"""Intervals whose upper ends are more than so many times the lower ones say too little."""
FAR = 4.0
"""Scales of the peers from which on a single case is evidence."""
LONGEST = 60
"""Characters of the names of slow rows."""
_ALIKE = 0.75
"""A fact that so many of the peers share is told of a node where it differs."""
_LEAST_VARIANCE = 1e-8


class SlowRange(NamedTuple):
    """Neighbouring sizes of one kind of case in which a node is slower than its peers."""

    kind: str
    low_bytes: int
    high_bytes: int
    rows: int
    slowdown: Estimate
    """Its time over that of its peers."""

    @property
    def name(self) -> str:
        """`all_reduce float32 sum in_place 1M-64M`."""
        return f"{self.kind} {format_range(self.low_bytes, self.high_bytes)}".rstrip()


class Node(NamedTuple):
    """What is known of a node."""

    name: str
    verdict: str
    reasons: tuple[str, ...] = ()
    slowdown: Estimate | None = None
    """Its time over that of its peers, in the part of its cases that is the least likely in a sound
    fleet; None where it was not compared."""
    chance: float | None = None
    """The probability that any node of a sound fleet is as slow."""
    where: str = ""
    """The cases of that part."""
    evidence: tuple[SlowRange, ...] = ()
    """Where it is slower by more than the tolerance; empty for one that passes."""
    different: tuple[str, ...] = ()
    """Facts that nearly all of its peers share and it does not."""
    group: int | None = None
    """The number of its group."""
    path: str = ""
    ratios: tuple[float, ...] = ()
    """Its time over that of its peers, in each case of its group that it has."""
    run: LoadedRun | None = None

    def as_json(self) -> dict[str, Any]:
        """All but the run."""
        return fields_of(self, without=("run",))


class Group(NamedTuple):
    """Nodes that are compared with each other."""

    facts: Mapping[str, str]
    nodes: int
    cases: int
    spread: float | None
    """By which share of the time nodes differ in a usual case, as a robust standard deviation."""
    visible: tuple[float, float] | None
    """From which slowdown on, as a ratio, a node would have been named: in all cases, in half."""


@dataclass(frozen=True, repr=False)
class FleetResult(Result, view="answers.fleet.document", rows="nodes"):
    """The verdicts about all nodes."""

    nodes: tuple[Node, ...]
    """Those to drain first, the slowest of each verdict first."""
    groups: tuple[Group, ...]
    false_alarms: float
    tolerance: float
    superseded: tuple[str, ...]
    """Paths of runs of nodes that have a newer one."""
    unexpected: tuple[str, ...]
    """Nodes with a run that are not in the list of nodes; empty without a list."""

    def names(self, verdict: str) -> list[str]:
        """The names of the nodes with this verdict, sorted."""
        return sorted(node.name for node in self.nodes if node.verdict == verdict)

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes have each verdict."""
        return {verdict: len(self.names(verdict)) for verdict in VERDICTS}

    @property
    def outcome(self) -> str:
        """`drain` if any node is to be drained; `pass` if all pass; else `again`."""
        if self.counts[DRAIN]:
            return DRAIN
        return PASS if self.counts[PASS] == len(self.nodes) else AGAIN

    @property
    def exit_code(self) -> int:
        """The exit code of `commbench fleet`."""
        return {PASS: 0, DRAIN: GATE_FAILS, AGAIN: NO_VERDICT_REACHED}[self.outcome]


def judge_fleet(
    runs: Iterable[NodeRun],
    expected: Sequence[str] = (),
    false_alarms: float = FALSE_ALARMS,
    tolerance: float = TOLERANCE,
) -> FleetResult:
    """The verdicts about the nodes of these runs and those that are expected.

    Of several runs of a node the one that started last counts; of those whose start is not known,
    the last by its path. `false_alarms` is the probability that any node of a sound fleet is to be
    drained. A node that is slower by `tolerance` at most passes. Raises UsageError where there is
    no node.
    """
    ordered = sorted(runs, key=lambda run: (run.name, run.started, run.path))
    newest = {run.name: run for run in ordered}
    if not newest and not expected:
        raise UsageError("there is no node", "name runs, one of each node, or a folder of runs")
    nodes = [Node(name, MISSING, ("it has no run",)) for name in expected if name not in newest]
    groups: dict[tuple[tuple[str, str], ...], list[NodeRun]] = {}
    for one in newest.values():
        why = one.reason or (one.run.incomplete if one.run else "")
        if one.run is None or (why and not _wrong(one.run)):
            nodes.append(Node(one.name, MISSING, (why,), path=one.path, run=one.run))
        else:
            groups.setdefault(tuple(_peer_facts(one.run).items()), []).append(one)
    made: list[Group] = []
    for facts, members in sorted(_joined(groups).items()):
        found, group = _judge_group(members, dict(facts), len(made), false_alarms, tolerance)
        nodes += found
        made.append(group)
    nodes.sort(key=lambda n: (VERDICTS.index(n.verdict), n.chance is None, n.chance or 0, n.name))
    return FleetResult(
        tuple(nodes), tuple(made), false_alarms, tolerance,
        tuple(run.path for run in ordered if run is not newest[run.name]),
        tuple(name for name in newest if expected and name not in {*expected}),
    )  # fmt: skip


def _peer_facts(run: LoadedRun) -> dict[str, str]:
    """What nodes must have in common to be compared."""
    facts = {name: _column(run, name) for name in NEEDED_FACTS}
    known = environment_facts(run.header) if run.header else {}
    return facts | {name: known.get(name, "") for name in ("devices", "processor")}


def _joined(
    groups: Mapping[tuple[tuple[str, str], ...], list[NodeRun]],
) -> dict[tuple[tuple[str, str], ...], list[NodeRun]]:
    """The groups; one whose hardware is not known (a results.csv) is part of the only one that it
    may belong to."""
    joined = {facts: [*members] for facts, members in groups.items()}
    for facts in sorted(groups):
        fits = [
            other for other in sorted(joined)
            if other != facts
            and all(own in ("", value) for (_, own), (_, value) in zip(facts, other, strict=True))
        ]  # fmt: skip
        if len(fits) == 1:
            joined[fits[0]] += joined.pop(facts)
    return joined


def _column(run: LoadedRun, name: str) -> str:
    return ", ".join(sorted({str(value) for row in run.rows if (value := getattr(row, name, ""))}))


def _wrong(run: LoadedRun) -> list[Any]:
    return [row for row in run.rows if row.wrong]


def _is_timed(row: Any) -> bool:
    return row.status == OK and not row.wrong and row.stop_reason != CUT_OFF and bool(row.time_s)


class _Matrix(NamedTuple):
    """The times of the nodes of a group that have enough cases."""

    members: list[NodeRun]
    cases: list[Case]
    rows: list[dict[tuple[Any, ...], Any]]
    """The timed rows of each node, by the key of their case."""
    kinds: list[str]

    @property
    def logs(self) -> list[list[float]]:
        """The log times; nan where there is none."""
        return [
            [log(own[case.key()].time_s) if case.key() in own else float("nan")
             for case in self.cases] for own in self.rows
        ]  # fmt: skip

    @property
    def errors(self) -> list[list[float]]:
        """Their standard errors; nan where they are not known."""
        return [[_error(own.get(case.key())) for case in self.cases] for own in self.rows]


def _error(row: Any) -> float:
    low, high = row.time.ends if row is not None else (0.0, 0.0)
    return log(high / low) / (2 * Z) if 0 < low < high else float("nan")


def _judge_group(
    members: list[NodeRun],
    facts: dict[str, str],
    number: int,
    false_alarms: float,
    tolerance: float,
) -> tuple[list[Node], Group]:
    """The nodes of one group."""
    import numpy

    matrix, few = _make_matrix(members)
    if len(matrix.members) < LEAST_NODES or not matrix.cases:
        alike = format_count(len(members), "node")
        why = f"too few to judge: {alike} alike; {LEAST_NODES} are needed"
        if not matrix.cases:
            why = f"no case has a time on half of the {alike}"
        nodes = [_unjudged(one, number, [why]) for one in members]
        return nodes, Group(facts, len(members), len(matrix.cases), None, None)
    logs, errors = numpy.array(matrix.logs), numpy.array(matrix.errors)
    parts = make_parts(matrix.kinds, [named_bytes(case) for case in matrix.cases])
    scores = find_slow_nodes(logs, errors, parts, false_alarms)
    usual = float(numpy.nanmedian(errors)) if numpy.isfinite(errors).any() else 0.0
    excess = logs - numpy.array(scores.levels)
    nodes = [
        _judge_node(matrix, at, (excess[at], errors[at]), scores, (false_alarms, tolerance), usual)
        ._replace(group=number)
        for at in range(len(matrix.members))
    ]  # fmt: skip
    common = [_facts(one) for one in matrix.members]
    nodes = [
        node if node.verdict == PASS else node._replace(different=_different(own, common))
        for node, own in zip(nodes, common, strict=True)
    ]
    nodes += [_unjudged(one, number, [why]) for one, why in few]
    return nodes, Group(
        facts, len(members), len(matrix.cases), median(scores.scales), scores.visible
    )


def _make_matrix(members: list[NodeRun]) -> tuple[_Matrix, list[tuple[NodeRun, str]]]:
    """The cases that half of the nodes have, the nodes that have half of these, and the others with
    the reason."""
    timed, cases = [], dict[tuple[Any, ...], Case]()
    for one in members:
        assert one.run
        index_rows(one.run)  # raises an error where two rows are of one case
        own = {row.case.key(): row for row in one.run.rows if _is_timed(row)}
        timed.append(own)
        cases |= {key: row.case for key, row in own.items() if key not in cases}
    numbers = Counter(key for own in timed for key in own)
    kept = [case for key, case in cases.items() if 2 * numbers[key] >= len(members)]
    kept.sort(key=lambda case: (row_kind(case), named_bytes(case)))
    matrix, few = _Matrix([], kept, [], [row_kind(case) for case in kept]), []
    for one, own in zip(members, timed, strict=True):
        have = sum(case.key() in own for case in kept)
        if 2 * have < len(kept) or not have:
            few.append((one, f"it has a time in {have} of {format_count(len(kept), 'case')}"))
        else:
            matrix.members.append(one)
            matrix.rows.append(own)
    return matrix, few


def _unjudged(one: NodeRun, group: int, why: list[str]) -> Node:
    """A node whose times are not compared; wrong results count nevertheless."""
    wrong = _wrong_reasons(one.run)
    verdict = DRAIN if wrong else AGAIN
    return Node(one.name, verdict, (*wrong, *why), group=group, path=one.path, run=one.run)


def _wrong_reasons(run: LoadedRun | None) -> list[str]:
    rows = _wrong(run) if run else []
    if not rows:
        return []
    number = sum(row.wrong for row in rows)
    every = run.rows if run else ()
    return [f"{format_count(number, 'wrong element')}: {name_rows(rows, every, LONGEST)}"]


def _judge_node(
    matrix: _Matrix,
    at: int,
    own: tuple[Any, Any],
    scores: Scores,
    limits: tuple[float, float],
    usual: float,
) -> Node:
    """One node; `own` are its excess over the level of its peers and its errors, `limits` the false
    alarms and the tolerance."""
    one, rows, (excess, errors), (false_alarms, tolerance) = (
        matrix.members[at], matrix.rows[at], own, limits,
    )  # fmt: skip
    known = [n for n in range(len(excess)) if isfinite(excess[n])]
    slow = _slow_cases(scores.parts[at], excess, known)
    slowdown, chance = _pool(slow, excess, errors, scores), scores.chances[at]
    cases = [matrix.cases[n] for n in slow]
    is_slower = slowdown.value > 1 + tolerance
    wrong, again = _wrong_reasons(one.run), _doubts(one.run, matrix, known, errors, usual)
    verdict = PASS
    if is_slower and chance <= DOUBT * false_alarms:
        verdict = AGAIN
        queued = [rows[case.key()].queued_share or 0.0 for case in cases]
        if median(queued) > MOST_QUEUED:
            again.append("its ranks waited for a core more than half of the time")
        elif slowdown.has_interval and slowdown.ends[0] <= 1:
            again.append("it is slow, but its own interval contains the level of its peers")
        elif chance > false_alarms:
            again.append("it may be slow: not beyond doubt")
        else:
            verdict = DRAIN
    verdict = DRAIN if wrong else AGAIN if again and verdict == PASS else verdict
    return Node(
        one.name, verdict, (*wrong, *again), slowdown, chance,
        _where(cases, matrix),
        () if verdict == PASS
        else tuple(_ranges(matrix, {*slow}, excess, errors, scores, log1p(tolerance))),
        path=one.path, run=one.run, ratios=tuple(exp(excess[n]) for n in known),
    )  # fmt: skip


def _doubts(
    run: LoadedRun | None, matrix: _Matrix, known: Sequence[int], errors: Any, usual: float
) -> list[str]:
    """Why a node is to be measured again, whatever its times are."""
    found = []
    failed = [row for row in (run.rows if run else ()) if row.status == FAILED]
    if failed:
        found.append(f"{format_count(len(failed), 'case')} failed")
    if 2 * len(known) < len(matrix.cases):
        found.append(f"it has a time in {len(known)} of {len(matrix.cases)} cases")
    own = [errors[n] for n in known if isfinite(errors[n])]
    if own and median(own) > max(log(WIDEST) / (2 * Z), 2 * usual):
        found.append("its intervals are much wider than those of its peers")
    return found


def _slow_cases(part: Part, excess: Any, known: Sequence[int]) -> list[int]:
    """The cases of a part that the node has; of an ORDERED part those of its slower half."""
    own = {*known}
    if part.kind != ORDERED:
        return [n for n in part.cases if n in own] or [*known]
    groups = [[n for n in group if n in own] for group in part.groups]
    means = sorted(
        ((sum(excess[n] for n in group) / len(group), group) for group in groups if group),
        reverse=True,
    )
    return sorted(n for _, group in means[: len(part.groups) // 2] for n in group)


def _pool(cases: Sequence[int], excess: Any, errors: Any, scores: Scores) -> Estimate:
    """The node's time over that of its peers, of these cases together; its interval follows from
    the intervals of the node and from how well the level of the peers is known."""
    values = [float(excess[n]) for n in cases]
    mean = sum(values) / len(values)
    if not all(isfinite(errors[n]) for n in cases):
        return Estimate(exp(mean))
    variances = [float(errors[n] ** 2 + scores.errors[n] ** 2) + _LEAST_VARIANCE for n in cases]
    if len(values) == 1:
        half = Z * variances[0] ** 0.5
    else:
        _, mean, half = random_effects(values, variances)
    return Estimate(exp(mean), exp(mean - half), exp(mean + half))


def _where(cases: Sequence[Case], matrix: _Matrix) -> str:
    """What these cases of a group are: `all cases`, `all calls 256K-4M`, or by kind and size."""
    if len(cases) == len(matrix.cases):
        return "all cases"
    sizes = [*map(named_bytes, cases)]
    low, high = min(sizes), max(sizes)
    between = [case for case in matrix.cases if low <= named_bytes(case) <= high]
    if len(between) == len(cases) and len({*matrix.kinds}) > 1:
        return f"all calls {format_range(low, high)}"
    return name_rows(cases, matrix.cases, LONGEST)


def _ranges(
    matrix: _Matrix, part: set[int], excess: Any, errors: Any, scores: Scores, least: float
) -> list[SlowRange]:
    """The ranges of sizes in which a node is slower, the slowest first; outside of the part that it
    is slow in only those in which it is far from its peers."""

    def is_slow(n: int) -> bool:
        return bool(excess[n] > max(least, 0.0 if n in part else FAR * scores.scales[n]))

    found = []
    columns = [n for n in range(len(excess)) if isfinite(excess[n])]
    for (kind, is_found), same in groupby(columns, lambda n: (matrix.kinds[n], is_slow(n))):
        if is_found:
            cases = [*same]
            low, high = (named_bytes(matrix.cases[n]) for n in (cases[0], cases[-1]))
            slowdown = _pool(cases, excess, errors, scores)
            found.append(SlowRange(kind, low, high, len(cases), slowdown))
    return sorted(found, key=lambda each: -log(each.slowdown.value) * each.rows)


def _facts(one: NodeRun) -> dict[str, str]:
    header = one.run.header if one.run else None
    facts = environment_facts(header) if header else {}
    return {n: v for n, v in facts.items() if v and n != "hosts" and not n.startswith("gpus of")}


def _different(own: Mapping[str, str], every: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The facts in which a node differs from nearly all others."""
    found = []
    for name, value in own.items():
        (usual, number), *_ = Counter(facts.get(name, "") for facts in every).most_common(1)
        if usual and usual != value and number >= _ALIKE * len(every):
            found.append(f"{name}: {value} instead of {usual}")
    return tuple(found)
