"""What a document says of a replay: how long the step takes, how the network here is against that
of the trace, which variant saves time, what takes most; tables and pictures of the operations and
of the whole step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from commbench import units
from commbench.answers.replay.replay import ReplayResult, StepReplay, VariantReplay, analyse_replay
from commbench.plan.operations import REPLAY
from commbench.plan.plan import Plan
from commbench.plan.replay import replayed_workload
from commbench.plan.workload import Step, Workload
from commbench.plan.workload_fit import was_shrunk
from commbench.plan.workload_variants import BUCKET, CALLS, GAPS
from commbench.results.schema import Run
from commbench.stats import Estimate
from commbench.views import cells
from commbench.views.cells import Column, Unit
from commbench.views.document import Block, Document, Facts, Folded, Items, Pictures, Section, Table
from commbench.views.formats import View
from commbench.views.pictures import COLOURS, Bar, BarRow, Bars, Look, Picture
from commbench.workloads.document import FIGURES
from commbench.workloads.trace import known_sum

WHOLE = {CALLS: "all calls without gaps", GAPS: "all calls with gaps"}


def name_variant(variant: str) -> str:
    """A variant in words: `buckets of 50 MiB`."""
    name, _, size = variant.partition(":")
    if name == BUCKET:
        return f"buckets of {units.format_bytes(units.parse_size(size))}" if size else "buckets"
    return WHOLE.get(variant, variant.replace("+", " + "))


def document(result: ReplayResult) -> Document:
    """The whole answer."""
    title, drawn = f"Replay of {result.run.name}", Pictures(lambda: replay_pictures([result.run]))
    if not result:
        return Document(title, (), [f"{result.run.name} replays no workload."], ())
    return Document(title, (), replay_answer(result), [drawn, *replay_sections(result)])


def replay_facts(result: ReplayResult) -> dict[str, Any]:
    """What JSON has of it."""
    if not result:
        return {"steps": []}
    workload = replayed_workload(result.run.header.plan)
    facts = {name: getattr(workload, name) for name in ("world_size", "notes")}
    verdict = replay_answer(result)
    return facts | {"workload": workload.name, "steps": [*result], "verdict": verdict}


VIEW = View(document, schema=1, data=replay_facts)


def replay_answer(result: ReplayResult) -> list[str]:
    """What is slow in each step, and what would help."""
    plan = result.run.header.plan
    return [*_other_backend(plan), *(line for found in result for line in _verdict(plan, found))]


def _other_backend(plan: Plan) -> list[str]:
    """A sentence where the trace is of another backend than the run."""
    traced = replayed_workload(plan).backend
    said = f"The trace is of {traced}, this run of {plan.backend}: not the same hardware."
    return [said] if traced and plan.backend not in traced else []


def _verdict(plan: Plan, found: StepReplay) -> list[str]:
    """First how long the step takes, then whether communication is slower here, and which variant
    saves most."""
    lines, gaps = [], found.variant(GAPS)
    if gaps and (ratio := found.step_over_trace):
        name = f" {found.step.name}" if replayed_workload(plan).steps[1:] else ""
        lines.append(f"The step{name} takes {_beside(gaps, found.step.time_s, ratio)}.")
    second = "; ".join([*_against_trace(plan, found), *_would_help(found)])
    lines += [f"{second[:1].upper()}{second[1:]}."] if second else []
    for where, field in (("in the trace", "traced.seconds"), ("here", "here_s")):
        times = [*map(attrgetter(field), found.operations)]
        if (total := known_sum(times)) and times[1:]:
            at = times.index(max(times))
            most, share = found.operations[at].traced, units.format_share(times[at] / total)
            name = f"{most.operation} over {most.group}"
            lines.append(f"{name} takes most {where}: {share} of the time.")
    if found.communication_s and found.waiting_s is not None:
        part = units.format_share(found.waiting_s / found.communication_s)
        shorter = f"the communication of the trace would be at most {part} shorter"
        lines.append(f"If no rank waited, {shorter}: see `commbench workload show TRACES`.")
    return lines


def _against_trace(plan: Plan, found: StepReplay) -> Iterator[str]:
    """The same calls here and in the trace."""
    ratio, calls = found.over_trace, found.variant(CALLS)
    if calls and not ratio:
        yield f"the calls, one after another, take {cells.time_text(calls.time_s)}"
    if not (ratio and calls):
        return
    if was_shrunk(replayed_workload(plan)):
        meaning = "the networks cannot be compared, since the trace had more ranks"
    elif _other_backend(plan):
        meaning = "the networks cannot be compared, since the backends differ"
    elif calls.has_waited:
        meaning = "the networks cannot be compared, since ranks waited for a core"
    elif (is_open := ratio.ends[0] <= 1 <= ratio.ends[1]) and ratio.is_unknown:
        meaning = "communication is too noisy to compare"
    elif is_open:
        meaning = "communication takes about as long here as in the trace"
    else:
        meaning = f"communication is {'slower' if ratio.value > 1 else 'faster'} than in the trace"
    one_by_one = f"the calls, one after another, take {_beside(calls, found.calls_only_s, ratio)}"
    yield f"{meaning}: {one_by_one}"


def _beside(here: VariantReplay, traced_s: float | None, ratio: Estimate) -> str:
    """A time here and that in the trace."""
    both = f"{cells.time_text(here.time_s)} here and {units.format_time(traced_s or 0.0)}"
    return f"{both} in the trace, {cells.ratio_with_interval_text(ratio)} times as long"


def _would_help(found: StepReplay) -> Iterator[str]:
    """Which variant saves most, or that none does."""
    others = [(each, over) for each in found.variants if (over := each.over_baseline)]
    compared = [(over, name_variant(each.variant)) for each, over in others if not each.has_waited]
    waited = any(each.has_waited for each, _ in others)
    ratio, name = min(compared, default=(None, ""))
    slower = [(r, v) for r, v in compared if r.ends[0] > 1]
    if ratio and ratio.ends[1] < 1:
        saved = cells.share_with_interval_text(ratio.map(lambda each: 1 - each))
        yield f"{name} would save most: {saved} of the step"
    elif compared or waited:
        for ratio, name in slower:
            yield f"{name} is slower: {cells.ratio_with_interval_text(ratio)} times as long"
        why = ", since ranks waited for a core" * waited
        undecided = f"it is not known whether a variant of the step is faster{why}"
        is_none = len(slower) == len(compared) and not waited
        yield "no variant of the step is faster" if is_none else undecided


MEANINGS = {
    "bytes": "The sizes S, by nccl-tests' convention; of several ranks the mean, as all figures.",
    "transfer": "In the trace: the shortest time on the ranks of the group.",
    "traced time": "In the trace, with waiting for other ranks: it does not say how long that was.",
    "waiting": "What it took longer in the trace on ranks that waited for others.",
    "replay time": "The medians here, each call measured alone.",
    "at peak": "The least time that the peak allows.",
    "trace: without computation": "Its calls one after another, as if no rank computed.",
    "trace: communication": "At least one call was under way, mean over the ranks.",
    "trace: without waiting": "The same if each call had begun when its last rank began it.",
}
"""What columns and lines mean."""
OPERATION_COLUMNS = (
    Column("group", attrgetter("traced.group"), cells.TEXT, 11),
    Column("ranks", attrgetter("traced.ranks"), cells.NUMBER, 1),
    Column("operation", attrgetter("traced.operation"), cells.TEXT, 12),
    Column("calls", lambda one: f"{one.traced.calls:g}", cells.NUMBER, 4),
    Column("bytes", lambda one: one.traced.size_bytes, Unit(units.format_about), 6),
    Column("traced\ntime", lambda one: one.traced.time_s if one.traced.transfer_s is None else None,
           cells.TIME),
    Column("transfer", attrgetter("traced.transfer_s"), cells.TIME),
    Column("waiting", attrgetter("traced.waiting_s"), cells.TIME, 7),
    Column("replay\ntime", attrgetter("replayed"), cells.TIME, 10),
    Column("95 %\ninterval", attrgetter("replayed"), cells.TIME_INTERVAL, 5),
    Column("busbw\nGB/s", attrgetter("busbw"), cells.BANDWIDTH, 3),
    Column("at\npeak", attrgetter("peak_s"), cells.TIME, 5),
)  # fmt: skip


class WholeRow(NamedTuple):
    """A line of the table of the whole step."""

    name: str
    time: Estimate
    over_step: Estimate | None = None
    """Over the step of the trace."""
    over_baseline: Estimate | None = None
    is_traced: bool = False


def whole_rows(found: StepReplay) -> Iterator[WholeRow]:
    """The step in the trace, each of its calls alone, and each variant that was measured."""
    step_s = found.step.time_s
    for name, seconds in (
        ("whole step", step_s),
        ("communication", found.communication_s),
        ("without waiting", found.transfer_s),
        ("without computation", found.calls_only_s),
    ):
        if seconds is not None:
            of_step = Estimate(seconds / step_s) if step_s and seconds != step_s else None
            yield WholeRow(f"trace: {name}", Estimate(seconds), of_step, is_traced=True)
    if found.alone:
        yield WholeRow("each call alone", found.alone)
    for each in found.variants:
        if each.time_s:
            of_step = found.step_over_trace if each.variant == GAPS else None
            yield WholeRow(name_variant(each.variant), each.time_s, of_step, each.over_baseline)


def _whole_table(found: StepReplay) -> Table:
    columns = (
        Column("", attrgetter("name"), cells.TEXT),
        Column("time", attrgetter("time"), cells.TIME),
        Column("95 %\ninterval", attrgetter("time"), cells.TIME_INTERVAL, 8),
        Column("over the step\nof the trace", attrgetter("over_step"), cells.RATIO, 6),
        Column("over all calls\n" + WHOLE[found.baseline].removeprefix("all calls "),
               attrgetter("over_baseline"), cells.RATIO_WITH_INTERVAL),
    )  # fmt: skip
    return Table("Whole step", columns, [*whole_rows(found)])


def replay_sections(result: ReplayResult) -> Iterator[Section]:
    """For each step that a run replays its tables, and what they mean."""
    workload = replayed_workload(result.run.header.plan)
    for found in result:
        blocks: list[Block] = [
            Table(f"Operations: {FIGURES}", OPERATION_COLUMNS, found.operations),
            _whole_table(found),
            Items([f"Note: {note}." for note in workload.notes]),
            Folded("What the figures mean", [Facts([*MEANINGS.items()])]),
        ]
        yield Section(f"Replay of {_step_title(workload, found.step)}", blocks)


def _step_title(workload: Workload, step: Step) -> str:
    """The workload and its step, and how often the trace has it."""
    name = f"{workload.name}, {step.name}" if workload.steps[1:] else workload.name
    count = units.format_count(step.count, "step")
    return f"{name} ({count} of {units.format_time(step.time_s)} traced)" if step.time_s else name


# The picture of a step: its operations and its variants, in the trace and here.

MOST_OPERATIONS = 20
TRACE = ("in the trace", Look(COLOURS[0], fill=1.0))
HERE = ("here", Look(COLOURS[1], fill=1.0))
WAITING = ("waiting in the trace", Look("#a9cbe6", fill=1.0))


def replay_pictures(runs: Sequence[Run]) -> list[Picture]:
    """A picture for each step that a run replays."""
    return [
        _picture(run, found, f"{REPLAY}-{number}" if number else REPLAY)
        for run in runs
        for number, found in enumerate(analyse_replay(run))
        if found.variants and any(one.replayed for one in found.operations)
    ]


def _picture(run: Run, found: StepReplay, name: str) -> Picture:
    workload = replayed_workload(run.header.plan)
    calls = []
    for one in found.operations[:MOST_OPERATIONS]:
        traced, waiting = one.traced.seconds, one.traced.waiting_s or 0.0
        bars = [] if traced is None else [Bar(Estimate(traced), TRACE, waiting, WAITING)]
        bars += [Bar(one.replayed, HERE)] if one.replayed else []
        calls.append(BarRow(f"{one.traced.operation}, {one.traced.group}", bars))
    whole = [
        BarRow(row.name, [Bar(row.time, TRACE if row.is_traced else HERE)])
        for row in whole_rows(found)
    ]
    panels = [Bars("Calls of one rank in a step", calls), Bars("Whole step", whole)]
    verdict = _verdict(run.header.plan, found)
    own = f"{run.name}: {run.header.describe_ranks()}"
    notes = [*_other_backend(run.header.plan), *verdict[:2], own]
    if (left_out := len(found.operations) - MOST_OPERATIONS) > 0:
        notes.append(f"{left_out} more operations are not drawn")
    title, shown = f"Replay of {_step_title(workload, found.step)}", [p for p in panels if p.rows]
    return Picture(name, title, " ".join(verdict), shown, notes)
