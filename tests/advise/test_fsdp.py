"""Groups of FSDP: the simulation and closed forms."""

from __future__ import annotations

import pytest
from planted_times import affine

from commbench.advise.buckets import MIB
from commbench.advise.fsdp import Blocks, find_grouping, group_sizes, step_time
from commbench.advise.simulation import Slowdown

NONE = Slowdown()


def test_computation_that_hides_everything_leaves_the_first_gather_and_the_last_scatter() -> None:
    step = Blocks(64 * MIB, 64 * MIB, 8, backward_s=8.0)
    found = step_time(step, [1] * 8, [0.1] * 8, [0.2] * 8, NONE, is_kept=False)
    assert found == pytest.approx(0.1 + 4.0 + 8.0 + 0.2)


def test_communication_that_takes_longer_than_everything_is_sent_without_a_pause() -> None:
    step = Blocks(64 * MIB, 64 * MIB, 4, backward_s=4e-6)
    found = step_time(step, [1] * 4, [0.1] * 4, [0.2] * 4, NONE, is_kept=False)
    # Four gathers forward, three backward (the last group is still there), four scatters.
    assert found == pytest.approx(4 * 0.1 + 3 * 0.1 + 4 * 0.2, rel=1e-4)
    kept = step_time(step, [1] * 4, [0.1] * 4, [0.2] * 4, NONE, is_kept=True)
    assert kept == pytest.approx(4 * 0.1 + 4 * 0.2, rel=1e-4)


def test_slowdowns_count_while_both_go_on() -> None:
    step = Blocks(64 * MIB, 64 * MIB, 1, backward_s=1.0)
    alone = step_time(step, [1], [0.1], [0.2], Slowdown(1.0, 1.0), is_kept=False)
    assert alone == pytest.approx(0.1 + 1.5 + 0.2)  # of one block, nothing is at once
    step = Blocks(64 * MIB, 64 * MIB, 2, backward_s=2.0)
    both = step_time(step, [1, 1], [0.1, 0.1], [0.2, 0.2], Slowdown(0.5, 0.0), is_kept=True)
    # The second gather is beside the first forward, the first scatter beside the last backward.
    assert both == pytest.approx(0.1 + 3.0 + (0.1 + 0.2) / 3 + 0.2)


def test_blocks_are_joined_where_latency_dominates_and_kept_apart_where_it_does_not() -> None:
    step = Blocks(32 * MIB, 32 * MIB, 16, backward_s=1e-3)
    slow = find_grouping(affine(1e-3, 1e-12), affine(1e-3, 1e-12), step, NONE, 0.02)
    assert slow and slow.recommended.blocks > 3
    assert slow.gain.value > 3
    assert slow.gain_without_reshard.value > 1.1
    fast = find_grouping(affine(1e-9, 1e-11), affine(1e-9, 1e-11), step, NONE, 0.02)
    assert fast and fast.recommended.blocks == 1


def test_only_groups_whose_calls_were_measured_are_tried() -> None:
    table = affine(1e-3, 1e-9, (1 << 20, 1 << 22))
    assert group_sizes(table, table, Blocks(32 * MIB, 32 * MIB, 32, 1.0)) == [1, 2, 3, 4]
    assert find_grouping(table, table, Blocks(MIB, MIB, 32, 1.0), NONE, 0.02) is None


def test_gradients_of_a_group_are_reduced_before_the_second_group_after_it_computes() -> None:
    # Forward 6 s; backward 1 s of the last group, and 5 s for its scatter, which 10 s wait for.
    step = Blocks(64 * MIB, 64 * MIB, 12, backward_s=12.0)
    found = step_time(step, [10, 1, 1], [0.0] * 3, [0.1, 0.1, 5.0], NONE, is_kept=True)
    assert found == pytest.approx(6.0 + 1.0 + 5.0 + 10.0 + 0.1)
