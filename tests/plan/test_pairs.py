"""Which ranks are pairs."""

from __future__ import annotations

import pytest

from commbench.errors import UsageError
from commbench.plan.pairs import (
    FEW_RANKS,
    Peer,
    count_pairs,
    count_rounds,
    expand_pairs,
    find_peer,
    list_pairs,
    pairs_title,
    parse_pairs,
    why_no_pairs,
)


def pairs_of(pairs: str, ranks: int) -> list[tuple[int, int]]:
    """Each pair, its first rank first; both of its ranks must know each other."""
    peers = {rank: find_peer(pairs, rank, ranks) for rank in range(ranks)}
    for rank, peer in peers.items():
        assert peer is None or peers[peer.rank] == Peer(rank, not peer.is_first)
    found = [(rank, peer.rank) for rank, peer in peers.items() if peer and peer.is_first]
    assert sorted(list_pairs(pairs, ranks)) == found
    return found


@pytest.mark.parametrize(
    ("pairs", "ranks", "found"),
    [
        ("halves", 2, [(0, 1)]), ("halves", 8, [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("halves", 5, [(0, 2), (1, 3)]), ("neighbours", 6, [(0, 1), (2, 3), (4, 5)]),
        ("neighbours", 5, [(0, 1), (2, 3)]), ("0-4", 5, [(0, 4)]), ("3-1", 4, [(3, 1)]),
        ("0-4+3-1", 5, [(0, 4), (3, 1)]), ("halves:back", 5, [(2, 0), (3, 1)]),
        ("round:0", 4, [(0, 3), (1, 2)]), ("round:1", 4, [(0, 1), (2, 3)]),
        ("round:1:back", 4, [(1, 0), (3, 2)]), ("round:2", 5, [(0, 2), (3, 4)]), ("halves", 1, []),
        ("neighbours", 1, []),
    ],
)  # fmt: skip
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
    assert why_no_pairs("1-3+0-4", 4) == "rank 4 of pairs 1-3+0-4 is not one of 4 ranks"
    assert why_no_pairs("round:3:back", 4) == "4 ranks have the rounds 0 to 2, but not 3"
    assert why_no_pairs("round:4", 5) == "" and find_peer("round:5", 0, 5) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" Halves", "halves"), ("neighbors", "neighbours"), ("00-12 ", "0-12"),
        ("00-5+1-07", "0-5+1-7"), ("Round:03", "round:3"), ("round:3:BACK", "round:3:back"),
        ("halves:back", "halves:back"), ("ALL", "all"), ("quick", "quick"),
    ],
)  # fmt: skip
def test_a_text_has_one_normal_form(text: str, found: str) -> None:
    assert parse_pairs(text) == found == parse_pairs(found)


KNOWN = "known: halves, neighbours, all, quick, or like round:3, 0-5, 0-5+1-7"
OTHERS = ("", "every", "1", "1-2-3", "-1-2", "1-99999999", "1-2+", "round:", "round:x", "all:back",
          "0-1:back", "1-2,3-4+")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("2-2", "pair 2-2 has one rank twice", "a pair needs two different ranks"),
        ("0-5+5-7", "rank 5 is in two pairs of 0-5+5-7",
         "pairs with + call at once, so each rank is in one; separate others by commas"),
        *((text, f"unknown pairs {text!r}", KNOWN) for text in OTHERS),
    ],
)  # fmt: skip
def test_other_texts_are_refused_with_what_is_known(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_pairs(text)
    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize("ranks", [*range(1, 20), 64, 101])
def test_in_the_rounds_of_all_pairs_each_pair_meets_once_and_each_rank_has_one_pair(
    ranks: int,
) -> None:
    met = []
    for pairs in expand_pairs(("all",), ranks, is_one_way=False):
        found = pairs_of(pairs, ranks)
        assert len(found) == count_pairs(pairs, ranks) == ranks // 2
        assert len({rank for pair in found for rank in pair}) == 2 * len(found)
        assert pairs_of(f"{pairs}:back", ranks) == sorted((j, i) for i, j in found)
        met += found
    assert sorted(met) == [(i, j) for i in range(ranks) for j in range(i + 1, ranks)]


def test_all_pairs_of_an_operation_that_goes_one_way_are_measured_in_both() -> None:
    ways = ("round:0", "round:0:back", "round:1", "round:1:back", "round:2", "round:2:back")
    assert expand_pairs(("all", "halves"), 4, is_one_way=True) == (*ways, "halves")
    assert expand_pairs(("0-1", "all"), 3, is_one_way=False) == ("0-1", *ways[::2])


def test_a_quick_search_of_many_ranks_has_the_halves_too() -> None:
    few = expand_pairs(("quick",), FEW_RANKS, is_one_way=True)
    assert few == expand_pairs(("all",), FEW_RANKS, is_one_way=True)
    many = expand_pairs(("quick",), FEW_RANKS + 1, is_one_way=True)
    assert many[-2:] == ("halves", "halves:back")
    assert len(many) == 2 * count_rounds(FEW_RANKS + 1) + 2


@pytest.mark.parametrize(
    ("pairs", "title"),
    [
        ("", ""), ("halves", ""), ("halves:back", "halves back"), ("neighbours", "neighbours"),
        ("0-5", "pair 0-5"), ("0-5+1-7", "pairs 0-5+1-7"), ("round:3:back", "round 3 back"),
        ("all", "all pairs"), ("quick", "quick search"),
    ],
)  # fmt: skip
def test_the_title_of_a_case_names_its_pairs(pairs: str, title: str) -> None:
    assert pairs_title(pairs) == title
