"""Every operation on real gloo ranks, point to point and of unequal blocks too: right results, real
sizes, honest refusals."""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from commands import Commbench, Ended, run_commbench

from commbench.plan.backends import BACKENDS
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.operations import COLLECTIVES, OPERATIONS
from commbench.plan.pairs import POINT_TO_POINT

WORLD_SIZES = (1, 2, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (3, 4)))
"""test_call_forms.py checks every operation on 3 ranks."""
SIZES = (4, 1000, 100001)
SOME_DTYPES = "float32,bfloat16,bool"
DTYPES_AND_SIZES = {
    1: (SOME_DTYPES, (4, 100001)), 2: ("all", (1000,)), 3: (SOME_DTYPES, (4, 100001)),
    4: ("all", (4, 1000)),
}  # fmt: skip
"""What is measured, by the number of ranks."""


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Ended]:
    """All operations, reduce ops and placements on n ranks; measured once for each n."""
    ended: dict[int, Ended] = {}

    def measured(ranks: int) -> Ended:
        if ranks not in ended:
            dtypes, sizes = DTYPES_AND_SIZES[ranks]
            ended[ranks] = run_commbench(
                tmp_path_factory.mktemp(f"ranks{ranks}"), "run", "--op", "all",
                "--dtype", dtypes, "--reduce-op", "all", "--placement", "both", "--iters", "1",
                "--warmup", "0", "--sizes", ",".join(map(str, sizes)), "--root", str(ranks - 1),
                "--nproc-per-node", str(ranks), "--no-plots",
            )  # fmt: skip
        return ended[ranks]

    return measured


@pytest.mark.parametrize("ranks", WORLD_SIZES)
def test_the_run_ends_well(everything: Callable[[int], Ended], ranks: int) -> None:
    ended = everything(ranks)
    assert ended.code == 0, ended.err
    assert ended.journal()[-1]["status"] == "complete"


@pytest.mark.parametrize("operation", COLLECTIVES.values(), ids=COLLECTIVES)
@pytest.mark.parametrize("ranks", WORLD_SIZES)
def test_each_combination_is_right_or_refused_with_a_reason(
    everything: Callable[[int], Ended], ranks: int, operation: object
) -> None:
    name = operation.name  # type: ignore[attr-defined]
    ended = everything(ranks)
    journal = ended.journal()
    samples = {line["case"]: line["samples_s"] for line in journal if line["kind"] == "batch"}
    cases = [line for line in ended.cases() if line["case"]["operation"] == name]
    assert cases
    for line in cases:
        case = line["case"]
        if is_possible(case, ranks):
            checked = 0 if case["dtype"] else None
            assert (line["status"], line["wrong"]) == ("ok", checked), line
            (sample,) = samples[case["index"]]
            assert sample > 0
        else:
            assert line["status"] in ("unsupported", "skipped"), line
            assert line["reason"] and case["index"] not in samples


def is_possible(case: dict, ranks: int) -> bool:
    operation = OPERATIONS[case["operation"]]
    if ranks < operation.min_ranks or (operation.has_data and not case["count"]):
        return False
    gloo = BACKENDS["gloo"]
    if case["dtype"] in gloo.refused_dtypes or case["reduce_op"] in gloo.refused_reduce_ops:
        return False
    return not case["reduce_op"] or (
        DTYPES[case["dtype"]].kind in REDUCE_OPS[case["reduce_op"]].kinds
    )


@pytest.mark.parametrize("ranks", WORLD_SIZES)
def test_rows_show_the_measured_size(everything: Callable[[int], Ended], ranks: int) -> None:
    for row in everything(ranks).rows():
        if row["status"] != "ok" or not row["dtype"]:
            continue
        element = DTYPES[row["dtype"]].size_bytes
        blocks = ranks if OPERATIONS[row["operation"]].blocks else 1
        assert int(row["size_bytes"]) == int(row["count"]) * element * blocks
        assert any(size - blocks * element < int(row["size_bytes"]) <= size for size in SIZES)


def test_iterations_are_as_asked(commbench: Commbench) -> None:
    ended = commbench("run", "--op", "all_reduce,barrier", "--sizes", "1K,1M", "--no-plots",
                      "--iters", "37", "--warmup", "2")  # fmt: skip
    assert {row["iterations"] for row in ended.rows()} == {"37"}
    assert {row["stop_reason"] for row in ended.rows()} == {"fixed"}
    for case in range(3):
        batches = ended.batches(case)
        assert [len(batch["samples_s"]) for batch in batches] == [13, 13, 11]
        # As many calls as asked for, then one on each return unless calls are slow.
        assert batches[0]["warmup"] == 2
        assert {batch["warmup"] for batch in batches[1:]} <= {0, 1}


