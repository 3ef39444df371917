"""What a document of a replay says: tables of the operations of each step, and of the whole step in
the trace and in its variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from commbench.analysis.replay import StepReplay
from commbench.report.replay_sentences import (
    WHOLE,
    missing_variants,
    name_variant,
    verdict,
)
from commbench.results.schema import Run
from commbench.spec.replay import replayed_workload
from commbench.spec.workload import Workload
from commbench.spec.workload_variants import GAPS
from commbench.stats.estimate import Estimate
from commbench.units import format_about, format_count, format_time
from commbench.views.cells import (
    BANDWIDTH,
    NUMBER,
    RATIO,
    RATIO_INTERVAL,
    TEXT,
    TIME,
    TIME_INTERVAL,
    Column,
    Unit,
)
from commbench.views.document import Block, Facts, Folded, Items, Section, Table

FIGURES = "sums over the calls of one step of one rank"
MEANINGS = {
    "bytes": "The sizes S, by nccl-tests' convention; of several ranks the mean, as all figures.",
    "traced time": "In the trace; without waiting for other ranks, where the trace says how long "
    "that was.",
    "waiting": "What it took longer in the trace on ranks that waited for others.",
    "replay time": "The medians here, each call measured alone.",
    "at peak": "The least time that the peak allows.",
    "trace: without computation": "Its calls one after another, as if no rank computed.",
    "trace: waiting": "How much shorter the step would be without waiting, at most.",
}
"""What columns and lines mean."""
OPERATION_COLUMNS = (
    Column("group", attrgetter("traced.group"), TEXT, 11),
    Column("ranks", attrgetter("traced.ranks"), NUMBER, 1),
    Column("operation", attrgetter("traced.operation"), TEXT, 12),
    Column("calls", lambda one: f"{one.traced.calls:g}", NUMBER, 4),
    Column("bytes", lambda one: one.traced.size_bytes, Unit(format_about), 6),
    Column("traced\ntime", attrgetter("traced_s"), TIME),
    Column("waiting", attrgetter("traced.waiting_s"), TIME, 7),
    Column("replay\ntime", attrgetter("replayed"), TIME, 10),
    Column("95 %\ninterval", attrgetter("replayed"), TIME_INTERVAL, 5),
    Column("busbw\nGB/s", attrgetter("busbw"), BANDWIDTH, 3),
    Column("at\npeak", attrgetter("peak_s"), TIME, 5),
)


class WholeRow(NamedTuple):
    """A line of the table of the whole step."""

    name: str
    time: Estimate
    over_step: Estimate | None = None
    """Over the step of the trace."""
    over_baseline: Estimate | None = None


def whole_rows(found: StepReplay) -> Iterator[WholeRow]:
    """The step in the trace, and in each variant that was measured."""
    step_s = found.step.time_s
    for name, seconds in (
        ("whole step", step_s),
        ("communication", found.communication_s),
        ("without waiting", found.transfer_s),
        ("waiting", found.waiting_s),
        ("without computation", found.calls_only_s),
    ):
        if seconds is not None:
            of_step = Estimate(seconds / step_s) if step_s and seconds != step_s else None
            yield WholeRow(f"trace: {name}", Estimate(seconds), of_step)
    for each in found.variants:
        if each.time:
            of_step = found.step_over_trace if each.variant == GAPS else None
            yield WholeRow(name_variant(each.variant), each.time, of_step, each.ratio)


def _whole_table(found: StepReplay) -> Table:
    columns = (
        Column("", attrgetter("name"), TEXT),
        Column("time", attrgetter("time"), TIME),
        Column("95 %\ninterval", attrgetter("time"), TIME_INTERVAL, 7),
        Column("over the step\nof the trace", attrgetter("over_step"), RATIO, 6),
        Column("over all calls\n" + WHOLE[found.baseline].removeprefix("all calls "),
               attrgetter("over_baseline"), RATIO, 8),
        Column("95 % ", attrgetter("over_baseline"), RATIO_INTERVAL, 7),
    )  # fmt: skip
    return Table("Whole step", columns, [*whole_rows(found)])


def replay_sections(run: Run, steps: Sequence[StepReplay]) -> Iterator[Section]:
    """For each step that a run replays its tables, and what they mean."""
    for found in steps:
        workload = replayed_workload(run.header.plan)
        notes = [*missing_variants(found), *(f"Note: {note}." for note in workload.notes)]
        blocks: list[Block] = [
            Table(f"Operations: {FIGURES}", OPERATION_COLUMNS, found.operations),
            _whole_table(found),
            Items(notes),
            Folded("What the figures mean", [Facts([*MEANINGS.items()])]),
        ]
        yield Section(f"Replay of {step_title(workload, found)}", blocks)


def replay_answer(run: Run, steps: Sequence[StepReplay]) -> list[str]:
    """What is slow in each step, and what would help."""
    return [line for found in steps for line in verdict(replayed_workload(run.header.plan), found)]


def step_title(workload: Workload, found: StepReplay) -> str:
    """The workload and its step, and how often the trace has it."""
    step = found.step
    parts = [workload.name, *([] if step.name == workload.name else [step.name])]
    if step.time_s is not None:
        parts.append(
            f"{format_count(step.count, 'step')} of {format_time(step.time_s)} in its trace"
        )
    return "; ".join(parts)
