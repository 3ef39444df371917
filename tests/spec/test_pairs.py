"""Which ranks are pairs."""

from __future__ import annotations

import pytest

from commbench.errors import UsageError
from commbench.spec.pairs import Peer, count_pairs, find_peer, parse_pairs, why_no_pairs


def pairs_of(pairs: str, ranks: int) -> list[tuple[int, int]]:
    """Each pair, its first rank first; both of its ranks must know each other."""
    peers = {rank: find_peer(pairs, rank, ranks) for rank in range(ranks)}
    for rank, peer in peers.items():
        assert peer is None or peers[peer.rank] == Peer(rank, not peer.is_first)
    return [(rank, peer.rank) for rank, peer in peers.items() if peer and peer.is_first]


@pytest.mark.parametrize(
    ("pairs", "ranks", "found"),
    [
        ("halves", 2, [(0, 1)]),
        ("halves", 8, [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("halves", 5, [(0, 2), (1, 3)]),
        ("neighbours", 6, [(0, 1), (2, 3), (4, 5)]),
        ("neighbours", 5, [(0, 1), (2, 3)]),
        ("0-4", 5, [(0, 4)]),
        ("3-1", 4, [(3, 1)]),
        ("halves", 1, []),
        ("neighbours", 1, []),
    ],
)
def test_pairs_are_disjoint_and_the_last_of_an_odd_number_has_none(
    pairs: str, ranks: int, found: list[tuple[int, int]]
) -> None:
    assert pairs_of(pairs, ranks) == found
    assert count_pairs(pairs, ranks) == len(found)


def test_an_operation_without_pairs_has_none() -> None:
    assert (find_peer("", 0, 4), count_pairs("", 4), why_no_pairs("", 4)) == (None, 0, "")


def test_a_rank_that_the_group_does_not_have_is_named() -> None:
    assert why_no_pairs("1-4", 4) == "rank 4 of pair 1-4 is not one of 4 ranks"
    assert why_no_pairs("1-3", 4) == why_no_pairs("halves", 4) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [(" Halves", "halves"), ("neighbors", "neighbours"), ("00-12 ", "0-12")],
)
def test_a_text_has_one_normal_form(text: str, found: str) -> None:
    assert parse_pairs(text) == found == parse_pairs(found)


@pytest.mark.parametrize("text", ["", "all", "1", "1-2-3", "-1-2", "1-99999999"])
def test_other_texts_are_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(UsageError, match="unknown pairs") as refused:
        parse_pairs(text)
    assert refused.value.hint == "known: halves, neighbours, or two ranks such as 0-5"


def test_a_pair_of_one_rank_is_refused() -> None:
    with pytest.raises(UsageError, match="pair 2-2 has one rank twice") as refused:
        parse_pairs("2-2")
    assert refused.value.hint == "a pair needs two different ranks"
