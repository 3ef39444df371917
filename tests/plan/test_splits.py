"""Unequal blocks: exact to the element, the same everywhere, with the total that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import RecordsError, UsageError
from commbench.plan.cases import require_ready_case
from commbench.plan.plan import Plan
from commbench.plan.splits import (
    KINDS,
    apportion,
    make_splits,
    parse_imbalance,
    read_matrices,
    read_matrix,
    why_no_splits,
)

TEXTS = [
    f"{name}{f':{value}' if kind.value else ''}{seed}"
    for name, kind in KINDS.items()
    for value in (("0", "1", "2.5") if kind.value in ("A", "R") else ("3",))
    for seed in ("", ":7")
]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(TEXTS), st.integers(1, 9), st.integers(1, 10_000))
def test_nothing_is_lost_whatever_the_kind(text: str, ranks: int, count: int) -> None:
    matrix, vector = make_splits(text, ranks, count)
    assert len(matrix) == len(vector) == ranks
    assert {len(row) for row in matrix} == {ranks}
    assert min(min(row) for row in matrix) >= 0
    assert sum(map(sum, matrix)) == ranks * ranks * count
    assert sum(vector) == ranks * count


# count 60 on 4 ranks: each rank sends 240 on average. What each rank receives from the first one.
@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("uniform", (60, 60, 60, 60)), ("w0", (60, 60, 60, 60)), ("zipf:0", (60, 60, 60, 60)),
        ("zipf:1", (115, 58, 38, 29)),  # 240 x (12, 6, 4, 3)/25
        ("hot:3", (120, 40, 40, 40)), ("hot:1", (60, 60, 60, 60)),
        ("w1", (137, 35, 34, 34)),  # 4 hot experts of 16 on rank 0: 16 of 28
        ("w2", (137, 35, 34, 34)),
        ("w3", (60, 60, 60, 60)),  # a hot expert on each rank
        ("w5", (80, 80, 80, 0)), ("w6:2", (35, 34, 137, 34)), ("w6", (137, 35, 34, 34)),
        ("w7", (120, 40, 40, 40)),
    ],
)  # fmt: skip
def test_each_kind_is_what_it_says(text: str, blocks: tuple[int, ...]) -> None:
    matrix, vector = make_splits(text, 4, 60)
    assert matrix == (blocks,) * 4
    assert vector == blocks


def test_a_ragged_source_sends_more_and_everybody_receives_the_same() -> None:
    matrix, vector = make_splits("w4", 4, 100)
    assert [sum(row) for row in matrix] == [160, 320, 480, 640]
    assert {sum(column) for column in zip(*matrix, strict=True)} == {400}
    assert vector == (40, 80, 120, 160)


def test_a_seed_changes_which_ranks_send_more() -> None:
    assert make_splits("w4:3", 3, 6).matrix == ((6, 6, 6), (9, 9, 9), (3, 3, 3))


def test_on_eight_ranks_the_heat_of_two_ranks_is_on_one_or_on_all() -> None:
    # 8 of 32 experts get 4 times as much: 8 x 4 + 24 = 56 parts; 56 x 8 elements for each rank.
    found = {text: make_splits(text, 8, 56).vector for text in ("w1", "w2", "w3")}
    assert found == {
        "w1": (128, 128, *[32] * 6), "w2": (224, *[32] * 7), "w3": (56,) * 8,
    }  # fmt: skip


@settings(max_examples=60)
@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_parts_are_the_nearest_whole_numbers(total: int, weights: list[int]) -> None:
    parts, whole = apportion(total, weights), sum(weights)
    assert sum(parts) == (total if whole else 0)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * whole - total * weight) < max(1, whole)


def test_the_matrix_of_a_file_counts_by_its_ratios(tmp_path: Path) -> None:
    path = tmp_path / "moe.csv"
    path.write_text("# from a trace\n0, 10,20\n30 0 0\n\n0,0,0\n")
    text, matrix = read_matrix(f"file:{path}")
    assert matrix == (0, 10, 20, 30, 0, 0, 0, 0, 0)
    assert make_splits(text, 3, 2, matrix) == (((0, 3, 6), (9, 0, 0), (0, 0, 0)), (3, 1, 2))
    assert read_matrices(["uniform", text]) == (("uniform", text), matrix)
    path.write_text("1 1 1\n" * 3)
    with pytest.raises(UsageError, match=r"moe\.csv has changed"):
        read_matrix(text)
    with pytest.raises(UsageError, match="only one matrix"):
        read_matrices([f"file:{path}", text])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *((content, "is no (square )?matrix")
          for content in ("1 2\n3", "", "1 2 3", "-1 2\n3 4", "a b\nc d", "0 0\n0 0")),
        ("# heads\n1 2\n3 0.5\n", "see its line 3"), ("1 2\n\n3\n", "see its line 3"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_matrix_is_refused(tmp_path: Path, content: str, why: str) -> None:
    (path := tmp_path / "moe.csv").write_text(content)
    with pytest.raises(UsageError, match=rf"moe\.csv .*{why}"):
        read_matrix(f"file:{path}")
    with pytest.raises(RecordsError, match="cannot read the matrix"):
        read_matrix(f"file:{tmp_path / 'none.csv'}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("skewed", "unknown imbalance 'skewed'"),
        ("", "unknown imbalance ''"),
        ("zipf", "imbalance 'zipf' lacks its number A"),
        ("zipf:x", "imbalance 'zipf:x' has no valid A"),
        ("zipf:17", "imbalance 'zipf:17' has no valid A"),
        ("hot:-1", "imbalance 'hot:-1' has no valid R"),
        ("w2:1.5", "imbalance 'w2:1.5' has no valid seed"),
        ("w6:1.5", "imbalance 'w6:1.5' has no valid STEP"),
        ("zipf:1:2:3", "imbalance 'zipf:1:2:3' has too many numbers"),
    ],
)
def test_a_text_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_imbalance(text)
    assert refused.value.message == message
    assert refused.value.hint


def test_cases_have_the_blocks_of_their_rank_and_their_load() -> None:
    plan = Plan(
        operations=("all_to_all_v", "all_gather_v", "reduce_scatter_v"), sizes=(960,),
        imbalance=("hot:3",), backend="gloo", device="cpu", world_size=4,
    )  # fmt: skip
    to_all, gather, scatter = plan.cases()
    assert {case.count for case in plan.cases()} == {60}
    blocks = (120, 40, 40, 40)
    assert [case.block_counts(0) for case in plan.cases()] == [
        (blocks, (120,) * 4), ((120,), blocks), (blocks, (120,)),
    ]  # fmt: skip
    assert [case.block_counts(3) for case in plan.cases()] == [
        (blocks, (40,) * 4), ((40,), blocks), (blocks, (40,)),
    ]  # fmt: skip
    assert [case.buffer_bytes(0) for case in plan.cases()] == [(960, 1920), (480, 960), (960, 480)]
    # Of 240 elements rank 0 receives 3 blocks of 120; the others send 200, and keep 40.
    assert to_all.load == (1.0, 2.0, 0, 1.5, 2.0)
    # Every other rank gets 200 of 240.
    assert gather.load == (2.0, 1.0, 1, 200 / 240, 1.0)
    assert scatter.load == (1.0, 2.0, 1, 200 / 240, 1.0)
    assert [case.busbw_factor for case in plan.cases()] == [1.5, 200 / 240, 200 / 240]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_equal_blocks_have_the_bandwidth_of_the_operation_with_equal_blocks(ranks: int) -> None:
    plan = Plan(
        operations=("all_to_all_v", "all_gather_v", "reduce_scatter_v"), sizes=(9600,),
        backend="gloo", device="cpu", world_size=ranks,
    )  # fmt: skip
    for case in plan.cases():
        assert case.busbw_factor == pytest.approx((ranks - 1) / ranks)
        assert case.load is not None and case.load.worst_rank is None


def test_a_matrix_of_other_ranks_and_too_many_ranks_are_said() -> None:
    assert why_no_splits("file:m.csv", 3, (1,) * 4) == "file:m.csv is a matrix of 2 ranks, not of 3"
    wrong = Plan(
        operations=("all_to_all_v",), sizes=(4096,), imbalance=("file:m.csv",), matrix=(1,) * 4,
        backend="gloo", device="cpu", world_size=3,
    )  # fmt: skip
    with pytest.raises(UsageError, match="is a matrix of 2 ranks, not of 3"):
        require_ready_case(wrong)
    assert why_no_splits("zipf:1", 2000, ()) == "unequal blocks are for at most 1024 ranks"
    assert why_no_splits("", 2000, ()) == why_no_splits("w2", 1024, ()) == ""
