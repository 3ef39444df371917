"""Shares of a peak, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commbench.analysis.peak import BUS_BOUND, NODE_BOUND, find_peak_fraction, why_no_peak_fraction
from commbench.analysis.rows import ResultRow
from commbench.errors import UsageError
from commbench.explain.query import make_quoted_row
from commbench.spec.links import Peak, parse_peak
from commbench.spec.operations import OPERATIONS

ONE_GB_PER_S = 1 << 30, (1 << 30) / 1e9
"""A size, and the seconds in which it makes an algbw of 1 GB/s."""


def row(name: str, ranks: int, nodes: int = 1) -> ResultRow:
    size, seconds = ONE_GB_PER_S
    return make_quoted_row(
        OPERATIONS[name], ranks=ranks, nodes=nodes, size_bytes=size, seconds=seconds
    )


PEAK, NODE_PEAK = parse_peak("2GB/s"), parse_peak("2GB/s/node")


@pytest.mark.parametrize(
    ("name", "by_rank", "by_node"),
    [
        # 8 ranks on 4 nodes: factors of 8, and of 4; half of each is the share of 2 GB/s.
        ("all_reduce", 2 * 7 / 8, 2 * 3 / 4),
        ("all_gather", 7 / 8, 3 / 4),
        ("reduce_scatter", 7 / 8, 3 / 4),
        ("gather", 7 / 8, 3 / 4),
        ("scatter", 7 / 8, 3 / 4),
        ("broadcast", 1, 1),
        ("reduce", 1, 1),
        ("send_recv", 1, 1),
        ("all_to_all", 7 / 8, 2 * 3 / 4),  # both ranks of a node have blocks for other nodes
    ],
)
def test_the_share_is_what_some_link_or_some_node_had_to_move(
    name: str, by_rank: float, by_node: float
) -> None:
    of_rank = find_peak_fraction(row(name, 8, 4), PEAK)
    of_node = find_peak_fraction(row(name, 8, 4), NODE_PEAK)
    assert of_rank is not None and of_node is not None
    assert (of_rank.bound, of_node.bound) == (BUS_BOUND, NODE_BOUND)
    assert (of_rank.factor, of_node.factor) == pytest.approx((by_rank, by_node))
    assert (of_rank.rate_bytes_per_s, of_node.rate_bytes_per_s) == pytest.approx(
        (by_rank * 1e9, by_node * 1e9)
    )
    assert (of_rank.fraction, of_node.fraction) == pytest.approx((by_rank / 2, by_node / 2))


def test_only_where_a_factor_exceeds_1_can_a_reducing_network_beat_the_link() -> None:
    found = {}
    for name, operation in OPERATIONS.items():
        share = find_peak_fraction(row(name, 8), PEAK) if operation.has_data else None
        if share and share.ceiling != 1:
            found[name] = share.ceiling
    reducing = ("all_reduce", "one_shot_all_reduce", "two_shot_all_reduce", "multimem_all_reduce")
    assert found == dict.fromkeys(reducing, 1.75)
    two = find_peak_fraction(row("all_reduce", 2), PEAK)
    assert two is not None and two.ceiling == 1


def test_eight_h100_with_nvls_exceed_their_links() -> None:
    """NVIDIA/nccl-tests issue 212: busbw 480 GB/s, algbw about 275, link 450."""
    claimed = make_quoted_row(
        OPERATIONS["all_reduce"], ranks=8, size_bytes=1 << 30, seconds=(1 << 30) / 274.3e9
    )
    share = find_peak_fraction(claimed, parse_peak("h100"))
    assert share is not None
    assert share.rate_bytes_per_s == pytest.approx(480e9, rel=1e-4)
    assert share.fraction == pytest.approx(1.0667, abs=1e-4)
    assert share.fraction < share.ceiling


@pytest.mark.parametrize(
    ("name", "ranks", "peak", "why"),
    [
        ("broadcast", 1, PEAK, "with one rank nothing crosses a link"),
        ("all_reduce", 2, NODE_PEAK, "all ranks are on one node, so nothing crosses the network "
                                     "between nodes"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_held_against_a_peak_says_why(
    name: str, ranks: int, peak: Peak, why: str
) -> None:
    assert find_peak_fraction(row(name, ranks), peak) is None
    assert why_no_peak_fraction(row(name, ranks), peak) == why


def test_ranks_that_share_a_gpu_have_no_share_and_a_barrier_has_no_bandwidth() -> None:
    two = row("all_reduce", 2)
    shared = replace(two, header=two.header._replace(gpu_shared=True))
    assert find_peak_fraction(shared, PEAK) is None
    assert why_no_peak_fraction(shared, PEAK).startswith("ranks shared a GPU")
    barrier = make_quoted_row(OPERATIONS["barrier"], ranks=4, seconds=1e-5)
    assert find_peak_fraction(barrier, PEAK) is None
    assert why_no_peak_fraction(barrier, PEAK) == "it has no bandwidth"


def test_a_claimed_size_is_rounded_as_a_plan_rounds_it() -> None:
    claimed = make_quoted_row(
        OPERATIONS["all_gather"], ranks=3, size_bytes=1 << 20, seconds=1e-3, dtype="float32"
    )
    case = claimed.measurement.case
    assert (case.size_bytes, case.count) == (1048572, 87381)
    assert claimed.time is not None and claimed.time.median == 1e-3


@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "size", "message"),
    [
        ("all_gather", 8, 1, 8,
         "all_gather float32 out_of_place 8 B cannot be measured: less than one float32 per rank"),
        ("send_recv", 1, 1, 8,
         "send_recv float32 out_of_place 8 B cannot be measured: send_recv needs at least 2 ranks"),
        ("all_reduce", 2, 3, 8, "2 ranks cannot be on 3 nodes"),
        ("all_reduce", 0, 1, 8, "world size is 0"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_is_refused(
    name: str, ranks: int, nodes: int, size: int, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        make_quoted_row(OPERATIONS[name], ranks=ranks, nodes=nodes, size_bytes=size, seconds=1.0)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("name", "fewest"),
    [("all_reduce", [0, 1, 2, 2, 3, 3, 10]), ("barrier", [0, 1, 2, 2, 3, 3, 10]),
     ("send_recv", [0, 1, 1, 1, 1, 1, 1])],
)  # fmt: skip
def test_the_fewest_messages_are_the_rounded_up_logarithm_but_for_a_shift(
    name: str, fewest: list[int]
) -> None:
    ranks = (1, 2, 3, 4, 5, 8, 1000)
    assert [OPERATIONS[name].fewest_messages(n) for n in ranks] == fewest
