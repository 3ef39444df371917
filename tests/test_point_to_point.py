"""Point to point on real gloo ranks: right results with every kind of call, and honest refusals."""

from __future__ import annotations

from statistics import median

import pytest
from commands import Commbench

from commbench.spec.point_to_point import POINT_TO_POINT

CALLS = {name: set(operation.p2p_calls) for name, operation in POINT_TO_POINT.items()}


@pytest.mark.parametrize(
    ("ranks", "sizes", "dtype"),
    [
        (3, "5,70001", "float32"),
        pytest.param(2, "1,8,65537", "float64,bfloat16,bool", marks=pytest.mark.full),
        pytest.param(4, "1,8,65537", "float64,bfloat16,bool", marks=pytest.mark.full),
        pytest.param(5, "1,8,65537", "float64,bfloat16,bool", marks=pytest.mark.full),
    ],
)
def test_every_operation_is_right_with_every_kind_of_call_and_of_pairs(
    commbench: Commbench, ranks: int, sizes: str, dtype: str
) -> None:
    pairs = "halves,1-0" if ranks == 3 else "halves,neighbours,1-0"
    ended = commbench(
        "run", "--op", "p2p", "--p2p-call", "all", "--pairs", pairs,
        "--sizes", sizes, "--dtype", dtype, "--nproc-per-node", str(ranks), "--iters", "2",
        "--warmup", "0", "--window", "3", "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found: dict[str, set[str]] = {}
    for line in ended.cases():
        case = line["case"]
        is_refused = "gloo does not support" in line["reason"]
        is_empty = case["count"] == 0 and line["status"] == "skipped"
        assert is_refused or is_empty or (line["status"], line["wrong"]) == ("ok", 0), line
        found.setdefault(case["operation"], set()).add(case["p2p_call"])
    assert found == CALLS


def test_half_a_round_trip_and_a_message_of_a_window_are_what_the_time_is_of(
    commbench: Commbench,
) -> None:
    ended = commbench(
        "run", "--op", "ping_pong,stream", "--window", "50", "--sizes", "64K", "--iters", "20",
        "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    for case, (row, parts) in enumerate(zip(ended.rows(), (2, 50), strict=True)):
        assert int(row["calls"]) == parts
        # From the last entry to the last exit is never more than the time of the slowest rank, and
        # in some batch nearly as much: both are of one part of the call.
        shares = [b["operation_s"] / median(b["samples_s"]) for b in ended.batches(case)]
        assert max(shares) < 1.001 and max(shares) > 0.5
    stream = ended.rows()[1]
    rate = float(stream["messages_per_s"])
    assert rate == pytest.approx(1e6 / float(stream["time_us"]), rel=1e-5)
    assert float(stream["aggregate_GBps"]) == pytest.approx(rate * 65536 / 1e9, rel=1e-5)
    assert "Time is that of half a round trip." in ended.out
    assert "1 pair at once (halves)." in ended.out
    assert f" {rate:,.0f} " in ended.out


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ("exchange", "both ranks of a pair wait in send until the other one calls recv"),
        ("ring_exchange", "every rank waits in send until the next one calls recv"),
    ],
)
def test_blocking_calls_that_never_end_are_refused_before_a_rank_starts(
    commbench: Commbench, operation: str, why: str
) -> None:
    ended = commbench("run", "--op", operation, "--p2p-call", "send", "--sizes", "8")
    assert ended.code == 2
    assert not ended.folder.exists()
    assert f"{operation} with blocking calls never ends: {why}" in ended.err
    assert "hint: leave out --p2p-call send, or write --p2p-call isend\n" in ended.err


@pytest.mark.parametrize("option", ["--p2p-call isend", "--pairs 0-1", "--window 2"])
def test_an_option_of_point_to_point_is_refused_without_such_an_operation(
    commbench: Commbench, option: str
) -> None:
    ended = commbench("run", "--op", "all_reduce", *option.split())
    assert ended.code == 2
    assert f"error: {option.split()[0]} has no effect with --op all_reduce" in ended.err


def test_a_pair_of_a_rank_that_does_not_exist_is_said(commbench: Commbench) -> None:
    ended = commbench("run", "--op", "ping_pong", "--pairs", "0-2", "--sizes", "8")
    assert ended.code == 2
    assert "rank 2 of pair 0-2 is not one of 2 ranks\nhint: write --pairs halves" in ended.err


def test_a_dry_run_says_which_ranks_are_pairs_and_who_has_none(commbench: Commbench) -> None:
    ended = commbench(
        "run", "--op", "ping_pong,exchange", "--p2p-call", "send", "--sizes", "8", "--dry-run",
        "--nproc-per-node", "5",
    )  # fmt: skip
    assert ended.code == 0
    text = " ".join(ended.out.split())
    assert (
        "ping_pong float32 out_of_place send: Time is that of half a round trip. 2 pairs at once "
        "(halves); 1 rank without a pair."
    ) in text
    assert "exchange float32 out_of_place send: unsupported: exchange with blocking" in text
