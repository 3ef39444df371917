"""`commbench job`: what it prints, what it refuses, and that its documented lines work."""

from __future__ import annotations

import re

import pytest
from commands import Commbench

from commbench.cli.commands import parse_words

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
        note = "no GPUs are requested: the job measures gloo; for GPUs add --backend nccl"
        assert ended.err == (f"{note}\n" if not words else "")
        assert (f"# Note:     {note}\n" in ended.out) == (not words)


@pytest.mark.parametrize("words", ["", "-- --backend nccl", "--gpus-per-node 0 -- --device cuda"])
def test_gpus_of_another_vendor_are_a_resource(commbench: Commbench, words: str) -> None:
    ended = commbench(*KUBERNETES.split(), "--resource", "amd.com/gpu=8", *words.split())
    assert (ended.code, ended.err) == (0, "")
    assert "2 ranks and 8 GPUs each." in ended.out
    assert ended.out.count('"amd.com/gpu": "8"') and "nvidia" not in ended.out


@pytest.mark.parametrize("command", [SLURM, KUBERNETES])
def test_the_nodes_are_tested_as_the_job_runs(commbench: Commbench, command: str) -> None:
    for words, tested in (
        ("--op barrier --timeout 900", ""),
        ("--backend nccl --nccl-option min_ctas=8,max_ctas=16 --sizes 1K",
         " -- --backend=nccl --nccl-option=min_ctas=8,max_ctas=16"),
        ("--backend gloo --device cpu --cpu-mode plain --op all_gather",
         " -- --backend=gloo --device=cpu --cpu-mode=plain"),
    ):  # fmt: skip
        script = commbench(*command.split(), "--preflight", "--", *words.split()).out
        (line,) = re.findall(r"(?m)^commbench preflight (?:.*\\\n)?.*$", script)
        assert line.removesuffix(" || code=$?").endswith(f' --output "$checked"{tested}'), line
        _, _, after = line.removesuffix(" || code=$?").partition(" -- ")
        parse_words(after.split(), "preflight")


@pytest.mark.parametrize("command", [SLURM, KUBERNETES])
def test_the_script_names_operations_and_sizes_and_what_may_not_be_meant(
    commbench: Commbench, command: str
) -> None:
    for words, calls in (
        ("", "all_reduce of 1K-64M"), ("-- --op barrier", "barrier"),
        ("-- --op all_gather,barrier -b 8 -e 1M -f 4", "all_gather,barrier of 8B-512K:x4"),
    ):  # fmt: skip
        ended = commbench(*command.split(), *words.split())
        assert ended.err.startswith("no GPUs are requested: ")
        assert f"# Calls:    {calls}\n# Note:     {ended.err}" in ended.out
