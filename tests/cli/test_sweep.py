"""Sweeps on real ranks: rounds in turn, a verdict, and going on after a stop."""

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from commands import Commbench, Ended, start_command
from synthetic_sweep import synthetic_sweep

SWEEP = [
    "sweep", "--vary", "cpu-mode=quiet,plain", "--op", "all_reduce,barrier", "--sizes", "1K,64K",
    "--iters", "6", "--rounds", "2", "--output", "swept",
]  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    from commands import run_commbench

    where = tmp_path_factory.mktemp("sweep")
    return run_commbench(where, *SWEEP), where


def test_every_setting_is_measured_in_every_round(swept: tuple[Ended, Path]) -> None:
    ended, where = swept
    assert ended.code == 0, ended.err
    runs = {f"{path.parent.name}/{path.name}" for path in (where / "swept").glob("*/round-*")}
    assert runs == {f"cpu-mode={mode}/round-{n}" for mode in ("quiet", "plain") for n in (1, 2)}
    lines = ended.err.splitlines()
    assert lines[0] == "2 settings x 2 rounds = 4 runs; in swept"
    ends = (re.match(r"(\[\d+ %\]) (?:quiet|plain), (round \d of 2): done in [\d.]+ s$", line)
            for line in lines)  # fmt: skip
    assert [match.groups() for match in ends if match] == [
        ("[25 %]", "round 1 of 2"), ("[50 %]", "round 1 of 2"),
        ("[75 %]", "round 2 of 2"), ("[100 %]", "round 2 of 2"),
    ]  # fmt: skip
    assert lines[-1] == "results are in swept"


def test_a_sweep_goes_on_where_it_stopped(commbench: Commbench, swept: tuple[Ended, Path],
                                          tmp_path: Path) -> None:  # fmt: skip
    shutil.copytree(swept[1] / "swept", tmp_path / "swept")
    for picture in (tmp_path / "swept").glob("*.png"):
        picture.unlink()
    cut = tmp_path / "swept" / "cpu-mode=quiet" / "round-2" / "run.jsonl"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    ended = commbench("sweep", "--resume", "swept", "--no-plots")
    assert ended.code == 0, ended.err
    assert not [*(tmp_path / "swept").glob("*.png")]
    assert ended.err.startswith(
        "2 settings x 2 rounds = 4 runs, 2 of them measured before; in swept\n"
    )
    shares = [int(share) for share in re.findall(r"^\[(\d+) %\]", ended.err, re.MULTILINE)]
    assert min(shares) >= 50, "progress counts what was measured before"
    assert shares[-1] == 100
    # The whole round, as a turn of all settings.
    for mode in ("plain", "quiet"):
        assert (tmp_path / "swept" / f"cpu-mode={mode}" / "round-2.2" / "run.jsonl").exists()


def test_a_setting_that_is_wrong_in_a_later_round_ends_the_sweep_with_5(
    commbench: Commbench, tmp_path: Path
) -> None:
    synthetic_sweep(tmp_path / "swept", statuses={(1, 2): {1 << 14: "wrong"}})
    ended = commbench("sweep", "--resume", "swept")
    assert ended.code == 5
    assert "error: under cpu-mode=plain all_reduce" in ended.err
    rows = [line.split() for line in ended.out.splitlines() if "16 KiB" in line]
    assert rows[1] == ["16", "KiB", "plain", "wrong"]


def test_a_dry_run_names_the_settings_and_plans_one_round(
    commbench: Commbench, tmp_path: Path
) -> None:
    arguments = ("--vary", "cpu-mode=quiet,plain", "--sizes", "1K-2K", "--rounds", "4")
    planned = commbench("sweep", *arguments, "--dry-run")
    assert planned.code == 0 and not [*tmp_path.iterdir()]
    settings = "2 settings x 4 rounds, cpu-mode=quiet, cpu-mode=plain"
    assert planned.err.startswith(settings) and "\nCases: 2; " in planned.out
    assert "\nlaunches     1\n" in planned.out
    assert "All 8 runs take about 3 s of timing, and 8 starts." in planned.out
    for given in (("--cpu-mode", "realtime"), ("--cpu-mode=quiet",)):
        twice = commbench("sweep", *arguments, *given, "--dry-run")
        assert twice.code == 2
        assert "error: --cpu-mode is given, and --vary cpu-mode, too" in twice.err
    refused = commbench("sweep", "--sizes", "1K", "--dry-run")
    assert "error: there is only one setting" in refused.err


