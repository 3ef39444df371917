"""What attempts say about hosts: failures, retries, findings about times; and `commbench preflight`
on hosts that are this one under several names: 127.0.0.1, 127.0.0.2, ...

The starter is a script that can make a host hang, fail or be slow to answer.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Commbench, forked_python, start_command

from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS
from commbench.answers.preflight.preflight import PreflightResult
from commbench.answers.preflight.stages import (
    FLAPPING,
    VERDICTS,
    Attempt,
    Stage,
    judge_hosts,
    make_stages,
    retry_waves,
    slow_runs,
)
from commbench.errors import UsageError
from commbench.launch.hosts import allocated_hosts, find_starter


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


@pytest.mark.parametrize(
    ("size", "failures", "proven", "expected"),
    [
        # Every accused host is retried with hosts that have passed.
        (2, [failed("pairs", "ab", "ab"), failed("pairs", "cd", "cd")], "efg",
         [["a", "b", "c"], ["d"]]),
        # A host whose pairs are slow is measured with two other hosts.
        (2, [failed("pairs", "a", "a", folder="")], "bcd", [["a"], ["a"]]),
        # There is no proven partner.
        (2, [failed("pairs", "ab", "ab")], "", []),
        # A group is halved, and a named host is retried alone.
        (4, [failed("pairs", "abcd", "abcd"), failed("pairs", "efgh", "f")], "eghxyz",
         [["ab", "cd"], ["f"]]),
        (4, [failed("pairs", "abcd", "ab")], "cdef", [["a"], ["b"]]),
    ],
)  # fmt: skip
def test_accused_hosts_are_retried_with_hosts_that_have_passed(
    size: int, failures: list[Attempt], proven: str, expected: list[list[str]]
) -> None:
    waves = retry_waves(Stage("pairs", size, [], slow_runs), failures, proven)
    assert [["".join(group.retried) for group in wave] for wave in waves] == expected
    for wave in waves:
        hosts = [host for group in wave for host in group.hosts]
        assert len(hosts) == len({*hosts}) == size * len(wave)
    groups = [group for wave in waves for group in wave]
    if size == 4 and len(failures) == 2:  # hosts that it has not met come first
        assert {"x", "y", "z"} == {*groups[-1].hosts} - {"f"}
    assert len({group.hosts for group in groups}) == len(groups)


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


HOSTS = "127.0.0.1,127.0.0.2,127.0.0.3"
BRIEF = ("--", "--op", "all_reduce", "--sizes", "1K", "--iters", "2")
HERE = ("--nproc-per-node", "1", "--start", "env HOST={host}")


def lists(folder: Path) -> dict[str, list[str]]:
    return {name: (folder / f"{name}.txt").read_text().split() for name in VERDICTS}


def starter(tmp_path: Path, *cases: str) -> tuple[str, ...]:
    """Options with a starter that does something else on some hosts, by the pattern of `case`."""
    path = tmp_path / "enter"
    text = "\n".join(
        ["#!/bin/sh", "host=$1", "shift", "case $host in", *cases, "esac", 'exec "$@"']
    )
    path.write_text(text + "\n")
    path.chmod(0o700)
    return "--nproc-per-node", "1", "--start", f"{path} {{host}}"


def test_sound_hosts_are_good(commbench: Commbench, tmp_path: Path) -> None:
    ended = commbench("preflight", "--hosts", HOSTS, *HERE, "-o", "checked", *BRIEF, COLUMNS="80")
    assert ended.code == 0, ended.out + ended.err
    assert "READY: 3 of 3 hosts are good, and 3 are needed." in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    folder = tmp_path / "checked"
    assert lists(folder)["pass"] == HOSTS.split(",")
    assert not (folder / "exclude.txt").read_text()
    found = json.loads((folder / "preflight.json").read_text())
    stages = [attempt["stage"] for attempt in found["attempts"]]
    assert found["ready"] and stages == ["alone"] * 3 + ["pairs"] * 2 + ["all"]
    assert "all: 3 of 3 hosts are good, 1 run" in ended.err
    again = commbench("preflight", "--hosts", HOSTS, *HERE, "-o", "checked", *BRIEF)
    assert again.code == 6 and "is not empty" in again.err


def test_a_host_that_hangs_is_missing_and_one_that_fails_is_to_be_drained(
    commbench: Commbench, tmp_path: Path
) -> None:
    start = starter(
        tmp_path, "*.4) exec sleep 1000 ;;",
        "*.5) echo 'error: there is no GPU' >&2; exit 3 ;;",
        f"*.6) mkdir {tmp_path}/once 2>/dev/null && {{ echo 'error: once' >&2; exit 4; }} ;;",
    )  # fmt: skip
    hosts = ",".join(f"127.0.0.{number}" for number in (1, 4, 5, 6))
    ended = commbench(
        "preflight", "--hosts", hosts, *start, "--stage-limit", "15", "--need", "1",
        "-o", "checked", *BRIEF,
    )  # fmt: skip
    assert ended.code == 0, ended.out + ended.err
    assert lists(tmp_path / "checked") == {
        "drain": ["127.0.0.5"], "missing": ["127.0.0.4"], "flapping": ["127.0.0.6"], "again": [],
        "pass": ["127.0.0.1"],
    }  # fmt: skip
    assert "there is no GPU" in ended.out and "no answer within" in ended.out
    assert "mpirun --hostfile checked/pass.txt" in ended.out
    assert (tmp_path / "checked" / "exclude.txt").read_text().split() == hosts.split(",")[1:]
    junit = (tmp_path / "checked" / "junit.xml").read_text()
    assert 'tests="4" failures="1" errors="2"' in junit


def test_a_host_that_fails_in_pairs_only_is_told_from_its_partner(
    commbench: Commbench, tmp_path: Path
) -> None:
    case = (
        "*.3) text=$(sed -u '/^}$/q'); case $text in *node-rank*) exit 9 ;; esac; "
        'exec sh -c "$text" ;;'
    )
    start = starter(tmp_path, case)
    hosts = ",".join(f"127.0.0.{number}" for number in (1, 2, 3, 4))
    # Four hosts are compared with each other: two calls alone could be slow twice by chance, or be
    # much slower than the others on a busy machine.
    many = ("--tolerance", "99%", *BRIEF[:-1], "30")
    ended = commbench("preflight", "--hosts", hosts, *start, "--need", "4", "-o", "checked", *many)
    assert ended.code == 1, ended.out + ended.err
    found = lists(tmp_path / "checked")
    assert (found["drain"], found["pass"]) == (
        ["127.0.0.3"],
        ["127.0.0.1", "127.0.0.2", "127.0.0.4"],
    )


KUBECTL = """#!/bin/sh
[ "$1" = --namespace=bench ] && shift || exit 9
case "$*" in
"get pod pod-"*" --output=jsonpath={.status.podIP}") echo "127.0.0.${3#pod-}" ;;
"exec --stdin pod-2 -- "*) echo "error: pod-2 has no GPU" >&2; exit 3 ;;
"exec --stdin pod-"*" -- "*) shift 4; exec "$@" ;;
*) exit 9 ;;
esac
"""


def test_kubectl_starts_commbench_in_the_pods_of_a_namespace(
    commbench: Commbench, tmp_path: Path
) -> None:
    tools = {"kubectl": KUBECTL, "commbench": f'#!/bin/sh\n{forked_python()} -m commbench "$@"\n'}
    for name, text in tools.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    ended = commbench(
        "preflight", "--hosts", "pod-1,pod-2,pod-3", "--start", "kubectl --namespace=bench",
        "--nproc-per-node", "1", "--need", "2", "-o", "checked", *BRIEF,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )  # fmt: skip
    assert ended.code == 0, ended.out + ended.err
    found = lists(tmp_path / "checked")
    assert (found["drain"], found["pass"]) == (["pod-2"], ["pod-1", "pod-3"])
    assert "kubectl --namespace=bench get pod \"$pod\" -o jsonpath='{.spec.nodeName}'" in ended.out


def test_a_page_is_written_after_ctrl_c(tmp_path: Path) -> None:
    start = starter(tmp_path, "*.2) exec sleep 1000 ;;")
    command = start_command(
        tmp_path, "preflight", "--hosts", HOSTS, *start, "-o", str(tmp_path / "checked"), *BRIEF
    )
    journal = tmp_path / "checked" / "preflight.jsonl"
    deadline = time.monotonic() + 60
    while not journal.exists() or journal.read_text().count('"passed": true') < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(command.pid, signal.SIGINT)
    ended = command.finish()
    assert ended.code == 130, ended.err
    assert "NOT READY" in ended.out and "Traceback" not in ended.err
    assert lists(tmp_path / "checked")["again"] == HOSTS.split(",")


def test_the_total_limit_leaves_hosts_undecided(commbench: Commbench, tmp_path: Path) -> None:
    start = starter(tmp_path, "*) exec sleep 1000 ;;")
    began = time.monotonic()
    ended = commbench(
        "preflight", "--hosts", HOSTS, *start, "--limit", "30", "-o", "checked", *BRIEF
    )
    assert ended.code == 7, ended.out + ended.err
    assert time.monotonic() - began < 60
    assert lists(tmp_path / "checked")["again"] == HOSTS.split(",")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--hosts", "a,b", "--need", "3"), "--need 3 is not from 1 to 2 hosts"),
        (("--hosts", "a,b", "--start", "rsh"), "unknown --start 'rsh'"),
        (("--hosts", "a,b", "--start", "ssh '{host}"), "close every quote"),
        ((), "there are no hosts"),
        (("--hosts", "n[1-4]"), "is no name of a node"),
        (("--hosts", "a", "--limit", "1"), "it must be at least 30"),
        (("--hosts", "a", "--", "--nnodes", "2"), "cannot be used after the -- of a preflight"),
        (("--hosts", "a", "--start", "no-such-program {host}"), "cannot start no-such-program"),
        (("--hosts", "a", "--env", "B"), "write NAME=VALUE"),
    ],
)
def test_bad_values_are_refused(
    commbench: Commbench, words: tuple[str, ...], expected: str
) -> None:
    ended = commbench("preflight", *words)
    assert ended.code in (2, 3) and expected in ended.err, ended.err
    assert "Traceback" not in ended.err


def test_starters_and_hosts_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho $1-$2-$3 | tr - '\\n'\n")
    (tmp_path / "scontrol").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    slurm = {"SLURM_JOB_NODELIST": "n1"}
    assert find_starter(None, slurm).command.startswith("srun ")
    assert find_starter(None, {}).command.startswith("ssh ")
    assert allocated_hosts(slurm) == ["show", "hostnames", "n1"]
    assert allocated_hosts({}) == []
    assert not find_starter("ip netns exec {host}").program
    assert find_starter("kubectl").program == "commbench"
    assert find_starter("ssh -p 2222").command.startswith("ssh -p 2222 -o BatchMode=yes ")
    with pytest.raises(UsageError):
        find_starter("{host")


@pytest.mark.parametrize(
    ("alone", "pairs", "said"),
    [
        (1.23, 1.4, "A slow host shows alone if it is 1.3 times as slow and in pairs if it is 1.4"),
        (None, 1.4, "in pairs if it is 1.4 times as slow, not alone: too few hosts passed."),
        (15.6, None, "alone if it is 16 times as slow, not in pairs: too few hosts passed."),
        (None, None, "Too few hosts passed to tell whether one is slow"),
    ],
)
def test_the_answer_says_how_slow_a_host_must_be_to_show(
    alone: float | None, pairs: float | None, said: str
) -> None:
    least = {"alone": alone, "pairs": pairs}
    text = PreflightResult((), (), 1, 1.0, Path("made-up"), "ssh", least).text()
    assert said in " ".join(text.split())
