"""`commbench replay`: the step of a workload on real ranks, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import real_trace
from commands import Commbench
from synthetic_step import STEP, WORKLOAD, without_times

import commbench as library
from commbench.api.measuring import REPLAY_OPTIONS, replay_options
from commbench.errors import UsageError
from commbench.results.files import workload_text, write_workload

SHORT = ("--iters", "4", "--warmup", "1", "--no-plots", "--output", "run")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "step.json"
    write_workload(path, WORKLOAD)
    return path


def test_a_step_is_replayed_and_shown_alike(commbench: Commbench, file: Path) -> None:
    ended = commbench(
        "replay", str(file), "--variant", "calls,gaps,bucket:4M", *SHORT, COLUMNS="80"
    )
    assert ended.code == 0, ended.err
    cases = [(line["case"]["operation"], line["case"]["variant"]) for line in ended.cases()]
    assert cases == [
        ("all_reduce", ""), ("all_reduce", ""), ("ping_pong", ""), ("replay", "calls"),
        ("replay", "gaps"), ("replay", "bucket:4M"),
    ]  # fmt: skip
    assert all(line["status"] == "ok" for line in ended.cases())
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Replay of small (3 steps of 20.0 ms traced)" in lines
    for name in ("trace: communication", "all calls with gaps", "buckets of 4 MiB"):
        assert any(line.strip().startswith(name) for line in lines)
    shown = commbench("show", "run", COLUMNS="80")
    assert shown.out == ended.out
    values = json.loads(commbench("show", "run", "--format", "json").out)
    (step,) = values["replay"]["steps"]
    times = {each["variant"]: each["time_s"]["value"] for each in step["variants"]}
    # Before its first call a rank computes for 2 ms, and after its last one for 7 ms.
    assert times["gaps"] > 9e-3 and times["calls"] > 0
    assert "all_reduce float32 sum in_place" in commbench("show", "run", "--verbose").out
    run = library.load(ended.folder)
    (found,) = run.replay()
    assert found.baseline == "gaps"


def test_what_is_no_workload_is_refused_with_the_command_that_makes_one(
    commbench: Commbench, tmp_path: Path
) -> None:
    (tmp_path / "rank 0.json").write_text(real_trace.small_text())
    (tmp_path / "rank.json.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(range(256)))
    text = workload_text(WORKLOAD)
    (tmp_path / "mended.json").write_text(text.replace("all_reduce", "allreduce"))
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(real_trace.small_text().encode()))
    (tmp_path / "large.json").write_text(real_trace.small_text())
    os.truncate(tmp_path / "large.json", 1 << 29)
    make = "make one of traces: commbench workload import {} -o step.json"
    mend = "mend it, or make it again: `commbench workload --help` says how"
    for name, why, hint in (
        ("absent.json", "cannot read", make.format("TRACES")),
        ("rank 0.json", "is not a workload", make.format("TRACES")),
        ("trace.json.gz", "is not a workload", make.format("TRACES")),
        ("large.json", "is not a workload", make.format("TRACES")),
        (".", "cannot read", make.format(".")),
        ("rank.json.gz", "is not a workload", make.format("TRACES")),
        ("mended.json", "unknown operation 'allreduce'", mend),
    ):
        ended = commbench("replay", name)
        assert (ended.code, ended.out) == (6, "")
        error, said = ended.err.splitlines()
        assert why in error and said == f"hint: {hint}"
    ended = commbench("replay")
    assert (ended.code, ended.out) == (2, "")
    assert "hint: name its file; `commbench workload import" in ended.err


def test_options_that_choose_calls_are_not_taken(file: Path) -> None:
    assert {"op", "sizes", "dtype", "mesh", "overlap", "workload"}.isdisjoint(REPLAY_OPTIONS)
    assert {"step", "variant", "fit", "nproc_per_node", "peak"} <= {*REPLAY_OPTIONS}
    with pytest.raises(UsageError, match="unknown argument 'sizes'"):
        replay_options(file, sizes="1K")
    options = replay_options(file)
    assert (options.budget, options.name, options.ranks_per_node) == (1.0, "small", 2)
    assert replay_options(file, budget=3.0).budget == 3.0
    assert replay_options(file, iters=5).iters == 5


def test_a_workload_of_python_needs_no_file(file: Path) -> None:
    generated = WORKLOAD._replace(steps=(without_times(STEP),))
    given = replay_options(generated, iters=3)
    assert given.workload is None and given.name == "small" and given.ranks_per_node == 2
    assert given.plan("gloo", "cpu", 2).cases() == (
        replay_options(generated).plan("gloo", "cpu", 2).cases()
    )
    with pytest.raises(UsageError, match="needs the file of the workload"):
        replay_options(generated, launcher="torchrun")
    with pytest.raises(UsageError, match="has its workload"):
        replay_options(file, resume="run")


@pytest.mark.full
def test_a_workload_is_replayed_from_python_on_fewer_ranks(tmp_path: Path) -> None:
    made = library.workload.megatron(
        "llama-3-8b", mesh="tp=2,pp=2", sequence=16, micro_batches=2, bucket_bytes=1 << 20
    )
    made = made._replace(steps=made.steps[:1])
    run = library.replay(
        made, nproc_per_node=2, fit="shrink", iters=2, output=str(tmp_path / "run")
    )
    assert "ranks 0 to 1 of 4 are kept" in " ".join(str(run).split())
    (found,) = run.replay()
    assert found.variants and all(one.replayed for one in found.operations)
