"""What attempts say about hosts: failures, retries, findings about times."""

from __future__ import annotations

from typing import Any

import pytest

from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS
from commbench.answers.preflight.stages import (
    FLAPPING,
    Attempt,
    Stage,
    judge_hosts,
    make_stages,
    retry_waves,
    slow_runs,
)


def passed(stage: str, hosts: str, retried: str = "") -> Attempt:
    return Attempt(stage, tuple(hosts), True, retried=tuple(retried))


def failed(stage: str, hosts: str, accused: str, retried: str = "", **more: Any) -> Attempt:
    more = {"folder": "made-up", **more}
    return Attempt(stage, tuple(hosts), False, "broken", tuple(accused), tuple(retried), **more)


ALONE = [passed("alone", host) for host in "abcd"]
SILENT = {"is_answered": False}
UNDECIDED = {"is_undecided": True}


@pytest.mark.parametrize(
    ("attempts", "verdicts"),
    [
        (ALONE, {}),
        ([failed("alone", "a", "a")], {"a": AGAIN}),
        ([failed("alone", "a", "a"), failed("alone", "a", "a", "a")], {"a": DRAIN}),
        ([failed("alone", "a", "a"), passed("alone", "a", "a")], {"a": FLAPPING}),
        (
            [failed("alone", "a", "a", **SILENT), failed("alone", "a", "a", "a", **SILENT)],
            {"a": MISSING},
        ),
        # Undecided at first, and then it passed.
        ([failed("alone", "a", "a", **UNDECIDED), passed("alone", "a", "a")], {}),
        (
            [failed("alone", "a", "a", **UNDECIDED), failed("alone", "a", "a", "a", **UNDECIDED)],
            {"a": AGAIN},
        ),
        # The pair failed because of b, which failed with c, too.
        (
            [*ALONE, failed("pairs", "ab", "ab"), passed("pairs", "cd"),
             passed("pairs", "ad", "a"), failed("pairs", "bc", "b", "b")],
            {"b": DRAIN},
        ),
        # The pair failed, and each of the two passed with another one: nothing explains it.
        (
            [*ALONE, failed("pairs", "ab", "ab"), passed("pairs", "cd"),
             passed("pairs", "ad", "a"), passed("pairs", "bc", "b")],
            {"a": FLAPPING, "b": FLAPPING},
        ),
        # No time for a retry.
        ([*ALONE, failed("pairs", "ab", "ab")], {"a": AGAIN, "b": AGAIN}),
        # Half of a group failed again: which host it is, is not known.
        (
            [failed("groups of 4", "abcd", "abcd"), failed("groups of 4", "abef", "ab", "ab"),
             passed("groups of 4", "cdef", "cd")],
            {"a": AGAIN, "b": AGAIN, "c": FLAPPING, "d": FLAPPING},
        ),
        # What passed before does not help a host that fails later.
        (
            [*ALONE, failed("all", "abcd", "c"), failed("all", "cabd", "c", "c")],
            {"c": DRAIN},
        ),
    ],
)  # fmt: skip
def test_verdicts_follow_from_attempts(attempts: list[Attempt], verdicts: dict[str, str]) -> None:
    found = judge_hosts("abcd", attempts)
    assert {host.name: host.verdict for host in found if host.verdict != PASS} == verdicts
    assert all(host.reason and host.stage for host in found if host.verdict != PASS)


def stage(size: int) -> Stage:
    return Stage("pairs", size, "run", [], slow_runs)


def test_every_accused_host_is_retried_with_hosts_that_have_passed() -> None:
    failures = [failed("pairs", "ab", "ab"), failed("pairs", "cd", "cd")]
    waves = retry_waves(stage(2), failures, "efg")
    assert [group.retried for wave in waves for group in wave] == [("a",), ("b",), ("c",), ("d",)]
    for wave in waves:
        hosts = [host for group in wave for host in group.hosts]
        assert len(hosts) == len({*hosts}) and len(hosts) == 2 * len(wave)
    assert [len(wave) for wave in waves] == [3, 1]


def test_a_host_whose_pairs_are_slow_is_measured_with_two_other_hosts() -> None:
    waves = retry_waves(stage(2), [failed("pairs", "a", "a", folder="")], "bcd")
    assert [[group.retried for group in wave] for wave in waves] == [[("a",)], [("a",)]]
    assert len({group.hosts for wave in waves for group in wave}) == 2


def test_a_host_without_a_proven_partner_is_not_retried() -> None:
    assert retry_waves(stage(2), [failed("pairs", "ab", "ab")], "") == []


def test_a_group_is_halved_and_a_named_host_is_retried_alone() -> None:
    failures = [failed("pairs", "abcd", "abcd"), failed("pairs", "efgh", "f")]
    (first, second), (third,) = retry_waves(stage(4), failures, "eghxyz")
    assert (first.retried, second.retried, third.retried) == (("a", "b"), ("c", "d"), ("f",))
    assert [len(each.hosts) for each in (first, second, third)] == [4, 4, 4]
    # Hosts that it has not met come first.
    assert {"x", "y", "z"} == {*third.hosts} - {"f"}


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 9, 33])
def test_stages_hold_every_host_once_in_a_round(number: int) -> None:
    hosts = [f"n{index}" for index in range(number)]
    stages = [*make_stages(lambda: hosts)]
    for each in stages:
        for groups in each.rounds:
            members = [host for group in groups for host in group]
            assert len(members) == len({*members}) and {*members} <= {*hosts}
    names = [each.name for each in stages]
    sizes = [f"groups of {4 << n}" for n in range(5) if 4 << n < number]
    assert names == ["alone", *["pairs"] * (number > 1), *sizes, *["all"] * (number > 2)]
    if number > 2:
        pairs = [frozenset(pair) for groups in stages[1].rounds for pair in groups]
        assert len(pairs) == len({*pairs})
        assert {host for pair in pairs for host in pair} == {*hosts}


def test_all_that_remain_run_again_where_one_of_them_failed() -> None:
    hosts = ["a", "b", "c", "d"]
    names = []
    for each in make_stages(lambda: hosts):
        names.append(each.name)
        if each.name == "all":
            hosts.remove("c")
    assert names == ["alone", "pairs", "all", "all again"]
