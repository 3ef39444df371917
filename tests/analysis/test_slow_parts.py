from __future__ import annotations

import random
from math import exp

import pytest
from synthetic_matrix import ACROSS_HOSTS, Defect, planted_matrix

from commbench.analysis.rank_matrix import BANDWIDTH, LATENCY, RankMatrix
from commbench.analysis.slow_parts import (
    ACROSS,
    ALL,
    BOTH,
    HOST,
    IN,
    INTERFACE,
    LINK,
    OUT,
    RANK,
    WITHIN,
    find_slow,
)

DIRECTIONS = (Defect(HOST, OUT, 2), Defect(HOST, IN, 1))
LINKS = (Defect(LINK, BOTH, 1, 2), Defect(LINK, OUT, 2, 1))
DEFECTS = (Defect(HOST, BOTH, 1), *DIRECTIONS, *LINKS)
OF_RANKS = (Defect(RANK, BOTH, 5), Defect(RANK, OUT, 2), Defect(LINK, BOTH, 0, 1, True))
SHAPES = ((3, 1), (4, 1), (5, 1), (8, 1), (16, 1), (8, 2), (12, 4), (16, 4), (32, 8))


def name(value: object) -> str:
    return f"{value.kind} {value.direction}" if isinstance(value, Defect) else ""


def cases() -> list[tuple[int, int, Defect]]:
    """Every defect that a shape can have."""
    return [
        (ranks, per_host, defect)
        for ranks, per_host in SHAPES
        for defect in DEFECTS + (OF_RANKS if per_host > 1 else ())
    ]


@pytest.mark.parametrize(("ranks", "per_host", "defect"), cases(), ids=name)
def test_a_slow_part_is_the_only_finding(ranks: int, per_host: int, defect: Defect) -> None:
    found = find_slow(planted_matrix(ranks, per_host, defect, noise=0.02)).findings
    assert len(found) == 1 and defect.is_named_by(found[0], per_host), found


@pytest.mark.parametrize(("ranks", "per_host"), SHAPES)
def test_nothing_is_named_in_a_sound_matrix(ranks: int, per_host: int) -> None:
    for noise in (0.0, 0.03, 0.3):
        assert find_slow(planted_matrix(ranks, per_host, noise=noise)).findings == ()


@pytest.mark.full
@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
@pytest.mark.parametrize(("ranks", "per_host"), [*SHAPES, (64, 1), (64, 8)])
def test_false_alarms_are_rare(ranks: int, per_host: int, noise: float) -> None:
    seeds = range(300 if ranks < 32 else 40)
    matrices = (planted_matrix(ranks, per_host, noise=noise, seed=seed) for seed in seeds)
    assert sum(bool(find_slow(matrix).findings) for matrix in matrices) <= 1


@pytest.mark.full
@pytest.mark.parametrize(("noise", "least"), [(0.01, 1.0), (0.03, 0.95)])
@pytest.mark.parametrize(
    ("ranks", "per_host", "defect"),
    [*cases(), *((64, 8, defect) for defect in DEFECTS + OF_RANKS)],
    ids=name,
)
def test_slow_parts_are_found(
    ranks: int, per_host: int, defect: Defect, noise: float, least: float
) -> None:
    found = [
        find_slow(planted_matrix(ranks, per_host, defect, noise=noise, seed=seed)).findings
        for seed in range(40)
    ]
    hits = sum(len(each) == 1 and defect.is_named_by(each[0], per_host) for each in found)
    # Of 3 ranks a pair has too few peers: of 400 such matrices with 3 % noise 353 name the link.
    least = 0.85 if ranks == 3 and noise > 0.01 else least
    assert hits >= least * len(found)


def test_a_finding_says_what_its_peers_reach() -> None:
    matrix = planted_matrix(8, 1, Defect(HOST, OUT, 2), noise=0.0)
    (finding,) = find_slow(matrix).findings
    assert (finding.kind, finding.direction, finding.scope) == (HOST, OUT, ACROSS)
    assert (finding.value, finding.peers) == pytest.approx((ACROSS_HOSTS / 2, ACROSS_HOSTS))
    assert (finding.ratio, finding.pairs, finding.peer_pairs) == (pytest.approx(0.5), 7, 49)


