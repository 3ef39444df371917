"""The common form of other tools' results: cells as numbers, and the rows of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isinf
from typing import Any, NamedTuple, TypeVar

from commbench.errors import RecordsError, UsageError
from commbench.output.text import list_some
from commbench.plan.case import Case
from commbench.plan.dimensions import HOT
from commbench.plan.dtypes import DTYPES, find_dtype
from commbench.plan.operations import OPERATIONS
from commbench.readers.source import ImportHints, Line, SourceText
from commbench.results.schema import ReportedTiming
from commbench.units import GB, LARGEST_SIZE, format_count

T = TypeVar("T")

_MOST_LINES = 4
_COARSEST = 0.02
"""A bandwidth whose last printed digit is a larger fraction of it is too coarse to check by."""
_ANY = 1e300
"""A bandwidth that no time bounds."""

MICROSECONDS, MILLISECONDS = -6, -3
"""Powers of ten of a second."""
LONGEST_S = 1e7

_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_MISSING = re.compile(r"-|n/a|[+-]?nan(?:\([a-z0-9]{0,20}\))?|[+-]?inf(?:inity)?", re.IGNORECASE)


def is_whole(cell: str) -> bool:
    """Whether a cell is a whole number."""
    return _WHOLE.fullmatch(cell) is not None


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    return _NUMBER.fullmatch(cell) is not None


def parse_whole(cell: str) -> int:
    """The whole number in a cell; ValueError for anything else."""
    if not is_whole(cell):
        raise ValueError(f"{cell!r:.40} is no whole number")
    return int(cell)


def parse_size(cell: str) -> int:
    """The bytes in a cell; ValueError beyond the largest size that commbench accepts."""
    if parse_whole(cell) > LARGEST_SIZE:
        raise ValueError(f"size {cell} is out of range")
    return int(cell)


def parse_number(cell: str, exponent: int = 0) -> float | None:
    """The number in a cell times ten to the power of `exponent`, exactly as printed.

    None for `N/A`, `nan`, `inf`; ValueError for anything else.
    """
    if _MISSING.fullmatch(cell):
        return None
    if not is_number(cell):
        raise ValueError(f"{cell!r:.40} is no number")
    mantissa, _, power = cell.lower().partition("e")
    value = float(f"{mantissa}e{int(power or 0) + exponent}")
    if isinf(value):
        raise ValueError(f"{cell} is out of range")
    return value


def parse_seconds(cell: str, exponent: int = MICROSECONDS) -> float | None:
    """The seconds of a time in a cell, which by default is in microseconds.

    None where there is none, and for 0, since nothing takes no time.
    """
    value = parse_number(cell, exponent)
    if value is not None and value > LONGEST_S:
        raise ValueError(f"time {cell} is out of range")
    return value or None


def _edges(cell: str) -> tuple[float, float]:
    """The lowest and highest number printed as `cell`: half a unit of its last digit from it."""
    mantissa, _, exponent = cell.lower().partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return float(cell) - half, float(cell) + half


def _may_be(cell: str, low: float, high: float) -> bool:
    """Whether a number from `low` to `high` may be printed as `cell`."""
    least, most = _edges(cell)
    slack = 1e-9 * (1 + most)
    return low <= most + slack and high >= least - slack


def parse_columns(header: str, known: Sequence[tuple[str, str]]) -> list[str]:
    """The names of a header's columns, in order.

    `known` pairs regular expressions of column headings with names. Raises ValueError for text that
    none of them matches.
    """
    names: list[str] = []
    rest = header.strip()
    while rest:
        for pattern, name in known:
            match = re.match(rf"{pattern}(?=\s|$)", rest)
            if match:
                names.append(name)
                rest = rest[match.end() :].lstrip()
                break
        else:
            raise ValueError(f"the column {rest.split()[0]!r:.40} is unknown")
    return names


def name_cells(columns: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """The cells of a row by column; ValueError where they are not as many as the columns."""
    if len(row) != len(columns):
        raise ValueError(f"it has {len(row)} cells, and the header {len(columns)} columns")
    return dict(zip(columns, row, strict=True))


class ImportedRow(NamedTuple):
    """One measurement of another tool: one size, one placement."""

    line: int
    """Line of the file, from 1; in JSON the number of the result, from 1."""
    case: Case
    """What was measured, in commbench's names; what the file does not say is left empty."""
    reported: ReportedTiming
    """The tool's main time of one operation, and what it says of the iterations."""
    samples_s: tuple[float, ...] = ()
    """Seconds of each iteration, of the slowest rank."""
    wrong: int | None = None
    """Wrong elements; None where the tool did not check."""


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
    warmup: int | None = None
    """Calls before the timed ones; None where the file does not say."""
    notes: tuple[str, ...] = ()
    """What was left out and why, and what the numbers mean where that is not clear."""
    faults: tuple[str, ...] = ()
    """Those of `notes` that say what is missing, wrong or contradictory."""
    environment: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """As in a journal's header: `nccl`, `variables`; the variables pass an allow-list."""


