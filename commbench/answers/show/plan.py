"""What a document of a plan says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from commbench.analysis.row_names import name_rows
from commbench.output.text import about, list_some, span
from commbench.plan.case import READY, Case
from commbench.plan.cases import count_allocations, find_oversized
from commbench.plan.dimensions import DIMENSIONS, used_plan_fields
from commbench.plan.groups import ALONE, BOTH, TOGETHER, format_group, parse_mesh
from commbench.plan.operations import OPERATIONS
from commbench.plan.pairs import BACK, EVERY_PAIR, QUICK, count_pairs, count_rounds
from commbench.plan.plan import Plan
from commbench.plan.workload import Workload, make_workload
from commbench.stats import collect
from commbench.units import format_about, format_bytes, format_count, format_time
from commbench.views.cells import NUMBER, TEXT, Column, Unit
from commbench.views.document import Block, Code, Document, Facts, Items, Table

MOST_ROWS = 60
"""A plan with more cases is printed with a row for each kind of case."""


class HostMemory(NamedTuple):
    """The memory that the ranks of one host share."""

    ranks: Collection[int]
    free_bytes: int | None
    """None where that is not known, as for GPUs, whose ranks are not started yet."""
    cores: int


def plan_document(
    plan: Plan, torchrun_line: str, host: HostMemory | None = None, title: str = "Plan",
    runs: int = 1,
) -> Document:  # fmt: skip
    """A plan, its cases, the bytes that each rank and this host need, and the torchrun command. It
    may be that of several `runs`."""
    every = plan.cases()
    cases = merge_rounds(plan, every)
    kinds = collect((case.title, case) for case in cases if case.status == READY)
    largest = _largest_bytes(plan, kinds.values())
    groups = [found for found in plan.group_sets if found.name]
    what = "buffers and a computation" if any(case.overlap for case in cases) else "buffers"
    # A line for each kind of case that is not one call of all ranks.
    missing = [(c, "" if c.status == READY else f"{c.status}: {c.reason}") for c in cases]
    texts = {title: " ".join(describe_shape(own[-1])) for title, own in kinds.items()}
    needs = f"; a rank needs at most {format_about(largest)} for {what}" * (largest > 0)
    answer = [f"Cases: {len(every)}{needs}."]
    ready = [case for case in every if case.status == READY]
    too_large = _oversized(plan, every, host)
    answer += _duration(plan, [case for case in ready if case.index not in too_large], runs)
    answer += _host_texts(plan, cases, host, too_large) if host else ()
    blocks: list[Block] = [
        Facts(plan_facts(plan)),
        *_case_tables(plan, list(kinds.values())),
        Items(list_missing(missing), "Not measured"),
        Table(f"Groups, which call {HOW[plan.concurrency]}", GROUP_COLUMNS, groups),
        Items(left_out(plan)),
        Items(list(plan.workload.get("notes", ())), "Notes on the workload"),
        Items([f"{title}: {text}" for title, text in texts.items() if text]),
        Code("The same with torchrun:", torchrun_line),
    ]
    return Document(title, (), answer, blocks)


def _case_tables(plan: Plan, kinds: list[list[Case]]) -> Iterator[Table]:
    """A row for each case; of many cases a terminal shows a row for each kind."""
    columns = (
        Column("case", lambda cases: cases[0].title, TEXT, 8, is_wrapped=True),
        Column("size", _sizes, NUMBER),
        Column("count", lambda c: c[0].count if c[0].dtype and len(c) == 1 else None, NUMBER, 1),
        Column("bytes\nper rank", lambda c: _most_bytes(plan, c) or None, Unit(format_about)),
    )
    single = [[case] for own in kinds for case in own]
    if len(single) > MOST_ROWS > len(kinds):
        yield Table("Kinds of cases", columns, kinds)
        yield Table("Cases", columns, single, brief=())
    else:
        yield Table("", columns, single)


def merge_rounds(plan: Plan, cases: Sequence[Case]) -> list[Case]:
    """The cases; of those that differ only in the round of all pairs the first, with the pairs that
    the plan names."""
    names = [text for text in plan.pairs if text in (EVERY_PAIR, QUICK)]
    listed = {text.removesuffix(BACK) for text in plan.pairs}
    found: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        is_of_round = names and case.pairs and case.pairs.removesuffix(BACK) not in listed
        named = case._replace(pairs=names[0]) if is_of_round else case
        found.setdefault((*named.key(), named.status, named.reason), named)
    return list(found.values())


RANK_BYTES = 12 << 20
"""Memory of a process on CPUs besides buffers that it does not share; measured with torch 2.13."""
SLOWEST_CALLS = 6
"""Of calls so slow that fewer fill the budget, some are measured beyond it."""


def _duration(plan: Plan, cases: Sequence[Case], runs: int) -> Iterator[str]:
    """How long a run with a budget measures: the budget of each case, in all launches together;
    and so many runs."""
    if plan.iterations is not None or plan.is_soak or not cases:
        return
    timing = about(len(cases) * plan.budget_s)
    slow = format_time(plan.budget_s / SLOWEST_CALLS)
    start = format_count(plan.launches, "start")
    yield (
        f"Timing takes {timing}, longer where calls take over {slow} or the host is busy. "
        f"Checks and {start} of all ranks take some seconds more."
    )
    if runs > 1:
        timing = about(runs * len(cases) * plan.budget_s)
        yield f"All {runs} runs take {timing} of timing, and {runs * plan.launches} starts."


def _oversized(plan: Plan, cases: Sequence[Case], host: HostMemory | None) -> Collection[int]:
    """The indices of the cases that do not fit into what is free on this host."""
    if host is None or host.free_bytes is None:
        return ()
    return find_oversized(plan, cases, "this host", host.ranks, host.free_bytes)


def _host_texts(
    plan: Plan, cases: Sequence[Case], host: HostMemory, too_large: Collection[int]
) -> Iterator[str]:
    """What all ranks of this host need together, what is free, and what does not fit."""
    kinds = count_allocations(cases)
    what = "buffers and computations" if any(case.overlap for case in cases) else "buffers"
    needed = [kinds * plan.needed_bytes(case, host.ranks) for case in cases if case.status == READY]
    ranks = format_count(len(host.ranks), "rank")
    free = "" if host.free_bytes is None else f"; {format_about(host.free_bytes)} free"
    yield f"On this host: {ranks}, {format_about(max(needed, default=0))} for all {what}{free}."
    if too_large:
        names = name_rows([case for case in cases if case.index in too_large], cases, 200)
        yield f"These do not fit, and a run skips them: {names}."
    if plan.device == "cpu" and len(host.ranks) > host.cores:
        cores = format_count(host.cores, "core")
        own, every = map(format_about, (RANK_BYTES, len(host.ranks) * RANK_BYTES))
        yield f"{ranks} share {cores}: the times will show the scheduler, and all takes longer."
        yield f"Each rank is a process: {own} or more besides buffers, {every} for all."


MOST_GROUPS = 4
"""Groups of a dimension that are named."""
HOW = {TOGETHER: "all at once", ALONE: "one at a time", BOTH: "all at once, then one at a time"}
GROUP_COLUMNS = (
    Column("groups", lambda found: found.name, TEXT),
    Column("number", lambda found: len(found.groups), NUMBER),
    Column("ranks", lambda found: ", ".join(map(str, sorted({*map(len, found.groups)}))), NUMBER),
    Column("which", lambda found: list_some([*map(format_group, found.groups)], MOST_GROUPS), TEXT,
           is_wrapped=True),
)  # fmt: skip


def left_out(plan: Plan) -> list[str]:
    """What is not measured because it has one rank, and the ranks in no group."""
    sizes = parse_mesh(plan.mesh) if plan.mesh and not plan.over else {}
    measured = {name for name, _ in plan.group_sets}
    single = [f"dimension {name}" for name in sizes if name not in measured]
    idle: list[str] = []
    for name, groups in plan.group_sets:
        if name:
            alone = [f"group {format_group(group)}" for group in groups if len(group) == 1]
            single += alone if len(alone) < len(groups) else []
            idle += map(str, sorted({*range(plan.world_size)}.difference(*groups)))
    found = {"Of one rank, so not measured": single, "Ranks in no group": idle}
    return [f"{what}: {list_some(named, MOST_GROUPS)}." for what, named in found.items() if named]


def _largest_bytes(plan: Plan, kinds: Collection[Sequence[Case]]) -> int:
    """Bytes of buffers of the rank that needs most: for the largest cases of each kind of memory,
    in each of its groups of a dimension (several where groups overlap), or for a step."""
    calls = [own for own in kinds if not own[0].step]
    of_memory = collect((own[0].memory, _most_bytes(plan, own)) for own in calls)
    ranks = (Counter(chain(*found.groups)) for found in plan.group_sets)
    groups = max(max(count.values()) for count in ranks)
    steps = [_most_bytes(plan, [case]) for own in kinds for case in own if case.step]
    return max([sum(map(max, of_memory.values())) * groups, *steps])


def plan_facts(plan: Plan) -> list[tuple[str, str]]:
    """The fields of the plan that are set, but the sizes, by names such as `reduce ops`."""
    of_cases = {d.plan_field for d in DIMENSIONS}
    unused = of_cases - used_plan_fields(plan)
    if plan.workload:  # it has the cases
        unused = of_cases - {"workload", "variants"} | {"rounding"}
    if not plan.open_groups:
        unused.add("open_groups")
    return [
        (name.removesuffix("_s").replace("_", " "), _field_text(name, value))
        for name, value in plan.as_json().items()
        if name not in ("sizes", "matrix", "own_calls", *unused) and value not in (None, "", [], {})
    ]


def _field_text(name: str, value: Any) -> str:
    """The value of a field of a plan: `0.2 s`, `5 %`, `yes`; of a workload its name and steps."""
    if isinstance(value, dict):
        return _workload_text(make_workload(value))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "precision":
        return f"{100 * value:g} %"
    return f"{value:g} s" if name.endswith("_s") else str(value)


def _workload_text(workload: Workload) -> str:
    """A workload in a few words: `llama: step train (12 calls of rank 0)`."""
    steps = []
    for step in workload.steps:
        first, name = step.programs[0], "step " * (not step.name.startswith("step")) + step.name
        calls = format_count(len(first.calls), "call")
        steps.append(f"{name} ({calls} of rank {first.ranks[0]})")
    return f"{workload.name}: {list_some(steps, 4)}"


def list_missing(cases: Sequence[tuple[Case, str]]) -> list[str]:
    """A line for each reason why cases are not measured; the reason of one that is measured is
    empty."""
    kinds = collect((case.title, why) for case, why in cases)
    is_same = {title: len({*reasons}) == 1 for title, reasons in kinds.items()}
    named = ((why, case.title if is_same[case.title] else case.name) for case, why in cases if why)
    reasons = collect(dict.fromkeys(named))
    return [f"{list_some(names, 4)}: {why}" for why, names in reasons.items()]


def _sizes(cases: Sequence[Case]) -> str:
    """The sizes of cases of one kind: `1 KiB`, or from the smallest to the largest."""
    return span(format_bytes, [case.size_bytes for case in cases]) if cases[0].dtype else ""


def _most_bytes(plan: Plan, cases: Sequence[Case]) -> int:
    """Bytes of buffers of the rank that needs most for a case of this kind."""
    if not (name := cases[0].step):
        # Ranks that are not the root need alike, unless blocks are unequal.
        ranks = {c: range(c.ranks) if c.imbalance else (c.root or 0, c.ranks - 1) for c in cases}
        return max(case.needed_bytes(rank) for case, own in ranks.items() for rank in own)
    programs = make_workload(plan.workload).steps
    firsts = {p.ranks[0] for step in programs if step.name == name for p in step.programs}
    return max(plan.needed_bytes(cases[0], (rank,)) for rank in firsts)


def describe_shape(case: Case) -> Iterator[str]:
    """Sentences about what its time is of, its pairs, and the load of its ranks."""
    operation = OPERATIONS[case.operation]
    if operation.part != "call":
        window = f" of {case.window}" if operation.has_window and case.window else ""
        yield f"Time is that of {operation.part}{window}."
    if operation.is_paired:
        pairs = count_pairs(case.pairs, case.ranks)
        idle = case.ranks - 2 * pairs
        without = f"; {format_count(idle, 'rank')} without a pair" if idle else ""
        of = {EVERY_PAIR: ", in", QUICK: ", some of"}.get(case.pairs, "")
        named = case.pairs + (of and f"{of} {format_count(count_rounds(case.ranks), 'round')}")
        yield f"{format_count(pairs, 'pair')} at once ({named}){without}."
    if (load := case.load) and load.is_unequal:
        verb, most = load.busiest
        yield (
            f"The busiest rank {verb} {most:.2f} times the mean; "
            f"{load.worst_link:.2f} S crosses its link."
        )
