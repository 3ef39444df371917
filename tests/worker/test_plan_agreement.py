"""Ranks with another plan: what differs is named, however long a plan is."""

from __future__ import annotations

from typing import Any

import pytest
from gloo_ranks import on_ranks
from synthetic_rows import plan

from commbench.errors import UnavailableError
from commbench.spec.operations import SINGLE_CALLS
from commbench.spec.plan import MOST_CASES
from commbench.worker.communicator import Communicator
from commbench.worker.plan_agreement import (
    describe_differences,
    find_other_plan,
    raise_other_plan,
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
    assert describe_differences(plan().as_json(), plan(**other).as_json()) == told


def test_long_plans_differ_also_where_their_ends_are_alike() -> None:
    sizes = tuple(range(1, 99))
    (told,) = describe_differences(
        plan(sizes=sizes).as_json(), plan(sizes=(*sizes[:50], *sizes[51:])).as_json()
    )
    assert told == (
        "--sizes 1,2,3,4,5,6,7,8,9,10,11,12,13, ... ,89,90,91,92,93,94,95,96,97,98 "
        "(281 characters) "
        "instead of 1,2,3,4,5,6,7,8,9,10,11,12,13, ... ,89,90,91,92,93,94,95,96,97,98 "
        "(284 characters)"
    )


def test_the_largest_plans_are_exchanged_and_their_difference_is_short() -> None:
    largest = plan(
        operations=tuple(SINGLE_CALLS), sizes=tuple(range(1, MOST_CASES // 4 // len(SINGLE_CALLS))),
        backend="ü" * 5000,
    )  # fmt: skip

    def message(comm: Communicator) -> str:
        own = largest if comm.rank else plan()
        with pytest.raises(UnavailableError) as caught:
            raise_other_plan(own, comm, 1, "host1")
        return caught.value.message

    first, second = on_ranks(2, message)
    assert first == second
    assert first.startswith("rank 1 on host1 has a different plan: ")
    assert "--backend" in first
    assert len(first) < 2000


def part(rank: int, **other: str) -> dict[str, Any]:
    who = {"rank": rank, "host": f"host{rank}"}
    return {"rank": who, "commbench": "1", "plan": "p", "journal": "new"} | other


def test_the_first_rank_with_another_plan_is_found() -> None:
    assert find_other_plan([part(0), part(1)]) is None
    found = find_other_plan([part(0), part(1), part(2, plan="q"), part(3, plan="q")])
    assert found == {"rank": 2, "host": "host2"}


def test_another_version_or_journal_is_refused() -> None:
    for key in ("commbench", "journal"):
        with pytest.raises(
            UnavailableError, match=f"rank 1 on host1 has a different {key} \\(x\\)"
        ):
            find_other_plan(
                [part(0), part(1, **{key: "x"}, plan="q" if key == "commbench" else "p")]
            )
