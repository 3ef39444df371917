"""What a person asks of `compare`, `check` and `export`, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from commbench.errors import RecordsError, UsageError, name_error
from commbench.records.files import new_file

if TYPE_CHECKING:
    from commbench.analysis.compare import Comparison

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


def write_new(path: Path, content: str | bytes) -> None:
    """Write a file that did not exist; RecordsError where it did, or cannot be written."""
    encoded = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            file.write(encoded)
    except FileExistsError:
        raise RecordsError(
            f"{path} exists", "choose another name: nothing is overwritten"
        ) from None
    except OSError as error:
        raise RecordsError(
            f"cannot write {path}: {error.strerror}", "name a writable place"
        ) from None
