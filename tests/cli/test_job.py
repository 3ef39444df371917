"""`commbench job`: what it prints, what it refuses, and that its documented lines work."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import Commbench

ROOT = Path(__file__).parents[2]
PAGES = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/clusters.md")]
LINES = sorted(
    {line for page in PAGES for line in re.findall(r"^ {4}(commbench job .*)$", page, re.M)}
)
SLURM = "job slurm --nodes 2 --nproc-per-node 2"
KUBERNETES = "job kubernetes --nodes 2 --nproc-per-node 2 --image registry.example/commbench:1"


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x1b[2Jb"])
@pytest.mark.parametrize(
    "option",
    [f"{SLURM} --setup", f"{SLURM} --container", f"{SLURM} --partition", f"{KUBERNETES} --claim",
     f"{KUBERNETES} --namespace", f"{KUBERNETES} --runtime", f"{SLURM} -- --output"],
)  # fmt: skip
def test_what_would_break_a_line_is_refused_in_two_lines(
    commbench: Commbench, option: str, text: str
) -> None:
    ended = commbench(*option.split(), text)
    assert (ended.code, ended.out) == (2, "")
    assert [line.split(":")[0] for line in ended.err.splitlines()] == ["error", "hint"]


def test_gpus_are_asked_for_where_the_run_needs_them(commbench: Commbench) -> None:
    for words, gpus in (
        ("", None), ("-- --backend nccl", 2), ("-- --device cuda", 2), ("-- --backend gloo", None),
        ("--gpus-per-node 8", 8), ("--gpus-per-node 0 -- --backend nccl", None),
    ):  # fmt: skip
        ended = commbench(*SLURM.split(), *words.split())
        assert ended.code == 0, ended.err
        found = re.findall(r"--gpus-per-node=(\d+)", ended.out)
        assert found == ([] if gpus is None else [str(gpus)])


@pytest.mark.parametrize("line", LINES)
def test_a_documented_line_works(commbench: Commbench, tmp_path: Path, line: str) -> None:
    words = shlex.split(line)[1:]
    ended = commbench(*words)
    assert (ended.code, ended.err) == (0, "")
    if "--output" in words:
        assert ended.out == words[words.index("--output") + 1] + "\n"
    text = (tmp_path / ended.out.strip()).read_text() if "--output" in words else ended.out
    if words[1] == "slurm":
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
