"""What `commbench check` decides about runs that are drawn: of 4 batches of 10 samples for each
launch with 5 % noise, whose launches differ. `python tests/gate_power.py` prints the tables of
docs/gates.md and docs/evidence.md."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import product
from math import sqrt

import numpy as np
from synthetic import in_memory

from commbench.analysis.load import as_loaded_run
from commbench.answers.check.gate import CHECKED, GateResult, check
from commbench.answers.check.rules import parse_rule
from commbench.results.schema import Batch, Run


def checked(
    rows: int, spread: float, seed: int, slow: float = 1.0, are_all: bool = False,
    limit: str = "10%", undecided: str = "", has_launches: bool = True, launches: int = 3,
    in_turns: bool = False, late: float = 1.0, waiting: float | None = None,
) -> GateResult:  # fmt: skip
    """The check of drawn runs; the first row, or each, is `slow` times as slow as in the baseline.
    The log medians of the launches of a row differ by `spread`, half of the variance in all rows
    alike, and those of runs as much again. In turns, the ratios of launches differ by `spread`, and
    the host makes a launch of both as much as 1.2 times slower or faster. The first launch of the
    checked run takes `late` times as long in all rows; its ranks were `waiting` for a core for so
    much of the time, and for 2 % in the other launches."""
    chance = np.random.default_rng(seed)
    samples = 1e-4 * chance.lognormal(0, 0.05, (2, rows, launches, 4, 10))
    own = spread / 2 if in_turns else spread / sqrt(2)
    for alike in (rows, 1):
        samples *= chance.lognormal(0, own, (2, alike, launches, 1, 1))
        samples *= 1.0 if in_turns else chance.lognormal(0, own, (2, alike, 1, 1, 1))
    samples *= chance.lognormal(0, 0.2 * in_turns, (launches, 1, 1))
    samples[1, : rows if are_all else 1] *= slow
    samples[1, :, 0] *= late
    sides = samples.reshape(2, rows, 4 * launches, 10).tolist()
    old, new = (in_memory(f"run {n}", side, launches=launches) for n, side in enumerate(sides))
    if in_turns:
        old, new = (
            run._replace(starts=tuple(f"{2 * n + at:03}" for n in range(launches)))
            for at, run in enumerate((old, new))
        )
    if waiting is not None:
        old, new = (waiting_run(run, share) for run, share in ((old, 0.02), (new, waiting)))
    baseline = as_loaded_run(old, CHECKED)
    if not has_launches:
        baseline = baseline._replace(rows=[each._replace(launches=None) for each in baseline.rows])
    return check(new, [parse_rule("max_slowdown", limit)], baseline, undecided=undecided)


def waiting_run(run: Run, share: float) -> Run:
    """The run, whose ranks waited for a core for this part of its first launch, else for 2 %."""

    def waits(batch: Batch) -> Batch:
        return batch._replace(elapsed_s=1.0, queued_s=0.02 if batch.launch else share)

    found = (m._replace(batches=tuple(map(waits, m.batches))) for m in run.measurements)
    return run._replace(measurements=tuple(found))


CHANGES = {
    "equal": {}, "one row 1.3": {"slow": 1.3}, "one row 1.6": {"slow": 1.6},
    "one row 2": {"slow": 2.0},
    "all rows 1.3": {"slow": 1.3, "are_all": True},
}  # fmt: skip


def main(checks: int) -> None:
    """Print for each setting how many checks of 12 rows pass and fail."""
    for in_turns in (False, True):
        print("in turns" if in_turns else "one run after the other", *CHANGES, sep=" | ")
        for launches, (spread, limits) in product((3, 6), SPREADS.items()):
            for limit in limits:
                counts = []
                for change in CHANGES.values():
                    found = Counter(
                        checked(12, spread, seed, limit=limit, launches=launches,
                                in_turns=in_turns, **change).outcome
                        for seed in range(checks)
                    )  # fmt: skip
                    counts.append(f"{found['pass']} pass, {found['fail']} fail")
                print(launches, f"{spread:.0%}", limit, *counts, sep=" | ", flush=True)


SPREADS = {
    0.02: ("10%",), 0.04: ("10%", "25%"), 0.08: ("10%", "25%", "50%"),
    0.15: ("25%", "50%", "100%"),
}  # fmt: skip

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
