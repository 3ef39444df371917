"""What a comparison leaves to the host: made-up runs whose hosts were not equally fast."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import in_memory, steady

from commbench.compare.comparison import Comparison, compare
from commbench.results.schema import Run
from commbench.views.as_json import as_json


def run(name: str, seconds: float, **seen: Any) -> Run:
    return in_memory(name, [steady(seconds, 24)] * 3, launches=3, **seen)


def host(factor: float) -> dict[str, float]:
    return {"host_round_trip_s": 20e-6 * factor, "host_copy_s": 1e-3 * factor}


def compared(times: float, a: dict[str, Any], b: dict[str, Any]) -> Comparison:
    """A comparison of A with B, which takes so many times as long."""
    return compare(run("old", 1e-4, **a), run("new", 1e-4 * times, **b))


def verdicts(found: Comparison) -> set[str]:
    return {each.verdict for each in (*found.rows, *found.pooled)}


def test_a_host_that_was_slower_is_named_and_not_the_setting() -> None:
    found = compared(1.2, host(1), host(1.3))
    assert verdicts(found) == {"undecided"}
    assert [change.takes for change in found.host_changes] == [
        "a message between processes", "a copy in memory",
    ]  # fmt: skip
    for change in as_json(found)["host_changes"]:
        ratio = change["ratio"]
        assert ratio["low"] < ratio["value"] == 1.3 < ratio["high"]


def test_the_interval_reaches_as_much_farther_as_the_host_was_slower() -> None:
    equal, slower = compared(1.2, host(1), host(1)), compared(1.2, host(1), host(1.3))
    for before, after in ((equal.rows[0], slower.rows[0]), (equal.pooled[0], slower.pooled[0])):
        value, low, high = before.ratio
        assert after.ratio == pytest.approx((value, low / 1.3, high))
    (pooled,) = slower.pooled
    assert pooled.undisturbed_verdict == "undecided"


def test_a_host_that_was_faster_is_allowed_for_in_the_other_direction() -> None:
    found = compared(1 / 1.2, host(1.3), host(1))
    assert verdicts(found) == {"undecided"}
    assert all(change.ratio.value == pytest.approx(1 / 1.3) for change in found.host_changes)
    # What became slower beside a faster host is slower.
    assert verdicts(compared(1.2, host(1.3), host(1))) == {"slower"}


@pytest.mark.parametrize(
    ("a", "b"),
    [(host(1), host(1)), ({}, host(1.3)), (host(1), {}), ({}, {}), (host(1), host(1.04))],
    ids=["equal", "not in A", "not in B", "in neither", "within chance"],
)
def test_without_a_change_of_the_host_the_setting_is_slower(
    a: dict[str, Any], b: dict[str, Any]
) -> None:
    found = compared(1.2, a, b)
    assert verdicts(found) == {"slower"}
    assert found.host_changes == ()


def test_a_clock_of_the_gpus_that_was_slower_is_a_slower_host() -> None:
    found = compared(1.2, {"clock_mhz": 1980}, {"clock_mhz": 1600})
    assert verdicts(found) == {"undecided"}
    ((takes, ratio),) = found.host_changes
    assert (takes, ratio.value) == ("a clock of the GPUs", pytest.approx(1980 / 1600))
