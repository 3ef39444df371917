"""What a person says about a foreign file, against what the file says itself.

An option fills in what the file does not tell and chooses among what it tells; where it
contradicts the file, that is a UsageError. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commbench.errors import UsageError
from commbench.spec.dtypes import find_dtype
from commbench.spec.operations import find_operation


class ImportHints(NamedTuple):
    """The options that describe a foreign file."""

    path: str
    ranks: int | None = None
    operation: str | None = None
    dtype: str | None = None

    def settle_ranks(self, told: Iterable[int | None]) -> int:
        """The world size to read, of the world sizes of all tables (None: not told)."""
        all_told = [ranks or None for ranks in told]
        known = sorted({ranks for ranks in all_told if ranks is not None})
        if self.ranks is not None:
            if self.ranks not in known and known and None not in all_told:
                raise UsageError(
                    f"{self.path} was measured on {_listed(known)} ranks, not on {self.ranks}",
                    f"leave out --ranks, or write --ranks {known[0]}",
                )
            return self.ranks
        if len(known) == 1 and None not in all_told:
            return known[0]
        if known and None not in all_told:
            raise UsageError(
                f"{self.path} holds results of {_listed(known)} ranks",
                f"choose with --ranks {known[-1]}",
            )
        raise UsageError(
            f"{self.path} does not tell how many ranks it was measured on",
            "say so with --ranks N",
        )

    def settle_operation(self, told: str | None, line: int) -> str:
        """The operation of a table that begins at `line`."""
        if told is None and self.operation is None:
            raise UsageError(
                f"{self.path} does not tell which operation the table at line {line} measured",
                "say so with --op NAME, such as --op all_reduce",
            )
        return told or self.operation or ""

    def settle_dtype(self, told: str | None, line: int) -> str:
        """The element type of a table that begins at `line`."""
        if told is None and self.dtype is None:
            raise UsageError(
                f"{self.path} does not tell the element type of the table at line {line}",
                "say so with --dtype NAME, such as --dtype float32",
            )
        return told or self.dtype or ""


def _listed(numbers: list[int]) -> str:
    *most, last = [str(number) for number in numbers]
    return f"{', '.join(most)} and {last}" if most else last


def asked_for(
    path: str, ranks: int | None, operation: str | None, dtype: str | None
) -> ImportHints:
    """The options, validated; UsageError for values that make no sense."""
    if ranks is not None and ranks < 1:
        raise UsageError(f"--ranks {ranks} is below 1", "write how many ranks the file is of")
    return ImportHints(
        path,
        ranks,
        find_operation(operation).name if operation is not None else None,
        find_dtype(dtype).name if dtype is not None else None,
    )
