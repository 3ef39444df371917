"""What to measure after a quick search: the rounds that say most about ranks and links that may be
slow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import NamedTuple

from commbench.analysis.rank_matrix import RankMatrix
from commbench.analysis.slow_parts import LEAST, LINK, Finding, find_slow

SUSPICION = 0.2
"""The probability that scatter alone gives a suspect in a sound matrix."""
_LINK_WORTH = 100
"""What a round is worth in which the ends of a suspected link meet; a suspected rank that meets a
sound one is worth 1."""


class Suspects(NamedTuple):
    """What may be slow."""

    findings: tuple[Finding, ...]
    ranks: frozenset[int]
    """Suspected ranks, and the ends of suspected links."""
    links: frozenset[frozenset[int]]
    """Pairs of ranks that use a suspected link."""


def find_suspects(matrix: RankMatrix) -> Suspects:
    """What may be slow in a matrix of few values: parts that are slower by limits less strict than
    those of find_slow."""
    findings = find_slow(matrix, SUSPICION, LEAST / 2).findings
    ranks = (rank for finding in findings for rank in (*finding.ranks, *finding.to_ranks))
    links = (
        frozenset(pair)
        for finding in findings
        if finding.kind == LINK
        for pair in product(finding.ranks, finding.to_ranks)
    )
    return Suspects(findings, frozenset(ranks), frozenset(links))


def choose_rounds(
    suspects: Suspects, peers: Mapping[str, Mapping[int, int]], most: int, seed: int
) -> list[str]:
    """The rounds that say most about the suspects, at most so many, the best first.

    `peers` has for each round the rank that each suspect meets in it; one that meets none is
    missing. Of rounds that say as much, `seed` decides.
    """
    worth = {}
    for name, met in peers.items():
        with_sound = sum(peer not in suspects.ranks for peer in met.values())
        links = {frozenset(pair) for pair in met.items()} & suspects.links
        worth[name] = with_sound + _LINK_WORTH * len(links)
    names = sorted(name for name, value in worth.items() if value)
    Random(seed).shuffle(names)
    return sorted(names, key=lambda name: -worth[name])[:most]
