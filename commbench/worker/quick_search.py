"""The quick search for slow ranks and links: which rounds of all pairs are measured.

First a look at some rounds, a few iterations of each: up to FEW_RANKS ranks at all of them; of more
ranks at the halves, where i meets i + n/2, and at SAMPLED_ROUNDS others. Then, in full, the rounds
in which ranks that look slow meet each other, and some others. What is measured is the same as
without the search: all pairs of a round at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from commbench.analysis.pair_values import PairValues, find_peers, is_of_matrix
from commbench.analysis.suspects import Suspects, choose_rounds, find_suspects
from commbench.results.schema import Batch, RunHeader
from commbench.spec.case import FINISHED, READY, Case
from commbench.spec.pairs import BACK, FEW_RANKS, HALVES, QUICK, is_round

SAMPLED_ROUNDS = 5
LOOK_ITERATIONS = 3
"""Iterations of a case in the first look."""


def most_rounds(ranks: int) -> int:
    """How many rounds are measured in full, for each kind of call. Of few ranks the first look has
    every pair, and all rounds in full are not many."""
    return 2 if ranks <= FEW_RANKS else 4


class QuickSearch:
    """Chooses the cases that rank 0 has measured."""

    def __init__(self, header: RunHeader, cases: Sequence[Case]) -> None:
        self._header, self._seed = header, header.plan.seed
        self._cases = [c for c in cases if is_of_matrix(c) and c.status in (READY, FINISHED)]
        ranks = max((case.ranks for case in self._cases), default=0)
        rounds = list(dict.fromkeys(map(_round_of, self._cases)))
        first = set(rounds)
        if ranks > FEW_RANKS:
            others = sorted(name for name in rounds if is_round(name))
            sampled = Random(self._seed).sample(others, min(SAMPLED_ROUNDS, len(others)))
            first = {HALVES, *sampled}
        self.looks = {case.index for case in self._cases if _round_of(case) in first}
        """The indices of the cases of the first look."""
        self.others = {case.index for case in self._cases} - self.looks
        """The indices of the cases that are measured only if they are chosen."""
        kinds_and_ways = {(_kind_of(c), c.pairs.endswith(BACK)) for c in self._cases}
        self._most_rounds = most_rounds(ranks)
        self.most_chosen = self._most_rounds * len(kinds_and_ways)
        self._values: dict[str, PairValues] = {}

    def record(self, case: Case, *batches: Batch) -> None:
        """Take the batches of a case."""
        if is_of_matrix(case):
            kind = _kind_of(case)
            values = self._values.setdefault(kind, PairValues(self._header.plan, case))
            values.add(case, batches)

    def choose(self) -> set[int]:
        """The indices of the cases that are measured in full after the first look; empty where no
        rank and no link looks slow."""
        chosen: set[int] = set()
        for kind, values in self._values.items():
            found = find_suspects(values.matrix(self._header))
            if found.findings:
                cases = [case for case in self._cases if _kind_of(case) == kind]
                chosen |= self._choose_rounds(cases, found)
        return chosen

    def _choose_rounds(self, cases: Sequence[Case], found: Suspects) -> set[int]:
        """The cases of the rounds that say most about the suspects, both directions of each."""
        peers = {
            case.pairs: find_peers(self._header.plan, case, found.ranks)
            for case in cases
            if not case.pairs.endswith(BACK)
        }
        best = choose_rounds(found, peers, self._most_rounds, self._seed)
        return {case.index for case in cases if _round_of(case) in best}


def make_quick_search(header: RunHeader, cases: Sequence[Case]) -> QuickSearch | None:
    """The quick search of a plan that asks for one."""
    return QuickSearch(header, cases) if QUICK in header.plan.pairs else None


def _round_of(case: Case) -> str:
    return case.pairs.removesuffix(BACK)


def _kind_of(case: Case) -> str:
    return f"{case.title_without('pairs')} {case.size_bytes}"
