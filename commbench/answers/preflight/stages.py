"""The stages of a preflight: which hosts run together, what they run, and what their times say; and
what attempts say about hosts: which are good, and which are not and why.

Each host alone, pairs in two rounds, disjoint groups of 4, 8, ..., and all that remain. A stage
has the hosts that nothing speaks against after the one before. An attempt that fails accuses the
hosts that its error names, or all of them. An accused host is retried once, alone or with hosts
that have passed. The verdicts are a pure function of the journal's attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple, TypeAlias

from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS, FleetResult, judge_fleet
from commbench.answers.fleet.nodes import read_nodes
from commbench.answers.fleet.slow_nodes import LEAST_NODES
from commbench.answers.pairs.document import name_part
from commbench.answers.pairs.matrix import BANDWIDTH, RankMatrix, main_matrices, pair_matrices
from commbench.answers.pairs.slow_parts import LEAST, find_slow
from commbench.plan.pairs import count_rounds, list_pairs
from commbench.readers.source import ImportHints
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL
from commbench.stats import collect
from commbench.units import format_count, format_GBps
from commbench.views.cells import times_text

PAIRS, ALONE = "pairs", "alone"
ROUNDS = 2
"""Rounds of pairs, in which each host has another partner."""
SLOW_RETRIES = 2
"""Other hosts with which a host is measured again whose pairs are slow."""
Hosts = tuple[str, ...]
FLAPPING = "flapping"
VERDICTS = (DRAIN, MISSING, FLAPPING, AGAIN, PASS)
"""Failed twice; never answered; failed and then passed; undecided or not reached; good."""


class Attempt(NamedTuple):
    """A run on one or several hosts, or what the runs of a stage together say about a host."""

    stage: str
    hosts: tuple[str, ...]
    passed: bool
    reason: str = ""
    """Why it did not pass."""
    accused: tuple[str, ...] = ()
    """The hosts that may be the cause; empty if it passed."""
    retried: tuple[str, ...] = ()
    """The hosts for whose sake it was made again."""
    is_answered: bool = True
    """Whether any of its hosts printed an error or a journal."""
    is_undecided: bool = False
    """Whether it says neither that the hosts are good nor that they are bad."""
    seconds: float = 0.0
    folder: str = ""
    """Of its journal and logs, within that of the preflight."""


Attempts: TypeAlias = Sequence[Attempt]


class HostVerdict(NamedTuple):
    """The verdict about a host, and why."""

    name: str
    verdict: str
    stage: str = ""
    """In which it failed; empty for a good one."""
    reason: str = ""


class Stage(NamedTuple):
    """A stage."""

    name: str
    size: int
    """Hosts that run together."""
    rounds: Sequence[Sequence[Hosts]]
    """The hosts of each run; those of a round are disjoint and run at once."""
    judge: Callable[[str, Attempts, Path, float], Iterable[Attempt]]
    """What the times of its attempts say about hosts that passed."""


class Group(NamedTuple):
    """Hosts that run together, and those of them for whose sake it is done again."""

    hosts: Hosts
    retried: Hosts = ()


def make_stages(good: Callable[[], Sequence[str]]) -> Iterator[Stage]:
    """The stages, one after the other; `good` gives the hosts that are left."""
    yield Stage(ALONE, 1, [[(host,) for host in good()]], slow_runs)
    # Neighbours in a list often share a switch. The order is the same each time.
    mixed = [*good()]
    Random(len(mixed)).shuffle(mixed)

    def left() -> list[str]:
        kept = {*good()}
        return [host for host in mixed if host in kept]

    if len(own := left()) > 1:
        rounds = range(min(ROUNDS, count_rounds(len(own))))
        pairs = [[(own[a], own[b]) for a, b in list_pairs(f"round:{n}", len(own))] for n in rounds]
        yield Stage(PAIRS, 2, pairs, slow_links)
    size = 4
    while size < len(own := left()):
        groups = [tuple(own[at : at + size]) for at in range(0, len(own) - size + 1, size)]
        yield Stage(f"groups of {size}", size, [groups], slow_runs)
        size *= 2
    before = 0
    while 2 < len(own := left()) != before:
        yield Stage("all again" if before else "all", len(own), [[tuple(own)]], slow_runs)
        if before:
            return
        before = len(own)


def retry_waves(stage: Stage, failed: Attempts, proven: Sequence[str]) -> list[list[Group]]:
    """The retries of all accused hosts: each of one or two alone, of more both halves, beside
    proven hosts. A wave holds disjoint groups. A host that needs a partner and has none is left
    out."""
    parts: list[tuple[Hosts, Attempt]] = []
    seen: set[str] = set()
    for attempt in failed:
        accused = [host for host in attempt.accused if host not in seen]
        seen.update(accused)
        half = (len(accused) + 1) // 2 if len(accused) > 2 else 1
        # A slow pair has two ends: a host is slow if it is so with two other hosts.
        times = SLOW_RETRIES if stage.size == 2 and not attempt.folder else 1
        for at in range(0, len(accused), half):
            parts += [(tuple(accused[at : at + half]), attempt)] * times
    helpers = [host for host in proven if host not in seen]
    met: dict[Hosts, set[str]] = {part: {*attempt.hosts} for part, attempt in parts}
    waves: list[list[Group]] = []
    free: list[str] = []
    for part, _ in parts:
        needed = min(stage.size - len(part), len(helpers))
        if stage.size > 1 and needed + len(part) < 2:
            continue
        is_busy = bool(waves) and any(part == group.retried for group in waves[-1])
        if not waves or is_busy or needed > len(free):
            waves.append([])
            free = [*helpers]
        free.sort(key=lambda host: host in met[part])
        waves[-1].append(Group((*part, *free[:needed]), part))
        met[part].update(free[:needed])
        free = free[needed:]
    return waves


def slow_runs(stage: str, attempts: Attempts, folder: Path, tolerance: float) -> Iterator[Attempt]:
    """The runs on one host, or on as many, that are slower than the others, as `commbench fleet`
    finds them."""
    newest = {a.retried if len(a.hosts) > 1 and a.retried else a.hosts: a for a in attempts}
    names = {"+".join(hosts): hosts for hosts in newest}
    fleet = _judge_runs({n: newest[hosts] for n, hosts in names.items()}, folder, tolerance)
    for node in fleet.nodes if fleet else ():
        slow = node.slowdown
        is_slow = slow and slow.value > 1 + tolerance and slow.ends[0] > 1
        if node.verdict == DRAIN or (node.verdict == AGAIN and is_slow):
            told = [times_text(slow, "as long as its peers")] * bool(slow)
            reason, hosts = "; ".join([*told, *node.reasons]), names[node.name]
            retried = newest[hosts].retried
            is_undecided = node.verdict == AGAIN or not retried
            yield Attempt(stage, hosts, False, reason, hosts, retried, True, is_undecided)


def _judge_runs(runs: Mapping[str, Attempt], folder: Path, tolerance: float) -> FleetResult | None:
    """What `commbench fleet` says of the runs of these names; None for too few."""
    given = [f"{name}={folder / attempt.folder}" for name, attempt in runs.items()]
    if len(given) < LEAST_NODES:
        return None
    return judge_fleet(read_nodes(given, ImportHints()), tolerance=tolerance)


def find_least(attempts: Attempts, folder: Path, tolerance: float) -> dict[str, float | None]:
    """How many times as slow as the others a host must be to be named in 95 % of such preflights,
    alone and in pairs; None where too few hosts passed to compare them."""
    passed = [a for a in attempts if a.passed and a.folder]
    fleet = _judge_runs({a.hosts[0]: a for a in passed if a.stage == ALONE}, folder, tolerance)
    known = [group.least for group in (fleet.groups if fleet else ()) if group.least is not None]
    pairs = _join([a for a in passed if a.stage == PAIRS and not a.retried], folder)
    limit = find_slow(pairs).rank_limit if pairs.values else None
    return {ALONE: 1 + max(known) if known else None, PAIRS: 1 / limit if limit else None}


def slow_links(
    stage: str, attempts: Attempts, folder: Path, _tolerance: float
) -> Iterator[Attempt]:
    """The hosts whose pairs are slow: by `commbench pairs`' statistics of all pairs together. A
    host that was retried is slow if it is with each of its new partners. A slow time that does not
    come again says nothing: other programs cause it, too."""
    retried = {host for attempt in attempts for host in attempt.retried}
    first = _join([a for a in attempts if not a.retried], folder)
    if not retried and first.values:
        for finding in find_slow(first).findings:
            hosts = sorted({first.hosts[rank] for rank in (*finding.ranks, *finding.to_ranks)})
            slower = f"{1 / finding.ratio:.2f} times as slow as its peers"
            reason, named = f"{name_part(first, finding)} is {slower}", tuple(hosts)
            yield Attempt(stage, named, False, reason, named, is_undecided=True)
    for host in sorted(retried):
        own = [_join([a], folder) for a in attempts if host in a.retried]
        reason = _why_slow(host, own, first, retried)
        if reason and len(own) >= SLOW_RETRIES:  # one is the retry of a run that failed
            yield Attempt(stage, (host,), False, reason, (host,), (host,))


def _join(attempts: Attempts, folder: Path) -> RankMatrix:
    """The bandwidths of all pairs of hosts as one matrix. Ranks are numbered by their hosts."""
    hosts = [*dict.fromkeys(host for attempt in attempts for host in attempt.hosts)]
    values: dict[tuple[int, int], float] = {}
    ranks = 1
    for attempt in attempts:
        run = read_run(folder / attempt.folder / JOURNAL)
        ranks = run.header.plan.world_size // len(attempt.hosts)
        starts = [hosts.index(host) * ranks for host in attempt.hosts]
        number = [start + own for start in starts for own in range(ranks)]
        for found in main_matrices(pair_matrices(run)):
            if found.quantity == BANDWIDTH:
                values |= {(number[a], number[b]): v for (a, b), v in found.values.items()}
    return RankMatrix(BANDWIDTH, values, tuple(host for host in hosts for _ in range(ranks)))


def _why_slow(host: str, own: Sequence[RankMatrix], others: RankMatrix, bad: set[str]) -> str:
    """Why a host is slow in its retries; empty where it is not slow in all of them. Sending,
    receiving, and values within it are compared apart."""
    for way in ("sends", "receives", "moves within"):
        peers = [*_values(others, way, {*others.hosts} - bad)]
        slowest = [min(_values(matrix, way, {host}), default=0.0) for matrix in own]
        if peers and slowest and 0 < max(slowest) < (1 - LEAST) * median(peers):
            return (
                f"{way} {format_GBps(max(slowest))} GB/s, and other hosts "
                f"{format_GBps(median(peers))} GB/s: {median(peers) / max(slowest):.2f} times as "
                f"slow, also with {format_count(len(own), 'other host')}"
            )
    return ""


def _values(matrix: RankMatrix, way: str, hosts: set[str]) -> Iterator[float]:
    """The bandwidths at which these hosts send, receive, or move data between their own ranks."""
    for (sender, receiver), value in matrix.values.items():
        ends = matrix.hosts[sender], matrix.hosts[receiver]
        is_within = ends[0] == ends[1]
        if is_within == (way == "moves within") and ends[way == "receives"] in hosts:
            yield value


def judge_hosts(hosts: Sequence[str], attempts: Attempts) -> list[HostVerdict]:
    """The verdict about each host, in their order."""
    by_stage = collect((attempt.stage, attempt) for attempt in attempts)
    return [_judge(host, by_stage) for host in hosts]


def _judge(host: str, by_stage: Mapping[str, Attempts]) -> HostVerdict:
    for stage, of_stage in by_stage.items():
        verdict, reason = _verdict(host, of_stage)
        if verdict != PASS:
            return HostVerdict(host, verdict, stage, reason)
    return HostVerdict(host, PASS)


def _verdict(host: str, of_stage: Attempts) -> tuple[str, str]:
    first = [a for a in of_stage if host in a.accused and host not in a.retried]
    if not first:
        return PASS, ""
    again = [attempt for attempt in of_stage if host in attempt.retried]
    failed = [attempt for attempt in again if not attempt.passed]
    reason = (failed or first)[-1].reason
    if not again:
        return AGAIN, reason
    if failed:
        if all(len(a.hosts) == 1 and not a.is_answered for a in (*first, *again)):
            return MISSING, reason
        return DRAIN if any(_is_clear(host, a) for a in failed) else AGAIN, reason
    if all(attempt.is_undecided or _is_explained(host, attempt, of_stage) for attempt in first):
        return PASS, ""
    return FLAPPING, f"{first[0].reason}; then it passed"


def _is_clear(host: str, attempt: Attempt) -> bool:
    """Whether a retry that failed is the fault of this host alone."""
    return attempt.accused == (host,) and not attempt.is_undecided


def _is_explained(host: str, attempt: Attempt, of_stage: Collection[Attempt]) -> bool:
    """Whether another host, which failed again, is the cause of a failed attempt."""
    return any(
        _is_clear(other, retry)
        for other in attempt.accused
        if other != host
        for retry in of_stage
        if other in retry.retried and not retry.passed
    )
