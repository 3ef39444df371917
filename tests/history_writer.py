"""Makes runs and adds them to a history; as a program without end, and tells of each that it was
added: for tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import header, in_memory, plan

from commbench.analysis.load import LoadedRun, as_loaded_run
from commbench.answers.history.store import History

CASES = 5
RUNS, STEP = 40, 20
BEGIN = datetime(2026, 9, 1, tzinfo=timezone.utc)


def made_run(
    number: float, factor: float = 1.0, label: str = "made-up", cases: int = CASES,
    host: float | None = None, **more: Any,
) -> LoadedRun:  # fmt: skip
    """The run of the n-th day. Its cases take `factor` times as long as usual, and what
    its host does `host` times."""
    samples = [[[factor * 1e-3 * (case + 1)] * 8] for case in range(cases)]
    seen = {"host_round_trip_s": 20e-6 * host, "host_copy_s": 1e-3 * host} if host else {}
    run = in_memory(label, samples, **seen)
    day = (BEGIN + timedelta(days=number)).isoformat()
    asked = plan(sizes=run.header.plan.sizes)
    environment = {"boot_id": ""} | more.pop("environment", {})
    found = header(asked, label, started=day, environment=environment, **more)
    return as_loaded_run(run._replace(header=found, path=f"{label}-{number}"))


def noise(seed: int = 0, number: int = RUNS) -> list[float]:
    found: list[float] = np.random.default_rng(seed).lognormal(0, 0.02, number).tolist()
    return found


def fill(
    history: History,
    factor: Callable[[int], float] = lambda number: 1.2 if number >= STEP else 1.0,
    environment: Callable[[int], dict[str, Any]] = lambda _: {},
    number: int = RUNS,
    **more: Any,
) -> list[LoadedRun]:
    """Daily runs, with 2 % noise, a factor and an environment of each."""
    runs = [
        made_run(day, each * factor(day), environment=environment(day), **more)
        for day, each in enumerate(noise(number=number))
    ]
    for day, run in enumerate(runs):
        history.add(run, now=BEGIN + timedelta(days=day, hours=1))
    return runs


def make_history(db: str) -> None:
    """The history of tests/golden/data: 24 nightly runs of the host of its run made_up_new, which
    change with a version of NCCL."""
    sizes, chance = (1 << 10, 16 << 10, 256 << 10, 1 << 20), np.random.default_rng(1)
    for day in range(24):
        slow = day >= 16
        usual = 1e-4 * chance.lognormal(0, 0.015)
        own = [usual * (1.22 if slow and size >= 256 << 10 else 1.0) for size in sizes]
        samples = [[[time * chance.lognormal(0, 0.01)] * 8] * 3 for time in own]
        run = in_memory("nightly", samples, sizes, 3)
        found = run.header._replace(
            started=(BEGIN + timedelta(days=50 + day, hours=2)).isoformat(),
            environment=run.header.environment
            | {"boot_id": "", "nccl": "2.28.9" if slow else "2.27.5"},
        )
        with History(Path(db), is_written=True) as history:
            history.add(
                as_loaded_run(run._replace(header=found, path=f"/srv/bench/results/nightly-{day}")),
                now=BEGIN + timedelta(days=50 + day, hours=3),
            )


def main(db: str, label: str) -> None:
    for number in count():
        run = made_run(number, label=label, launcher=label)
        run = run._replace(header=run.header._replace(ranks=named(run, label)))
        with History(Path(db), is_written=True) as history:
            history.add(run)
        print(f"{label} {number}", flush=True)


def named(run: LoadedRun, label: str) -> tuple[Any, ...]:
    """The ranks of a run as those of processes of their own."""
    assert run.header
    return tuple(rank._replace(pid=rank.pid + hash(label) % 9999) for rank in run.header.ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
