"""Point to point on real gloo ranks: right results with every kind of call, and honest refusals."""

from __future__ import annotations

from statistics import median

import pytest
from commands import Commbench

from commbench.plan.pairs import POINT_TO_POINT

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
