"""`commbench job`: what it prints, what it refuses, and that its documented lines work."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import Commbench

from commbench.spec.operations import OPERATIONS

ROOT = Path(__file__).parents[2]
PAGES = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/clusters.md")]
LINES = sorted(
    {line for page in PAGES for line in re.findall(r"^ {4}(commbench job .*)$", page, re.M)}
)
SLURM = "job slurm --nodes 2 --nproc-per-node 2"
KUBERNETES = "job kubernetes --nodes 2 --nproc-per-node 2 --image registry.example/commbench:1"

REFUSED = {
    "job slurm --nproc-per-node 2": (
        "error: --nodes is missing\n"
        "hint: write for example: commbench job slurm --nodes 4 --nproc-per-node 8 -- "
        "--backend nccl; `commbench job slurm --help` lists the options\n"
    ),
    "job kubernetes --nodes 2 --nproc-per-node 2": (
        "error: --image is missing\n"
        "hint: write for example: commbench job kubernetes --nodes 2 --nproc-per-node 8 "
        "--image registry.example/commbench:1 --claim results -- --backend nccl; "
        "`commbench job kubernetes --help` lists the options\n"
    ),
    f"{SLURM} -- --op all_redcue": (
        "error: unknown operation 'all_redcue'\n"
        f"hint: did you mean all_reduce? known: {', '.join(OPERATIONS)}\n"
    ),
    f"{SLURM} -- --op gather --root 4": (
        "error: --root 4 is not a rank of 4\nhint: ranks go from 0 to 3\n"
    ),
    f"{SLURM} -- --nnodes 2": (
        "error: --nnodes cannot be used after the -- of a job\nhint: write --nodes before the --\n"
    ),
    f"{SLURM} -- --launches 3": (
        "error: --launches cannot be used after the -- of a job\n"
        "hint: submit the job several times\n"
    ),
    f"{SLURM} -- --siezs 1K": (
        "error: there is no option --siezs\n"
        "hint: did you mean --sizes? `commbench run --help` lists the options\n"
    ),
    f"{SLURM} --op all_reduce": (
        "error: there is no option --op\n"
        "hint: options of `commbench run` go after two dashes: commbench job slurm --nodes 2 "
        "--nproc-per-node 8 -- --op …\n"
    ),
    f"{SLURM} --nodes 0": "error: --nodes is 0\nhint: it must be at least 1\n",
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_a_job_that_would_fail_is_refused_in_two_lines(commbench: Commbench, line: str) -> None:
    ended = commbench(*line.split())
    assert (ended.code, ended.out, ended.err) == (2, "", REFUSED[line])


@pytest.mark.parametrize(
    ("line", "error", "command"),
    [
        ("job", "missing command", "commbench job"),
        (f"{SLURM} --zone eu", "there is no option --zone", "commbench job slurm"),
        (f"{SLURM} -- --zone eu", "there is no option --zone", "commbench run"),
        (f"{SLURM} -- ring", "there is one argument too many", "commbench run"),
    ],
)
def test_an_unknown_option_is_told_with_the_command_that_lists_the_known(
    commbench: Commbench, line: str, error: str, command: str
) -> None:
    ended = commbench(*line.split())
    assert (ended.code, ended.out) == (2, "")
    told, hint = ended.err.splitlines()
    assert told.startswith(f"error: {error}")
    assert hint == f"hint: `{command} --help` lists the options"


def test_what_the_backend_cannot_do_is_told_before_it_waits_in_a_queue(
    commbench: Commbench,
) -> None:
    ended = commbench(*SLURM.split(), "--", "--backend", "gloo", "--dtype", "int16")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(
        "error: nothing is left to measure: gloo does not support int16\nhint"
    )


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


def test_a_file_is_written_and_never_over_another(commbench: Commbench, tmp_path: Path) -> None:
    words = [*SLURM.split(), "--output", "job.sh"]
    printed = commbench(*SLURM.split(), "--", "--label", "one")
    ended = commbench(*words, "--", "--label", "one")
    assert (ended.code, ended.out, ended.err) == (0, "job.sh\n", "")
    assert (tmp_path / "job.sh").read_text() == printed.out
    again = commbench(*words, "--", "--label", "two")
    assert (again.code, again.err.splitlines()[0]) == (6, "error: job.sh exists")
    assert (tmp_path / "job.sh").read_text() == printed.out


def test_gpus_are_asked_for_where_the_run_needs_them(commbench: Commbench) -> None:
    for words, gpus in (
        ("", None), ("-- --backend nccl", 2), ("-- --device cuda", 2), ("-- --backend gloo", None),
        ("--gpus-per-node 8", 8), ("--gpus-per-node 0 -- --backend nccl", None),
    ):  # fmt: skip
        ended = commbench(*SLURM.split(), *words.split())
        assert ended.code == 0, ended.err
        found = re.findall(r"--gpus-per-node=(\d+)", ended.out)
        assert found == ([] if gpus is None else [str(gpus)])


def test_there_are_documented_lines_of_both() -> None:
    assert {line.split()[2] for line in LINES} == {"slurm", "kubernetes"}


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
