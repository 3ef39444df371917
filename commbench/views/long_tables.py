"""Tables of so many rows that nobody reads all: the worst rows, and how all are distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from commbench.stats.estimate import Estimate
from commbench.views.cells import NUMBER, Column
from commbench.views.document import Table

MOST_LISTED = 32
"""Up to so many rows are all listed."""
WORST = 10
"""Rows that are shown of more."""
LEVELS = (
    ("least", 0.0, 7),
    ("5 %", 0.05, 2),
    ("median", 0.5, 8),
    ("95 %", 0.95, 3),
    ("most", 1.0, 9),
)
"""The quantiles of a distribution, and the importance of their columns."""


def summarise(
    table: Table,
    badness: Callable[[Any], float],
    figures: Sequence[Column],
    things: str,
    alike: Sequence[Column] = (),
) -> list[Table]:
    """A table as it is; one of more than MOST_LISTED rows as two: the WORST rows, those with the
    highest `badness`, and how the `figures` of all rows are distributed.

    `things` are what the rows are: `groups`. Rows with the same label are compared with each other
    if they have the same in the columns `alike`.
    """
    rows = [*table.rows]
    if len(rows) <= MOST_LISTED:
        return [table]
    worst = sorted(rows, key=badness, reverse=True)[:WORST]
    if table.label:  # a line for each label, not for each row
        worst.sort(key=rows.index)
    kinds: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        kind = table.label(row) if table.label else ""
        kinds.setdefault((kind, *(column.of(row) for column in alike)), []).append(row)
    columns = [column._replace(of=partial(_of_first, column.of)) for column in alike]
    columns.append(Column(things, len, NUMBER))
    columns += [
        Column(
            f"{figure.heading}\n{name}", partial(_quantile, figure.of, share), figure.unit, level
        )
        for figure in figures
        for name, share, level in LEVELS
    ]
    title = f"{table.title}: the {WORST} worst of {len(rows)}"
    label = table.label and partial(_of_first, table.label)
    return [
        table._replace(title=title, brief=worst, is_long=True),
        Table(f"{table.title}: how all are distributed", columns, [*kinds.values()], label),
    ]


def _of_first(of: Callable[[Any], Any], rows: Sequence[Any]) -> Any:
    return of(rows[0])


def _quantile(of: Callable[[Any], Any], share: float, rows: Sequence[Any]) -> Any:
    """Of the quantities that rows have, the one with this share of them below it."""
    known = [found for row in rows if (found := of(row)) is not None]
    known.sort(key=lambda found: found.value if isinstance(found, Estimate) else found)
    return known[round(share * (len(known) - 1))] if known else None
