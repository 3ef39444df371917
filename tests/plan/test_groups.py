"""Groups of ranks, against the layouts that frameworks document."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_rows import plan

from commbench.errors import UsageError
from commbench.plan.groups import Layout, format_group, group_sets


def groups(ranks: int = 8, **layout: Any) -> dict[str, list[str]]:
    """By dimension, its groups as --groups writes them."""
    return {
        name: [format_group(group) for group in found]
        for name, found in group_sets(Layout(**layout), ranks)
    }


TP = ["0,1", "2,3", "4,5", "6,7"]
INNER, OUTER = ["0,2", "1,3", "4,6", "5,7"], ["0,4", "1,5", "2,6", "3,7"]


@pytest.mark.parametrize(
    ("layout", "found"),
    [
        # Megatron has pipeline stages outermost, and so has torchtitan; ScaleTorch has data there.
        *(({"mesh": "tp=2,cp=1,dp=2,pp=2", "mesh_order": order},
           {"tp": TP, "dp": INNER, "pp": OUTER}) for order in ("megatron", "tp-cp-ep-dp-pp")),
        ({"mesh": "pp=2,dp_shard=2,cp=1,tp=2", "mesh_order": "torchtitan"},
         {"tp": TP, "dp_shard": INNER, "pp": OUTER}),
        ({"mesh": "tp=2,cp=1,dp=2,pp=2", "mesh_order": "scaletorch"},
         {"tp": TP, "dp": OUTER, "pp": INNER}),
        ({"mesh": "pp=2,dp=2,tp=2", "over": ("dp+tp", "tp-pp", "world")},
         {"dp+tp": ["0-3", "4-7"], "pp+tp": ["0,1,4,5", "2,3,6,7"], "": ["0-7"]}),
        # RankGenerator for experts: tp=etp, cp=1, ep=4, dp = 8 / (1 * 4 * 1).
        ({"mesh": "tp=2,dp=4,ep=4,etp=1", "mesh_order": "megatron",
          "over": ("tp", "dp", "ep", "edp")},
         {"tp": TP, "dp": ["0-6:2", "1-7:2"], "ep": ["0-3", "4-7"], "edp": OUTER}),
        ({"mesh": "dp_replicate=1,dp_shard=2,cp=2,tp=2,ep=4", "mesh_order": "torchtitan",
          "over": ("fsdp", "batch", "loss", "ep", "efsdp")},
         {"fsdp": ["0-6:2", "1-7:2"], "batch": OUTER, "loss": ["0-6:2", "1-7:2"],
          "ep": ["0-3", "4-7"], "efsdp": OUTER}),
        ({"groups": "0-3;4-7"}, {"0-3;4-7": ["0-3", "4-7"]}),
        ({"groups": "2,0 ; 1-5:2;0-3"}, {"0,2;1-5:2;0-3": ["0,2", "1-5:2", "0-3"]}),
        ({"group_size": 4}, {"size 4": ["0-3", "4-7"]}),
        ({"group_size": 2, "group_stride": 2}, {"size 2 stride 2": INNER}),
    ],
)  # fmt: skip
def test_a_layout_has_the_groups_that_its_framework_documents(
    layout: dict[str, Any], found: dict[str, list[str]]
) -> None:
    assert groups(**layout) == found


def test_a_mesh_without_an_order_is_that_of_device_mesh() -> None:
    import torch

    grid = torch.arange(24).view(2, 3, 4)  # as init_device_mesh numbers the ranks
    found = groups(24, mesh="pp=2,dp=3,tp=4")
    assert found["pp"] == [format_group(g) for g in grid.permute(1, 2, 0).reshape(-1, 2).tolist()]
    assert found["dp"] == [format_group(g) for g in grid.permute(0, 2, 1).reshape(-1, 3).tolist()]
    assert found["tp"] == ["0-3", "4-7", "8-11", "12-15", "16-19", "20-23"]


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        ("MOD 4", "MOD 4", OUTER), ("%4", "MOD 4", OUTER), ("div 4", "DIV 4", ["0-3", "4-7"]),
        ("/4", "DIV 4", ["0-3", "4-7"]), ("AND 0x4", "AND 0x4", ["0-3", "4-7"]),
        ("&0b11", "AND 0x3", OUTER), ("OR 3", "OR 0x3", ["0-3", "4-7"]),
        ("| 010", "OR 0x8", [str(rank) for rank in range(8)]),
        ("NCCL_TESTS_SPLIT=MOD 4", "MOD 4", OUTER), ("NCCL_TESTS_SPLIT_MASK=3", "AND 0x3", OUTER),
        ("mask 0x4", "AND 0x4", ["0-3", "4-7"]),
    ],
)  # fmt: skip
def test_the_rules_of_nccl_tests_give_its_colours(
    rule: str, name: str, expected: list[str]
) -> None:
    assert groups(groups=rule) == {name: expected}


def test_one_dimension_takes_the_rest_of_the_ranks() -> None:
    assert groups(12, mesh="dp=-1,tp=4", over=("dp",)) == {
        "dp": ["0-8:4", "1-9:4", "2-10:4", "3-11:4"]
    }
    assert Layout(mesh="dp=-1,tp=4").needed_ranks() is None
    assert Layout(mesh="tp=2,cp=2,ep=2,dp=3", mesh_order="megatron").needed_ranks() == 12
    assert Layout(groups="0-3;5").needed_ranks() == 6


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"mesh": "dp=2,tp=2"}, "has 4 ranks, and there are 8"),
        ({"mesh": "dp"}, "has no size in 'dp'"), ({"mesh": "dp=0,tp=8"}, "gives dp the size 0"),
        ({"mesh": "dp=2,dp=4"}, "names dp twice"),
        ({"mesh": "world=8"}, "names world as a dimension"),
        ({"mesh": "dp=-1,tp=-1"}, "two sizes of -1"),
        ({"mesh": "dp=-1,tp=3"}, "does not divide 8 ranks"),
        ({"mesh": "dp=2,tp=4", "over": ("cp",)}, "the mesh has no dimension cp"),
        ({"mesh": "dp=2,tp=4", "over": ("dp+dp",)}, "dp\\+dp names a dimension twice"),
        ({"mesh": "dp=2,tp=4", "mesh_order": "tp-pp"}, "has no dimension dp"),
        ({"mesh": "dp=2,ep=4", "mesh_order": "scaletorch"}, "has no dimension ep"),
        ({"mesh": "tp=2,edp=2", "mesh_order": "megatron"}, "gives edp a size, and .*computes it"),
        ({"mesh": "tp=2,efsdp=2", "mesh_order": "torchtitan"}, "gives efsdp a size"),
        ({"mesh": "dp=2,tp=4", "groups": "0-3"}, "both choose groups"),
        ({"over": ("tp",)}, "no effect without --mesh"),
        ({"group_stride": 2}, "no effect without --group-size"),
        ({"group_size": 3}, "do not divide 8 ranks"),
        ({"groups": "0-8"}, "has rank 8, and there are 8 ranks"),
        ({"groups": "0-3;3-x"}, "'3-x' is not a rank or range"),
        ({"groups": "3-1"}, "goes backwards"), ({"groups": "0-3;0,1,2,3"}, "is there twice"),
        ({"groups": "0,0"}, "has a rank twice"), ({"groups": "MOD 0"}, "divides by 0"),
    ],
)  # fmt: skip
def test_groups_that_cannot_be_are_refused(layout: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        groups(**layout)


def test_each_group_alone_is_a_case_and_all_together_are_one() -> None:
    asked = plan(world_size=4, mesh="dp=2,tp=2", over=("tp", "world"), concurrency="both")
    cases = asked.cases()
    found = {(c.group, c.concurrency, c.group_ranks): asked.groups_of(c) for c in cases}
    assert found == {
        ("tp", "together", ""): ((0, 1), (2, 3)), ("tp", "alone", "0,1"): ((0, 1),),
        ("tp", "alone", "2,3"): ((2, 3),), ("", "", ""): ((0, 1, 2, 3),),
    }  # fmt: skip
    assert cases[1].title.endswith(" over tp alone 0,1")


def test_groups_of_different_sizes_move_the_same_bytes() -> None:
    asked = plan(
        world_size=9, groups="0-3;4-6;7,8", operations=("all_gather",), sizes=(1000, 40),
        concurrency="both",
    )  # fmt: skip
    cases = asked.cases()
    # 960 is the largest multiple of 12 elements; 40 bytes are fewer than that.
    assert {case.size_bytes for case in cases if case.status == "ready"} == {960}
    assert {"groups of all sizes divide" in case.reason for case in cases if case.reason} == {True}
    ready = [case for case in cases if case.status == "ready"]
    assert [(case.ranks, case.count) for case in ready] == [(4, 60), (4, 60), (3, 80), (2, 120)]
    assert [ready[0].in_group(n).count for n in (4, 3, 2)] == [60, 80, 120]


def test_the_root_is_a_rank_of_every_group() -> None:
    with pytest.raises(UsageError, match="root 2 is not a rank of 2") as refused:
        plan(world_size=4, mesh="dp=2,tp=2", operations=("broadcast",), root=2)
    hint = "ranks of the smallest group, within which it counts: 0 to 1"
    assert refused.value.hint == hint


def test_memory_is_that_of_every_group_that_a_rank_is_in() -> None:
    asked = plan(world_size=6, groups="0-2;2-5", operations=("all_reduce",), sizes=(1024,))
    (case,) = asked.cases()
    assert [asked.needed_bytes(case, [rank]) for rank in range(6)] == [1024] * 2 + [2048] + [
        1024
    ] * 3
