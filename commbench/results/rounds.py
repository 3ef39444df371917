"""The rounds of a sweep: the runs of one setting, each in a folder of its own, as launches of one
run.

    SETTING/round-1            the run of the first round
    SETTING/round-1.2          the second attempt at it
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from commbench.errors import RecordsError
from commbench.results import schema
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import SWEEP

_ROUND = re.compile(r"round-(\d+)")


def round_folder(setting: Path, number: int) -> Path:
    """The folder of the first attempt at a round, counted from 1."""
    return setting / f"round-{number}"


def attempts(first: Path) -> list[Path]:
    """The folders of all attempts at a round, by that of the first one."""
    again = sorted(first.parent.glob(f"{first.name}.*"), key=lambda path: (len(path.name), path))
    return [path for path in (first, *again) if path.exists()]


def read_round(setting: Path, number: int) -> schema.Run | None:
    """The latest complete run of a round; None where there is none."""
    latest_first = reversed(attempts(round_folder(setting, number)))
    return next(filter(None, map(read_complete, latest_first)), None)


def read_complete(folder: Path) -> schema.Run | None:
    """The run in a folder; None where it cannot be read or did not end completely."""
    try:
        run = read_run(folder)
    except RecordsError:
        return None
    return run if run.end is not None and run.end.status == schema.COMPLETE else None


def merge_rounds(runs: Mapping[int, schema.Run], name: str) -> schema.Run:
    """Runs of one plan, by their round, as launches of one run of that name, in the folder of these
    rounds; round 1 is launch 0. A case has its worst round's status."""
    worst: dict[int, schema.Measurement] = {}
    for number, measurement in ((n, m) for n, run in runs.items() for m in run.measurements):
        index = measurement.case.index
        earlier = worst[index].batches if index in worst else ()
        own = tuple(batch._replace(launch=number - 1) for batch in measurement.batches)
        found = schema.worse_outcome(worst.get(index), measurement)
        worst[index] = found._replace(batches=(*earlier, *own))
    measurements = tuple(worst[index] for index in sorted(worst))
    first, last = next(iter(runs.values())), [*runs.values()][-1]
    return first._replace(
        header=first.header._replace(label=name, launcher=schema.IN_SWEEP),
        path=str(Path(first.path).parent),
        measurements=measurements, end=last.end, launches=len(runs),
        starts=tuple(run.header.started for run in runs.values()),
    )  # fmt: skip


def read_setting(folder: Path) -> schema.Run:
    """All complete rounds in the folder of a setting as one run, which is incomplete where the
    sweep asks for more; RecordsError where none is."""
    named = filter(None, (_ROUND.fullmatch(path.name) for path in folder.iterdir()))
    every = (read_round(folder, number) for number in sorted(int(found[1]) for found in named))
    runs = dict(enumerate(filter(None, every), 1))
    if not runs:
        again = f"`commbench sweep --resume {quote(str(folder.parent))}` goes on"
        raise RecordsError(f"no round in {folder} is complete", again)
    found = merge_rounds(runs, folder.name)
    plan, end = found.header.plan.extended(len(runs)), found.end
    if len(runs) < (asked := _asked_rounds(folder.parent / SWEEP)):
        end = schema.RunEnd(schema.UNFINISHED, f"{len(runs)} of {asked} are complete")
    return found._replace(header=found.header._replace(plan=plan), end=end)


def _asked_rounds(sweep: Path) -> int:
    """How many rounds the description of a sweep asks for; 0 where it cannot be read."""
    try:
        return int(json.loads(sweep.read_bytes())["rounds"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0
