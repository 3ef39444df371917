"""Made-up replays: runs and sweeps of the steps of a workload, with durations that a test
chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from synthetic import noisy, synthetic_run

from commbench.answers.sweep.runner import Sweep, write_sweep
from commbench.answers.sweep.settings import Setting, make_settings, parse_values
from commbench.plan.case import Case
from commbench.plan.plan import Plan, make_replay_plan
from commbench.plan.workload import Call, Program, Step, Workload
from commbench.results.run_folder import create_folder

SIZES = (2 << 20, 1 << 20, 3 << 20)
WORKLOAD = Workload(
    name="resnet",
    source="written by hand",
    world_size=2,
    groups={"world": ((0, 1),)},
    steps=(
        Step("train", (Program((0, 1), tuple(
            Call("all_reduce", "world", "float32", size, reduce_op="sum", asynchronous=True,
                 waited_after=2)
            for size in SIZES
        )),)),
    ),
)  # fmt: skip
"""A step of three all_reduces that are under way at once."""


def replay_plan(
    variants: Sequence[str] = ("all",), workload: Workload = WORKLOAD, cpu_mode: str = "plain"
) -> Plan:
    """The plan that replays the workload on two ranks."""
    values = {
        "backend": "gloo", "device": "cpu", "world_size": workload.world_size,
        "cpu_mode": cpu_mode, "variants": tuple(variants), "precision": 0.9,
    }  # fmt: skip
    return make_replay_plan(workload, values)


def replay_time(case: Case) -> float:
    """Seconds: 20 us and 1 ns a byte for a call; for a step 1 ms, with buckets of 6 MiB half, and
    as two calls twice that."""
    if not case.step:
        return 2e-5 + case.size_bytes * 1e-9
    return 1e-3 * {"bucket:6M": 0.5, "reduce_scatter+all_gather": 2.0}.get(case.variant, 1.0)


def synthetic_replay(
    folder: Path, label: str, factor: Callable[[Case], float] = lambda _: 1.0, seed: int = 0,
    variants: Sequence[str] = ("all",), workload: Workload = WORKLOAD, cpu_mode: str = "plain",
    **more: Any,
) -> Path:  # fmt: skip
    """A run folder of a replay; a case takes replay_time, times a factor."""
    return synthetic_run(
        folder, label,
        lambda case: noisy(
            replay_time(case) * factor(case), 100 * seed + case.index, 0.02, batches=6, each=15
        ),
        asked=replay_plan(variants, workload, cpu_mode), **more,
    )  # fmt: skip


def synthetic_replay_sweep(
    folder: Path, factor: Callable[[int, Case], float], env: Sequence[str] = (), rounds: int = 3,
    variants: Sequence[str] = ("all",), workloads: Sequence[Workload] = (),
) -> tuple[Setting, ...]:  # fmt: skip
    """The folder of a sweep over a replay; returns its settings. `factor` gets the number of the
    setting. `workloads` has that of each setting, where they differ."""
    settings = make_settings(parse_values(env, "env"), {})
    folder.parent.mkdir(parents=True, exist_ok=True)
    create_folder(folder)
    none: tuple[tuple[()], ...] = ((),) * len(settings)
    write_sweep(folder, Sweep(settings, none, none, rounds, 0, "", 0.05, ("gloo",) * len(settings)))
    for index, setting in enumerate(settings):
        for number in range(1, rounds + 1):
            synthetic_replay(
                folder / setting.slug / f"round-{number}", "r",
                lambda case, i=index: factor(i, case), seed=1 + 10 * index + number,
                variants=variants, workload=workloads[index] if workloads else WORKLOAD,
            )  # fmt: skip
    return settings
