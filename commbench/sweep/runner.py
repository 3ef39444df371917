"""Carrying out a sweep: a process of its own for every round of every setting, and a folder that
says what has been done, so that a sweep can be taken up again where it stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from commbench.errors import Interrupted, RecordsError
from commbench.results.files import why_unreadable
from commbench.results.journal_reader import read_run
from commbench.results.schema import Run
from commbench.sweep.settings import (
    MOST_ROUNDS,
    MOST_SETTINGS,
    NAME,
    UNSET,
    Setting,
    rounds_of,
)
from commbench.validation import brief

DESCRIPTION = "sweep.json"
FORMAT = 1
LARGEST_BYTES = 1 << 24
FAILURE = "failure.txt"
WRONG_RESULTS, INTERRUPTED = 5, 128


class Sweep(NamedTuple):
    """What is measured under which settings, how often."""

    settings: tuple[Setting, ...]
    arguments: tuple[tuple[str, ...], ...]
    """For each setting the arguments of `commbench run`, without its folder."""
    environments: tuple[tuple[tuple[str, str], ...], ...]
    """For each setting the variables as they are set: NCCL_ALGO names its functions there."""
    rounds: int
    seed: int
    label: str
    tolerance: float = 0.05
    """Differences up to this count as the same, if nothing else is said when it is judged."""


class SettingResult(NamedTuple):
    """What became of one setting."""

    setting: Setting
    run: Run | None
    """All its rounds, as launches of one run; None where none was completed."""
    failure: str
    """What the last round that failed said."""


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Describe a sweep in its folder, before the first round."""
    values = {"format": FORMAT, **sweep._asdict()}
    text = json.dumps(values | {"settings": [s._asdict() for s in sweep.settings]}, indent=1)
    try:
        (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordsError(
            f"cannot write {folder / DESCRIPTION}: {error.strerror}", "name a writable --output"
        ) from None


def read_sweep(folder: Path) -> Sweep:
    """The sweep that is described in a folder. Raises RecordsError where there is none."""
    path = folder / DESCRIPTION
    if why := why_unreadable(path, LARGEST_BYTES):
        raise RecordsError(f"cannot read {path}: {why}", "name the folder of a sweep")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        sweep = Sweep(
            settings=tuple(
                Setting(_pairs(s["variables"]), _pairs(s["options"])) for s in values["settings"]
            ),
            arguments=tuple(tuple(map(str, each)) for each in values["arguments"]),
            environments=tuple(_pairs(each) for each in values["environments"]),
            rounds=int(values["rounds"]),
            seed=int(values["seed"]),
            label=str(values["label"]),
            tolerance=float(values.get("tolerance", Sweep._field_defaults["tolerance"])),
        )
        _refuse_odd(sweep)
        return sweep
    except OSError as error:
        raise RecordsError(
            f"cannot read {path}: {error.strerror}", "name the folder of a sweep"
        ) from None
    except (
        LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise RecordsError(f"{path} describes no sweep: {error}", "begin a new one") from None


def _refuse_odd(sweep: Sweep) -> None:
    """Raise ValueError for what no sweep is, and no process can be started with."""
    if not 1 <= sweep.rounds <= MOST_ROUNDS:
        raise ValueError(f"rounds is {brief(sweep.rounds)}")
    if not 0 <= sweep.tolerance < 10:
        raise ValueError(f"tolerance is {brief(sweep.tolerance)}")
    if not 1 <= len(sweep.settings) <= MOST_SETTINGS:
        raise ValueError(f"it has {len(sweep.settings)} settings")
    if not len(sweep.settings) == len(sweep.arguments) == len(sweep.environments):
        raise ValueError("it has not one line of arguments and variables for each setting")
    for name, value in (pair for each in sweep.environments for pair in each):
        if not NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"{brief(name)} is no variable")
    if any("\0" in word for each in sweep.arguments for word in each):
        raise ValueError("an argument holds a NUL byte")


def _pairs(values: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(value)) for name, value in values)


