"""The rule of `commbench check --expect published`: each row takes no longer than on sound machines
with the same accelerators, by the curves that were published (expect.curves)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from commbench.analysis.load import LoadedRun
from commbench.answers.check.rules import Limit, RowLimit, Rule
from commbench.answers.expect.curves import (
    TOLERANCES,
    Curve,
    compare_row,
    compare_rows,
    sizes_are_elements,
    system_of,
)
from commbench.output.paragraphs import join_words
from commbench.units import format_bytes, format_share, parse_percentage
from commbench.views import cells

PUBLISHED = "published"


def published_rule(run: LoadedRun, curves: Sequence[Curve], tolerance: float | None = None) -> Rule:
    """The rule of a run; `tolerance` is by default that of each size (curves.TOLERANCES)."""
    system = system_of(run)

    def limit_of(row: Any) -> RowLimit:
        found = compare_row(row, system, curves, tolerance)
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
    rows = compare_rows(run, curves)
    used = [curve for row in rows if row.ratio for curve in row.curves]
    if not used:
        return
    versions = join_words([*dict.fromkeys(curve.nccl for curve in used)])
    steps = [
        f"{format_share(part)} {f'from {format_bytes(size)} on' if size else 'below'}"
        for size, part in TOLERANCES
    ]
    yield f"A sound machine is within {join_words(steps)}."
    if sizes_are_elements(rows):
        yield "The sizes may be elements: at so many bytes the times are those of the curves."
    for source in dict.fromkeys(curve.source for curve in used):
        yield f"Curves: NCCL {versions}, {source}"
