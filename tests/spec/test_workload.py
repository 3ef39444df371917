"""Workloads as JSON values, and values that are none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from synthetic_workload import WORKLOAD

from commbench.spec.workload import KIND, Call, make_workload, workload_values


def changed(**values: Any) -> dict[str, Any]:
    return workload_values(WORKLOAD) | values


def with_call(**values: Any) -> dict[str, Any]:
    found = copy.deepcopy(workload_values(WORKLOAD))
    found["steps"][0]["programs"][0]["calls"][0] |= values
    return found


def test_a_workload_is_the_same_after_json_both_ways() -> None:
    assert make_workload(workload_values(WORKLOAD)) == WORKLOAD


def test_waiting_is_what_the_transfer_leaves_of_the_time() -> None:
    first = WORKLOAD.steps[0].programs[0].calls[0]
    assert first.waiting_s == pytest.approx(1e-3)
    assert Call("barrier").waiting_s is None


def test_repetitions_do_the_same_work_at_other_times() -> None:
    first = WORKLOAD.steps[0].programs[0].calls[0]
    assert first.what() == first._replace(start_s=1.0, time_s=5.0).what()
    assert first.what() != first._replace(size_bytes=1).what()


def test_a_call_is_made_in_the_group_of_its_rank() -> None:
    send = WORKLOAD.steps[0].programs[0].calls[1]
    assert [WORKLOAD.group_of(send, rank) for rank in (0, 1)] == [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "no key"),
        (changed(**{KIND: 2}), "version 2; this commbench reads 1"),
        (changed(world_size=0), "world_size"),
        (changed(world_size=2), "is wrong"),
        (changed(groups=[]), "no groups"),
        (changed(groups={"world": [[0, 0]]}), "group 'world'"),
        (changed(steps=[{}]), "programs"),
        (changed(steps=[7]), "step"),
        (changed(unknown=1), "unknown key"),
        (with_call(operation="allreduce"), "unknown operation 'allreduce'"),
        (with_call(group="dp"), "unknown group 'dp'"),
        (with_call(size_bytes=-1), "size_bytes"),
        (with_call(size_bytes=2**70), "size_bytes"),
        (with_call(time_s=-1.0), "time_s"),
        (with_call(root=4), "root"),
        (with_call(send_splits=[1]), "splits"),
        (with_call(tensors=0), "tensors"),
        (with_call(stream="a"), "stream"),
        (with_call(sequence=1), "sequence"),
        (with_call(dtype="float"), "unknown dtype"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make_workload(values)


def test_a_rank_has_one_program() -> None:
    values = workload_values(WORKLOAD)
    values["steps"][0]["programs"][1]["ranks"] = [1, 2]
    with pytest.raises(ValueError, match="in two programs"):
        make_workload(values)
