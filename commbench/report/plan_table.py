"""The tables of a plan and of the operations, at most 80 columns wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from commbench.analysis.row_names import name_rows
from commbench.output.paragraphs import fill, list_some, wrapped
from commbench.output.table import BOLD, TableColumn, clean, fitting_table, style
from commbench.report.shape_text import describe_shape
from commbench.spec.case import READY, Case
from commbench.spec.dimensions import DIMENSIONS, used_plan_fields
from commbench.spec.groups import ALONE, BOTH, TOGETHER, dimensions_of_one_rank, format_group
from commbench.spec.memory_needs import count_allocations, find_oversized
from commbench.spec.pairs import BACK, EVERY_PAIR, QUICK
from commbench.spec.plan import Plan
from commbench.spec.workload import Workload, make_workload
from commbench.units import format_about, format_bytes, format_count, format_memory, format_sizes

MOST_ROWS = 60
"""A plan with more cases is printed with a row for each kind of case."""


class HostMemory(NamedTuple):
    """The memory that the ranks of one host share."""

    ranks: Collection[int]
    free_bytes: int | None
    """None where that is not known, as for GPUs, whose ranks are not started yet."""
    cores: int


def plan_text(
    plan: Plan, torchrun_line: str, is_condensed: bool = True, host: HostMemory | None = None
) -> str:
    """A plan, its cases, the bytes that each rank and this host need, and the torchrun command.

    `is_condensed` makes one row of the sizes of each kind, where there are many cases.
    """
    every = plan.cases()
    cases = merge_rounds(plan, every)
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.title, []).append(case)
    ready = [found for own in kinds.values() if (found := [c for c in own if c.status == READY])]
    if not is_condensed or len(cases) <= MOST_ROWS:
        ready = [[case] for own in ready for case in own]
    of_memory: dict[str, int] = {}
    for own in ready:
        of_memory[own[0].memory] = max(of_memory.get(own[0].memory, 0), _most_bytes(own))
    largest = sum(of_memory.values()) * _most_groups_of_a_rank(plan)
    of_steps = [case for case in cases if case.step and case.status == READY]
    largest = max([largest, *(_most_of_step(plan, case) for case in of_steps)])
    not_ready = {title: [(case.name, _why(case)) for case in own] for title, own in kinds.items()}
    what = "buffers and a computation" if any(case.overlap for case in cases) else "buffers"
    parts = (
        _facts_text(plan),
        "\n".join(fitting_table(_columns(plan), ready)) if ready else "",
        not_measured_text(list_missing(not_ready)),
        groups_text(plan),
        left_out_text(plan),
        _notes_text(plan),
        *_shapes(cases),
        fill(f"Cases: {len(every)}; a rank needs at most {format_bytes(largest)} for {what}."),
        _host_text(plan, cases, host) if host else "",
        f"The same with torchrun:\n{torchrun_line}",
    )
    return "\n\n".join(filter(None, parts))


def merge_rounds(plan: Plan, cases: Sequence[Case]) -> list[Case]:
    """The cases; of those that differ only in the round of all pairs the first, with the pairs that
    the plan names."""
    names = [text for text in plan.pairs if text in (EVERY_PAIR, QUICK)]
    listed = {text.removesuffix(BACK) for text in plan.pairs}
    found: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        named = case
        if names and case.pairs and case.pairs.removesuffix(BACK) not in listed:
            named = case._replace(pairs=names[0])
        found.setdefault((*named.key(), named.status, named.reason), named)
    return list(found.values())


def _host_text(plan: Plan, cases: Sequence[Case], host: HostMemory) -> str:
    """What all ranks of this host need together, what is free, and what does not fit."""
    kinds = count_allocations(cases)
    what = "buffers and computations" if any(case.overlap for case in cases) else "buffers"
    needed = [kinds * plan.needed_bytes(case, host.ranks) for case in cases if case.status == READY]
    ranks = format_count(len(host.ranks), "rank")
    texts = [f"On this host: {ranks}, {format_about(max(needed, default=0))} for all {what}"]
    if host.free_bytes is not None:
        texts[0] += f"; {format_memory(host.free_bytes)} free"
        too_large = find_oversized(plan, cases, "this host", host.ranks, host.free_bytes)
        if too_large:
            names = name_rows((case for case in cases if case.index in too_large), cases, 200)
            texts.append(f"These do not fit, and a run skips them: {names}")
    if plan.device == "cpu" and len(host.ranks) > host.cores:
        cores = format_count(host.cores, "core")
        texts.append(f"{ranks} share {cores}: the times will show the scheduler")
    return "\n".join(fill(f"{text}.", rest="  ") for text in texts)


def _shapes(cases: Sequence[Case]) -> Iterator[str]:
    """A line for each kind of case that is not one call of all ranks."""
    largest = {case.title: case for case in cases if case.status == READY}
    found = {title: " ".join(describe_shape(case)) for title, case in largest.items()}
    lines = [f"{title}: {text}" for title, text in found.items() if text]
    if lines:
        yield "\n".join(fill(line, "", "  ") for line in lines)


MOST_GROUPS = 4
"""Groups of a dimension that are named."""


def _notes_text(plan: Plan) -> str:
    """What is unknown of the workload, and how it differs from its file; empty if nothing is."""
    texts = [fill(clean(note), "  ", "    ") for note in plan.workload.get("notes", ())]
    return "\n".join([style("Notes on the workload:", BOLD), *texts]) if texts else ""


def groups_text(plan: Plan) -> str:
    """How many groups of how many ranks each dimension has, and which of them call at once; empty
    for all ranks as one group."""
    how = {
        TOGETHER: "all at once", ALONE: "one at a time", BOTH: "all at once, then one at a time",
    }[plan.concurrency]  # fmt: skip
    lines = []
    for name, groups in plan.group_sets:
        if name:
            sizes = sorted({len(group) for group in groups})
            ranks = list_some(list(map(str, sizes)), 4) + (" rank" if sizes == [1] else " ranks")
            named = [format_group(group) for group in groups[:MOST_GROUPS]]
            more = "; ..." if len(groups) > MOST_GROUPS else ""
            number = format_count(len(groups), "group")
            calls = how if len(groups) > 1 and sizes != [1] else ""
            lines.append(
                f"{name}: {number} of {ranks}{', ' if calls else ''}{calls} "
                f"({'; '.join(named)}{more})"
            )
    texts = [fill(line, "  ", "    ") for line in lines]
    return "\n".join([style("Groups:", BOLD), *texts]) if texts else ""


def left_out_text(plan: Plan) -> str:
    """The dimensions and groups that are not measured, since they have one rank, and the ranks in
    no group; empty where there are none."""
    texts = []
    if names := dimensions_of_one_rank(plan.layout, plan.world_size):
        texts.append(_of_one_rank("dimension", list(names)))
    for name, groups in plan.group_sets:
        if not name:
            continue
        single = [format_group(group) for group in groups if len(group) == 1]
        if single and len(single) < len(groups):
            texts.append(_of_one_rank("group", single))
        idle = sorted({*range(plan.world_size)} - {rank for group in groups for rank in group})
        if idle:
            named = list_some(list(map(str, idle)), MOST_GROUPS)
            verb = "ranks {} are" if len(idle) > 1 else "rank {} is"
            texts.append(f"{verb.format(named)} in no group")
    text = "; ".join(texts)
    return fill(f"{text[0].upper()}{text[1:]}.", rest="  ") if text else ""


def _of_one_rank(what: str, names: list[str]) -> str:
    named = list_some(names, MOST_GROUPS)
    if len(names) > 1:
        return f"{what}s {named} have one rank each and are not measured"
    return f"{what} {named} has one rank and is not measured"


def _most_groups_of_a_rank(plan: Plan) -> int:
    """In how many groups of a dimension one rank is, at most: more than one where they overlap."""
    counts = (
        Counter(rank for group in found.groups for rank in group) for found in plan.group_sets
    )
    return max(max(count.values()) for count in counts)


def _facts_text(plan: Plan) -> str:
    """The fields of the plan that are set, but the sizes: a line for each."""
    of_cases = {d.plan_field for d in DIMENSIONS}
    unused = of_cases - used_plan_fields(plan)
    if plan.workload:  # it has the cases
        unused = of_cases - {"workload", "variants"} | {"rounding"}
    if not plan.open_groups:
        unused.add("open_groups")
    facts = {
        field_name(name): field_text(name, value)
        for name, value in plan.as_json().items()
        if name not in ("sizes", "matrix", *unused) and value not in (None, "", [], {})
    }
    margin = max(map(len, facts)) + 2
    return "\n".join(wrapped(str(value), name, margin) for name, value in facts.items())


def field_name(name: str) -> str:
    """What a field of a plan is called in a table: `reduce ops`, `timeout`."""
    return name.removesuffix("_s").replace("_", " ")


def field_text(name: str, value: Any) -> str:
    """The value of a field of a plan: `0.2 s`, `5 %`, `yes`; of a workload its name and steps."""
    if isinstance(value, dict):
        return _workload_text(make_workload(value)) if value else "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):  # a workload
        return str(value.get("name", ""))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "precision":
        return f"{100 * value:g} %"
    return f"{value:g} s" if name.endswith("_s") else str(value)


def _workload_text(workload: Workload) -> str:
    """A workload in a few words: `llama, step train (12 calls of rank 0)`."""
    steps = [
        f"step {step.name} ({format_count(len(step.programs[0].calls), 'call')} of rank "
        f"{step.programs[0].ranks[0]})"
        for step in workload.steps
    ]
    return clean(f"{workload.name}: {list_some(steps, 4)}")


def not_measured_text(lines: Sequence[str]) -> str:
    """The lines of list_missing under a heading; empty if there are none."""
    texts = [fill(line, "  ", "    ") for line in lines]
    return "\n".join([style("Not measured:", BOLD), *texts]) if texts else ""


def list_missing(kinds: dict[str, list[tuple[str, str]]]) -> list[str]:
    """A line for each reason why cases are not measured. For each kind, by its title, `kinds` has
    the name of each case and why it is not measured, which is empty if it is."""
    reasons: dict[str, list[str]] = {}
    for title, cases in kinds.items():
        whys = {why for _, why in cases}
        for name, why in cases:
            if why:
                names = reasons.setdefault(why, [])
                names.append(title if len(whys) == 1 else name)
    return [f"{list_some(list(dict.fromkeys(names)), 4)}: {why}" for why, names in reasons.items()]


def _why(case: Case) -> str:
    return "" if case.status == READY else f"{case.status}: {case.reason}"


def _sizes(cases: Sequence[Case]) -> str:
    """The sizes of cases of one kind: `1 KiB`, or from the smallest to the largest."""
    if not cases[0].dtype:
        return ""
    if len(cases) == 1:
        return format_bytes(cases[0].size_bytes)
    sizes = format_sizes(tuple(case.size_bytes for case in cases))
    if "," not in sizes:
        return sizes
    ends = (case.size_bytes for case in (cases[0], cases[-1]))
    return " to ".join(format_bytes(size) for size in ends)


def _needed_bytes(case: Case) -> list[int]:
    """Bytes of buffers on the root and on another rank."""
    ranks = {case.root or 0, case.ranks - 1, 0}
    if case.imbalance:
        ranks = set(range(case.ranks))
    return [case.needed_bytes(rank) for rank in ranks]


def _most_bytes(cases: Sequence[Case]) -> int:
    return max(max(_needed_bytes(case)) for case in cases)


def _others_bytes(cases: Sequence[Case]) -> str:
    if cases[0].root is None:
        return ""
    least = max(min(_needed_bytes(case)) for case in cases)
    return format_bytes(least) if least < _most_bytes(cases) else ""


def _most_of_step(plan: Plan, case: Case) -> int:
    """Bytes of buffers of the rank that needs most for a step of a workload."""
    programs = make_workload(plan.workload).steps
    firsts = {p.ranks[0] for step in programs if step.name == case.step for p in step.programs}
    return max(plan.needed_bytes(case, (rank,)) for rank in firsts)


def _columns(plan: Plan) -> tuple[TableColumn, ...]:
    def bytes_per_rank(cases: Sequence[Case]) -> str:
        is_step = bool(cases[0].step)
        return format_bytes(_most_of_step(plan, cases[0]) if is_step else _most_bytes(cases))

    return (
        TableColumn("case", lambda cases: cases[0].title, 8, is_left=True, is_wrapped=True),
        TableColumn("size", _sizes, 9),
        TableColumn("count", lambda c: str(c[0].count) if c[0].dtype and len(c) == 1 else "", 1),
        TableColumn("bytes\nper rank", bytes_per_rank, 9),
        TableColumn("not at\nthe root", _others_bytes, 2),
    )
