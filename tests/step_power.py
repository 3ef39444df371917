"""How often steps are found in made-up series: by `commbench history`, and by the detectors of asv
and ruptures where these are installed. `python tests/step_power.py` prints the tables of
docs/history.md."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from importlib import import_module
from statistics import mean

import numpy as np

from commbench.answers.history.steps import find_steps
from commbench.stats import Estimate

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


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