class LeftOut(Exception):  # noqa: N818 - it is no error of the file
    """Why a row or a table is left out."""

    def __init__(self, reason: str, is_fault: bool = False) -> None:
        """A fault says what is missing, wrong or contradictory."""
        super().__init__(reason)
        self.reason, self.is_fault = reason, is_fault


def require_dtype(name: str) -> str:
    """commbench's name of an element type; raises LeftOut where it has no such type."""
    try:
        return find_dtype(name).name
    except UsageError:
        raise LeftOut(f"commbench has no element type {name!r:.40}") from None


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

    def leave_out(self, reason: str, *lines: int, is_fault: bool = False) -> None:
        """Note that the rows or tables at these lines are left out."""
        self._left_out.setdefault(reason, {}).update(dict.fromkeys(lines))
        self._faults |= {reason} if is_fault else set()

    def note_lost_row(self, line: Line) -> None:
        """Note a line that is no row, if it holds so many numbers that it may have been one."""
        row = line.text.split()
        numbers = sum(map(is_number, row))
        if len(row) > 1 and numbers * 2 >= len(row) and not row[0].startswith("#"):
            why = "it has numbers, but is not a row"
            self.leave_out(why, line.number, is_fault=numbers == len(row))

    def read_rows(self, rows: Iterable[tuple[Line, T]], add: Callable[[Line, T], None]) -> None:
        """Call `add` for each line with its row; leave out one for which it raises LeftOut, and a
        line in which the file ends.

        Raises RecordsError with the line's number where `add` raises ValueError.
        """
        for line, row in rows:
            try:
                if self.source.is_cut(line):
                    raise LeftOut("the file ends within the line", is_fault=True)
                add(line, row)
            except LeftOut as left_out:
                self.leave_out(left_out.reason, line.number, is_fault=left_out.is_fault)
            except ValueError as error:
                raise self.source.damaged(line.number, error, len(self.rows), self._unit) from None

    def add(
        self, line: int, operation: str, dtype: str, size_bytes: int, row: Mapping[str, str],
        statistic: str, *, exponent: int = MICROSECONDS, of_iterations: bool = False,
        iterations: int = 0, samples: Iterable[str] = (), wrong: int | None = None, **known: Any,
    ) -> None:  # fmt: skip
        """Add a row, or note why not; ValueError for a cell that is invalid.

        `row` has the cells by column: `time` in units of ten to the power of `exponent` seconds,
        `algbw` and `busbw` in GB/s, and in microseconds fields of ReportedTiming, which are taken
        over ranks or `of_iterations`. `known` are fields of Case.
        """
        entry = OPERATIONS[operation]
        dtype = dtype if entry.has_data else ""
        blocks = self.ranks if entry.blocks else 1
        count = size_bytes // blocks // DTYPES[dtype].size_bytes if dtype else 0
        time_s = parse_seconds(row["time"], exponent)
        times = {n: parse_seconds(row[n]) for n in ReportedTiming._fields if n in row}
        samples_s = [parse_seconds(sample) for sample in samples]
        if size_bytes > LARGEST_SIZE:
            block_bytes = size_bytes // blocks
            raise ValueError(f"size {block_bytes} on each of {blocks} ranks is out of range")
        if dtype and not count:
            tiny = f"less than one {dtype} per rank"
            self.leave_out(tiny if size_bytes else "nothing was moved (size 0)", line)
        elif why := self._why_not_requested(operation, dtype):
            self.leave_out(why, line)
        elif time_s is None:
            where = f" ({known['placement']})" if known.get("placement") else ""
            self.leave_out(f"its time is {row['time']!r:.20}{where}", line, is_fault=True)
        else:
            times = times if of_iterations else {"mean_s": times.get("mean_s")}
            known = {"reduce_op": "", "root": None, "placement": "", "timing": ""} | known
            case = Case(
                index=0, operation=operation, dtype=dtype, size_bytes=size_bytes, count=count,
                ranks=self.ranks, **known,
            )  # fmt: skip
            reported = ReportedTiming(time_s, statistic, iterations, **times)
            found = tuple(s for s in samples_s if s) if None not in samples_s else ()
            added = ImportedRow(line, case, reported, found, wrong)
            if "busbw" in row:
                self._check_bandwidths(added, exponent, row["time"], row["algbw"], row["busbw"])
            self.rows.append(added)

    def _why_not_requested(self, operation: str, dtype: str) -> str:
        """Why a row of an operation and type was not asked for; empty where it was."""
        for option, requested, found in (
            ("--op", self.hints.operation, operation),
            ("--dtype", self.hints.dtype, dtype),
        ):
            if requested is not None and found and found != requested:
                self._mismatches[option] = f"contains {found}, not {requested}"
                return f"{found}, and {option} {requested} was requested"
        return ""

    def _check_bandwidths(
        self, row: ImportedRow, exponent: int, time: str, algbw: str, busbw: str
    ) -> None:
        """Check whether the printed bandwidths (GB/s) follow from the printed time and the size,
        and the second one from the first, each rounded to its last digit."""
        factor = OPERATIONS[row.case.operation].busbw_factor
        if factor is None or None in (parse_number(algbw), parse_number(busbw)):
            return
        by, moved = factor(self.ranks), row.case.size_bytes / GB
        shortest, longest = (edge * 10.0**exponent for edge in _edges(time))
        slowest, fastest = moved / longest, moved / shortest if shortest > 0 else _ANY
        least, most = _edges(algbw)
        low, high = _edges(busbw)
        follows = _may_be(busbw, slowest * by, fastest * by)
        if high - low < _COARSEST * high:
            self._precise.append(follows)
        follows &= _may_be(algbw, slowest, fastest) and _may_be(busbw, least * by, most * by)
        if not follows:
            self._wrong_bandwidths.append(row.line)

    def note_bandwidths(self, hinted: str) -> None:
        """Note the rows whose bandwidth does not follow.

        `hinted` is the operation and the ranks where they are hints, not the file's own words:
        `all_reduce on 8 ranks`. Then a UsageError is raised where most rows do not follow.
        """
        rows = join_numbers("row", self._wrong_bandwidths)
        if hinted and self._precise.count(False) * 2 > len(self._precise):
            what = f"the bus bandwidths in {self.source.path} are not those of {hinted} ({rows})"
            raise UsageError(what, "check --op and --ranks")
        if wrong := len(self._wrong_bandwidths):
            why = "the printed bandwidth does not follow from size and time"
            self.note(f"in {format_count(wrong, 'row')} {why} ({rows})", is_fault=True)

    def make_file(self, timing: str, buffers: str = HOT, **facts: Any) -> ImportedFile:
        """The file with these facts; raises an error where it has no row. `timing` and `buffers`
        are those of its rows, by the loop that the tool documents."""
        notes = {note: note for note in self._notes} | {
            f"{join_numbers(self._unit, n)} left out: {reason}": reason
            for reason, n in self._left_out.items()
        }
        if not self.rows:
            for option, why in self._mismatches.items():
                raise UsageError(f"{self.source.path} {why}", f"leave out {option}")
            why = next((f": {text}" for text, reason in notes.items() if text != reason), "")
            hint = "give the whole output of the tool, with rows of an operation of `commbench ops`"
            raise RecordsError(f"{self.source.path} has no result that can be read{why}", hint)

        def complete(case: Case) -> Case:
            return case._replace(timing=case.timing or timing, buffers=buffers)

        return ImportedFile(
            path=self.source.path,
            ranks=self.ranks,
            timing=timing,
            rows=tuple(row._replace(case=complete(row.case)) for row in self.rows),
            notes=tuple(notes),
            faults=tuple(text for text, reason in notes.items() if reason in self._faults),
            **facts,
        )


def join_numbers(unit: str, numbers: Iterable[int]) -> str:
    """The first numbers of some lines or rows: `line 3`, `lines 3, 4, 5, 6 and 2 more`."""
    texts = [str(number) for number in numbers]
    return f"{unit}{'s' if len(texts) > 1 else ''} {list_some(texts, _MOST_LINES)}"


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values that are not empty, each once, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
