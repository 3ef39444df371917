"""The table of timing modes."""

from __future__ import annotations

import pytest

from commbench.plan.dimensions import (
    TIMING_MODES,
    describe_timing,
)


@pytest.mark.parametrize(
    ("name", "call_s", "calls"),
    [
        ("isolated", 0.0, 1), ("isolated", 1e-6, 1),
        ("pipelined", 0.0, 20), ("pipelined", 1e-6, 20), ("pipelined", 2e-3, 10),
        ("pipelined", 1.0, 2),
    ],
)  # fmt: skip
def test_an_iteration_holds_as_many_calls_as_fit_in_its_time(
    name: str, call_s: float, calls: int
) -> None:
    assert TIMING_MODES[name].calls_per_iteration(call_s) == calls


def test_a_mode_of_a_file_that_is_not_known_says_no_more_than_its_name() -> None:
    unknown = describe_timing("sideways")
    assert (unknown.tag, unknown.explanation, unknown.has_entry_skew) == (
        "sideways", "An unknown timing mode.", False,
    )  # fmt: skip
    assert describe_timing("").tag == ""
