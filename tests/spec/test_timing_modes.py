"""The table of timing modes."""

from __future__ import annotations

import pytest

from commbench.spec.timing_modes import (
    TIMING_CHOICES,
    TIMING_HELP,
    TIMING_MODES,
    describe_timing,
    expand_timing,
)


def test_a_choice_is_a_mode_or_all_modes_that_belong_to_both() -> None:
    assert {choice: expand_timing(choice) for choice in TIMING_CHOICES} == {
        "isolated": ("isolated",),
        "pipelined": ("pipelined",),
        "both": ("isolated", "pipelined"),
    }


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


def test_every_mode_says_in_words_what_it_is() -> None:
    for mode in TIMING_MODES.values():
        assert mode.help and mode.heading and mode.summary and mode.explanation and mode.nccl_tests
        assert f"{mode.name}: {mode.help}" in TIMING_HELP


def test_a_mode_of_a_file_that_is_not_known_says_no_more_than_its_name() -> None:
    unknown = describe_timing("sideways")
    assert (unknown.tag, unknown.explanation, unknown.has_entry_skew) == (
        "sideways", "An unknown timing mode.", False,
    )  # fmt: skip
    assert describe_timing("").tag == ""
