from __future__ import annotations

from synthetic_matrix import Defect, planted_matrix

from commbench.analysis.slow_parts import BOTH, HOST, LINK, OUT, find_slow
from commbench.analysis.suspects import choose_rounds, find_suspects
from commbench.spec.pairs import find_peer


def peers(ranks: int, of: frozenset[int]) -> dict[str, dict[int, int]]:
    """For each round of all pairs whom these ranks meet."""
    names = [f"round:{number}" for number in range(ranks - 1)]
    return {
        name: {rank: peer.rank for rank in of if (peer := find_peer(name, rank, ranks))}
        for name in names
    }


def test_a_sound_matrix_has_no_suspects() -> None:
    suspects = find_suspects(planted_matrix(16, noise=0.01, share=0.4))
    assert suspects == ((), frozenset(), frozenset())
    assert choose_rounds(suspects, peers(16, suspects.ranks), 4, seed=1) == []


def test_what_is_not_slow_enough_for_a_finding_can_be_a_suspect() -> None:
    matrix = planted_matrix(16, 1, Defect(HOST, OUT, 3, ratio=0.9), noise=0.01)
    assert find_slow(matrix).findings == ()
    assert find_suspects(matrix).ranks == {3}


def test_a_suspected_link_is_measured_again() -> None:
    suspects = find_suspects(planted_matrix(16, 1, Defect(LINK, BOTH, 2, 5), noise=0.01))
    assert (suspects.ranks, suspects.links) == ({2, 5}, {frozenset((2, 5))})
    first, *_ = choose_rounds(suspects, peers(16, suspects.ranks), 4, seed=1)
    peer = find_peer(first, 2, 16)
    assert peer is not None and peer.rank == 5


def test_a_suspected_host_meets_sound_ranks() -> None:
    suspects = find_suspects(planted_matrix(32, 4, Defect(HOST, BOTH, 1), noise=0.01, share=0.3))
    assert suspects.ranks == {4, 5, 6, 7}
    met = peers(32, suspects.ranks)
    names = choose_rounds(suspects, met, 3, seed=1)
    assert len(names) == 3 and names != choose_rounds(suspects, met, 3, seed=2)
    assert all(not suspects.ranks & set(met[name].values()) for name in names)
