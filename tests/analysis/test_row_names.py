"""Names of rows in sentences: operation, what differs, and ranges of sizes."""

from __future__ import annotations

import pytest
from synthetic import plan

from commbench.analysis.row_names import format_range, name_rows

SIZES = tuple(1024 << i for i in range(6))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [((0, 0), ""), ((1024, 1024), "1K"), ((1024, 1 << 26), "1K-64M"), ((4, 1000), "4B-1000B")],
)
def test_sizes_of_a_range(sizes: tuple[int, int], text: str) -> None:
    assert format_range(*sizes) == text


def test_neighbouring_sizes_are_a_range() -> None:
    every = plan(sizes=SIZES).cases()
    assert name_rows(every, every, 40) == "all_reduce 1K-32K"
    assert name_rows([every[i] for i in (5, 0, 1, 3)], every, 40) == "all_reduce 1K-2K, 8K, 32K"


def test_only_what_differs_within_an_operation_is_named() -> None:
    operations = ("all_gather", "all_reduce", "barrier")
    every = plan(operations=operations, sizes=SIZES).cases()
    assert name_rows(every, every, 80) == "all_gather 1K-32K; all_reduce 1K-32K; barrier"
    two = plan(operations=operations, sizes=SIZES, dtypes=("float32", "int8")).cases()
    assert name_rows(two[-2:], two, 80) == "all_reduce int8 32K; barrier"


def test_what_is_too_long_is_counted() -> None:
    every = plan(operations=("all_gather", "all_reduce"), sizes=SIZES).cases()
    some = [case for case in every if case.size_bytes not in (2048, 8192)]
    assert name_rows(some, every, 30) == "all_gather 1K, 4K, 16K-32K; 4 more rows"
    assert name_rows(some[:-1], every, 1) == "all_gather 1K; 6 more rows"
    assert name_rows(every, every, 1) == "all_gather 1K-32K; 6 more rows"
