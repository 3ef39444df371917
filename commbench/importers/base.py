"""The neutral form of another tool's results: a ImportedFile of ForeignRows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class ImportedRow(NamedTuple):
    """One measurement of another tool: one size, one placement."""

    operation: str
    """commbench's name."""
    dtype: str
    """commbench's name; empty for an operation without data."""
    reduce_op: str
    """Empty for an operation that does not reduce."""
    root: int | None
    """None where there is no root, or the file does not tell it."""
    placement: str
    """`in_place`, `out_of_place`; empty for an operation without data."""
    size_bytes: int
    """nccl-tests' size (see commbench.spec.operations), whatever the tool's own convention is."""
    count: int  # type: ignore[assignment]  # hides tuple.count
    """Elements in the tensor, or in one block of an operation with blocks."""
    time_s: float
    """The tool's main time of one operation."""
    statistic: str
    """What `time_s` is: `mean over 20 iterations, mean over ranks`."""
    line: int
    """Line of the file, from 1; in JSON the number of the result, from 1."""
    iterations: int | None = None
    minimum_s: float | None = None
    maximum_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    mean_s: float | None = None
    spread: str = ""
    """What minimum, maximum, percentiles and mean are taken over: tools differ in it."""
    samples_s: tuple[float, ...] = ()
    """Seconds of each iteration, of the slowest rank."""
    algbw: float | None = None
    """Algorithm bandwidth as printed, in bytes/s."""
    busbw: float | None = None
    """Bus bandwidth as printed, in bytes/s."""
    wrong: int | None = None
    """Wrong elements; None when the tool did not check."""

    def with_statistics(self, values: dict[str, float | None], over: str) -> ImportedRow:
        """The row with minimum, maximum, percentiles and mean, by the names of their fields."""
        known = {name: value for name, value in values.items() if value is not None}
        if not known:
            return self
        return self._replace(
            minimum_s=known.get("minimum_s"),
            maximum_s=known.get("maximum_s"),
            p50_s=known.get("p50_s"),
            p95_s=known.get("p95_s"),
            p99_s=known.get("p99_s"),
            mean_s=known.get("mean_s"),
            spread=over,
        )


class ImportedFile(NamedTuple):
    """One file of another tool."""

    path: str
    tool: str
    """`nccl-tests`, `osu`, `imb` or `param`."""
    tool_version: str
    """Empty where the file does not tell it."""
    format: str
    """The importer's name, such as `nccl-tests-json`."""
    timing: str
    """The name of a timing mode, by the loop that the tool documents."""
    ranks: int
    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    """Names of the devices, each once."""
    backend: str | None
    rows: tuple[ImportedRow, ...]
    notes: tuple[str, ...] = ()
    """What was left out and why, and what the numbers mean where that is not obvious."""
    environment: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """As in a journal's header: `nccl`, `variables`; variables by an allow-list."""


def each(values: Iterable[str]) -> tuple[str, ...]:
    """The values that are not empty, each once."""
    return tuple(dict.fromkeys(value for value in values if value))
