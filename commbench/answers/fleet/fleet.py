"""Compares the runs of nodes, one run per node, with each other: which nodes are slow beyond doubt,
which are to be measured again, and which are missing.

Nodes are peers if they have the same devices, processor, backend, numbers of ranks and of nodes,
and CPU mode. `slow_nodes` has the statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, hypot, isfinite, log, log1p, nan
from statistics import median
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import WAITED, has_waited
from commbench.analysis.environment import NEEDED_FACTS
from commbench.analysis.load import LoadedRun, index_rows
from commbench.analysis.row_names import format_range, name_rows, named_bytes
from commbench.analysis.statistics import Z
from commbench.answers.compare.comparison import row_kind
from commbench.answers.fleet import slow_nodes
from commbench.answers.fleet.nodes import NodeRun, Past, find_past
from commbench.answers.history.records import is_valid
from commbench.answers.history.store import History
from commbench.errors import GATE_FAILS, NO_VERDICT_REACHED, UsageError
from commbench.results.schema import FAILED, WRONG
from commbench.stats import Estimate, around, collect, np
from commbench.units import format_count
from commbench.views.formats import Result, fields_of

PASS, DRAIN, AGAIN, MISSING = "pass", "drain", "again", "missing"
VERDICTS = (DRAIN, AGAIN, MISSING, PASS)
"""Slow or wrong beyond doubt; to be measured again; without a complete run; none of these."""
FALSE_ALARMS, TOLERANCE = 0.01, 0.02
DOUBT = 5.0
"""A node that is not named is undecided up to so many times the probability of a false alarm."""
SMALL = 16
"""Fewer nodes say little about how much sound nodes differ: one that is far is undecided."""
FAR = 4.0
"""So many scales of the peers are far."""
TOO_FEW = "too few to judge"
WIDEST = 2.0
"""Intervals whose upper ends are more than so many times the lower ones say too little."""
LONGEST = 60
"""Characters of the names of slow rows."""


class SlowRange(NamedTuple):
    """Neighbouring sizes of one kind of case in which a node is slower than its peers."""

    name: str
    """`all_reduce float32 sum in_place 1M-64M`."""
    rows: int
    slowdown: Estimate
    """Its time over that of its peers."""


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
    group: int | None = None
    """The number of its group."""
    path: str = ""
    ratios: tuple[float, ...] = ()
    """Its time over that of its peers, in each case of its group that it has."""
    run: LoadedRun | None = None
    past: Past | None = None
    """What the history says of the cases in which it is slower; None without a history."""

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
    least: float | None = None
    """A node that is slower by this share of the time in all cases would be named, in 95 % of such
    groups; None for a group that is not judged."""


@dataclass(frozen=True, repr=False)
class FleetResult(Result, view="answers.fleet.document", rows="nodes"):
    """The verdicts about all nodes."""

    nodes: tuple[Node, ...]
    """Those to drain first, the least likely of each verdict first."""
    groups: tuple[Group, ...]
    false_alarms: float
    tolerance: float
    superseded: tuple[str, ...]
    """Paths of runs of nodes that have a newer one."""
    unexpected: tuple[str, ...]
    """Nodes with a run that are not in the list of nodes; empty without a list."""
    history: str = ""
    """The history that all runs are from; empty where runs were named."""

    def names(self, verdict: str) -> list[str]:
        """The names of the nodes with this verdict, sorted."""
        return sorted(node.name for node in self.nodes if node.verdict == verdict)

    @property
    def lists(self) -> dict[str, list[str]]:
        """The names of the nodes with each verdict."""
        return {verdict: self.names(verdict) for verdict in VERDICTS}

    @property
    def outcome(self) -> str:
        """`drain` if any node is to be drained; `pass` if all pass; else `again`."""
        found = {node.verdict for node in self.nodes}
        return DRAIN if DRAIN in found else PASS if found == {PASS} else AGAIN

    @property
    def exit_code(self) -> int:
        """The exit code of `commbench fleet`."""
        return {PASS: 0, DRAIN: GATE_FAILS, AGAIN: NO_VERDICT_REACHED}[self.outcome]


def judge_fleet(
    runs: Iterable[NodeRun],
    expected: Sequence[str] = (),
    false_alarms: float = FALSE_ALARMS,
    tolerance: float = TOLERANCE,
    history: History | None = None,
) -> FleetResult:
    """The verdicts about the nodes of these runs and those that are expected.

    Of several runs of a node the one that started last counts; of those whose start is not known,
    the last by its path. `false_alarms` is the probability that any node of a sound fleet is to be
    drained. A node that is slower by `tolerance` at most passes. The history says since when a node
    is slow. Raises UsageError where there is no node.
    """
    ordered = sorted(runs, key=lambda run: (run.name, run.started, run.path))
    newest = {run.name: run for run in ordered}
    if not newest and not expected:
        hint = "name runs, one of each node, or a folder of runs; or add --history"
        raise UsageError("there is no node", hint)
    nodes = [Node(name, MISSING, ("it has no run",)) for name in expected if name not in newest]
    groups: dict[tuple[tuple[str, str], ...], list[NodeRun]] = {}
    has_facts = all(one.facts is not None for one in newest.values() if one.run)
    for one in newest.values():
        why = one.reason or (one.run.incomplete if one.run else "")
        if one.run is None or (why and not _wrong(one.run)):
            nodes.append(Node(one.name, MISSING, (why,), path=one.path, run=one.run))
        else:
            facts = _peer_facts(one.run, one.facts if has_facts and one.facts else {})
            groups.setdefault(tuple(facts.items()), []).append(one)
    made: list[Group] = []
    for key, members in sorted(groups.items()):
        judge = _GroupJudge(members, false_alarms, tolerance, history)
        nodes += [node._replace(group=len(made)) for node in judge.nodes()]
        made.append(Group(dict(key), len(members), len(judge.cases), judge.spread, judge.least))
    nodes.sort(key=lambda n: (VERDICTS.index(n.verdict), n.chance is None, n.chance or 0, n.name))
    return FleetResult(
        tuple(nodes), tuple(made), false_alarms, tolerance,
        tuple(run.path for run in ordered if run is not newest[run.name]),
        tuple(name for name in newest if expected and name not in {*expected}),
    )  # fmt: skip


def _peer_facts(run: LoadedRun, known: Mapping[str, str]) -> dict[str, str]:
    """What nodes must have in common to be compared. A results.csv does not say the hardware; with
    one among the runs, no facts are `known` and hardware is not looked at."""
    facts = {
        name: ", ".join(sorted({str(getattr(row, name, "")) for row in run.rows}))
        for name in NEEDED_FACTS
    }
    return facts | {name: known.get(name, "") for name in ("devices", "processor")}


def _wrong(run: LoadedRun) -> list[str]:
    """Which rows have wrong results; empty where none has."""
    rows = [row for row in run.rows if row.status == WRONG or row.wrong]
    return [f"wrong results in {name_rows(rows, run.rows, LONGEST)}"] if rows else []


def _error(row: Any) -> float:
    """The standard error of a log time; nan where it is not known."""
    low, high = row.time.ends if row else (0.0, 0.0)
    return log(high / low) / (2 * Z) if 0 < low < high else nan


class _GroupJudge:
    """Judges the nodes of one group."""

    def __init__(
        self, members: list[NodeRun], false_alarms: float, tolerance: float, history: History | None
    ) -> None:
        self._members, self._false_alarms, self._tolerance = members, false_alarms, tolerance
        self._history = history
        runs = [one.run for one in members if one.run]
        for run in runs:
            index_rows(run)  # raises an error where two rows are of one case
        self._rows = [{row.case.key(): row for row in run.rows if is_valid(row)} for run in runs]
        """The timed rows of each node, by the key of their case."""
        by_case = collect(item for own in self._rows for item in own.items())
        kept = [rows[0].case for rows in by_case.values() if 2 * len(rows) >= len(members)]
        self.cases = sorted(kept, key=lambda case: (row_kind(case), named_bytes(case)))
        """Those that half of the nodes have."""
        self._kinds = [*map(row_kind, self.cases)]
        self.spread: float | None = None
        self.least: float | None = None

    def nodes(self) -> Iterator[Node]:
        """The verdict about each node."""
        found = [[own.get(case.key()) for case in self.cases] for own in self._rows]
        judged = [at for at, own in enumerate(found) if 2 * sum(map(bool, own)) > len(own)]
        alike = format_count(len(judged), "node")
        why = f"{TOO_FEW}: {alike} alike, and {slow_nodes.LEAST_NODES} are needed"
        if len(judged) >= slow_nodes.LEAST_NODES:
            logs = np.array([[log(r.time_s) if r else nan for r in found[at]] for at in judged])
            errors = np.array([[*map(_error, found[at])] for at in judged])
            parts = slow_nodes.make_parts(self._kinds, [*map(named_bytes, self.cases)])
            self._scores = slow_nodes.find_slow_nodes(logs, errors, parts, self._false_alarms)
            self.spread = median(self._scores.scales)
            self._excess, self._errors = logs - np.array(self._scores.levels), errors
            every, zeros = range(len(self.cases)), [0.0] * len(self.cases)
            reaches = [_pool(every, zeros, own, self._scores).ends[1] for own in errors]
            self.least = max(self._scores.least, self._tolerance, median(reaches) - 1)
            why = "it has a time in less than half of the cases"
        for at, one in enumerate(self._members):
            if self.spread is not None and at in judged:
                yield self._judge(one, judged.index(at))
            else:
                wrong = _wrong(one.run) if one.run else []
                verdict = DRAIN if wrong else AGAIN
                yield Node(one.name, verdict, (*wrong, why), path=one.path, run=one.run)

    def _judge(self, one: NodeRun, at: int) -> Node:
        assert one.run
        scores, excess, errors = self._scores, self._excess[at], self._errors[at]
        known = [n for n in range(len(excess)) if isfinite(excess[n])]
        slow = _slow_cases(scores.parts[at], excess, known)
        slowdown, chance = _pool(slow, excess, errors, scores), scores.chances[at]
        wrong, again = _wrong(one.run), self._doubts(one.run, errors)
        verdict = AGAIN if again else PASS
        is_small = len(self._excess) < SMALL
        is_far = log(slowdown.value) > FAR * median(scores.scales[n] for n in slow)
        may_be_slow = chance <= DOUBT * self._false_alarms or (is_small and is_far)
        if slowdown.value > 1 + self._tolerance and may_be_slow:
            keys = [self.cases[n].key() for n in slow]
            queued = [row.queued_share or 0.0 for row in one.run.rows if row.case.key() in keys]
            verdict = AGAIN
            if has_waited(median(queued)):
                again.append(f"it is slow, and {WAITED}")
            elif slowdown.ends[0] <= 1:
                again.append("it is slow, but its own interval contains the level of its peers")
            elif chance > self._false_alarms:
                again.append("it may be slow, but not beyond doubt")
            else:
                verdict = DRAIN
        verdict = DRAIN if wrong else verdict
        evidence = [] if verdict == PASS else self._ranges({*slow}, excess, errors)
        where_slow = [self.cases[n] for n in known if excess[n] > 0]
        past = find_past(self._history, one, where_slow) if self._history and evidence else None
        return Node(
            one.name, verdict, (*wrong, *again), slowdown, chance, self._where(slow),
            tuple(evidence), path=one.path, ratios=tuple(exp(excess[n]) for n in known),
            run=one.run, past=past,
        )  # fmt: skip

    def _doubts(self, run: LoadedRun, errors: Any) -> list[str]:
        """Why a node is to be measured again, whatever its times are."""
        failed = sum(row.status == FAILED for row in run.rows)
        found = [f"{format_count(failed, 'case')} failed"] if failed else []
        known, every = errors[errors > 0], self._errors[self._errors > 0]
        if len(known) and median(known) > max(log(WIDEST) / (2 * Z), 2 * median(every)):
            found.append("its intervals are much wider than those of its peers")
        return found

    def _where(self, columns: Sequence[int]) -> str:
        """What these cases are: `all cases`, `all calls 256K-4M`, or by kind and size."""
        if len(columns) == len(self.cases):
            return "all cases"
        sizes = [named_bytes(self.cases[n]) for n in columns]
        low, high = min(sizes), max(sizes)
        between = [case for case in self.cases if low <= named_bytes(case) <= high]
        if len(between) == len(columns) and len({*self._kinds}) > 1:
            return f"all calls {format_range(low, high)}"
        return name_rows([self.cases[n] for n in columns], self.cases, LONGEST)

    def _ranges(self, part: set[int], excess: Any, errors: Any) -> list[SlowRange]:
        """The ranges of sizes in which a node is slower, the slowest first; outside of the part
        that it is slow in only those in which it is far from its peers."""
        least = log1p(self._tolerance)

        def kind_if_slow(n: int) -> str:
            limit = least if n in part else max(least, FAR * self._scores.scales[n])
            return self._kinds[n] if excess[n] > limit else ""

        found = []
        for kind, same in groupby(range(len(excess)), kind_if_slow):
            if kind:
                columns = [*same]
                low, high = (named_bytes(self.cases[n]) for n in (columns[0], columns[-1]))
                slowdown = _pool(columns, excess, errors, self._scores)
                name = f"{kind} {format_range(low, high)}".rstrip()
                found.append(SlowRange(name, len(columns), slowdown))
        return sorted(found, key=lambda each: -log(each.slowdown.value) * each.rows)


def _slow_cases(part: slow_nodes.Part, excess: Any, known: Sequence[int]) -> list[int]:
    """The cases of a part that the node has; of an ORDERED part those of its slower half."""
    if part.kind != slow_nodes.ORDERED:
        return [n for n in part.cases if n in known] or [*known]
    groups = [own for group in part.groups if (own := [n for n in group if n in known])]
    groups.sort(key=lambda own: -sum(excess[n] for n in own) / len(own))
    return sorted(n for own in groups[: len(part.groups) // 2] for n in own)


def _pool(cases: Sequence[int], excess: Any, errors: Any, scores: slow_nodes.Scores) -> Estimate:
    """The node's time over that of its peers, the mean of these cases. The error of a case is that
    of its interval, or the scale of the peers where that is larger, and that of their level; the
    cases count as independent."""
    value = sum(float(excess[n]) for n in cases) / len(cases)
    own = [max(scores.scales[n], errors[n]) for n in cases]  # an error of nan is not larger
    half = Z * hypot(*own, *(scores.errors[n] for n in cases)) / len(cases)
    return around(value, half).map(exp)
