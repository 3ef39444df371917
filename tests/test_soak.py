"""Soaks on real ranks: faults of one rank, ranks that die, Ctrl-C, and soaks that go on later."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from commands import SHORT_DELAYS, START_TIMEOUT_S, Ended, run_program_as, start_command

from commbench.results.journal_reader import read_run
from commbench.results.run_folder import JOURNAL

PLANT = """
import os, random, signal
import torch
from commbench.plan.operations import OPERATIONS
healthy, chance, calls = OPERATIONS["all_reduce"].call, random.Random({seed}), [0]
def faulty(dist, b, async_op=False):
    work = healthy(dist, b, async_op)
    calls[0] += 1
    if b.rank == {rank}:
        {fault}
    return work
OPERATIONS["all_reduce"] = OPERATIONS["all_reduce"]._replace(call=faulty)
"""
FLIP = """if chance.random() < {share}:
            bits = b.receive.view(torch.int32)
            bits[chance.randrange(len(bits))] ^= 1 << chance.randrange(32)"""
KILL = "calls[0] < {call} or os.kill(os.getpid(), signal.SIGKILL)"
SMALL = ("--op", "all_reduce", "--sizes", "1K,4K", "--no-plots", "--output", "run")


def plant(fault: str, rank: int = 1, seed: int = 0) -> str:
    return PLANT.format(fault=fault, rank=rank, seed=seed)


def soak(folder: Path, program: str, *arguments: str) -> Ended:
    return run_program_as(folder, program, "soak", *SMALL, *arguments, **SHORT_DELAYS)


def test_a_bit_flipped_now_and_then_on_one_rank_is_found_and_the_soak_goes_on(
    tmp_path: Path,
) -> None:
    flips = plant(FLIP.format(share=0.05), rank=1)
    ended = soak(tmp_path, flips, "--cycles", "20", "--check-share", "70%", "--nproc-per-node", "3")
    assert ended.code == 5, ended.err
    assert "Results are wrong: rank 1 differs from the other 2." in ended.out
    found = read_run(ended.folder)
    wrong = [check for check in found.checks if check.wrong_ranks]
    assert {check.wrong_ranks for check in wrong} == {(1,)}
    assert min(check.cycle for check in wrong) < max(check.cycle for check in wrong)
    assert [len(m.batches) for m in found.measurements] == [20, 20]
    assert sum(m.wrong or 0 for m in found.measurements) == sum(
        sum(check.wrong_elements) for check in wrong
    )
    assert all(m.first_wrong is None or m.first_wrong.rank == 1 for m in found.measurements)


def test_a_sound_soak_says_what_it_would_have_seen(tmp_path: Path) -> None:
    ended = soak(tmp_path, "", "--for", "3s", "--tolerance", "99%")
    assert ended.code in (0, 1), ended.err  # a busy host may drift
    calls = sum(check.calls for check in read_run(ended.folder).checks)
    assert f"The results of all {calls:,} checked calls are right." in ended.out
    shown = start_command(tmp_path, "show", "run", "--format", "json").finish().good()
    told = json.loads(shown.out)["soak"]
    assert told["checked_calls"] == calls
    assert told["seen_probability"] == pytest.approx(1 - 0.999**calls, rel=1e-5)
    assert told["elapsed_s"] > 2.9
    lines = [line for line in ended.err.splitlines() if "cycle " in line]
    assert lines and all(" wrong" in line and " of 3 s" in line for line in lines), ended.err


def test_a_rank_that_dies_in_a_soak_is_named_and_the_verdict_is_kept(tmp_path: Path) -> None:
    ended = soak(tmp_path, plant(KILL.format(call=400)), "--for", "1h")
    assert ended.code == 4
    assert "error: rank 1 " in ended.err and "was killed by SIGKILL" in ended.err
    assert "checked calls are right" in ended.out
    assert "This run failed." in ended.out


def interrupted(folder: Path, cycle: int, *arguments: str) -> Ended:
    """A soak that gets SIGINT when it has come so far."""
    journal = folder / "run" / JOURNAL
    process = start_command(folder, "soak", *SMALL, *arguments, **SHORT_DELAYS)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (journal.exists() and f'"cycle": {cycle},' in journal.read_text()):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process.finish()


def test_a_soak_that_is_interrupted_gives_its_verdict_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    ended = interrupted(tmp_path, 3, "--cycles", "12")
    assert ended.code == 130, ended.err
    assert "checked calls are right" in ended.out
    before = read_run(ended.folder)
    resumed = start_command(tmp_path, "run", "--resume", "run", "--no-plots").finish()
    assert resumed.code in (0, 1), resumed.err
    run = read_run(ended.folder)
    for found in run.measurements:
        assert Counter(batch.cycle for batch in found.batches) == dict.fromkeys(range(1, 13), 1)
        starts = [batch.start_s for batch in found.batches]
        assert starts == sorted(starts)
    (restart,) = run.restarts
    assert restart[0] >= max(check.start_s for check in before.checks)
    assert not run.incomplete


def test_a_soak_for_a_time_goes_on_for_what_remains_of_it(tmp_path: Path) -> None:
    interrupted(tmp_path, 3, "--for", "4s")
    resumed = start_command(tmp_path, "soak", "--resume", "run", "--no-plots").finish()
    assert resumed.code in (0, 1), resumed.err
    run = read_run(tmp_path / "run")
    last = max(run.measurements, key=lambda m: m.batches[-1].start_s).batches[-1]
    assert 2 < last.start_s < 4
    assert {m.stop_reason for m in run.measurements} == {"time"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("soak", "--for", "1s"), ""),
        (("soak", "--for", "1"), "--for '1' is not a time with a unit"),
        (("soak", "--for", "never"), "--for 'never' is not a time"),
        (("soak", "--for", "0s"), "--for is 0"),
        (("soak", "--cycles", "0"), "cycles is 0"),
        (("soak", "--check-share", "95%"), "--check-share is 0.95"),
        (("run", "--for", "1h", "--iters", "5"), "--iters has no effect in a soak"),
        (("run", "--for", "1h", "--launches", "2"), "--launches has no effect in a soak"),
        (("soak", "--pairs", "quick", "--op", "p2p"), "--pairs has no effect in a soak"),
        (("sweep", "--for", "1h", "--vary", "cpu-mode=quiet,plain"), "cannot be used in a sweep"),
    ],
)
def test_what_a_soak_cannot_do_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    extra = () if arguments[0] == "sweep" else ("--dry-run",)
    ended = start_command(tmp_path, *arguments, *extra).finish()
    assert ended.code == (2 if message else 0), ended.err
    assert message in ended.err


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_a_bit_flipped_in_1_of_1000_calls_is_found_and_its_rank_named(
    tmp_path: Path, seed: int
) -> None:
    rank, chance = seed % 2, FLIP.format(share=1e-3)
    arguments = ("--cycles", "30", "--check-share", "90%", "--cpu-mode", "plain")
    ended = soak(tmp_path, plant(chance, rank, seed), *arguments, "--sizes", "1K")
    calls = sum(check.calls for check in read_run(ended.folder).checks)
    assert 1 - 0.999**calls > 0.999, "there were too few checks"
    assert ended.code == 5, ended.err
    assert f"Results are wrong: rank {rank} of 2 differs from what is right." in ended.out
