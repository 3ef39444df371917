"""The table of forms, and how a size is cut into tensors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_rows import plan

from commbench.errors import UsageError
from commbench.plan.call_forms import count_tensors, parse_tensors, split_count
from commbench.plan.case import Case

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", "1"), (" 016 ", "16"), ("ddp", "ddp:25M"), ("DDP:25m", "ddp:25M"),
        ("ddp:512", "ddp:512"),
    ],
)  # fmt: skip
def test_a_number_or_a_split_has_one_spelling(text: str, value: str) -> None:
    assert parse_tensors(text) == value


@pytest.mark.parametrize("text", ["0", "10001", "-3", "x", "1.5", "", "fsdp:25M", "ddp:x", "ddp:0"])
def test_what_is_neither_a_number_nor_a_split_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_tensors(text)


def test_buckets_are_those_of_distributed_data_parallel() -> None:
    # torch 2.13: 1 MiB first where the cap is the default of 25 MiB.
    assert split_count("ddp:25M", 64 * MIB, 1) == (MIB, 25 * MIB, 25 * MIB, 13 * MIB)
    assert split_count("ddp:10M", 64 * MIB, 4) == (*(10 * MIB // 4,) * 25, 6 * MIB // 4)
    assert split_count("ddp:25M", 1000, 4) == (1000,)
    assert split_count("16", 32, 4) == (2,) * 16


@given(
    st.sampled_from(["1", "3", "ddp:25M", "ddp:1", "ddp:7", "ddp:4K"]),
    st.integers(1, 5000),
    st.sampled_from([1, 2, 4, 8, 24, 4000]),
)
def test_tensors_have_all_elements_and_none_is_empty(split: str, count: int, granule: int) -> None:
    count = count // 3 * 3 or 3 if split == "3" else count
    counts = split_count(split, count, granule)
    assert sum(counts) == count
    assert min(counts) > 0
    assert len(counts) == count_tensors(split, count, granule)


def names(**wishes: Any) -> list[str]:
    return [case.name for case in plan(**wishes).cases()]


def test_several_tensors_are_measured_in_every_form_beside_one_flat_call() -> None:
    assert names(sizes=(MIB,), tensors=("16",)) == [
        f"all_reduce float32 sum in_place 16 tensors {form} 1 MiB"
        for form in ("flat", "separate", "async", "coalesced", "flat_copy")
    ]
    assert names(sizes=(MIB,), tensors=("1", "16"), forms=("separate",)) == [
        "all_reduce float32 sum in_place 1 MiB",
        "all_reduce float32 sum in_place 16 tensors flat 1 MiB",
        "all_reduce float32 sum in_place 16 tensors separate 1 MiB",
    ]


def test_an_operation_made_of_others_is_measured_beside_the_direct_call() -> None:
    via = ("reduce_scatter+all_gather",)
    assert names(forms=via) == [
        "all_reduce float32 sum in_place 1 KiB",
        "all_reduce float32 sum in_place reduce_scatter+all_gather 1 KiB",
    ]
    direct, other = plan(operations=("all_gather",), forms=via).cases()
    assert (direct.status, other.status) == ("ready", "unsupported")
    assert other.reason == (
        "reduce_scatter+all_gather is a form of all_reduce only; for all_gather use "
        "gather+broadcast"
    )


def test_all_forms_are_those_that_the_operation_has() -> None:
    found = {
        operation: [case.form for case in plan(operations=(operation,), forms=("all",)).cases()]
        for operation in ("all_reduce", "all_to_all", "barrier")
    }
    assert found == {
        "all_reduce": ["direct", "async", "reduce_scatter+all_gather", "reduce+broadcast"],
        "all_to_all": ["direct", "async", "isend+irecv"],
        "barrier": ["direct", "async"],
    }


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"forms": ("coalesced",)}, "--form coalesced takes several tensors"),
        ({"forms": ("reduce+broadcast",), "tensors": ("4",)}, "takes one tensor"),
        ({"forms": ("flat", "fast")}, "unknown form 'fast'"),
        ({"tensors": ("016",)}, "is not in its normal form"),
    ],
)
def test_a_form_that_takes_none_of_the_tensors_is_refused(
    wishes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan(**wishes)


def test_all_forms_of_a_call_move_the_same_bytes() -> None:
    # 1001 bytes hold 250 of float32: 248 in 8 equal tensors, 249 in one block for each of 3 ranks.
    wishes: dict[str, Any] = {"sizes": (1001,), "world_size": 3}
    assert {case.size_bytes for case in plan(tensors=("8",), **wishes).cases()} == {248 * 4}
    assert {case.size_bytes for case in plan(forms=("all",), **wishes).cases()} == {249 * 4}


def test_what_is_too_small_for_its_tensors_is_skipped_with_the_reason() -> None:
    def reasons(**wishes: Any) -> set[str]:
        return {f"{case.status}: {case.reason}" for case in plan(**wishes).cases()}

    assert reasons(sizes=(16,), tensors=("5",)) == {"skipped: less than one float32 per tensor"}
    assert reasons(operations=("all_gather",), sizes=(16,), tensors=("3",)) == {
        "skipped: less than one float32 per rank and tensor"
    }
    assert reasons(sizes=(4,), forms=("reduce_scatter+all_gather",)) == {
        "skipped: less than one float32 per rank"
    }
    assert reasons(sizes=(MIB,), tensors=("ddp:25M",)) == {
        "ready: ", "skipped: ddp:25M makes one tensor"
    }  # fmt: skip
    assert "skipped: ddp:1 makes 262144 tensors, more than 10000" in reasons(
        sizes=(MIB,), tensors=("ddp:1",)
    )


def test_memory_is_that_of_all_tensors_and_of_the_flat_one() -> None:
    cases: dict[str, Case] = {
        case.form: case for case in plan(sizes=(4000,), tensors=("4",)).cases()
    }
    assert cases["flat"].needed_bytes(0) == 4000
    # Each of 1000 bytes takes 1024; the flat one begins on the next page.
    assert cases["separate"].needed_bytes(0) == 4 * 1024
    assert cases["flat_copy"].needed_bytes(0) == 4 * 1024 + 4000 + 4096


def test_a_smaller_group_has_whole_tensors_and_blocks_too() -> None:
    (case, *_) = plan(
        operations=("all_gather",), sizes=(1001,), world_size=4, tensors=("3",)
    ).cases()
    # 960 bytes in 4 blocks of 60 elements: 78 in each of 3 blocks are a multiple of 3 tensors.
    assert (case.count, case.in_group(3).count, case.in_group(3).size_bytes) == (60, 78, 936)
    direct, other = plan(sizes=(1001,), world_size=4, forms=("reduce_scatter+all_gather",)).cases()
    assert (direct.in_group(3).count, other.in_group(3).count) == (248, 246)
