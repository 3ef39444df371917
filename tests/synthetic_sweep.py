"""Made-up sweeps: the folder of a sweep as it is left, with durations that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from synthetic import noisy, plan, synthetic_run

from commbench.answers.sweep.runner import Sweep, write_sweep
from commbench.answers.sweep.settings import UNSET, Setting, make_settings, parse_values
from commbench.results.run_folder import create_folder

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20)


def synthetic_sweep(
    folder: Path,
    factor: Callable[[int, int], float] = lambda setting, size: 1.0,  # noqa: ARG005
    env: Sequence[str] = (),
    vary: Sequence[str] = ("cpu-mode=quiet,plain",),
    *,
    rounds: int = 3,
    sizes: Sequence[int] = SIZES,
    operations: Sequence[str] = ("all_reduce",),
    missing: Collection[tuple[int, int]] = (),
    statuses: Mapping[tuple[int, int], dict[int, str]] = {},
    tolerance: float = 0.05,
    backend: str = "gloo",
    environments: Mapping[int, dict[str, Any]] = {},
) -> tuple[Setting, ...]:
    """The folder of a sweep; returns its settings.

    A case takes 20 us and 1 ns a byte, times `factor` of the number of its setting and its size.
    `missing` has the settings and rounds, from 1, that were not measured; `statuses` the statuses
    of a setting and round by size; `environments` that of a setting's ranks,
    which else have its variables.
    """
    settings = make_settings(parse_values(env, "env"), parse_values(vary, "vary"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    create_folder(folder)
    none: tuple[tuple[()], ...] = ((),) * len(settings)
    backends = (backend,) * len(settings)
    write_sweep(folder, Sweep(settings, none, none, rounds, 0, "", tolerance, backends))
    target = {"backend": backend, "device": "cuda" if backend == "nccl" else "cpu"}
    asked = plan(sizes=tuple(sizes), operations=tuple(operations), precision=0.9, **target)
    for index, setting in enumerate(settings):
        variables = {name: value for name, value in setting.variables if value != UNSET}
        for number in range(1, rounds + 1):
            if (index, number) not in missing:
                synthetic_run(
                    folder / setting.slug / f"round-{number}", "r",
                    lambda case, i=index, n=number: noisy(
                        (case.size_bytes * 1e-9 + 2e-5) * factor(i, case.size_bytes),
                        seed=1000 * i + 100 * n + case.index, noise=0.02, batches=3, each=10,
                    ),
                    asked=asked, statuses=statuses.get((index, number)),
                    environment={"variables": variables} | environments.get(index, {}),
                )  # fmt: skip
    return settings
