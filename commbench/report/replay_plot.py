"""The picture of a replay: what each operation of a step took in the trace and takes here, and the
whole step in its variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from commbench.analysis.replay import StepReplay, analyse_replay
from commbench.report.replay_sentences import name_variant, verdict
from commbench.report.replay_text import step_title
from commbench.report.workload_text import short_time
from commbench.results.schema import Run
from commbench.spec.operations import REPLAY
from commbench.spec.replay import replayed_workload
from commbench.stats.estimate import Estimate
from commbench.units import format_known_time, format_time
from commbench.views.pictures import COLOURS, Bar, BarRow, Bars, Look, Picture

MOST_OPERATIONS = 20
TRACE = ("in the trace", Look(COLOURS[0], fill=1.0))
HERE = ("here; line: 95 % interval", Look(COLOURS[1], fill=1.0))
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
        waiting = one.traced.waiting_s if one.traced.transfer_s is not None else 0.0
        bars = [*_traced(one.traced_s, waiting, short_time), *_here(one.replayed)]
        calls.append(BarRow(f"{one.traced.operation}, {one.traced.group}", bars))
    transfer = found.communication_s if found.transfer_s is None else found.transfer_s
    whole = [
        BarRow("trace: whole step", _traced(found.step.time_s or None)),
        BarRow("trace: communication", _traced(transfer or None, found.waiting_s)),
        *(BarRow(name_variant(v.variant), _here(v.time)) for v in found.variants),
    ]
    panels = [
        Bars("Calls of one rank in a step", calls),
        Bars("Whole step", [row for row in whole if row.bars]),
    ]
    left_out = len(found.operations) - MOST_OPERATIONS
    return Picture(
        name,
        f"Replay of {step_title(workload, found)}",
        " ".join(verdict(workload, found)),
        [panel for panel in panels if panel.rows],
        [
            f"{run.name}: {run.header.describe_ranks()}",
            *([f"{left_out} more operations are not drawn"] if left_out > 0 else []),
        ],
    )


def _traced(
    seconds: float | None, waiting: float | None = 0.0, show: Callable[[float], str] = format_time
) -> list[Bar]:
    """The bar of a time in the trace, of two parts where ranks waited; `show` as in the table."""
    if seconds is None:
        return []
    text = " + ".join(map(show, [seconds, *([waiting] if waiting else [])]))
    return [Bar(Estimate(seconds), text, TRACE, waiting or 0.0, WAITING)]


def _here(time: Estimate | None) -> list[Bar]:
    return [Bar(time, format_known_time(*time)[0], HERE)] if time else []
