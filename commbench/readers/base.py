"""The common form of other tools' results, an ImportedFile of ImportedRows, and its collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from commbench.errors import RecordsError, UsageError
from commbench.plan.backends import DEFAULT_MEMORY
from commbench.plan.dimensions import HOT
from commbench.plan.dtypes import DTYPES
from commbench.plan.operations import OPERATIONS
from commbench.plan.timing_modes import EAGER
from commbench.readers import cells
from commbench.readers.source import ImportHints, Line, SourceText
from commbench.results.schema import ReportedTiming
from commbench.units import LARGEST_SIZE, format_count

T = TypeVar("T")

_MOST_LINES = 4
_COARSEST = 0.02
"""A bandwidth whose last printed digit is a larger fraction of it is too coarse to check by."""


class ImportedRow(NamedTuple):
    """One measurement of another tool: one size, one placement; with commbench's names."""

    line: int
    """Line of the file, from 1; in JSON the number of the result, from 1."""
    operation: str
    dtype: str
    """Empty for an operation without data."""
    size_bytes: int
    """By nccl-tests' convention (see commbench.plan.operations), whatever the tool's own is."""
    count: int  # type: ignore[assignment]  # hides tuple.count
    """Elements of the tensor, or of one block in an operation with blocks."""
    reported: ReportedTiming
    """The tool's main time of one operation, and what it says of the iterations."""
    samples_s: tuple[float, ...] = ()
    """Seconds of each iteration, of the slowest rank."""
    reduce_op: str = ""
    """Empty for an operation that does not reduce."""
    placement: str = ""
    """`in_place`, `out_of_place`; empty for an operation without data."""
    root: int | None = None
    """None where there is no root or the file does not say which."""
    launch_mode: str = EAGER
    """`eager` or `graph`: how calls reached the device."""
    memory: str = DEFAULT_MEMORY
    """The kind of memory of the buffers (plan.backends)."""
    p2p_call: str = ""
    pairs: str = ""
    window: int | None = None
    """For pairs of ranks: the kind of call, which ranks are pairs, and the messages of a window."""
    wrong: int | None = None
    """Wrong elements; None where the tool did not check."""
    timing: str = ""
    """Empty: that of the file."""


