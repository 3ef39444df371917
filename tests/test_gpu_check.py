"""scripts/gpu_check where there is no GPU, and its time limits."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "gpu_check"


@pytest.fixture
def gpu_check() -> Any:
    loader = SourceFileLoader("gpu_check", str(SCRIPT))
    spec = spec_from_loader("gpu_check", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_step_that_hangs_ends_at_its_limit_and_the_evidence_is_packed(
    gpu_check: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hanging = "import time; print('before', flush=True); time.sleep(600)"
    outcomes = [
        gpu_check.take(gpu_check.Step(name, 3, ("-c", program)), tmp_path / "work" / name)[
            "outcome"
        ]
        for name, program in (("hangs", hanging), ("fails", "exit(4)"), ("works", "print(1)"))
    ]
    assert outcomes == ["did not end within 3 s", "failed with exit code 4", "passed"]
    assert "   before" in capsys.readouterr().out
    gpu_check.pack(tmp_path / "work", tmp_path)
    with tarfile.open(tmp_path / "evidence.tar.gz") as archive:
        assert archive.getnames() == ["fails/log", "hangs/log", "works/log"]
    assert not (tmp_path / "work").exists()


def test_all_steps_end_within_the_time_that_a_machine_is_lent(gpu_check: Any) -> None:
    assert gpu_check.TOTAL_S < 540
    assert max(step.limit_s for step in gpu_check.STEPS) < gpu_check.TOTAL_S / 4


@pytest.mark.full
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 3
    assert "finds no torch with a GPU" in ended.stderr
