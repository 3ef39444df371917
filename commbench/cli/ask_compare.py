"""What a person asks of `compare`, `check` and `export`, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from commbench.errors import UsageError, name_error

if TYPE_CHECKING:
    from commbench.analysis.comparison.compare import Comparison

T = TypeVar("T")


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of a table."""
    if name not in table:
        raise name_error(kind, name, list(table))
    return table[name]


def allowed(comparisons: Sequence[Comparison], force: bool) -> None:
    """Refuse comparisons whose sides differ in what must match, unless forced; and empty ones."""
    for found in comparisons:
        if found.mismatches and not force:
            told = "; ".join(f"{f.name} is {f.a} and {f.b}" for f in found.mismatches)
            raise UsageError(
                f"{found.a.name} and {found.b.name} should not be compared: {told}",
                "measure both alike, or compare all the same with --force",
            )
        if not len(found.rows):
            raise UsageError(
                f"{found.a.name} and {found.b.name} have no row in common",
                "rows match by operation, dtype, reduce op, root, placement, timing and size",
            )
