"""scripts/faults itself: a fault can be planted; every kind of fault once, and a short soak."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import clean_environment, start_command

SCRIPT = Path(__file__).parents[2] / "scripts" / "faults.py"


@pytest.mark.parametrize("phase", ["start", "call"])
def test_a_fault_can_be_planted(tmp_path: Path, phase: str) -> None:
    fault = json.dumps({"code": "pass", "phase": phase, "rank": 0, "at": 1})
    ended = start_command(
        tmp_path, "ops", program=SCRIPT.read_text(), COMMBENCH_FAULT=fault
    ).finish()
    assert ended.code == 0 and "all_reduce" in ended.out, ended.err


@pytest.mark.full
def test_every_kind_of_fault_is_survived_as_promised() -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "--faults", "27", "--soak", "8"],
        env=clean_environment(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "27 faults of 27 kinds: 0 complaints" in ended.stdout
    assert "soak of 8 launches: exit code 0" in ended.stdout