class ImportedFile(NamedTuple):
    """One file of another tool."""

    path: str
    tool: str
    """Its name in results: `nccl-tests`, `osu`."""
    timing: str
    """The name of a timing mode, by the loop that the tool documents."""
    ranks: int
    backend: str
    rows: tuple[ImportedRow, ...]
    tool_version: str = ""
    """Empty where the file does not say."""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Names of the devices, each once."""
    device: str | None = None
    """Device type of torch, empty if not known; None: the only one of the backend."""
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
        self.source, self.hints = source, hints
        self.ranks = 0
        self.rows: list[ImportedRow] = []
        self._unit = unit
        self._notes: list[str] = []
        self._left_out: dict[str, dict[int, None]] = {}
        self._faults: set[str] = set()
        self._mismatches: dict[str, str] = {}
        self._wrong_bandwidths: list[int] = []
        self._precise: list[bool] = []
        """Whether it follows, of bandwidths printed finely enough to tell a wrong number of
        ranks."""

    def choose_ranks(self, given: Iterable[int | None]) -> None:
        """Choose the world size to import, by that of each table; None where unknown."""
        self.ranks = self.hints.choose_ranks(self.source.path, given)

    def note(self, text: str, is_fault: bool = False) -> None:
        """Add a note about the file, unless it has it already. A fault says what is missing, wrong
        or contradictory: such a run is not complete."""
        if text not in self._notes:
            self._notes.append(text)
        self._faults |= {text} if is_fault else set()

    def leave_out(self, reason: str, line: int, is_fault: bool = False) -> None:
        """Note that the row or table at `line` is left out."""
        self._left_out.setdefault(reason, {})[line] = None
        self._faults |= {reason} if is_fault else set()

    def leave_out_all(self, reason: str, rows: Iterable[tuple[Line, object]]) -> None:
        """Note that rows are left out."""
        for line, _ in rows:
            self.leave_out(reason, line.number)

    def note_lost_row(self, line: Line) -> None:
        """Note a line that is no row, if it holds so many numbers that it may have been one."""
        row = line.text.split()
        numbers = sum(map(cells.is_number, row))
        if len(row) > 1 and numbers * 2 >= len(row) and not row[0].startswith("#"):
            why = "it has numbers, but is not a row"
            self.leave_out(why, line.number, is_fault=numbers == len(row))

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

    def add(
        self, line: int, operation: str, dtype: str, size_bytes: int, row: Mapping[str, str],
        statistic: str, *, exponent: int = cells.MICROSECONDS, of_iterations: bool = False,
        iterations: int = 0, samples: Iterable[str] = (),
        **fields: Any,
    ) -> None:  # fmt: skip
        """Add a row, or note why not; ValueError for a cell that is invalid.

        `row` has the cells by column: `time` in units of ten to the power of `exponent` seconds,
        `algbw` and `busbw` in GB/s, and in microseconds fields of ReportedTiming, which are taken
        over ranks or `of_iterations`. `fields` are those of ImportedRow.
        """
        entry = OPERATIONS[operation]
        dtype = dtype if entry.has_data else ""
        blocks = self.ranks if entry.blocks else 1
        count = size_bytes // blocks // DTYPES[dtype].size_bytes if dtype else 0
        time_s = cells.parse_seconds(row["time"], exponent)
        times = {name: cells.parse_seconds(row[name]) for name in row if name.endswith("_s")}
        times = {n: t for n, t in times.items() if n == "mean_s" or of_iterations}
        samples_s = [cells.parse_seconds(sample) for sample in samples]
        if size_bytes > LARGEST_SIZE:
            raise ValueError(
                f"size {size_bytes // blocks} on each of {blocks} ranks is out of range"
            )
        if dtype and not count:
            tiny = f"less than one {dtype} per rank"
            self.leave_out(tiny if size_bytes else "nothing was moved (size 0)", line)
        elif not self._is_requested(line, operation, dtype):
            pass
        elif time_s is None:
            where = f" ({fields['placement']})" if fields.get("placement") else ""
            self.leave_out(f"its time is {row['time']!r:.20}{where}", line, is_fault=True)
        else:
            known = {n: t for n, t in times.items() if n in ReportedTiming._fields}
            added = ImportedRow(
                line, operation, dtype, size_bytes, count,
                ReportedTiming(time_s, statistic, iterations, **known),
                tuple(s for s in samples_s if s) if None not in samples_s else (), **fields,
            )  # fmt: skip
            if "busbw" in row:
                self._check_bandwidths(added, exponent, row["time"], row["algbw"], row["busbw"])
            self.rows.append(added)

    def _is_requested(self, line: int, operation: str, dtype: str) -> bool:
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

    def _check_bandwidths(
        self, row: ImportedRow, exponent: int, time: str, algbw: str, busbw: str
    ) -> None:
        """Check whether the printed bandwidths (GB/s) follow from the printed time and the size."""
        factor = OPERATIONS[row.operation].busbw_factor
        numbers = [cells.parse_number(cell) for cell in (algbw, busbw)]
        if factor is None or None in numbers:
            return
        size, by = row.size_bytes, factor(self.ranks)
        low, high = cells.parse_range(busbw)
        is_consistent = cells.is_consistent(size * by, exponent, time, busbw)
        if high - low < _COARSEST * high:
            self._precise.append(is_consistent)
        is_consistent &= cells.is_consistent(size, exponent, time, algbw)
        if not (is_consistent and cells.is_multiple(algbw, by, busbw)):
            self._wrong_bandwidths.append(row.line)

    def note_bandwidths(self, hinted: str) -> None:
        """Note the rows whose bandwidth does not follow.

        `hinted` is the operation and the ranks where they are hints, not the file's own words:
        `all_reduce on 8 ranks`. Then a UsageError is raised where most rows do not follow.
        """
        rows = join_numbers("row", self._wrong_bandwidths)
        if hinted and self._precise.count(False) * 2 > len(self._precise):
            raise UsageError(
                f"the bus bandwidths in {self.source.path} are not those of {hinted} ({rows})",
                "check --op and --ranks",
            )
        if wrong := len(self._wrong_bandwidths):
            why = "the printed bandwidth does not follow from size and time"
            self.note(f"in {format_count(wrong, 'row')} {why} ({rows})", is_fault=True)

    def make_file(self, **facts: Any) -> ImportedFile:
        """The file with these facts; raises an error where it has no row."""
        notes = {note: note for note in self._notes} | {
            f"{format_count(len(n), self._unit)} left out ({join_numbers('', n)}): {reason}": reason
            for reason, n in self._left_out.items()
        }
        if not self.rows:
            for option, why in self._mismatches.items():
                raise UsageError(f"{self.source.path} {why}", f"leave out {option}")
            why = next((f": {text}" for text, reason in notes.items() if text != reason), "")
            raise RecordsError(
                f"{self.source.path} has no result that can be read{why}",
                "give the whole output of the tool, with rows of an operation of `commbench ops`",
            )
        return ImportedFile(
            path=self.source.path,
            ranks=self.ranks,
            rows=tuple(self.rows),
            notes=tuple(notes),
            faults=tuple(text for text, reason in notes.items() if reason in self._faults),
            **facts,
        )


def join_numbers(unit: str, numbers: Iterable[int]) -> str:
    """The first numbers of some lines or rows: `line 3`, `lines 3, 4, 5, 6, …`."""
    texts = [str(number) for number in numbers]
    more = ["…"] if len(texts) > _MOST_LINES else []
    units = f"{unit}{'s' if len(texts) > 1 else ''} " if unit else ""
    return f"{units}{', '.join(texts[:_MOST_LINES] + more)}"


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values that are not empty, each once, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