def test_show_says_what_a_sweep_lacks(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", missing={(1, 1)})
    shown = commbench("show", "swept")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.endswith(
        "1 of 6 runs are missing. This measures them:\n  commbench sweep --resume swept\n"
    )
    assert shown.out.split("\n\n")[1].startswith("This is partial: 2 to 3 of 3 rounds.\n")
    refused = commbench("show", "swept", "--peak", "1GB/s")
    assert refused.code == 2
    assert refused.err.startswith("error: swept is a sweep, and these options are for runs\n")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=plain")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=quiet")
    nothing = commbench("show", "swept")
    assert (nothing.code, nothing.err) == (
        6,
        "error: no round of the sweep swept was completed\n"
        "hint: `commbench sweep --resume swept` continues it\n",
    )


def test_two_environments_are_measured_in_turns_and_checked(
    commbench: Commbench, tmp_path: Path
) -> None:
    (tmp_path / "old").symlink_to(sys.prefix)
    (tmp_path / "new").write_text(f'#!/bin/sh\necho "$3" >> used\nexec {sys.executable} "$@"\n')
    (tmp_path / "new").chmod(0o755)
    short = ("--sizes", "1K", "--iters", "6", "--rounds", "2")
    ended = commbench("sweep", "--vary", "python=old,new", *short, "--output", "gate")
    assert ended.code == 0, ended.err
    assert f"old and new run the same Python, {os.path.realpath(sys.prefix)}: only" in ended.err
    assert ended.out.startswith("Sweep of python (old, new): 2 settings, 2 rounds, ")
    against = ("gate/python=new", "--against", "gate/python=old")
    checked = commbench("check", *against, "--max-slowdown", "9900%", "--undecided", "pass")
    assert checked.code == 0, checked.out
    assert "A, the baseline  python=old  gate/python=old     1         2" in checked.out
    assert (tmp_path / "used").read_text().split().count("run") == 2  # and one look at what it has
    wrong = (("none", 2, "cannot run none: No such file"), ("/bin/false", 3, "cannot import"))
    for value, code, why in wrong:
        refused = commbench("sweep", "--vary", f"python=old,{value}", *short)
        assert (refused.code, why in refused.err) == (code, True), refused.err
        assert "to resume" not in refused.err
    (tmp_path / "elsewhere").mkdir()
    resume = ("sweep", "--resume", "../gate", "--no-plots", "--rounds")
    resumed = start_command(tmp_path / "elsewhere", *resume, "3").finish()
    assert resumed.code == 0, resumed.err
    assert (tmp_path / "gate" / "python=old" / "round-3" / "run.jsonl").exists()
    described = (tmp_path / "gate" / "sweep.json").read_bytes()
    (tmp_path / "old").unlink()
    refused = commbench("sweep", "--resume", "gate", "--rounds", "12")
    assert refused.code == 2
    assert refused.err.startswith(f"error: --vary python=old: cannot run {tmp_path}/old/bin/python")
    assert "to resume, put it back" in refused.err
    assert (tmp_path / "gate" / "sweep.json").read_bytes() == described


def test_a_setting_whose_ranks_are_lost_twice_is_not_tried_again(
    commbench: Commbench, tmp_path: Path
) -> None:
    (tmp_path / "old").symlink_to(sys.prefix)
    lost = 'case "$*" in *"commbench run"*) echo "error: rank 1 died" >&2; exit 4;; esac'
    (tmp_path / "new").write_text(f'#!/bin/sh\n{lost}\nexec {sys.executable} "$@"\n')
    (tmp_path / "new").chmod(0o755)
    short = ("--sizes", "1K", "--iters", "6", "--rounds", "3")
    ended = commbench("sweep", "--vary", "python=old,new", *short, "--output", "gate")
    assert ended.code == 1, ended.err
    said = [line for line in ended.err.splitlines() if " new, round " in line and ": " in line]
    assert sum("failed: rank 1 died" in line for line in said) == 2
    assert any("new, round 3 of 3: skipped, because" in line for line in said)
    assert "python=new 0 of 3 rank 1 died" in " ".join(ended.out.split())


def test_a_complete_sweep_gets_more_rounds_and_a_plot(
    commbench: Commbench, swept: tuple[Ended, Path], tmp_path: Path
) -> None:
    shutil.copytree(swept[1] / "swept", tmp_path / "swept")
    ended = commbench("sweep", "--resume", "swept", "--rounds", "3")
    assert ended.code == 0, ended.err
    assert ended.err.startswith("2 settings x 3 rounds = 6 runs, 4 of them measured before;")
    for mode in ("quiet", "plain"):
        assert (tmp_path / "swept" / f"cpu-mode={mode}" / "round-3" / "run.jsonl").exists()
    fewer = commbench("sweep", "--resume", "swept", "--rounds", "2")
    assert (fewer.code, fewer.err.splitlines()[0]) == (
        2,
        "error: --rounds is 2, but swept has 3 rounds already",
    )
    plotted = commbench("plot", "swept", "-o", "pictures")
    assert plotted.code == 0, plotted.err
    pictures = [path.read_bytes()[:4] for path in (tmp_path / "pictures").glob("*.png")]
    assert len(pictures) == 2 and set(pictures) == {b"\x89PNG"}


