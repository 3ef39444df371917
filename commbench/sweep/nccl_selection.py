"""What NCCL really chose under each setting, learnt in a pass of its own that is not timed: writing
a line for every call costs time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from commbench.errors import RecordsError, UnavailableError
from commbench.results.files import new_file
from commbench.spec.case import Case
from commbench.spec.operations import OPERATIONS
from commbench.sweep.nccl_tuning import (
    LOG_VARIABLES,
    NcclSelection,
    TunerRange,
    read_choices,
    tuner_lines,
)
from commbench.sweep.ranking import SweepPoint
from commbench.sweep.runner import Sweep, run_once
from commbench.sweep.settings import Setting

PASS = ("--iters=1", "--warmup=0", "--no-check", "--order=ascending")
TUNER_FILE = "nccl-tuner.csv"


def learn_choices(sweep: Sweep, folder: Path) -> None:
    """Run every setting once more, untimed, with NCCL writing down what it chooses."""
    for setting in sweep.settings:
        place = folder / setting.slug
        if _logs(place) or not place.exists():
            continue
        log = ("NCCL_DEBUG_FILE", str(place.absolute() / "nccl.%h.%p.log"))
        variables = (*LOG_VARIABLES.items(), log)
        run_once(sweep, setting, place / "choices", PASS, variables)


def choices_in(folder: Path, setting: Setting) -> dict[tuple[str, int], NcclSelection]:
    """What NCCL chose under a setting, by its function and the bytes it prints."""
    found: dict[tuple[str, int], NcclSelection] = {}
    for path in _logs(folder / setting.slug):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise RecordsError(f"cannot read {path}: {error.strerror}", "run it again") from None
        found.update({(c.function, c.size_bytes): c for c in read_choices(lines)})
    return found


def _logs(place: Path) -> list[Path]:
    return sorted(place.glob("nccl.*.log"))


def choice_for(case: Case, choices: dict[tuple[str, int], NcclSelection]) -> NcclSelection | None:
    """What was chosen for a case; NCCL prints the bytes of one block where there are blocks."""
    return choices.get((OPERATIONS[case.operation].nccl_function, case.block_bytes))


def wins_of(places: Sequence[SweepPoint], folder: Path) -> tuple[TunerRange, ...]:
    """For each operation, ranges of sizes and what NCCL chose there under the best setting.

    A range goes up to the next measured size, so that none is left to the plugin's own default.
    """
    wins: list[TunerRange] = []
    for place in sorted(
        places, key=lambda p: (p.rows[0][1].measurement.case.operation, p.size_bytes)
    ):
        case = place.rows[0][1].measurement.case
        choice = choice_for(case, choices_in(folder, place.best))
        if choice is None:
            continue
        algorithm, protocol = choice.algorithm.lower(), choice.protocol.lower()
        last = wins[-1] if wins and wins[-1].operation == case.operation else None
        if last and (last.algorithm, last.protocol, last.channels) == (
            algorithm, protocol, choice.channels,
        ):  # fmt: skip
            wins[-1] = last._replace(high_bytes=place.size_bytes)
            continue
        if last:
            wins[-1] = last._replace(high_bytes=place.size_bytes - 1)
        low = place.size_bytes if last else 0
        wins.append(
            TunerRange(case.operation, low, place.size_bytes, algorithm, protocol, choice.channels)
        )
    return tuple(wins)


def export_tuner(places: Sequence[SweepPoint], folder: Path, nodes: int, ranks: int) -> Path:
    """Write the winners for NCCL's example tuner plugin. Raises UnavailableError where NCCL told of
    no choice: without the number of channels the plugin would fall back to one."""
    wins = wins_of(places, folder)
    if not wins:
        raise UnavailableError(
            "there is nothing to export: NCCL told of no choice",
            "a tuner configuration needs a sweep over NCCL, 2.24 or newer",
        )
    path = folder / TUNER_FILE
    try:
        with new_file(path) as file:
            file.write("".join(f"{line}\n" for line in tuner_lines(wins, nodes, ranks)).encode())
    except OSError as error:
        raise RecordsError(f"cannot write {path}: {error.strerror}", "move it away") from None
    return path
