"""Ranks with another plan: what differs is named, however long a plan is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from synthetic_rows import plan

from commbench.errors import UnavailableError
from commbench.spec.operations import OPERATIONS
from commbench.spec.plan import MOST_CASES
from commbench.worker.plan_agreement import (
    SHORT_PLAN_BYTES,
    describe_differences,
    find_other_plan,
    shorten_plan,
)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"sizes": (2048,)}, ["--sizes 2K instead of 1K"]),
        ({"iterations": 5}, ["--iters 5 instead of as needed"]),
        ({"check": False, "seed": 3}, ["--check no instead of yes", "--seed 3 instead of 0"]),
        ({"cpu_mode": "plain"}, ["--cpu-mode plain instead of quiet"]),
        ({"operations": ("barrier", "reduce")}, ["--op barrier,reduce instead of all_reduce"]),
        ({}, []),
    ],
)
def test_each_option_that_differs_is_told_with_both_values(
    other: dict[str, Any], told: list[str]
) -> None:
    assert describe_differences(shorten_plan(plan()), shorten_plan(plan(**other))) == told


def test_long_plans_differ_also_where_their_ends_are_alike() -> None:
    sizes = tuple(range(1, 99))
    (told,) = describe_differences(
        shorten_plan(plan(sizes=sizes)), shorten_plan(plan(sizes=(*sizes[:50], *sizes[51:])))
    )
    assert told == (
        "--sizes 1,2,3,4,5,6,7,8,9,10,11,12,13, ... ,89,90,91,92,93,94,95,96,97,98 "
        "(281 characters) "
        "instead of 1,2,3,4,5,6,7,8,9,10,11,12,13, ... ,89,90,91,92,93,94,95,96,97,98 "
        "(284 characters)"
    )


def test_the_largest_plan_fits_into_its_message() -> None:
    largest = plan(
        operations=tuple(OPERATIONS), sizes=tuple(range(1, MOST_CASES // 4 // len(OPERATIONS))),
        backend="ü" * 5000,
    )  # fmt: skip
    assert len(json.dumps(shorten_plan(largest))) < SHORT_PLAN_BYTES


def part(rank: int, **other: str) -> dict[str, Any]:
    who = {"rank": rank, "host": f"host{rank}"}
    return {"rank": who, "commbench": "1", "plan": "p", "journal": "new"} | other


def test_the_first_rank_with_another_plan_is_found() -> None:
    assert find_other_plan([part(0), part(1)]) is None
    found = find_other_plan([part(0), part(1), part(2, plan="q"), part(3, plan="q")])
    assert found == {"rank": 2, "host": "host2"}


def test_another_version_or_journal_is_refused() -> None:
    for key in ("commbench", "journal"):
        with pytest.raises(UnavailableError, match=f"rank 1 on host1 has another {key} \\(x\\)"):
            find_other_plan(
                [part(0), part(1, **{key: "x"}, plan="q" if key == "commbench" else "p")]
            )
