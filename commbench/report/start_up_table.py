"""What a document of `commbench init` says: how long ranks and process groups take to start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.nccl_log import describe_init
from commbench.analysis.rows import ResultRow, make_rows
from commbench.report.plan_table import list_missing
from commbench.report.run_table import size_of, time_of
from commbench.results.schema import Run, RunHeader, StartUp
from commbench.spec.call_forms import DIRECT
from commbench.spec.plan import Plan
from commbench.stats.estimate import Estimate
from commbench.units import format_time
from commbench.views.cells import BYTES, NUMBER, TEXT, TIME, Column
from commbench.views.document import Document, Items, Table
from commbench.views.formats import View

FIRST, SECOND = "first", "second"
LAZY = "TORCH_GLOO_LAZY_INIT"


Joining = tuple[Plan, StartUp]
"""What a run was asked, and how long its ranks took."""


class Calls(NamedTuple):
    """A way to make a group, or an operation of a run: by dimension of groups and size."""

    call: str
    ranks: int
    open_groups: int
    groups: int
    size_bytes: int | None
    first: Estimate | None
    """Seconds of the first call on a new group."""
    second: Estimate | None
    later: Estimate | None
    group_bytes: int | None
    """The memory of a group on the rank that needs most."""


@dataclass(frozen=True)
class StartUps:
    """What runs of `commbench init` found."""

    runs: Sequence[Run]

    @cached_property
    def rows(self) -> list[ResultRow]:
        """The rows of all runs."""
        return [row for run in self.runs for row in make_rows(run)]

    @property
    def headers(self) -> list[RunHeader]:
        """The headers of the runs."""
        return [run.header for run in self.runs]

    @property
    def joined(self) -> list[Joining]:
        """How the ranks of each run joined."""
        return [(header.plan, header.start_up) for header in self.headers if header.start_up]

    @property
    def calls(self) -> list[Calls]:
        """The times of the first, the second and later calls, and the memory of a group."""
        found: dict[tuple[Any, ...], dict[str, ResultRow]] = {}
        for row in self.rows:
            case = row.measurement.case
            if row.time and not case.group_ranks:
                name = case.operation + (f" over {case.group}" if case.group else "")
                groups = len(row.header.plan.groups_of(case))
                key = (name, case.ranks, row.header.plan.open_groups, groups, size_of(case))
                makes_group = case.uses_new_group and case.form == DIRECT
                found.setdefault(key, {})[FIRST if makes_group else case.form] = row
        names = list(dict.fromkeys(key[0] for key in found))
        ordered = sorted(found.items(), key=lambda item: names.index(item[0][0]))
        return [
            Calls(
                *(call, ranks, open_groups, groups, size_bytes),
                time_of(forms.get(FIRST)),
                time_of(forms.get(SECOND)),
                time_of(forms.get(DIRECT)),
                max(
                    (n for row in forms.values() if (n := row.group_bytes) is not None),
                    default=None,
                ),
            )
            for (call, ranks, open_groups, groups, size_bytes), forms in ordered
        ]

    def as_json(self) -> dict[str, Any]:
        """The runs by name, how the ranks joined, and the calls."""
        joined = [
            {"ranks": plan.world_size, "open_groups": plan.open_groups} | found._asdict()
            for plan, found in self.joined
        ]
        return {"runs": [run.name for run in self.runs], "joined": joined, "calls": self.calls}


def document(found: StartUps) -> Document:
    """How the ranks joined, a row for each run; and a row for each way to make a group, and for
    each operation, by the number of ranks and groups."""
    headers = found.headers
    sizes = dict.fromkeys(header.plan.world_size for header in headers)
    others = "".join(f"; {size} ranks" for size in list(sizes)[1:])
    missing = [
        (row.measurement.case, "" if row.time else row.measurement.reason)
        for row in found.rows
        if not row.measurement.case.group_ranks
    ]
    has_open = any(header.plan.open_groups for header in headers)
    return Document(
        f"Start-up of {headers[0].describe_ranks()}{others}",
        (),
        [
            f"{plan.world_size} ranks: init_process_group takes {format_time(joined.init_s)}, the "
            f"first operation {format_time(joined.connect_s)}."
            for plan, joined in found.joined
        ],
        [
            Table("", _shown(JOINING, has_open), found.joined),
            Table("", _shown(CALLS, has_open), found.calls),
            Items([*_notes(headers, has_open)]),
            Items(list_missing(missing), "Not measured"),
        ],
    )


def _shown(columns: Sequence[Column], has_open: bool) -> list[Column]:
    return [column for column in columns if has_open or column.heading != "open"]


def _groups_s(row: Joining) -> float | None:
    plan, joined = row
    return joined.groups_s if plan.has_groups else None


JOINING = (
    Column("ranks", lambda row: row[0].world_size, NUMBER),
    Column("open", lambda row: row[0].open_groups, NUMBER),
    Column("init_process_group,\nslowest rank", lambda row: row[1].init_s, TIME),
    Column("fastest\nrank", lambda row: row[1].init_fastest_s, TIME, 3),
    Column("groups\nof a mesh", _groups_s, TIME, 5),
    Column("first\noperation", lambda row: row[1].connect_s, TIME, 7),
)
CALLS = (
    Column("call", attrgetter("call"), TEXT, 0, is_wrapped=True),
    Column("ranks", attrgetter("ranks"), NUMBER),
    Column("open", attrgetter("open_groups"), NUMBER),
    Column("groups", attrgetter("groups"), NUMBER),
    Column("size", attrgetter("size_bytes"), BYTES),
    Column("first", attrgetter("first"), TIME),
    Column("second", attrgetter("second"), TIME),
    Column("later", attrgetter("later"), TIME),
    Column("memory", lambda row: row.group_bytes and row.group_bytes // 1024 * 1024, BYTES),
)


def _notes(headers: Sequence[RunHeader], has_open: bool) -> Iterator[str]:
    is_gpu = headers[0].plan.device != "cpu"
    where = "of the GPU" if is_gpu else "of the process"
    yield (
        "init_process_group on the slowest rank contains waiting for the rank that came last. "
        "Times of calls are medians of the slowest rank; new_group is the time of all groups of "
        "the dimension, one after another. First and second are calls on a new group, later on "
        "one in use. Memory is what the rank that needs most takes for its group, "
        f"{where}, with what a first call adds."
    )
    if has_open:
        yield "open: process groups of all ranks that were made before."
    is_lazy = any(header.environment.get("variables", {}).get(LAZY) for header in headers)
    if headers[0].plan.backend == "gloo":
        yield (
            f"{LAZY} is set: gloo connects two ranks in their first call."
            if is_lazy
            else "gloo connects all ranks of a group in new_group."
        )
    for header in headers:
        if init := describe_init(header.environment.get("nccl_log")):
            yield f"NCCL's own time of the communicator of all ranks: {init}."


VIEW = View(document, schema=1)
