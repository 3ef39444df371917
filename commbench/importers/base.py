"""The common form of other tools' results, an ImportedFile of ImportedRows, and its collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from commbench.errors import RecordsError, UsageError
from commbench.importers import cells
from commbench.importers.hints import ImportHints
from commbench.importers.text_source import Line, SourceText
from commbench.spec.allocators import DEFAULT_MEMORY
from commbench.spec.dimensions import HOT
from commbench.spec.timing_modes import EAGER

_MOST_LINES = 4
T = TypeVar("T")


class ImportedRow(NamedTuple):
    """One measurement of another tool: one size, one placement; with commbench's names."""

    operation: str
    dtype: str
    """Empty for an operation without data."""
    reduce_op: str
    """Empty for an operation that does not reduce."""
    placement: str
    """`in_place`, `out_of_place`; empty for an operation without data."""
    size_bytes: int
    """By nccl-tests' convention (see commbench.spec.operations), whatever the tool's own is."""
    count: int  # type: ignore[assignment]  # hides tuple.count
    """Elements of the tensor, or of one block in an operation with blocks."""
    time_s: float
    """The tool's main time of one operation."""
    statistic: str
    """What `time_s` is: `mean over 20 iterations, mean over ranks`."""
    line: int
    """Line of the file, from 1; in JSON the number of the result, from 1."""
    root: int | None = None
    """None where there is no root or the file does not say which."""
    iterations: int | None = None
    minimum_s: float | None = None
    maximum_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    mean_s: float | None = None
    spread: str = ""
    """What minimum, maximum, percentiles and mean are taken over; tools differ in this."""
    samples_s: tuple[float, ...] = ()
    """Seconds of each iteration, of the slowest rank."""
    algbw: float | None = None
    busbw: float | None = None
    """Algorithm and bus bandwidth as printed, in bytes/s."""
    launch_mode: str = EAGER
    """`eager` or `graph`: how calls reached the device."""
    memory: str = DEFAULT_MEMORY
    """The kind of memory of the buffers (spec.allocators)."""
    p2p_call: str = ""
    pairs: str = ""
    window: int | None = None
    """For pairs of ranks: the kind of call, which ranks are pairs, and the messages of a window."""
    wrong: int | None = None
    """Wrong elements; None where the tool did not check."""

    def with_statistics(self, row: Mapping[str, str], over: str) -> ImportedRow:
        """The row with the times, in microseconds, of those cells that have names of its fields."""
        times = {name: cells.parse_seconds(row[name]) for name in row if name.endswith("_s")}
        known: dict[str, Any] = {name: time for name, time in times.items() if time is not None}
        return self._replace(**known, spread=over) if known else self


class ImportedFile(NamedTuple):
    """One file of another tool."""

    path: str
    tool: str
    """`nccl-tests`, `osu`, `imb` or `param`."""
    tool_version: str
    """Empty where the file does not say."""
    format: str
    """The importer's name, such as `nccl-tests-json`."""
    timing: str
    """The name of a timing mode, by the loop that the tool documents."""
    ranks: int
    backend: str | None
    rows: tuple[ImportedRow, ...]
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Names of the devices, each once."""
    buffers: str = HOT
    """`hot` or `rotating`, by the loop that the tool documents."""
    warmup: int | None = None
    """Calls before the timed ones; None where the file does not say."""
    notes: tuple[str, ...] = ()
    """What was left out and why, and what the numbers mean where that is not clear."""
    faults: tuple[str, ...] = ()
    """Those of `notes` that say what is missing, wrong or contradictory."""
    environment: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """As in a journal's header: `nccl`, `variables`; the variables pass an allow-list."""


class RowCollector:
    """Collects the rows and notes of one file while an importer reads it."""

    def __init__(self, source: SourceText, hints: ImportHints, unit: str = "line") -> None:
        """`unit` names what row numbers count: `line` or `result`."""
        self.source = source
        self.hints = hints
        self.rows: list[ImportedRow] = []
        self._unit = unit
        self._notes: list[str] = []
        self._left_out: dict[str, list[int]] = {}
        self._faults: set[str] = set()
        self._mismatches: dict[str, str] = {}

    def note(self, text: str, is_fault: bool = False) -> None:
        """Add a note about the file, unless it has it already. A fault says what is missing, wrong
        or contradictory: such a run is not complete."""
        if text not in self._notes:
            self._notes.append(text)
        self._faults |= {text} if is_fault else set()

    def leave_out(self, reason: str, line: int, is_fault: bool = False) -> None:
        """Note that the row or table at `line` is left out."""
        self._left_out.setdefault(reason, []).append(line)
        self._faults |= {reason} if is_fault else set()

    def note_lost_row(self, line: Line) -> None:
        """Note a line that is no row, if it holds so many numbers that it may have been one."""
        row = line.text.split()
        numbers = sum(map(cells.is_number, row))
        if len(row) > 1 and numbers * 2 >= len(row) and not row[0].startswith("#"):
            why = "it has numbers, but is not a row"
            self.leave_out(why, line.number, is_fault=numbers == len(row))

    def is_requested(self, line: int, operation: str, dtype: str) -> bool:
        """Whether a row is of the operation and type that were requested; leaves it out if not."""
        for option, requested, found in (
            ("--op", self.hints.operation, operation),
            ("--dtype", self.hints.dtype, dtype),
        ):
            if requested is not None and found and found != requested:
                self._mismatches[option] = f"contains {found}, not {requested}"
                self.leave_out(f"{found}, and {option} {requested} was requested", line)
                return False
        return True

    def read_rows(self, rows: Iterable[tuple[Line, T]], add: Callable[[Line, T], None]) -> None:
        """Call `add` for each line with its row; leave out a line in which the file ends.

        Raises RecordsError with the line's number where `add` raises ValueError.
        """
        for line, row in rows:
            if self.source.is_cut(line):
                self.leave_out("the file ends within the line", line.number, is_fault=True)
                continue
            try:
                add(line, row)
            except ValueError as error:
                raise self.source.damaged(line.number, error, len(self.rows)) from None

    def make_file(self, **facts: Any) -> ImportedFile:
        """The file with these facts; raises an error where it has no row."""
        if not self.rows:
            for option, why in self._mismatches.items():
                raise UsageError(f"{self.source.path} {why}", f"leave out {option}")
            raise RecordsError(
                f"{self.source.path} has no result that can be read",
                "; ".join(self._all_notes()) or "it may have been cut off before its first row",
            )
        notes = self._all_notes()
        faults = tuple(text for text, reason in notes.items() if reason in self._faults)
        return ImportedFile(
            path=self.source.path, rows=tuple(self.rows), notes=tuple(notes), faults=faults, **facts
        )

    def _all_notes(self) -> dict[str, str]:
        """The notes; for each row or table that is left out, with the reason."""
        return {note: note for note in self._notes} | {
            f"left out {len(lines)} ({join_numbers(self._unit, lines)}): {reason}": reason
            for reason, lines in self._left_out.items()
        }


def join_numbers(unit: str, numbers: list[int]) -> str:
    """The first numbers of some lines or rows: `line 3`, `lines 3, 4, 5, 6, …`."""
    shown = ", ".join(str(number) for number in numbers[:_MOST_LINES])
    more = ", …" if len(numbers) > _MOST_LINES else ""
    return f"{unit}{'s' if len(numbers) > 1 else ''} {shown}{more}"


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values that are not empty, each once, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
