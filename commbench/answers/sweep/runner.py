"""The description of a sweep in its folder, and the runs of its rounds.

Every round of every setting is a `commbench run` in a process of its own, with a run folder of its
own, so that a sweep that was stopped can be resumed. Folders:

    sweep.json                 the description
    workload.json              the workload that is replayed, if there is one
    SETTING/round-1            the run of the first round; round-1.2 is the second attempt at it
    SETTING/failure.txt        the error of the last round that failed, and its exit code
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench import errors
from commbench.analysis.environment import describe_changes
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.sweep import settings as swept
from commbench.answers.sweep.settings import Setting
from commbench.output.text import short_repr
from commbench.results.files import path_exists, read_whole, replace_file
from commbench.results.rounds import attempts, merge_rounds, read_complete, read_round, round_folder
from commbench.results.run_folder import SWEEP, holds_rounds
from commbench.results.schema import FAILED, Run
from commbench.validation import brief, build

if TYPE_CHECKING:
    from commbench.output.progress import ProgressListener

FORMAT = 1
LARGEST_BYTES = 1 << 24
FAILURE = "failure.txt"
WORKLOAD = "workload.json"
PERMANENT = (errors.UsageError.exit_code, errors.UnavailableError.exit_code)
"""Exit codes of a run that would fail again."""
MOST_LOST = 2
"""After how many runs of which a rank died or hung a setting is not tried again: each may have
waited for the timeout."""
_LINE = 72
"""Columns of a line about a failed round, after the percentage. The result has the whole error."""
STOP_S = 60.0
"""Seconds that a run may take to end after a signal."""
_PROGRESS = re.compile(r"\[(\d+) %\]")
"""The beginning of a line about the progress of a run, which output/progress.py prints."""
_NOISE = re.compile(
    r"\[enforce fail at [^\]]*\] (?:[^.]*\. (?=\S))?|\[[^\]\s]*\.(?:cc|cpp|h|hpp):\d+\] "
    r"|Exception raised from .*"
)
"""Parts of messages of gloo and torch that name a place in their sources."""


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
    """Relative differences up to this count as none; `--tolerance` on resuming replaces it."""
    backends: tuple[str, ...] = ()
    """The backend of each setting; empty in a description of an older version."""


@short_repr("setting.name")
class SettingResult(NamedTuple):
    """The result of one setting."""

    setting: Setting
    run: Run | None
    """All its complete rounds as launches of one run; None where no round is complete."""
    rows: tuple[ResultRow, ...]
    """The rows of that run."""
    rounds: int = 1
    """How many of its rounds are complete."""
    failure: str = ""
    """Why a round or a case has no result; empty where all have one."""


Rounds = dict[tuple[Setting, int], Run]
"""The complete runs of a sweep by setting and round, rounds counted from 1."""


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Write the description of a sweep into its folder, in place of an earlier one."""
    values = {"format": FORMAT, **sweep._asdict()}
    text = json.dumps(values | {"settings": [s._asdict() for s in sweep.settings]}, indent=1)
    write_again(folder / SWEEP, f"{text}\n")


def write_again(path: Path, text: str) -> None:
    """Write a file of a sweep, in place of an earlier one; RecordsError where it cannot be."""
    try:
        replace_file(path, text)
    except OSError as error:
        raise errors.unwritable_error(path, error) from None


def read_sweep(folder: Path) -> Sweep:
    """The sweep that is described in a folder. Raises RecordsError where there is none."""
    path = folder / SWEEP
    if not path_exists(path):
        hint = "name its folder or its label: `commbench list` lists sweeps"
        raise errors.RecordsError(f"there is no sweep {str(folder)!r}", hint)
    content = read_whole(path, LARGEST_BYTES, "name the folder of a sweep")
    try:
        values = json.loads(content.decode())
        if values.pop("format") != FORMAT:
            raise ValueError("its format is unknown")
        values["settings"] = [*map(_setting, values["settings"])]
        values["arguments"] = [tuple(map(_text, each)) for each in values["arguments"]]
        values["environments"] = [*map(_pairs, values["environments"])]
        sweep = build(Sweep, values)
        _require_valid(sweep)
        return sweep
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = "it is not JSON" if isinstance(error, json.JSONDecodeError) else error
        why = f"{path} describes no sweep: {what}"
        own = [quote(str(each)) for each in sorted(folder.iterdir()) if holds_rounds(each)][:2]
        still = f"; `commbench compare {' '.join(own)}` still compares these settings"
        hint = f"start a new sweep{still * (len(own) > 1)}"
        raise errors.RecordsError(why, hint) from None


