"""What to measure after a quick search: the ranks and links that may be slow, with sound peers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from commbench.analysis.rank_matrix import Pair, RankMatrix
from commbench.analysis.slow_parts import LEAST, LINK, Finding, find_slow

SUSPICION = 0.2
"""The probability that scatter alone gives a suspect in a sound matrix."""
PEERS = 4
"""A suspect is measured with so many sound ranks."""
MOST_AMONG = 8
"""So many suspects at most are also measured with each other, each with each."""
FILLED = 64
"""Of so many ranks at most, those that are left in a round are pairs too: suspects are then
measured under the load of the first rounds."""


class Suspects(NamedTuple):
    """What to measure after a quick search."""

    findings: tuple[Finding, ...]
    """What may be slow."""
    rounds: tuple[tuple[Pair, ...], ...]
    """Pairs that are measured at once, each in both directions: no rank is twice in a round."""


def find_suspects(matrix: RankMatrix) -> Suspects:
    """The suspects of a quick search, and the rounds that tell whether they are slow.

    A suspected rank is measured with sound ranks of different hosts, a suspected link once more,
    and each of its ends with sound ranks. The new value of a pair takes the place of the old one.
    Both are empty where nothing is suspected.
    """
    findings = find_slow(matrix, SUSPICION, LEAST / 2).findings
    suspected = dict.fromkeys(
        rank for finding in findings for rank in (*finding.ranks, *finding.to_ranks)
    )
    sound = [rank for rank in range(matrix.ranks) if rank not in suspected]
    pairs: dict[Pair, None] = {}
    for finding in findings:
        if finding.kind == LINK:
            pairs |= dict.fromkeys(
                map(_ordered, zip(finding.ranks, finding.to_ranks, strict=False))
            )
    for number, rank in enumerate(suspected):
        at = number * PEERS % max(len(sound), 1)
        peers = _choose_peers(matrix, rank, sound[at:] + sound[:at])
        pairs |= dict.fromkeys(_ordered((rank, peer)) for peer in peers)
    pairs |= dict.fromkeys(map(_ordered, combinations(tuple(suspected)[:MOST_AMONG], 2)))
    rounds = make_rounds(pairs)
    if matrix.ranks <= FILLED:
        rounds = [_fill(each, matrix.ranks, number) for number, each in enumerate(rounds)]
    return Suspects(findings, tuple(map(tuple, rounds)))


def make_rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs in few rounds: each is in the first round in which both of its ranks are free."""
    rounds: list[list[Pair]] = []
    busy: list[set[int]] = []
    for pair in pairs:
        at = next((at for at, ranks in enumerate(busy) if ranks.isdisjoint(pair)), len(rounds))
        if at == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[at].append(pair)
        busy[at].update(pair)
    return rounds


def _choose_peers(matrix: RankMatrix, rank: int, sound: list[int]) -> list[int]:
    """Sound ranks to measure a suspect with: of different other hosts where there are enough, and
    of its own host."""
    own = [peer for peer in sound if matrix.hosts[peer] == matrix.hosts[rank]]
    others = [peer for peer in sound if matrix.hosts[peer] != matrix.hosts[rank]]
    first_of_host = {matrix.hosts[peer]: peer for peer in reversed(others)}
    chosen = dict.fromkeys([*reversed(first_of_host.values()), *others][: len(others)])
    return [*list(chosen)[:PEERS], *own[:PEERS]]


def _ordered(pair: Pair) -> Pair:
    return min(pair), max(pair)


def _fill(pairs: list[Pair], ranks: int, number: int) -> list[Pair]:
    """The pairs of a round, and pairs of the ranks that are left: other ones in every round."""
    busy = {rank for pair in pairs for rank in pair}
    left = [rank for rank in range(ranks) if rank not in busy]
    half = len(left) // 2
    at = number % max(half, 1)
    second = left[half : 2 * half]
    return [*pairs, *zip(left[:half], second[at:] + second[:at], strict=True)]
