"""`commbench history`: runs over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commbench.answers.history.store import KNOWN
from commbench.api import history as api
from commbench.cli.commands import Show
from commbench.cli.options import print_or_write
from commbench.output.console import print_result, print_status
from commbench.units import format_count


def add(runs: list[str], **given: Any) -> None:
    """Add runs to the history; a folder of runs is taken in at once.

    A run that is there already stays. `commbench run --history` adds its run itself.

    \b
    commbench history add results
    commbench history add mine
    commbench history add mine --node cluster-a        where its nodes change
    """
    added = api.add(*runs, **given, notify=print_status)
    new = [each for each in added if each.outcome != KNOWN]
    rows = format_count(sum(each.rows for each in new), "row")
    print_result(f"{format_count(len(new), 'run')} added, with {rows}")


def list_(show: Show, **given: Any) -> None:
    """List the runs of the history, the newest first.

    \b
    commbench history list
    """
    show(api.list_(**given))


def show(show: Show, **given: Any) -> None:
    """Say what became slower or faster, when, and what changed then.

    A step is a lasting change of the time of a row, beyond the noise of its history.

    \b
    commbench history show
    commbench history show --op all_reduce --size 1M,4M --node node1
    commbench history show -o history.html              with pictures over time
    """
    show(api.show(**given))


def export(output: Path | None, **given: Any) -> None:
    """Write all points as CSV, in SI units, for another program.

    \b
    commbench history export -o history.csv
    commbench history export --op all_reduce
    """
    print_or_write(api.export(**given), output)


def forget(runs: list[str], **given: Any) -> None:
    """Remove runs from the history, such as those of a trial. Run folders stay.

    \b
    commbench history forget 17 18   numbers of `commbench history list`
    commbench history forget trial   all runs of this label
    commbench history forget --node node7
    """
    print_result(f"{format_count(len(api.forget(*runs, **given)), 'run')} removed")