def test_a_round_in_another_environment_does_not_count(
    commbench: Commbench, swept: tuple[Ended, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(swept[1] / "swept", tmp_path / "swept")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    ended = commbench("sweep", "--resume", "swept", "--rounds", "3")
    assert ended.code == 3, ended.err
    assert "another environment than the rounds before: OMP_NUM_THREADS was" in (
        " ".join(ended.err.split())
    )
    (other,) = (tmp_path / "swept").glob("*/other-round-3")
    assert not (other.parent / "round-3").exists()
    monkeypatch.undo()
    assert commbench("sweep", "--resume", "swept").code == 0
    assert commbench("check", str(other.parent), "--max-time", "9s").code == 0


def test_ctrl_c_names_the_line_that_resumes(tmp_path: Path) -> None:
    process = start_command(
        tmp_path, "sweep", "--vary", "cpu-mode=quiet,plain", "--sizes", "1K", "--iters", "1000000",
        "--rounds", "1", "--output", "swept",
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("swept/*/round-1/run.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    ended = process.finish()
    assert ended.code == 130, ended.err
    assert ended.err.splitlines()[-2:] == [
        "error: stopped by SIGINT", "hint: `commbench sweep --resume swept` continues it"
    ]  # fmt: skip


def test_a_setting_that_cannot_be_measured_makes_code_1_and_the_others_go_on(
    commbench: Commbench,
) -> None:
    ended = commbench("sweep", "--env", "GLOO_SOCKET_IFNAME=lo,nowhere0", "--sizes", "1K",
                      "--budget", "0.01", "--rounds", "2", "--output", "swept")  # fmt: skip
    assert ended.code == 1, ended.err
    # A round is one launch, also where a run would have three.
    headers = [
        line
        for journal in (ended.folder.parent / "swept").glob("*=lo/round-*/run.jsonl")
        for line in map(json.loads, journal.read_text().splitlines())
        if line["kind"] == "header"
    ]
    assert [line["plan"]["launches"] for line in headers] == [1, 1]
    assert "all_reduce: nothing to compare: only lo was measured." in ended.out
    failed = " ".join(ended.out.partition("Failed\n")[2].split())
    assert re.search(
        r"GLOO_SOCKET_IFNAME=nowhere0 0 of 2 rank [01] could not join a gloo group: "
        r"GLOO_SOCKET_IFNAME: nowhere0 is no interface",
        failed,
    )
    assert (
        ended.err.count("nowhere0, round 2 of 2: skipped, because this setting failed before") == 1
    )
    assert max(map(len, ended.err.splitlines()[:-1])) <= 80
    assert ended.err.splitlines()[-2:] == [
        "error: 1 of 2 settings failed: GLOO_SOCKET_IFNAME=nowhere0",
        "hint: `commbench sweep --resume swept` tries again",
    ]
    assert "2 of 4 runs are missing." in commbench("show", "swept").out


OTHER_BACKEND = """
import torch.distributed as dist

def make(store, rank, size, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout)

dist.Backend.register_backend("other", make, devices=["cpu"])
"""
"""Python runs it when it starts: a backend that is registered with torch."""


@pytest.mark.full
def test_backends_that_torch_has_are_measured_side_by_side(
    commbench: Commbench, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_BACKEND)
    root = Path(__file__).parents[2]
    ended = commbench(
        "sweep", "--vary", "backend=gloo,other", "--sizes", "1K,64K", "--iters", "6", "--rounds",
        "2", "--no-plots", "--output", "swept", is_fresh=True, PYTHONPATH=f"{tmp_path}:{root}",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    runs = {f"{path.parent.name}/{path.name}" for path in tmp_path.glob("swept/*/round-*")}
    assert runs == {f"backend={name}/round-{n}" for name in ("gloo", "other") for n in (1, 2)}
    # Each round has both, so that a drift affects both alike.
    done = re.findall(r"(gloo|other), round (\d) of 2: done", ended.err)
    assert {frozenset(name for name, n in done if n == number) for number in "12"} == {
        frozenset(("gloo", "other"))
    }
    assert ended.out.startswith("Sweep of backend (gloo, other): 2 settings, 2 rounds")
    assert "For all_reduce, " in ended.out
