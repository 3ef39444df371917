"""What a document of `commbench init` says: how long ranks and process groups take to start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.diagnostics import waited_answer
from commbench.analysis.nccl_log import describe_init
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.show.formats import texts
from commbench.answers.show.plan import list_missing
from commbench.answers.show.rows import size_of, time_of
from commbench.answers.show.run_notes import find_warnings, typed_name, warnings_section
from commbench.answers.show.shapes import find_shapes, shapes_sentence
from commbench.plan.call_forms import DIRECT
from commbench.plan.plan import Plan
from commbench.results.records import StartUp
from commbench.results.schema import Run, RunHeader
from commbench.stats import UNDECIDED, Estimate
from commbench.units import format_count, format_time
from commbench.views.cells import BYTES, NUMBER, TEXT, TIME, TIME_INTERVAL, Column
from commbench.views.document import Document, Items, Table
from commbench.views.formats import View

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
    first: Estimate | None = None
    """Seconds of the first call on a new group."""
    second: Estimate | None = None
    later: Estimate | None = None
    group_bytes: int | None = None
    """The memory of a group on the rank that needs most."""


FIELDS = {DIRECT: "later", "first": "first", "second": "second"}
"""The field of Calls that has the time of a form of a call."""


@dataclass(frozen=True)
class StartUps:
    """What runs of `commbench init` found."""

    runs: Sequence[Run]

    @cached_property
    def rows(self) -> list[ResultRow]:
        """The rows of all runs."""
        return [row for run in self.runs for row in make_rows(run)]

    @property
    def joined(self) -> list[Joining]:
        """How the ranks of each run joined."""
        headers = (run.header for run in self.runs)
        return [(header.plan, header.start_up) for header in headers if header.start_up]

    @cached_property
    def calls(self) -> list[Calls]:
        """The times of the first, the second and later calls, and the memory of a group."""
        found: dict[Calls, Calls] = {}
        for row in self.rows:
            if row.time and not row.case.group_ranks:
                name = row.case.operation + (f" over {row.case.group}" if row.case.group else "")
                plan = row.header.plan
                groups = len(plan.groups_of(row.case))
                key = Calls(name, row.case.ranks, plan.open_groups, groups, size_of(row.case))
                makes_group = row.case.uses_new_group and row.case.form == DIRECT
                field = "first" if makes_group else FIELDS[row.case.form]
                known = found.get(key, key)
                memory = [n for n in (known.group_bytes, row.group_bytes) if n is not None]
                times: dict[str, Any] = {field: time_of(row)}
                found[key] = known._replace(**times, group_bytes=max(memory, default=None))
        names = [*dict.fromkeys(each.call for each in found)]
        return sorted(found.values(), key=lambda each: names.index(each.call))

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
    headers = [run.header for run in found.runs]
    sizes = dict.fromkeys(header.plan.world_size for header in headers)
    others = "".join(f"; {size} ranks" for size in list(sizes)[1:])
    every = [one for run in found.runs for one in run.measurements if not one.case.group_ranks]
    missing = [(one.case, "" if one.batches else one.reason) for one in every]
    has_open = any(header.plan.open_groups for header in headers)
    joining = [column for column in JOINING if has_open or column.heading != "open"]
    alike = [c for c in CALLS[1:4] if len({c.of(each) for each in found.calls}) == 1]
    answer = waited_answer(found.rows)
    for plan, joined in found.joined:
        ranks = format_count(plan.world_size, "rank")
        beside = f" beside {plan.open_groups} open groups" * has_open
        took = f"init_process_group takes {format_time(joined.init_s)}, the first operation "
        took += f"{format_time(joined.connect_s)}; both measured once."
        answer.append(f"{ranks}{beside}: {took}")
    shapes = find_shapes(make_rows(found.runs[-1]))
    ranks = format_count(headers[-1].plan.world_size, "rank")
    surest = f" The ratio is surely larger for no other call of {ranks}."
    if shapes and shapes[-1].verdict == UNDECIDED:
        surest = f" The other calls of {ranks} are undecided, too."
    several = len(found.calls) > 2 and bool(shapes)
    answer.append(shapes_sentence(headers[-1], shapes) + surest * several)
    hint = f"`commbench show {typed_name(found.runs[-1])} --warnings` prints them"
    blocks = [
        Table("", joining, found.joined),
        Table("", [column for column in CALLS if column not in alike], found.calls),
        Items([*_notes(headers)]),
        Items(list_missing(missing), "Not measured"),
        warnings_section([("", each) for each in find_warnings(found.rows)], hint=hint),
    ]
    return Document(f"Start-up of {headers[0].describe_ranks()}{others}", (), answer, blocks)


JOINING = (
    Column("ranks", lambda row: row[0].world_size, NUMBER),
    Column("open", lambda row: row[0].open_groups, NUMBER),
    Column("init_process_group,\nslowest rank", lambda row: row[1].init_s, TIME),
    Column("fastest\nrank", lambda row: row[1].init_fastest_s, TIME, 3),
    Column(
        "groups\nof a mesh", lambda row: row[1].groups_s if row[0].has_groups else None,
        TIME, 5,
    ),
    Column("first\noperation", lambda row: row[1].connect_s, TIME, 7),
    Column("rendezvous", lambda row: row[1].rendezvous_s, TIME, 2),
    Column("agree-\nment", lambda row: row[1].agreement_s, TIME, 4),
)  # fmt: skip
CALLS = (
    Column("call", attrgetter("call"), TEXT, 0, is_wrapped=True),
    Column("ranks", attrgetter("ranks"), NUMBER),
    Column("open", attrgetter("open_groups"), NUMBER),
    Column("groups", attrgetter("groups"), NUMBER),
    Column("size", attrgetter("size_bytes"), BYTES),
    Column("first", attrgetter("first"), TIME),
    Column("second", attrgetter("second"), TIME, -1),
    Column("later", attrgetter("later"), TIME),
    Column("95 %\nof first", attrgetter("first"), TIME_INTERVAL),
    Column("95 %\nof second", attrgetter("second"), TIME_INTERVAL, -3),
    Column("95 %\nof later", attrgetter("later"), TIME_INTERVAL, -2),
    Column("memory", lambda row: row.group_bytes and row.group_bytes // 1024 * 1024, BYTES),
)


def _notes(headers: Sequence[RunHeader]) -> Iterator[str]:
    plan = headers[0].plan
    where = "of the process" if plan.device == "cpu" else "of the GPU"
    yield from (text.format(where) for text in texts("start"))
    if any(header.plan.open_groups for header in headers):
        yield from texts("open")
    if plan.backend == "gloo":
        is_lazy = any(header.environment.get("variables", {}).get(LAZY) for header in headers)
        lazy = f"{LAZY} is set: gloo connects two ranks in their first call."
        yield lazy if is_lazy else "gloo connects all ranks of a group in new_group."
    for header in headers:
        if init := describe_init(header.environment.get("nccl_log")):
            yield f"NCCL's own time of the communicator of all ranks: {init}."


VIEW = View(document, schema=1)
