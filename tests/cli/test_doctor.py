"""`commbench doctor` through its real entry point, with real ranks; no time is ever expected."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import START_TIMEOUT_S, clean_environment, run_program_as

from commbench.answers.doctor.cpu_modes import MODES, SIZES

SHORT = ("doctor", "--seconds", "1", "--rounds", "1")


SMALL_BUFFERS = """
from commbench.answers.doctor import measure
measure.BEYOND_CACHE = 0
"""
"""Copying memory may be measured within the cache here: to allocate more takes seconds."""


def test_a_short_check_writes_everything_it_found(tmp_path: Path) -> None:
    ended = run_program_as(
        tmp_path, SMALL_BUFFERS, *SHORT, "--nproc-per-node", "3", "-o", "found.json"
    )
    assert (ended.code, ended.out) == (0, "found.json\n"), ended.err
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["request"] == {"ranks": 3, "rounds": 1, "seconds": 1.0, "seed": 0}
    assert found["bandwidth"]["loopback_bytes_per_s"]["value"] > 0
    assert [point["size_bytes"] for point in found["trials"][0]["points"]] == list(SIZES)
    assert [row["sizes_bytes"] for row in found["modes"][:4]] == [[size] for size in SIZES]
    assert found["trials"][0]["mode"] == "plain"
    assert {trial["mode"] for trial in found["trials"]} <= set(MODES)
    for finding in found["findings"]:
        assert finding["figure"] > finding["threshold"]
    first, *lines = ended.err.splitlines()
    assert first == "measuring loopback and memory"
    assert lines[0] == "[1/5] round 1 of 1, plain"
    said = r"\[\d/5\] about \d+ s left; round 1 of 1, \w+"
    assert all(re.fullmatch(said, line) for line in lines[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.full
def test_interrupted_in_a_launch_it_says_what_it_knows(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "commbench", "doctor", "--rounds", "9"],
        cwd=tmp_path,
        env=clean_environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("[2/45]"):
        assert process.poll() is None
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode == 130, err
    assert err.splitlines()[-2:] == [
        "error: stopped by SIGINT", "hint: the results until then are printed above",
    ]  # fmt: skip
    assert "one loopback connection, one way" in out and re.search(
        r"^  plain +to 1 MiB ", out, re.M
    )
    assert re.search(r"Stopped after \d+ of 45 launches,", out)
    assert "No problems" not in out
    assert list(tmp_path.iterdir()) == []
