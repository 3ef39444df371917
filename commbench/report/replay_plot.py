"""The picture of a replay: what each operation of a step took in the trace and takes here, and the
whole step in its variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.replay import StepReplay, analyse_replay
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import COLOURS, INK, Grid, Head, Picture, plain
from commbench.report.replay_sentences import name_variant, verdict
from commbench.report.replay_text import step_title
from commbench.report.workload_text import short_time
from commbench.results.schema import Run
from commbench.spec.operations import REPLAY
from commbench.spec.replay import replayed_workload
from commbench.stats.estimate import Estimate
from commbench.units import format_known_time, format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_OPERATIONS = 20
_TRACE, _WAITING, _HERE = COLOURS[0], "#a9cbe6", COLOURS[1]
_TALL = 0.34
"""Of a bar, over the distance of two rows."""


class _Row(NamedTuple):
    """A name with one or two bars."""

    name: str
    traced_s: float | None = None
    """In the trace, without waiting where that is known."""
    waiting_s: float = 0.0
    here: Estimate | None = None
    show: Callable[[float], str] = format_time
    """A time of the trace, as in the table of the text."""

    @property
    def traced_text(self) -> str:
        """The time in the trace; of a bar of two parts, both."""
        parts = (self.traced_s or 0.0, *([self.waiting_s] if self.waiting_s else []))
        return " + ".join(map(self.show, parts))

    @property
    def here_text(self) -> str:
        return format_known_time(*self.here)[0] if self.here else ""

    @property
    def longest_s(self) -> float:
        ends = (self.here.high or self.here.value) if self.here else 0.0
        return max((self.traced_s or 0.0) + self.waiting_s, ends)


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
    panels = [
        ("Calls of one rank in a step", _operation_rows(found)),
        ("Whole step", _whole_rows(found)),
    ]
    panels = [(heading, rows) for heading, rows in panels if rows]
    every = [row for _, rows in panels for row in rows]
    known = (
        ("in the trace", _TRACE, any(row.traced_s for row in every)),
        ("waiting in the trace", _WAITING, any(row.waiting_s for row in every)),
        ("here; line: 95 % interval", _HERE, True),
    )
    legend = [(text, {"facecolor": colour}) for text, colour, is_drawn in known if is_drawn]
    title = plain(f"Replay of {step_title(workload, found)}")
    notes = [plain(f"{run.name}: {run.header.describe_ranks()}")]
    notes += [f"{len(found.operations) - MOST_OPERATIONS} more operations are not drawn"] * (
        len(found.operations) > MOST_OPERATIONS
    )
    with plot_style.styled():
        left = max(plot_style.text_width(row.name, plot_style.TEXT) for row in every) + 0.35
        texts = [text for row in every for text in (row.traced_text, row.here_text)]
        right = max(plot_style.text_width(text, plot_style.SMALL) for text in texts) + 0.2
        heights = [0.36 * len(rows) + 0.1 for _, rows in panels]
        grid = Grid(len(panels), 1, heights, gap=0.6, left=left, right=right, bottom=0.4)
        figure, axes = plot_style.make_figure(Head(title, notes, [legend]), grid)
        for own, (heading, rows) in zip(axes, panels, strict=True):
            _draw(own, rows)
            plot_axes.set_heading(own, heading, left - plot_style.EDGE)
    return Picture(name, title, " ".join(verdict(workload, found)), figure)


def _operation_rows(found: StepReplay) -> list[_Row]:
    return [
        _Row(
            plain(f"{one.traced.operation}, {one.traced.group}", 44),
            one.traced_s,
            (one.traced.waiting_s or 0.0) if one.traced.transfer_s is not None else 0.0,
            one.replayed,
            short_time,
        )
        for one in found.operations[:MOST_OPERATIONS]
    ]


def _whole_rows(found: StepReplay) -> list[_Row]:
    rows = []
    if found.step.time_s:
        rows.append(_Row("trace: whole step", found.step.time_s))
    if found.communication_s:
        transfer = found.communication_s if found.transfer_s is None else found.transfer_s
        rows.append(_Row("trace: communication", transfer, found.waiting_s or 0.0))
    rows += [_Row(name_variant(v.variant), here=v.time) for v in found.variants if v.time]
    return rows


def _draw(axes: Axes, rows: Sequence[_Row]) -> None:
    """The bars of each row, from top to bottom, with their times at the right."""
    right = axes.get_yaxis_transform()
    for place, row in enumerate(rows):
        bars = [name for name in ("traced", "here") if (
            row.traced_s is not None if name == "traced" else row.here is not None)]  # fmt: skip
        for number, name in enumerate(bars):
            at = place + (number - (len(bars) - 1) / 2) * _TALL
            if name == "traced":
                seconds = row.traced_s or 0.0
                axes.barh(at, seconds, _TALL * 0.9, color=_TRACE)
                axes.barh(at, row.waiting_s, _TALL * 0.9, left=seconds, color=_WAITING)
                text = row.traced_text
            else:
                assert row.here is not None
                axes.barh(at, row.here.value, _TALL * 0.9, color=_HERE)
                if row.here.low is not None and row.here.high is not None:
                    axes.plot([row.here.low, row.here.high], [at, at], color=INK, linewidth=1.2,
                              gid="interval")  # fmt: skip
                text = row.here_text
            axes.annotate(
                text, (1, at), xycoords=right, xytext=(6, 0), textcoords="offset points",
                va="center_baseline", color=INK, size=plot_style.SMALL,
            )  # fmt: skip
    most = max(row.longest_s for row in rows) * 1.03
    ticks = plot_axes.linear_ticks(0.0, most, 6)
    axes.set_xlim(0, most)
    axes.set_xticks(ticks, [plot_axes.time_label(tick) if tick else "0" for tick in ticks])
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x")
