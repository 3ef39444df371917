"""scripts/gpu_check where there is no GPU, and its time limits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from commands import free_port, start_command

from commbench.runner.run_options import RUN_OPTIONS
from commbench.spec.operations import find_operation

RUN = ("-m", "commbench", "run")
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
        gpu_check.take(gpu_check.Step(name, limit_s, ("-c", program)), tmp_path / "work" / name)[
            "outcome"
        ]
        for name, limit_s, program in (
            ("hangs", 1, hanging), ("fails", 30, "exit(4)"), ("works", 30, "print(1)")
        )
    ]  # fmt: skip
    assert outcomes == ["did not end within 1 s", "failed with exit code 4", "passed"]
    assert "   before" in capsys.readouterr().out
    gpu_check.pack(tmp_path / "work", tmp_path)
    with tarfile.open(tmp_path / "evidence.tar.gz") as archive:
        assert archive.getnames() == ["fails/log", "hangs/log", "works/log"]
    assert not (tmp_path / "work").exists()


def test_the_verdict_names_the_steps_that_failed_and_what_stays_unproven(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        gpu_check.Step(name, limit_s, ("-c", program))
        for name, limit_s, program in (("works", 9, ""), ("fails", 9, "exit(4)"), ("long", 999, ""))
    ]
    monkeypatch.setattr(gpu_check, "STEPS", steps)
    monkeypatch.setattr(gpu_check, "find_gpus", lambda: {"gpus": [["NVIDIA H200", 1]]})
    monkeypatch.setattr(sys, "argv", ["gpu_check", str(tmp_path)])
    monkeypatch.setenv("PYTHONPATH", "")  # main changes it, and the folder
    monkeypatch.chdir(tmp_path)
    assert gpu_check.main() == 1
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["verdict"] == "not passed: fails, long"
    assert [step["outcome"] for step in verdict["steps"]] == [
        "passed", "failed with exit code 4", "no time left"
    ]  # fmt: skip
    assert [what.partition(":")[0] for what in verdict["unproven"]] == [
        "several GPUs", "several hosts", "ROCm and XPU"
    ]  # fmt: skip
    assert tarfile.is_tarfile(tmp_path / "evidence.tar.gz")


def test_every_gpu_test_belongs_to_a_step(gpu_check: Any) -> None:
    files = (SCRIPT.parent.parent / "tests" / "gpu").glob("test_*.py")
    names = {name for f in files for name in re.findall(r"^def (test_\w+)", f.read_text(), re.M)}
    chosen = [
        step.words[step.words.index("-k") + 1] for step in gpu_check.STEPS if "-k" in step.words
    ]
    words = [word for which in chosen for word in which.split(" or ")]
    assert len(names) > 20
    assert [name for name in sorted(names) if not any(word in name for word in words)] == []


def test_the_runs_of_all_steps_are_runs_that_commbench_knows(gpu_check: Any) -> None:
    runs = [step.words[3:] for step in gpu_check.STEPS if step.words[:3] == RUN]
    assert len(runs) > 3
    for words in runs:
        options = dict(zip(words[::2], words[1::2], strict=False))
        flags = [word for word in words if word.startswith("--")]
        known = {flag.split("/")[0] for option in RUN_OPTIONS.values() for flag in option.flags}
        assert set(flags) <= known
        for name in options.get("--op", "all").split(","):
            assert name == "all" or find_operation(name)


def test_commbench_and_a_plain_loop_are_compared_in_turn(tmp_path: Path) -> None:
    program = (SCRIPT.parent / "plain_events.py").read_text()
    options = ("--backend", "gloo", "--sizes", "64K", "--pairs", "2", "--tolerance")
    variables = {"MASTER_PORT": str(free_port())}
    ended = start_command(tmp_path, *options, "1e9", program=program, **variables).finish()
    assert ended.code == 0, ended.err
    (line,) = map(json.loads, ended.out.splitlines())
    assert (line["way"], line["size_bytes"]) == ("clock", 65536)
    assert 0 < line["lowest"] <= line["ratio"] <= line["highest"]
    assert min(line["commbench_us"], line["other_us"]) > 0
    ended = start_command(tmp_path, *options, "0", program=program, **variables).finish()
    assert ended.code == 1, ended.err


@pytest.mark.full
def test_what_gpu_tests_change_in_the_program_reaches_the_ranks(tmp_path: Path) -> None:
    """The programs of tests/gpu, on gloo: a bit that is flipped is found."""
    text = (SCRIPT.parent.parent / "tests" / "gpu" / "test_gpu.py").read_text()
    parts = [
        re.search(f'^{name} = """(.*?)"""', text, re.S | re.M) for name in ("FORKABLE", "FLIPS")
    ]
    program = "".join(part[1] for part in parts if part).format(index=-1)
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nfrom commbench.cli.main import main\nmain()", "run",
         "--sizes", "1K", "--op", "all_gather", "--iters", "1", "--no-plots"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 5, ended.stderr


def test_all_steps_end_within_nine_minutes(gpu_check: Any) -> None:
    assert gpu_check.TOTAL_S < 540
    assert max(step.limit_s for step in gpu_check.STEPS) < gpu_check.TOTAL_S / 4


@pytest.mark.full
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 3
    assert "finds no torch with a GPU" in ended.stderr
