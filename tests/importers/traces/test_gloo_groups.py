"""The threads of gloo tell which process group a call is of, where only one answer is possible."""

from __future__ import annotations

import pytest

from commbench.importers.traces.gloo_groups import assign_threads

ALL = {"0", "1", "3"}
NAMES = ["0", "1", "3"]


def threads(*numbers: int, process: int = 100) -> dict[str, set[str]]:
    return {f"{process}/{number}": set(ALL) for number in numbers}


def test_two_threads_for_each_group_are_told_apart_by_their_order() -> None:
    found = assign_threads(threads(120, 101, 102, 121, 113, 114), NAMES)
    assert found == {
        "100/101": ["0"], "100/102": ["0"], "100/113": ["1"], "100/114": ["1"], "100/120": ["3"],
        "100/121": ["3"],
    }  # fmt: skip


def test_numbers_of_threads_may_start_again() -> None:
    found = assign_threads(threads(300, 302, 9, 11, 4, 5, process=299), NAMES)
    assert {thread: groups[0] for thread, groups in found.items()} == {
        "299/300": "0", "299/302": "0", "299/4": "1", "299/5": "1", "299/9": "3", "299/11": "3",
    }  # fmt: skip


def test_a_call_that_fits_one_group_only_tells_the_others() -> None:
    known = threads(101, 102, 110, 111)
    known["100/101"] = {"1"}  # a call of as many ranks as that group has
    found = assign_threads(known, NAMES)
    assert found["100/110"] == found["100/111"] == ["3"]
    assert found["100/102"] == ["1"]


def test_what_several_groups_fit_stays_open() -> None:
    found = assign_threads(threads(101, 102, 110, 111), NAMES)
    assert {len(groups) for groups in found.values()} > {1} or len(found["100/110"]) > 1
    assert found["100/101"] == ["0", "1"]


def test_the_only_group_is_that_of_all_calls() -> None:
    assert assign_threads(threads(7), ["0"]) == {"100/7": ["0"]}


def test_the_thread_of_the_process_may_call_in_any_group() -> None:
    assert assign_threads({"100/100": {"0", "3"}}, NAMES) == {"100/100": ["0", "3"]}


@pytest.mark.parametrize("number", [3, 7])
def test_more_threads_than_the_groups_can_have_are_of_no_group(number: int) -> None:
    found = assign_threads({f"100/{101 + n}": {"1"} for n in range(number)}, NAMES)
    assert not any(found.values())