def _pairs(values: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(name), _text(value)) for name, value in values)


def _setting(values: dict[str, Any]) -> Setting:
    """A setting. Older descriptions have only the value of --vary python, or --vary call."""
    options = _pairs(values["options"])
    python = swept.find_interpreter(dict(options).get(swept.PYTHON, ""))
    interpreter, call = _text(values.get("interpreter", python)), _text(values.get("call", ""))
    return Setting(_pairs(values["variables"]), options, interpreter, call)


def _text(value: Any) -> str:
    """The value; ValueError for one that is no text, or that no process can be given."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{brief(value)} is no text")
    return value


def _require_valid(sweep: Sweep) -> None:
    """Raise ValueError for values that are out of range or that no process can be given."""
    if not 1 <= sweep.rounds <= swept.MOST_ROUNDS:
        raise ValueError(f"rounds is {brief(sweep.rounds)}")
    if not 0 <= sweep.tolerance < 10:
        raise ValueError(f"tolerance is {brief(sweep.tolerance)}")
    if not 1 <= len(sweep.settings) <= swept.MOST_SETTINGS:
        raise ValueError(f"it has {len(sweep.settings)} settings")
    if not len(sweep.settings) == len(sweep.arguments) == len(sweep.environments):
        raise ValueError("it lacks the arguments or variables of a setting")
    variables = {name for each in sweep.environments for name, _ in each}
    variables |= {name for setting in sweep.settings for name, _ in setting.variables}
    if wrong := [name for name in variables if not swept.NAME.fullmatch(name)]:
        raise ValueError(f"{brief(wrong[0])} is no variable")


def read_rounds(sweep: Sweep, folder: Path) -> Rounds:
    """Read every journal of a sweep once, and keep the runs that are complete."""
    order = product(range(1, sweep.rounds + 1), sweep.settings)
    found = {(each, number): read_round(folder / each.slug, number) for number, each in order}
    return {key: run for key, run in found.items() if run}


def whole_rounds(sweep: Sweep, folder: Path, rounds: Rounds) -> Rounds:
    """The runs without those of a round that was cut off: measured later, the rest of it would be
    no turn with them. A setting that fails in every round cuts none off."""
    known = {setting for setting, _ in rounds}
    able = {s for s in sweep.settings if s in known or not path_exists(folder / s.slug / FAILURE)}
    measured = {number: {s for s, n in rounds if n == number} for _, number in rounds}
    return {key: run for key, run in rounds.items() if able <= measured[key[1]]}


def run_missing_rounds(
    sweep: Sweep, folder: Path, rounds: Rounds, progress: ProgressListener
) -> None:
    """Run every round that has no complete run yet, and add it to `rounds`.

    A round that fails is kept as a failure, and the others are run; a setting that this environment
    cannot measure at all, or that loses ranks again, is not tried again. Raises Interrupted, and
    UnavailableError where the environment of a setting changed: that round does not count.
    """
    order = swept.order_rounds(sweep.settings, sweep.rounds, sweep.seed)
    total, before = len(order), len(rounds)
    missing = [(number, setting) for number, setting in order if (setting, number) not in rounds]
    names = swept.short_names(sweep.settings)
    unmeasurable: set[Setting] = set()
    lost: Counter[Setting] = Counter()
    for done, (number, setting) in enumerate(missing):

        def advance(share: float, done: int = done) -> None:
            progress.advanced((before + done + share) / total)

        head = f"{names[setting]}, round {number} of {sweep.rounds}"
        progress.started(head)
        if setting in unmeasurable:
            advance(1.0)
            progress.finished(f"{head}: skipped, because this setting failed before", "")
            continue
        start = time.monotonic()
        first = round_folder(folder / setting.slug, number)
        earlier = len(attempts(first))
        attempt = first.with_name(f"{first.name}.{earlier + 1}") if earlier else first
        # What NCCL logs of itself is the same in every round.
        more = ["--no-nccl-log"] if any(setting == known for known, _ in rounds) else []
        more += [f"--workload={folder / WORKLOAD}"] if path_exists(folder / WORKLOAD) else []
        code, failure = run_once(sweep, setting, attempt, more, advance)
        if run := read_complete(attempt):
            earlier_runs = (known for (own, _), known in rounds.items() if own == setting)
            if changed := describe_changes(next(earlier_runs, run).header, run.header):
                attempt.rename(attempt.with_name(f"other-{attempt.name}"))
                why = f"{head} ran in another environment than the rounds before: {changed}"
                hint = "restore it and resume the sweep, or start a new one"
                raise errors.UnavailableError(why, hint)
            rounds[setting, number] = run
        lost[setting] += code == errors.RankError.exit_code
        if code in PERMANENT or lost[setting] == MOST_LOST:
            unmeasurable.add(setting)
        advance(1.0)
        why = f"failed: {plain_reason(failure)}" if failure else ""
        ended = f"{head}: {why or f'done in {time.monotonic() - start:.1f} s'}"
        progress.finished(shorten(ended, _LINE, placeholder=" ..."), "")


def run_once(
    sweep: Sweep, setting: Setting, folder: Path, more: Sequence[str],
    advanced: Callable[[float], None],
) -> tuple[int, str]:  # fmt: skip
    """Run a setting once in a process of its own; return its exit code and its error message, which
    is empty if it succeeded. `advanced` receives the part of the run that is done, 0 to 1.

    Raises Interrupted where this process or that one is stopped by a signal.
    """
    index = sweep.settings.index(setting)
    environment = dict(os.environ)
    environment.pop("COLUMNS", None)  # a message stays one line
    for name, value in sweep.environments[index]:
        if value == swept.UNSET:
            environment.pop(name, None)
        else:
            environment[name] = value
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [
        setting.interpreter or sys.executable, "-m", "commbench", "run", *sweep.arguments[index],
        *more, "--launches=1", "--no-plots", "--output", str(folder),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    )  # fmt: skip
    lines: list[str] = []
    try:
        for line in process.stderr or ():
            lines.append(line)
            if match := _PROGRESS.match(line):
                advanced(int(match[1]) / 100)
        process.wait()
    except BaseException:
        _stop(process)
        raise
    if process.returncode > errors.SIGNALLED:
        number = process.returncode - errors.SIGNALLED
        raise errors.Interrupted(f"stopped by {signal.Signals(number).name}", signal_number=number)
    if not process.returncode:
        return 0, ""
    failure = _error_message(lines) or f"exit code {process.returncode}"
    if process.returncode != errors.WrongResultError.exit_code:
        text = f"{failure}\nexit code {process.returncode}\n"
        (folder.parent / FAILURE).write_text(text, encoding="utf-8")
    return process.returncode, failure


def _stop(process: subprocess.Popen[str]) -> None:
    """End a run and wait for it."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def make_results(sweep: Sweep, folder: Path, rounds: Rounds) -> tuple[SettingResult, ...]:
    """The result of each setting, from the rounds that are complete."""
    found = []
    for setting in sweep.settings:
        numbers = range(1, sweep.rounds + 1)
        runs = {n: rounds[setting, n] for n in numbers if (setting, n) in rounds}
        run = merge_rounds(runs, setting.name) if runs else None
        failed = folder / setting.slug / FAILURE
        failures = [m for m in run.measurements if m.status == FAILED] if run else []
        failure = "".join(f"{m.case.name}: {m.reason}" for m in failures[:1])
        if len(runs) < sweep.rounds and failed.exists():
            failure = failed.read_text(encoding="utf-8").partition("\nexit code ")[0]
        found.append(SettingResult(setting, run, make_rows(run) if run else (), len(runs), failure))
    return tuple(found)


def plain_reason(message: str) -> str:
    """An error's message without what only developers of torch read: the place in its sources and
    the condition that was not met."""
    return " ".join(_NOISE.sub("", message).split()) or message


def _error_message(stderr: Sequence[str]) -> str:
    """The error that a run printed: the last line that begins with `error: `, or the last line."""
    lines = [line.strip() for line in stderr if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]
