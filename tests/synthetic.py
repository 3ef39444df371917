"""Made-up runs: journals as a run leaves them, with durations that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from commbench import __version__
from commbench.analysis.csv_file import ResultsCsv
from commbench.analysis.rows import make_row, make_rows
from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.records import RankInfo
from commbench.results.run_folder import create_folder
from commbench.results.schema import Batch, Measurement, Run, RunEnd, RunHeader

Samples = Sequence[Sequence[float]]
"""Seconds: one sequence a batch."""


def steady(seconds: float, batches: int = 10, each: int = 4) -> Samples:
    """Durations within 1 % of `seconds`, evenly spread, the same in each batch."""
    return [[seconds * (1 + 0.02 * (i / (each - 1) - 0.5)) for i in range(each)]] * batches


def noisy(
    seconds: float, seed: int, noise: float = 0.05, batches: int = 10, each: int = 20
) -> Samples:
    """Log-normal durations around `seconds`."""
    chance = np.random.default_rng(seed)
    found: list[list[float]] = (seconds * chance.lognormal(0, noise, (batches, each))).tolist()
    return found


def plan(**more: Any) -> Plan:
    values: dict[str, Any] = {
        "operations": ("all_reduce",), "sizes": (1 << 10, 1 << 14, 1 << 18, 1 << 20),
        "backend": "gloo", "device": "cpu", "world_size": 2,
    }  # fmt: skip
    return Plan(**(values | more))


def header(asked: Plan, label: str, **more: Any) -> RunHeader:
    environment = {
        "host": "node1", "boot_id": label, "processor": "Made-up 9000", "torch": "2.13.0",
        "variables": {},
    } | more.pop("environment", {})  # fmt: skip
    ranks = tuple(
        RankInfo(rank, "node1", 100 + rank, "cpu", (rank,), "quiet", rank)
        for rank in range(asked.world_size)
    )
    values: dict[str, Any] = {
        "plan": asked, "label": label, "started": "2026-11-21T06:00:00+00:00", "launcher": "local",
        "environment": environment, "ranks": ranks, "commbench": __version__,
    }  # fmt: skip
    return RunHeader(**(values | more))


def synthetic_run(
    folder: Path,
    label: str,
    samples: Callable[[Case], Samples | None] = lambda case: steady(case.size_bytes * 1e-9),
    asked: Plan | None = None,
    launches: int = 1,
    statuses: dict[int, str] | None = None,
    **more: Any,
) -> Path:
    """A run folder, with journal and results.csv, as `commbench run` leaves it.

    `samples` of None: the case was not timed. `statuses` by size; what is not there is ok.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    create_folder(folder)
    journal = Journal(folder)
    asked = asked or plan(launches=launches)
    for launch in range(launches):
        journal.add(header(asked, label, launch=launch, **more))
        for case in asked.cases():
            found = samples(case)
            for durations in found or ():
                journal.batch(case, Batch(tuple(durations), launch=launch))
            status = (statuses or {}).get(case.size_bytes, "ok")
            stop = "fixed" if found else ""
            journal.add(Measurement(case, status, stop_reason=stop, wrong=0))
    journal.end(RunEnd("complete", elapsed_s=1.0))
    run = read_run(folder)
    ResultsCsv(folder).add(*make_rows(run))
    return folder


def two_runs(folder: Path) -> Path:
    """The runs `old`, and `new`: 30 % slower at 256 KiB and 10 % at 1 MiB, with another torch. The
    ratios of 12 launches are known to 1.8 %."""
    factors = {1 << 18: 1.3, 1 << 20: 1.1}
    synthetic_run(folder / "old", "old", lambda _: steady(100e-6, 2), launches=12)
    synthetic_run(
        folder / "new", "new", lambda case: steady(100e-6 * factors.get(case.size_bytes, 1), 2),
        launches=12, environment={"torch": "2.14.0"},
    )  # fmt: skip
    return folder


def in_memory(
    label: str,
    samples: Sequence[Samples],
    sizes: Sequence[int] = (),
    launches: int = 1,
    **seen: Any,
) -> Run:
    """A run that no file holds: one case for each of `samples`, whose batches its launches share.
    `seen` is the same in each batch."""
    asked = plan(
        sizes=tuple(sizes) or tuple(1024 * (i + 1) for i in range(len(samples))), launches=launches
    )
    measurements = tuple(
        Measurement(
            case,
            "ok",
            wrong=0,
            batches=tuple(
                Batch(tuple(batch), launch=number * launches // len(batches), **seen)
                for number, batch in enumerate(batches)
            ),
        )
        for case, batches in zip(asked.cases(), samples, strict=True)
    )
    return Run(label, header(asked, label), measurements, RunEnd("complete"))


__all__ = [
    "header", "in_memory", "make_row", "noisy", "plan", "steady", "synthetic_run", "two_runs",
]  # fmt: skip
