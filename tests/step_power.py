"""How often steps are found in made-up series: by `commbench history`, and by the detectors of asv,
ruptures and Apache Otava where these are installed; and in the series of otava-test-data, whose
labels say where a level changes; and what a check against a history decides. `python
tests/step_power.py` prints the tables of docs/history.md and docs/evidence.md."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, product
from statistics import mean, median

import numpy as np

from commbench.answers.history.level import find_level
from commbench.answers.history.steps import find_steps
from commbench.stats import FAIL, LIKELY, PASS, Estimate, hold_together, judge

NOISE, POINTS = 0.03, 200
Rng = np.random.Generator
Found = Callable[[np.ndarray], list[int]]


def white(rng: Rng, number: int) -> np.ndarray:
    return rng.normal(size=number)


def correlated(rng: Rng, number: int) -> np.ndarray:
    """AR(1) with a correlation of 0.5 and a standard deviation of 1."""
    found = np.zeros(number + 50)
    for index, value in enumerate(rng.normal(size=number + 50)):
        found[index] = 0.5 * found[index - 1] + value
    return found[50:] * math.sqrt(0.75)


def outlying(rng: Rng, number: int) -> np.ndarray:
    """2 % outliers, 5 to 20 standard deviations off."""
    found, is_out = rng.normal(size=number), rng.random(number) < 0.02
    found[is_out] += rng.choice([-1, 1], is_out.sum()) * rng.uniform(5, 20, is_out.sum())
    return found


KINDS = {"white": white, "AR(1) 0.5": correlated, "2 % outliers": outlying}


def series(logs: np.ndarray) -> list[Estimate]:
    return [Estimate(value) for value in np.exp(logs).tolist()]


def ours(logs: np.ndarray) -> list[int]:
    return [step.at for step in find_steps(series(logs)).steps]


def share_with_a_step(kind: str, find: Found, times: int, number: int = POINTS) -> float:
    rng = np.random.default_rng(7)
    return mean(bool(find(NOISE * KINDS[kind](rng, number))) for _ in range(times))


def with_step(rng: Rng, at: int, ratio: float = 1.05, number: int = POINTS) -> np.ndarray:
    logs = NOISE * white(rng, number)
    logs[at:] += math.log(ratio)
    return logs


def share_found(find: Found, at: int, times: int, ratio: float = 1.05, within: int = 4) -> float:
    rng = np.random.default_rng(8)
    found = (find(with_step(rng, at, ratio)) for _ in range(times))
    return mean(any(abs(place - at) <= within for place in places) for places in found)


def oracles() -> dict[str, Found]:
    """asv's detector, and PELT of ruptures with the penalty of BIC and the true noise;
    empty where they are not installed."""
    try:
        asv, ruptures = import_module("asv.step_detect"), import_module("ruptures")
    except ImportError:
        return {}

    def of_asv(logs: np.ndarray) -> list[int]:
        found = asv.detect_steps(np.exp(logs).tolist(), None)
        return [first for first, *_ in found[1:]]

    def of_ruptures(logs: np.ndarray) -> list[int]:
        penalty = 2 * NOISE**2 * math.log(len(logs))
        found = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(logs).predict(pen=penalty)
        return [int(place) for place in found[:-1]]

    return {"asv": of_asv, "ruptures": of_ruptures}


def checked(runs: int, sd: float, times: int, kind: str = "white") -> list[Estimate]:
    """The ratio of a run to so many earlier ones that are equal, as a check would find it, of
    different histories."""
    rng, found = np.random.default_rng(5), []
    for _ in range(times):
        *logs, new = sd * KINDS[kind](rng, runs + 1)
        earlier = series(np.array(logs))
        level = find_level(earlier)
        half, value = level.half(), math.exp(new) / level.time
        found.append(Estimate(value, value * math.exp(-half), value * math.exp(half)))
    return found


def share_judged(found: list[Estimate], limit: float, outcome: str, slower: float) -> float:
    """How many of these ratios have an outcome, of a run that is so many times as slow."""
    return mean(judge(each.scaled(slower), limit) == outcome for each in found)


def outcome_of_rows(
    rng: Rng, sd: float, limit: float, rows: int, slower: float, runs: int = 30
) -> str:
    """What a check of a run against a history decides, without ranges of sizes: PASS, FAIL, or
    empty. One of the rows is so many times as slow."""
    outcomes = []
    for row in range(rows):
        *logs, new = sd * white(rng, runs + 1)
        level = find_level(series(np.array(logs)))
        half, value = level.half(), math.exp(new) / level.time * (1 if row else slower)
        found = Estimate(value, value * math.exp(-half), value * math.exp(half))
        outcome = judge(found, limit)
        if outcome == FAIL and judge(hold_together(found, rows, level.degrees), limit) == FAIL:
            return FAIL
        is_likely = outcome not in (PASS, FAIL) and value <= limit and half <= math.log(2) / 2
        outcomes.append(outcome if outcome == PASS else LIKELY if is_likely else "")
    is_sure = outcomes.count(PASS) >= outcomes.count(LIKELY)
    return PASS if is_sure and "" not in outcomes else ""


def told(
    before: int, after: int, sd: float, slower: float, times: int, kind: str = "white"
) -> tuple[float, float]:
    """How often runs that are so many times as slow are found as a step, within 2 runs of its
    place; and how often they do not become usual for a check. Without a slowdown: how often any
    step is found, and any run is not usual."""
    rng, found = np.random.default_rng(4), []
    for _ in range(times):
        logs = sd * KINDS[kind](rng, before + after)
        logs[before:] += math.log(slower)
        places, level = ours(logs), find_level(series(logs))
        is_found = any(abs(place - before) <= 2 or slower == 1 for place in places)
        is_kept = level.end < len(logs) if slower == 1 else level.end <= before + 2
        found.append((is_found, is_kept))
    return mean(a for a, _ in found), mean(b for _, b in found)


def by_turns(runs: Sequence[int], sd: float, slower: float, times: int) -> float:
    """How often every step is found, within one run of its place: of so many usual runs, then as
    many slow ones, then usual ones again, and so on."""
    rng, found = np.random.default_rng(6), []
    wanted = [*accumulate(runs)]
    for _ in range(times):
        logs = sd * white(rng, wanted[-1])
        for first, end in zip(wanted[::2], wanted[1::2], strict=False):
            logs[first:end] += math.log(slower)
        places = ours(logs)
        is_right = len(places) == len(wanted) - 1
        found.append(
            is_right and all(abs(a - b) <= 1 for a, b in zip(places, wanted, strict=False))
        )
    return mean(found)


LEVELS = ("constant", "outlier", "variance_change", "step_function", "regression_fix",
          "multiple_changes")  # fmt: skip
"""Patterns of otava-test-data; in the last three the level changes where a label is."""


def otava() -> Found:
    """Otava's detector as its command calls it."""
    analysis = import_module("otava.analysis")

    def find(logs: np.ndarray) -> list[int]:
        values = np.exp(logs).tolist()  # an array makes it fail
        found, _ = analysis.compute_change_points(values, window_len=50, max_pvalue=0.001)
        return [int(point.index) for point in found]

    return find


