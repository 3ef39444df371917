"""The rule of `commbench check --expect published`: each row takes no longer than on sound machines
with the same accelerators, by the curves that were published (expect.curves)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from commbench.analysis.load import LoadedRun
from commbench.answers.check.rules import Limit, RowLimit, Rule
from commbench.answers.expect.curve_document import curve_notes
from commbench.answers.expect.curves import (
    Curve,
    compare_row,
    compare_run,
    system_of,
)
from commbench.units import parse_percentage
from commbench.views import cells

PUBLISHED = "published"


def published_rule(run: LoadedRun, curves: Sequence[Curve], tolerance: float | None = None) -> Rule:
    """The rule of a run; `tolerance` is by default that of each size (curves.TOLERANCES)."""
    system = system_of(run)

    def limit_of(row: Any) -> RowLimit:
        found = compare_row(row, system, curves, tolerance)
        if found.is_too_fast:
            return RowLimit(None, "too fast: is a unit wrong?")
        return RowLimit(1 + found.tolerance if found.ratio else None, found.reason)

    limit = Limit(
        name=PUBLISHED,
        parse=lambda text: 1 + parse_percentage(text),
        words=lambda most: f"at most {most:.2f} times the published time",
        unit=cells.RATIO,
        interval=cells.RATIO_INTERVAL,
        sentence="takes {} times the published time",
        heading="measured /\npublished",
        estimate=lambda row: compare_row(row, system, curves, tolerance).ratio,
    )
    what = f" of {system}" if system else ""
    return Rule(
        limit, 0.0, of_row=limit_of, name=f"times near the published curves{what}",
        allow_unchecked=bool(run.header and "imported_from" in run.header.environment),
        remarks=partial(published_remarks, curves=curves),
    )  # fmt: skip


def published_remarks(run: LoadedRun, curves: Sequence[Curve]) -> Iterator[str]:
    """Where the curves come from, what counts as sound, and a likely mistake in the sizes."""
    found = compare_run(run, curves)
    if found.curves:
        yield from curve_notes(found)
