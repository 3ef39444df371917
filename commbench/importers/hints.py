"""What a user states about another tool's file: it adds to what the file says, or chooses from it.

A hint that contradicts the file is a UsageError. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from commbench.errors import UsageError
from commbench.importers.names import NCCL_TESTS
from commbench.spec.dtypes import find_dtype
from commbench.spec.operations import find_operation

T = TypeVar("T")


class ImportHints(NamedTuple):
    """The options that describe another tool's file; None where one is not given."""

    ranks: int | None = None
    operation: str | None = None
    dtype: str | None = None

    def validate(self) -> ImportHints:
        """The hints with the names that commbench uses; raises UsageError for invalid values."""
        if self.ranks is not None and self.ranks < 1:
            hint = "give the number of ranks that the file was measured on"
            raise UsageError(f"--ranks {self.ranks} is below 1", hint)
        return ImportHints(
            self.ranks,
            None if self.operation is None else _find_operation(self.operation),
            find_dtype(self.dtype).name if self.dtype is not None else None,
        )

    def choose_ranks(self, path: str, given: Iterable[int | None]) -> int:
        """The world size to import; `given` are those of the file's tables, None where unknown."""
        sizes = {ranks or None for ranks in given}
        known = sorted(ranks for ranks in sizes if ranks is not None)
        if not known or None in sizes:
            return _choose(path, "the number of ranks", self.ranks, "--ranks N")
        if self.ranks is None and len(known) > 1:
            why = f"{path} contains results of {_join(known)} ranks"
            raise UsageError(why, f"choose with --ranks {known[-1]}")
        if self.ranks not in (None, *known):
            raise UsageError(
                f"{path} was measured on {_join(known)} ranks, not on {self.ranks}",
                f"leave out --ranks, or write --ranks {known[0]}",
            )
        return self.ranks or known[0]

    def choose_operation(self, path: str, given: str | None, line: int) -> str:
        """The operation of a table that begins at `line`, for which the file gives `given`."""
        what = f"which operation it measured (table at line {line})"
        return _choose(path, what, given or self.operation, "--op NAME, such as --op all_reduce")

    def choose_dtype(self, path: str, given: str | None, line: int) -> str:
        """The element type of a table that begins at `line`, for which the file gives `given`."""
        what = f"the element type (table at line {line})"
        return _choose(path, what, given or self.dtype, "--dtype NAME, such as --dtype float32")


NO_HINTS = ImportHints()


def _find_operation(name: str) -> str:
    """commbench's name of an operation that is given by that name or by that of nccl-tests."""
    return find_operation(NCCL_TESTS.get(name.removesuffix("_perf"), name)).name


def _choose(path: str, what: str, value: T | None, option: str) -> T:
    if value is None:
        raise UsageError(f"{path} does not say {what}", f"give it: {option}")
    return value


def _join(numbers: list[int]) -> str:
    *most, last = [str(number) for number in numbers]
    return f"{', '.join(most)} and {last}" if most else last
