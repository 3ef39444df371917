"""The tables of `commbench init`: how long ranks and process groups take to start."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from commbench.analysis.nccl_log import describe_init
from commbench.analysis.rows import ResultRow, make_rows
from commbench.output.paragraphs import fill
from commbench.output.table import BOLD, TableColumn, clean, fitting_table, style
from commbench.results.schema import Run, RunHeader
from commbench.spec.call_forms import DIRECT
from commbench.units import format_bytes, format_known_time, format_time

JOINING = (
    "ranks", "open", "init_process_group,\nslowest rank", "fastest\nrank", "groups\nof a mesh",
    "first\noperation",
)  # fmt: skip
_JOINING_COLUMNS = [TableColumn(name, itemgetter(at), 1) for at, name in enumerate(JOINING)]
CALLS = ("call", "ranks", "open", "groups", "size", "first", "second", "later", "memory")
_CALL_COLUMNS = [
    TableColumn(
        name, itemgetter(at), int(at > 0), is_left=name == "call", is_wrapped=name == "call"
    )
    for at, name in enumerate(CALLS)
]
FIRST, SECOND = "first", "second"


def start_up_text(runs: Sequence[Run]) -> str:
    """What these runs say about starting: how the ranks joined, a row for each run; and a row for
    each way to make a group, and for each operation, by the number of ranks and groups."""
    headers = [run.header for run in runs]
    sizes = dict.fromkeys(header.plan.world_size for header in headers)
    others = "".join(f"; {size} ranks" for size in list(sizes)[1:])
    title = fill(clean(f"Start-up of {headers[0].describe_ranks()}{others}"), rest="  ")
    lines = [style(title, BOLD), ""]
    has_open = any(header.plan.open_groups for header in headers)
    joined = [joining_row(header, has_open) for header in headers if header.start_up]
    if joined:
        lines += [*fitting_table(_JOINING_COLUMNS, joined), ""]
    rows = [row for run in runs for row in make_rows(run)]
    calls = call_rows(rows)
    lines += fitting_table(_CALL_COLUMNS, calls) if calls else []
    lines += [fill(note, "  ", "  ") for note in _notes(headers, rows)]
    missing = {
        f"{row.measurement.case.title}: {row.measurement.reason}": None
        for row in rows
        if not row.time and not row.measurement.case.group_ranks
    }
    lines += [fill(clean(f"Not measured: {text}."), "  ", "    ") for text in missing]
    return "\n".join(lines)


def joining_row(header: RunHeader, has_open: bool) -> tuple[str, ...]:
    """The cells under JOINING of a run; `has_open` says whether a run had open groups."""
    found = header.start_up
    assert found is not None
    groups = "" if not header.plan.has_groups else format_time(found.groups_s)
    times = (format_time(s) for s in (found.init_s, found.init_fastest_s))
    already = str(header.plan.open_groups) if has_open else ""
    return str(header.plan.world_size), already, *times, groups, format_time(found.connect_s)


def call_rows(rows: Sequence[ResultRow]) -> list[tuple[str, ...]]:
    """The cells under CALLS: for each operation of each run, and each dimension of groups and size,
    the times of the first, the second and later calls, and the memory of a group."""
    found: dict[tuple[str, int, int, int, str], dict[str, ResultRow]] = {}
    for row in rows:
        case = row.measurement.case
        if row.time and not case.group_ranks:
            over = f" over {case.group}" if case.group else ""
            groups = len(row.header.plan.groups_of(case))
            size = format_bytes(case.size_bytes) if case.dtype else ""
            key = (case.operation + over, case.ranks, row.header.plan.open_groups, groups, size)
            found.setdefault(key, {})[FIRST if _makes(row) else case.form] = row
    ordered = sorted(found.items(), key=lambda item: [*found].index(item[0]))
    has_open = any(already for _, _, already, _, _ in found)
    names = list(dict.fromkeys(key[0] for key in found))
    ordered.sort(key=lambda item: names.index(item[0][0]))
    return [
        (name, str(ranks), str(already) if has_open else "", str(groups), size,
         *(_time(forms.get(form)) for form in (FIRST, SECOND, DIRECT)), _memory(forms))
        for (name, ranks, already, groups, size), forms in ordered
    ]  # fmt: skip


def _makes(row: ResultRow) -> bool:
    """Whether the row is about making a group, which is always the first call."""
    case = row.measurement.case
    return case.uses_new_group and case.form == DIRECT


def _time(row: ResultRow | None) -> str:
    if row is None or row.time is None:
        return ""
    return format_known_time(row.time.median, row.time.low, row.time.high)[0]


def _memory(forms: dict[str, ResultRow]) -> str:
    known = [row.group_bytes for row in forms.values() if row.group_bytes is not None]
    return format_bytes(max(known) // 1024 * 1024) if known else ""


def _notes(headers: Sequence[RunHeader], rows: Sequence[ResultRow]) -> list[str]:
    is_gpu = headers[0].plan.device != "cpu"
    where = "of the GPU" if is_gpu else "of the process"
    notes = [
        "init_process_group on the slowest rank contains waiting for the rank that came last. "
        "Times of calls are medians of the slowest rank; new_group is the time of all groups of "
        "the dimension, one after another. First and second are calls on a new group, later on "
        f"one in use. Memory is what the rank that needs most takes for its group, {where}, with "
        "what a first call adds."
    ]
    if any(header.plan.open_groups for header in headers):
        notes.append("open: process groups of all ranks that were made before.")
    if any(row.measurement.case.group for row in rows) or not is_gpu:
        lazy = any(h.environment.get("variables", {}).get(LAZY) for h in headers)
        if headers[0].plan.backend == "gloo":
            notes.append(
                f"{LAZY} is set: gloo connects two ranks in their first call."
                if lazy
                else "gloo connects all ranks of a group in new_group."
            )
    for header in headers:
        if init := describe_init(header.environment.get("nccl_log")):
            notes.append(f"NCCL's own time of the communicator of all ranks: {init}.")
    return notes


LAZY = "TORCH_GLOO_LAZY_INIT"
