"""`commbench advise`, and `commbench.advise`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Commbench
from synthetic import plan, steady, synthetic_run
from synthetic_sweep import synthetic_sweep

import commbench as package
from commbench.analysis.nccl_log import SELECTIONS
from commbench.plan.case import Case

SIZES = tuple(1 << k for k in range(14, 27, 2))


def seconds(case: Case) -> float:
    return 200e-6 + case.size_bytes * 1e-9


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return synthetic_run(
        tmp_path / "mine",
        "mine",
        lambda case: steady(seconds(case)),
        plan(sizes=SIZES, launches=6),
        launches=6,
    )


@pytest.mark.usefixtures("run")
def test_the_command_prints_advice_and_draws_it(tmp_path: Path, commbench: Commbench) -> None:
    asked = ("advise", "mine", "--params", "16M", "--backward", "20ms", "-o", "buckets.svg")
    ended = commbench(*asked)
    assert (ended.code, ended.out, ended.err) == (0, "buckets.svg\n", "")
    assert (
        "\nTo try it:\n  DistributedDataParallel(model, bucket_cap_mb="
        in commbench(*asked[:-2]).out
    )
    assert (tmp_path / "buckets.svg").stat().st_size > 10_000
    again = commbench(*asked)
    assert again.code == 6 and "buckets.svg" in again.err
    found = json.loads(commbench(*asked[:-2], "--format", "json").out)
    assert found["advice"][0]["details"]["step"]["gradient_bytes"] == 64_000_000
    ended = commbench(*asked[:-1], "advice.html")
    assert (ended.code, ended.out) == (0, "advice.html\n")
    assert "<html" in (tmp_path / "advice.html").read_text()


def test_a_sweep_is_read_as_its_settings_with_lines_for_nccls_tuner(tmp_path: Path) -> None:
    sizes = tuple(1 << k for k in range(10, 21, 2))

    def environment(algorithm: str) -> dict[str, Any]:
        found = {f"AllReduce {size}": [[algorithm, "SIMPLE", "2"]] for size in sizes}
        return {"variables": {"NCCL_ALGO": f"allreduce:{algorithm.lower()}"}, SELECTIONS: found}

    synthetic_sweep(
        tmp_path / "swept", lambda setting, size: (size / 32_000) ** (0.2 * setting),
        ["NCCL_ALGO=RING,TREE"], (), sizes=sizes, backend="nccl",
        environments={0: environment("RING"), 1: environment("TREE")},
    )  # fmt: skip
    (advice,) = package.advise(tmp_path / "swept").advice
    assert advice.subject == "Settings of the environment"
    assert advice.paste[:2] == ("# 1K-16K", "export NCCL_ALGO=allreduce:tree")
    assert advice.paste[-2:] == (
        "allreduce,0,65535,tree,simple,2,1,2,-1,-1",
        "allreduce,65536,9223372036854775807,ring,simple,2,1,2,-1,-1",
    )
    (crossing,) = advice.details.crossings
    assert crossing[-2:] == (16 << 10, 64 << 10)