def test_a_long_latency_is_slow() -> None:
    matrix = planted_matrix(8, 1, Defect(HOST, BOTH, 3), quantity=LATENCY)
    (finding,) = find_slow(matrix).findings
    assert (finding.kind, finding.direction, finding.ranks) == (HOST, BOTH, (3,))
    assert (finding.pairs, finding.peer_pairs) == (7, 21)
    assert finding.value == pytest.approx(2 * finding.peers, rel=0.1)


def test_the_interface_of_a_host_is_named_where_it_has_several() -> None:
    values = planted_matrix(16, 4, interfaces=2).values
    slow = {
        (a, b): value / 2 if a // 4 != b // 4 and {a, b} & {5, 7} else value
        for (a, b), value in values.items()
    }
    matrix = planted_matrix(16, 4, interfaces=2)._replace(values=slow)
    (finding,) = find_slow(matrix).findings
    assert (finding.kind, finding.direction, finding.ranks) == (INTERFACE, BOTH, (5, 7))


def test_a_rank_that_is_slow_only_within_its_host_is_named_so() -> None:
    matrix = planted_matrix(16, 8)
    values = {
        (a, b): value / 2 if a // 8 == b // 8 and 3 in (a, b) else value
        for (a, b), value in matrix.values.items()
    }
    (finding,) = find_slow(matrix._replace(values=values)).findings
    assert (finding.kind, finding.ranks, finding.scope) == (RANK, (3,), WITHIN)


def test_a_rank_that_is_slow_everywhere_is_one_finding() -> None:
    (finding,) = find_slow(planted_matrix(16, 8, Defect(RANK, BOTH, 3))).findings
    assert (finding.kind, finding.ranks, finding.scope, finding.pairs) == (RANK, (3,), ALL, 30)


def test_two_defects_are_two_findings() -> None:
    both = (Defect(HOST, BOTH, 1), Defect(LINK, OUT, 5, 7, ratio=0.4))
    matrix = planted_matrix(12, 1, both[0])
    values = {p: v * (0.4 if both[1].slows(p, 1) else 1) for p, v in matrix.values.items()}
    found = find_slow(matrix._replace(values=values)).findings
    assert len(found) == 2
    assert all(defect.is_named_by(each, 1) for defect, each in zip(both, found, strict=True))


def test_two_ranks_give_no_finding() -> None:
    matrix = RankMatrix(BANDWIDTH, {(0, 1): 1e9, (1, 0): 0.3e9}, ("a", "b"))
    diagnosis = find_slow(matrix)
    assert (diagnosis.findings, diagnosis.link_limit) == ((), None)


def test_of_two_hosts_the_slow_one_cannot_be_told_but_the_slow_direction_can() -> None:
    assert find_slow(planted_matrix(16, 8, Defect(HOST, BOTH, 1))).findings == ()
    (finding,) = find_slow(planted_matrix(16, 8, Defect(HOST, OUT, 1))).findings
    assert (finding.kind, finding.direction) == (LINK, OUT)
    assert (finding.ranks, finding.to_ranks) == (tuple(range(8, 16)), tuple(range(8)))


def test_an_empty_matrix_gives_no_finding() -> None:
    assert find_slow(RankMatrix(BANDWIDTH, {}, ("a", "b", "c"))) == ((), None)


def test_a_part_of_the_pairs_is_enough_for_a_slow_host() -> None:
    for defect in (DEFECTS[0], *DIRECTIONS):
        (finding,) = find_slow(planted_matrix(32, 2, defect, share=0.3)).findings
        assert defect.is_named_by(finding, 2)


def test_hosts_of_two_speeds_are_not_defects() -> None:
    rng = random.Random(1)
    values = {
        (a, b): exp(rng.gauss(0, 0.02)) * (1e9 if a % 2 and b % 2 else 0.7e9)
        for a in range(16)
        for b in range(16)
        if a != b
    }
    assert find_slow(RankMatrix(BANDWIDTH, values, tuple(map(str, range(16))))).findings == ()


def test_a_link_above_the_limit_is_not_named_and_one_below_is() -> None:
    matrix = planted_matrix(8, noise=0.03)
    limit = find_slow(matrix).link_limit
    assert limit is not None and 0.7 < limit < 0.78
    for ratio, number in ((limit + 0.1, 0), (limit - 0.1, 1)):
        values = {**matrix.values, (2, 5): ACROSS_HOSTS * ratio}
        assert len(find_slow(matrix._replace(values=values)).findings) == number
