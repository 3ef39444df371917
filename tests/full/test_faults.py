"""scripts/faults itself: every kind of fault once, and a short soak."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import clean_environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "faults.py"


@pytest.mark.full
def test_every_kind_of_fault_is_survived_as_promised() -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "--faults", "27", "--soak", "8"],
        env=clean_environment(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "27 faults of 27 kinds: 0 complaints" in ended.stdout
    assert "soak of 8 launches: exit code 0" in ended.stdout