CORRUPTED_BUFFER = """
from commbench.plan.operations import OPERATIONS
healthy = OPERATIONS["all_gather"].call
def corrupt(dist, b):
    healthy(dist, b)
    if b.rank == 1 and b.receive.numel() > 1000:
        b.receive[777] += 1
OPERATIONS["all_gather"] = OPERATIONS["all_gather"]._replace(call=corrupt)
"""


def test_one_corrupted_element_is_found_and_named(program: Commbench) -> None:
    ended = program(CORRUPTED_BUFFER, "--op", "all_gather", "--sizes", "64,64K", "--no-plots",
                    "--iters", "4")  # fmt: skip
    assert ended.code == 5
    (first, second) = ended.rows()
    assert (first["status"], first["wrong"]) == ("ok", "0")
    assert (second["status"], second["wrong"]) == ("wrong", "1")
    (line,) = [line for line in ended.journal() if line.get("status") == "wrong"]
    found = line["first_wrong"]
    assert (found["rank"], found["element"]) == (1, 777)
    assert float(found["got"]) == float(found["expected"]) + 1
    error, hint = ended.err.splitlines()[-2:]
    assert error == (
        "error: all_gather float32 out_of_place 64 KiB has 1 wrong element; "
        f"rank 1, element 777: expected {found['expected']}, got {found['got']}, "
        "in checked call 1"
    )
    assert hint.startswith("hint: ")


def test_without_checking_nothing_is_claimed(program: Commbench) -> None:
    ended = program(CORRUPTED_BUFFER, "--op", "all_gather", "--sizes", "64K", "--no-check",
                    "--no-plots", "--iters", "4")  # fmt: skip
    assert ended.code == 0
    assert (ended.rows()[0]["status"], ended.rows()[0]["wrong"]) == ("ok", "")


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        (("--dtype", "int16,float32"), "Invalid scalar type"),
        (("--reduce-op", "premul_sum,sum"), "Cannot use ReduceOp.PREMUL_SUM with Gloo"),
    ],
)
def test_what_the_backend_refuses_when_tried_becomes_a_row_with_its_words(
    program: Commbench, kinds: tuple[str, ...], reason: str
) -> None:
    forget = """
from commbench.plan.backends import BACKENDS
BACKENDS["gloo"] = BACKENDS["gloo"]._replace(refused_dtypes=(), refused_reduce_ops=())
"""
    ended = program(forget, "--sizes", "1K", *kinds, "--no-plots", "--iters", "4")
    assert ended.code == 0
    assert [row["status"] for row in ended.rows()] == ["unsupported", "ok"]
    (line,) = [line for line in ended.journal() if line.get("status") == "unsupported"]
    assert line["reason"] == reason


def test_ranks_are_settled_as_the_mode_says(commbench: Commbench, tmp_path: Path) -> None:
    ended = commbench("run", "--sizes", "1K", "--iters", "1", "--nproc-per-node", "3")
    cores = [rank["cores"] for rank in ended.journal()[0]["ranks"]]
    assert all(len(own) == 1 for own in cores)
    assert {row["cpu_mode"] for row in ended.rows()} == {"quiet"}
    plain = run_commbench(
        tmp_path, "run", "--sizes", "1K", "--iters", "1", "--cpu-mode", "plain", "--output", "plain"
    )
    assert "cpu mode plain" in plain.err


OTHER_VARIABLE = """
import os
from commbench.worker import rank
introduce = rank.introduce
def introduce_other(*arguments):
    if os.environ["RANK"] == "1":
        os.environ["GLOO_LOG_LEVEL"] = "ERROR"
    return introduce(*arguments)
rank.introduce = introduce_other
"""


def test_ranks_with_different_variables_are_named(program: Commbench) -> None:
    ended = program(OTHER_VARIABLE, "--sizes", "1K", "--iters", "4", "--no-plots")
    assert ended.code == 0, ended.err
    others = ended.journal()[0]["environment"]["other_variables"]
    assert others == {"rank 1": {"GLOO_LOG_LEVEL": "ERROR"}}
    assert "different_variables" in ended.rows()[0]["warnings"]


P2P_CALLS = {name: set(operation.p2p_calls) for name, operation in POINT_TO_POINT.items()}


@pytest.mark.parametrize(
    "ranks", [3, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 4, 5))]
)
def test_point_to_point_is_right_with_every_call_and_pairs(
    commbench: Commbench, ranks: int
) -> None:
    pairs, sizes, dtype = "halves,neighbours,1-0", "1,8,65537", "float64,bfloat16,bool"
    if ranks == 3:
        pairs, sizes, dtype = "halves,1-0", "5,70001", "float32"
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
    assert found == P2P_CALLS