def carry_out(sweep: Sweep, folder: Path, say: Callable[[str], None]) -> int:
    """Do what is left of a sweep: every round of every setting that has no complete run yet. How
    many were measured.

    A round that fails is said and kept as a failure; the others go on. Raises Interrupted.
    """
    measured = 0
    order = rounds_of(sweep.settings, sweep.rounds, sweep.seed)
    for number, (round_, setting) in enumerate(order, start=1):
        place = folder / setting.slug / f"round-{round_}"
        head = f"[{number}/{len(order)}] round {round_}, {setting.name}"
        if _completed(place):
            say(f"{head}: done before")
            continue
        began = time.monotonic()
        failure = run_once(sweep, setting, _free(place))
        measured += not failure
        say(f"{head}: {failure or f'{time.monotonic() - began:.1f} s'}")
    return measured


def rounds_left(sweep: Sweep, folder: Path) -> int:
    """Rounds, of all settings together, that have no complete run yet."""
    return sum(
        not _completed(folder / setting.slug / f"round-{round_}")
        for setting in sweep.settings
        for round_ in range(1, sweep.rounds + 1)
    )


def run_once(
    sweep: Sweep, setting: Setting, folder: Path, more: tuple[str, ...] = (),
    variables: tuple[tuple[str, str], ...] = (),
) -> str:  # fmt: skip
    """One run of a setting in a process of its own; what it said if it failed, empty if not."""
    index = sweep.settings.index(setting)
    environment = dict(os.environ)
    for name, value in sweep.environments[index] + variables:
        if value == UNSET:
            environment.pop(name, None)
        else:
            environment[name] = value
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "commbench", "run", *sweep.arguments[index], *more,
        "--no-plots", "--output", str(folder),
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        _, said = process.communicate()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode > INTERRUPTED:
        raise Interrupted(
            "the sweep was stopped",
            f"`commbench sweep --resume {folder.parent.parent}` goes on with it",
            signal_number=process.returncode - INTERRUPTED,
        )
    if process.returncode in (0, WRONG_RESULTS):
        return "" if not process.returncode else _last_words(said)
    failure = _last_words(said) or f"exit code {process.returncode}"
    (folder.parent / FAILURE).write_text(failure + "\n", encoding="utf-8")
    return failure


def outcomes(sweep: Sweep, folder: Path) -> Iterator[SettingResult]:
    """What became of each setting so far."""
    for setting in sweep.settings:
        place = folder / setting.slug
        runs = [
            read_run(path)
            for round_ in range(1, sweep.rounds + 1)
            for path in _completed(place / f"round-{round_}")
        ]
        failed = place / FAILURE
        failure = ""
        if len(runs) < sweep.rounds and failed.exists():
            failure = failed.read_text(encoding="utf-8").strip()
        yield SettingResult(setting, as_launches(runs, setting.name) if runs else None, failure)


def as_launches(runs: list[Run], name: str) -> Run:
    """Several runs of the same plan as launches of one run of that name."""
    first = runs[0]
    batches = {
        measurement.case.index: tuple(
            batch._replace(launch=number)
            for number, run in enumerate(runs)
            for other in run.measurements
            if other.case.index == measurement.case.index
            for batch in other.batches
        )
        for measurement in first.measurements
    }
    measurements = tuple(m._replace(batches=batches[m.case.index]) for m in first.measurements)
    return first._replace(
        header=first.header._replace(label=name), measurements=measurements, end=runs[-1].end
    )


def _attempts(place: Path) -> list[Path]:
    again = sorted(place.parent.glob(f"{place.name}.*")) if place.parent.exists() else []
    return [path for path in (place, *again) if path.exists()]


def _free(place: Path) -> Path:
    """A folder for another attempt at a round: `round-1`, then `round-1.2` …"""
    tries = len(_attempts(place))
    return place if not tries else place.with_name(f"{place.name}.{tries + 1}")


def _completed(place: Path) -> list[Path]:
    """The attempts at a round that gave a complete run."""
    return [path for path in _attempts(place) if _complete(path)]


def _complete(folder: Path) -> bool:
    try:
        end = read_run(folder).end
    except RecordsError:
        return False
    return end is not None and end.status == "complete"


def _last_words(said: str) -> str:
    """The error that a run printed: the last line that begins so, or the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]
