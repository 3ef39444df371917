"""What a person says of another tool's file, and how it is combined with what the file says.

A hint gives what the file does not say, and chooses among what it says. A hint that contradicts the
file is a UsageError. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commbench.errors import UsageError
from commbench.spec.dtypes import find_dtype
from commbench.spec.operations import find_operation


class ImportHints(NamedTuple):
    """The options that describe another tool's file; None where one is not given."""

    ranks: int | None = None
    operation: str | None = None
    dtype: str | None = None

    def validate(self) -> ImportHints:
        """The hints with the names that commbench uses; raises UsageError for invalid values."""
        if self.ranks is not None and self.ranks < 1:
            raise UsageError(
                f"--ranks {self.ranks} is below 1", "write how many ranks the file is of"
            )
        return ImportHints(
            self.ranks,
            find_operation(self.operation).name if self.operation is not None else None,
            find_dtype(self.dtype).name if self.dtype is not None else None,
        )

    def choose_ranks(self, path: str, given: Iterable[int | None]) -> int:
        """The world size to import; `given` are those of the file's tables, None where unknown."""
        sizes = [ranks or None for ranks in given]
        known = sorted({ranks for ranks in sizes if ranks is not None})
        is_complete = bool(known) and None not in sizes
        if self.ranks is not None:
            if is_complete and self.ranks not in known:
                raise UsageError(
                    f"{path} was measured on {_join(known)} ranks, not on {self.ranks}",
                    f"leave out --ranks, or write --ranks {known[0]}",
                )
            return self.ranks
        if is_complete and len(known) == 1:
            return known[0]
        if is_complete:
            raise UsageError(
                f"{path} holds results of {_join(known)} ranks",
                f"choose with --ranks {known[-1]}",
            )
        raise UsageError(
            f"{path} does not tell how many ranks it was measured on",
            "say so with --ranks N",
        )

    def choose_operation(self, path: str, given: str | None, line: int) -> str:
        """The operation of a table that begins at `line`, for which the file gives `given`."""
        if given is None and self.operation is None:
            raise UsageError(
                f"{path} does not tell which operation the table at line {line} measured",
                "say so with --op NAME, such as --op all_reduce",
            )
        return given or self.operation or ""

    def choose_dtype(self, path: str, given: str | None, line: int) -> str:
        """The element type of a table that begins at `line`, for which the file gives `given`."""
        if given is None and self.dtype is None:
            raise UsageError(
                f"{path} does not tell the element type of the table at line {line}",
                "say so with --dtype NAME, such as --dtype float32",
            )
        return given or self.dtype or ""


NO_HINTS = ImportHints()


def _join(numbers: list[int]) -> str:
    *most, last = [str(number) for number in numbers]
    return f"{', '.join(most)} and {last}" if most else last