def test_time_is_that_of_half_a_round_trip_and_of_a_message(commbench: Commbench) -> None:
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
    # A terminal has no room for the column beside the mark of rows whose ranks waited.
    page = commbench("show", str(ended.folder), "--format", "markdown").out.replace(",", "")
    shown = page.partition("messages")[2]  # with the digits of its interval
    assert any(float(n) == pytest.approx(rate, rel=0.1) for n in re.findall(r" (\d{3,}) ", shown))


EVERY_KIND = "uniform,zipf:1.2,zipf:5:3,hot:4,hot:0:1,w0,w1,w2,w3,w4,w5,w6:1,w7"
GLOO_CANNOT = "gloo has all_gather_v with equal blocks only"


@pytest.mark.parametrize(
    ("ranks", "sizes", "kinds", "dtype"),
    [
        (3, "12,70001", "zipf:5:3,w4", "float32"),
        pytest.param(1, "1,8,65537", EVERY_KIND, "float64,bfloat16,uint8", marks=pytest.mark.full),
        pytest.param(2, "1,8,65537", EVERY_KIND, "float64,bfloat16,uint8", marks=pytest.mark.full),
        pytest.param(4, "1,8,65537", EVERY_KIND, "float64,bfloat16,uint8", marks=pytest.mark.full),
        pytest.param(5, "1,40,65537", EVERY_KIND, "float64,int8", marks=pytest.mark.full),
    ],
)
def test_every_split_is_right_or_refused_by_the_backend(
    commbench: Commbench, ranks: int, sizes: str, kinds: str, dtype: str
) -> None:
    ended = commbench(
        "run", "--op", "uneven", "--imbalance", kinds, "--sizes", sizes, "--dtype", dtype,
        "--nproc-per-node", str(ranks), "--iters", "1", "--warmup", "0", "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    right = set()
    for line in ended.cases():
        case = line["case"]
        if case["operation"] == "all_gather_v" and line["reason"] == GLOO_CANNOT:
            continue  # gloo gathers equal blocks only
        if "gloo does not support" in line["reason"] or line["status"] == "skipped":
            continue
        assert (line["status"], line["wrong"]) == ("ok", 0), line
        right.add((case["operation"], case["imbalance"]))
    for operation in ("all_to_all_v", "reduce_scatter_v"):
        assert {kind for name, kind in right if name == operation} == set(kinds.split(","))


def test_a_matrix_of_a_file_is_measured_with_its_load(commbench: Commbench, tmp_path: Path) -> None:
    # Rank 1 gets 3 + 3 of 12 parts from the others, and keeps 2: 8 of 12 instead of 4.
    (tmp_path / "moe.csv").write_text("1,3,0\n1,2,1\n1,3,0\n")
    ended = commbench(
        "run", "--op", "all_to_all_v", "--imbalance", "file:moe.csv", "--sizes", "4800",
        "--nproc-per-node", "3", "--iters", "5", "--no-plots",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = ended.rows()
    assert row["imbalance"].startswith("file:moe.csv#")
    assert (row["count"], row["worst_rank"]) == ("400", "1")
    assert (float(row["sent_max_over_mean"]), float(row["received_max_over_mean"])) == (1, 2)
    seconds = float(row["time_us"]) * 1e-6
    assert float(row["logical_GBps"]) == pytest.approx(9600 / seconds / 1e9, rel=1e-5)
    assert float(row["wire_GBps"]) == pytest.approx(7200 / seconds / 1e9, rel=1e-5)
    assert row["busbw_GBps"] == row["wire_GBps"]
    line = "The busiest rank receives 2.00 times the mean; 1.50 S crosses its link."
    assert line in ended.out
    shown = commbench("explain", str(ended.folder))
    assert "7,200 bytes 1.5 x S, of rank 1" in " ".join(shown.out.split())


@pytest.mark.full
@pytest.mark.parametrize(
    "groups", [("--mesh", "dp=2,tp=2"), ("--groups", "0-2;3-4"), ("--groups", "0,2;1,3,4")]
)
def test_groups_have_pairs_and_unequal_blocks(
    commbench: Commbench, groups: tuple[str, str]
) -> None:
    ended = commbench(
        "run", *groups, "--op", "p2p,all_to_all_v,reduce_scatter_v", "--imbalance", "zipf:1,w5",
        "--p2p-call", "all", "--sizes", "40,10001", "--iters", "1", "--warmup", "0", "--no-plots",
        *(() if groups[0] == "--mesh" else ("--nproc-per-node", "5")),
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert {(row["status"], row["wrong"]) for row in ended.rows()} == {("ok", "0")}