def labelled(find: Found, sigma: float, times: int, within: int = 4) -> tuple[float, float]:
    """Precision and recall of steps in all patterns of 50 and 500 points with normal noise of
    `sigma` percent; a step is right within so many points of a label."""
    made = import_module("otava_test_data")
    right = found = wanted = hit = 0
    for seed in range(times):
        for name in LEVELS:
            for length in (50, 500):
                pattern = getattr(made, name)(length=length, seed=seed)
                noisy = made.generators.combiner.add_noise(pattern, sigma=sigma, seed=seed)
                places = find(np.log(np.maximum(noisy.data, 1.0)))
                labels = [point.index for point in pattern.change_points]
                labels = labels if name in LEVELS[3:] else []
                right += sum(any(abs(at - label) <= within for label in labels) for at in places)
                hit += sum(any(abs(at - label) <= within for at in places) for label in labels)
                found, wanted = found + len(places), wanted + len(labels)
    return right / max(1, found), hit / wanted


def main(times: int) -> None:
    finders = {"commbench": ours, **oracles()}
    print(" | ".join(["", *finders]))
    for kind in KINDS:
        cells = [f"{share_with_a_step(kind, find, times):.1%}" for find in finders.values()]
        print(" | ".join([kind, *cells]), flush=True)
    for ratio in (1.02, 1.03, 1.04, 1.05):
        cells = [f"{share_found(f, POINTS // 2, times, ratio):.0%}" for f in finders.values()]
        print(" | ".join([f"step of {ratio - 1:.0%}", *cells]), flush=True)
    newest = (3, 4, 6, 10, 15, 20, 30)
    print(" | ".join(["points after the step", *map(str, newest)]))
    for ratio in (1.05, 1.1, 1.2):
        cells = [f"{share_found(ours, POINTS - after, times, ratio):.0%}" for after in newest]
        print(" | ".join([f"step of {ratio - 1:.0%}", *cells]), flush=True)
    print("usual runs, slow ones, noise | 1.3, 1.6, 2.2 times: found as a step, not usual | none")
    for before, after, sd in product((8, 20), (3, 9, 30), (0.05, 0.15)):
        every = [told(before, after, sd, slower, times) for slower in (1.3, 1.6, 2.2, 1.0)]
        cells = [", ".join(f"{share:.0%}" for share in each) for each in every]
        print(" | ".join([f"{before}, {after}, {sd:.0%}", *cells]), flush=True)
    print("usual runs, slow ones, usual ones, ...: every step of 1.5 times is found | noise 3 %, "
          "6 %, 12 %")  # fmt: skip
    for turns in ((6, 4, 4), (8, 6, 3, 3), (10, 5, 5, 5, 5)):
        cells = [f"{by_turns(turns, sd, 1.5, times):.0%}" for sd in (0.03, 0.06, 0.12)]
        print(" | ".join([", ".join(map(str, turns)), *cells]), flush=True)
    print("noise, limit; of 6, 11 and 30 runs | interval | equal: passes, fails | "
          "1.2, 1.5, 2 times as slow: fails")  # fmt: skip
    for sd, limit in ((0.02, 1.1), (0.05, 1.1), (0.05, 1.25), (0.16, 1.1)):
        every = [checked(runs, sd, 10 * times) for runs in (6, 11, 30)]
        halves = [median(math.log(each.high / each.low) / 2 for each in found) for found in every]
        ends = [f"{math.exp(-half):.2f} … {math.exp(half):.2f}" for half in halves]
        judged = [(PASS, 1.0), (FAIL, 1.0), (FAIL, 1.2), (FAIL, 1.5), (FAIL, 2.0)]
        cells = [
            ", ".join(f"{share_judged(found, limit, *case):.1%}" for found in every)
            for case in judged
        ]
        print(" | ".join([f"{sd:.0%}, {limit - 1:.0%}", ", ".join(ends), *cells]), flush=True)
    print("noise, limit, rows | equal: passes | one row 1.5, 2 times as slow: fails")
    for sd, limit, rows in product((0.02, 0.05, 0.16), (1.1, 1.25, 1.5, 2.0), (1, 10)):
        rng, cells = np.random.default_rng(3), []
        for outcome, slower in ((PASS, 1.0), (FAIL, 1.5), (FAIL, 2.0)):
            found = [outcome_of_rows(rng, sd, limit, rows, slower) for _ in range(times)]
            cells.append(f"{found.count(outcome) / times:.0%}")
        print(" | ".join([f"{sd:.0%}, {limit - 1:.0%}, {rows}", *cells]), flush=True)
    if find_spec("otava_test_data") and find_spec("otava"):
        print("precision, recall: commbench | Otava")
        for sigma in (1, 2, 5, 10):
            pairs = [labelled(find, sigma, max(1, times // 10)) for find in (ours, otava())]
            cells = [f"{precision:.0%}, {recall:.0%}" for precision, recall in pairs]
            print(" | ".join([f"noise of {sigma} %", *cells]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
