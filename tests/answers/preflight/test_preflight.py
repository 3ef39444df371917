"""`commbench preflight` on hosts that are this one under several names: 127.0.0.1, 127.0.0.2, ...

The starter is a script that can make a host hang, fail or be slow to answer.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from commands import Commbench, forked_python, start_command

from commbench.errors import UsageError
from commbench.launch.hosts import allocated_hosts, find_starter

HOSTS = "127.0.0.1,127.0.0.2,127.0.0.3"
BRIEF = ("--", "--op", "all_reduce", "--sizes", "1K", "--iters", "2")
HERE = ("--nproc-per-node", "1", "--start", "env HOST={host}")
VERDICTS = ("drain", "missing", "flapping", "again", "pass")


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
    assert 'tests="4" failures="3"' in junit


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
        (("--hosts", "a,b", "--start", "rsh"), "unknown starter 'rsh'"),
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
