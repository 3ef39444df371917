"""`commbench workload ddp|fsdp|megatron`."""

from __future__ import annotations

from pathlib import Path

from commands import Commbench

from commbench.results.workload_file import read_workload


def test_a_generated_workload_is_printed_with_its_formulas_and_written(
    commbench: Commbench, tmp_path: Path
) -> None:
    ended = commbench("workload", "fsdp", "--model", "llama-3-8b", "--mesh", "dp_shard=64",
                      "-o", "step.json")  # fmt: skip
    assert ended.code == 0, ended.err
    assert "218,112,000 parameters x 2 B = 416 MiB" in ended.out
    assert "the workload is in step.json" in ended.err
    assert max(map(len, ended.out.splitlines())) <= 100
    made = read_workload(tmp_path / "step.json")
    assert made.world_size == 64
    assert "llama" in made.name
    again = commbench("workload", "show", "step.json")
    assert again.out == ended.out


def test_a_model_is_a_name_or_numbers_and_numbers_change_a_named_one(commbench: Commbench) -> None:
    layout = ("--mesh", "dp=8,tp=4", "--seq", "8192", "--dtype", "bf16", "--bucket", "25M")
    made = commbench("workload", "megatron", "--params", "7e9", "--layers", "32", "--hidden",
                     "4096", *layout)  # fmt: skip
    assert "s b h B = 8192 x 1 x 4096 x 2 B = 64 MiB" in " ".join(made.out.split()), made.err
    changed = commbench("workload", "megatron", "--model", "llama-3-8b", "--layers", "4", *layout)
    assert "all_gather         27" in changed.out, changed.out


def test_what_makes_no_layout_is_refused(commbench: Commbench) -> None:
    tensor_parallel = commbench("workload", "ddp", "--model", "resnet-50", "--mesh", "dp=8,tp=4")
    assert (tensor_parallel.code, "tp is not a dimension here" in tensor_parallel.err) == (2, True)
    both = commbench("workload", "ddp", "--model", "resnet-50", "--params", "7e9", "--mesh", "dp=8")
    assert (both.code, "--model and --params both choose" in both.err) == (2, True)
    unknown = commbench("workload", "ddp", "--model", "resnet-51", "--mesh", "dp=8")
    assert (unknown.code, "resnet-50" in unknown.err) == (2, True)
