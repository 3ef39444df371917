"""Workloads on fewer ranks than they were made for."""

from __future__ import annotations

import pytest
from synthetic_workload import WORKLOAD

from commbench.errors import UsageError
from commbench.spec.workload import Call, Program, Step, Workload, make_workload, workload_values
from commbench.spec.workload_fit import SHRINK, fit_workload
from commbench.training.megatron import Training, megatron_workload
from commbench.training.models import find_transformer


def test_a_workload_that_fits_is_not_changed() -> None:
    assert fit_workload(WORKLOAD, 4) == (WORKLOAD, ())


@pytest.mark.parametrize(
    ("ranks", "fit", "hint"), [(2, "refuse", "--fit shrink"), (8, SHRINK, "start 4 ranks")]
)
def test_another_number_of_ranks_is_refused(ranks: int, fit: str, hint: str) -> None:
    with pytest.raises(UsageError, match="example has 4 ranks, and not") as caught:
        fit_workload(WORKLOAD, ranks, fit)
    assert hint in caught.value.hint


def test_data_parallel_ranks_are_left_out_and_sizes_are_kept() -> None:
    made = megatron_workload(
        find_transformer("llama-3-8b")._replace(layers=2), Training(), mesh="dp=4,tp=2"
    )
    fitted, changes = fit_workload(made, 4, SHRINK)
    assert fitted.groups == {
        "tp": ((0, 1), (2, 3)),
        "dp": ((0, 2), (1, 3)),
        "world": ((0, 1, 2, 3),),
    }
    assert fitted.steps[0].programs[0].calls == made.steps[0].programs[0].calls
    assert fitted.steps[0].programs[0].ranks == (0, 1, 2, 3)
    assert changes == (
        "ranks 0 to 3 of 8 are kept",
        "groups of dp have 2 ranks instead of 4; S is kept",
        "groups of world have 4 ranks instead of 8; S is kept",
    )
    assert make_workload(workload_values(fitted)) == fitted


def test_calls_of_a_single_rank_are_left_out_and_waiting_follows() -> None:
    groups = {"world": ((0, 1, 2, 3),), "dp": ((0, 2), (1, 3))}
    calls = (
        Call("all_reduce", "world", "float32", 8, asynchronous=True, waited_after=2),
        Call("all_reduce", "dp", "float32", 4, asynchronous=True, waited_after=1),
        Call("all_gather", "world", "float32", 8, waited_after=2),
        Call("barrier", "dp", size_bytes=0),
    )
    made = Workload("w", "", 4, groups, (Step("step", (Program((0, 1, 2, 3), calls),)),))
    fitted, changes = fit_workload(made, 2, SHRINK)
    (program,) = fitted.steps[0].programs
    assert [(c.operation, c.waited_after) for c in program.calls] == [
        ("all_reduce", 1),
        ("all_gather", 1),
    ]
    assert changes[-2:] == (
        "1 call of all_reduce over dp left out: no other rank is left",
        "1 call of barrier over dp left out: no other rank is left",
    )


def test_messages_to_lost_ranks_and_unequal_blocks_shrink_with_the_group() -> None:
    fitted, _ = fit_workload(WORKLOAD, 3, SHRINK)
    first, second, last = fitted.steps[0].programs
    assert [(p.ranks, [c.operation for c in p.calls]) for p in (first, second)] == [
        ((0,), ["all_reduce", "send"]),
        ((1,), ["all_reduce"]),
    ]
    assert last.ranks == (2,)
    unequal = last.calls[0]
    assert (unequal.send_splits, unequal.receive_splits) == ((1, 2, 3), (3, 3, 3))
    assert unequal.size_bytes == 9


def test_nothing_left_is_refused() -> None:
    with pytest.raises(UsageError, match="no call of example is left on 1 rank"):
        fit_workload(WORKLOAD, 1, SHRINK)
