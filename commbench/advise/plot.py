"""The picture of advice: the time of a backward pass over the bucket size, a panel for each group
of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING, Any

from commbench.advise.advice import DDP, Advice, AdviceReport
from commbench.advise.buckets import BucketAdvice
from commbench.advise.choices import UNDECIDED
from commbench.advise.commands import WIDE_SIZES
from commbench.errors import UnavailableError
from commbench.output import plot_axes, plot_style
from commbench.output.plot_style import COLOURS, GREY, INK, Grid, Head, Picture, plain
from commbench.stats.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 6
GOOD: dict[str, Any] = {"facecolor": COLOURS[2], "alpha": 0.18}
NOW: dict[str, Any] = {"color": COLOURS[1], "linewidth": 1.3, "linestyle": (0, (5, 2))}
ALONE: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (1.2, 1.2))}
CHOSEN: dict[str, Any] = {
    "color": INK, "marker": "*", "markersize": 11, "linestyle": "none", "markeredgecolor": "white",
    "markeredgewidth": 0.6,
}  # fmt: skip


def advice_figure(report: AdviceReport) -> Picture:
    """The picture of a report; UnavailableError where it has no bucket sizes."""
    chosen = [a for a in report.advice if isinstance(a.details, BucketAdvice)][:MOST_PANELS]
    drawable = [a for a in chosen if isinstance(a.details, BucketAdvice) and a.details.curve[1:]]
    if not drawable:
        raise _undrawable(report, chosen)
    title = f"Backward pass of DistributedDataParallel over the bucket size: {report.runs[0]}"
    description = " ".join(text for each in drawable for text in each.sentences[:2])
    curve = plot_style.nth_style(0)
    is_decided = any(each.verdict != UNDECIDED for each in drawable)
    legend = [
        ("simulated from measured times", curve.line),
        *([("recommended", CHOSEN)] if is_decided else []),
        (f"within {100 * report.question.tolerance:g} % of the best", GOOD),
        ("buckets in use", NOW),
        ("computation alone", ALONE),
    ]
    with plot_style.styled():
        notes = [plain(text, 400) for text in drawable[0].sentences[:2]] * (len(drawable) == 1)
        head = Head(plain(title), [*notes, "Band: 95 % interval"], [legend])
        figure, panels = plot_style.make_figure(
            head, Grid(len(drawable), 1, (2.8,) * len(drawable), gap=0.7)
        )
        for axes, each in zip(panels, drawable, strict=True):
            _paint(axes, each)
        figure.text(
            0.5, 0.09 / figure.get_figheight(), "bucket size: bucket_cap_mb in MiB", ha="center",
            va="bottom",
        )  # fmt: skip
    return Picture("buckets", title, description, figure)


def _undrawable(report: AdviceReport, chosen: Sequence[Advice]) -> UnavailableError:
    """Why there is nothing to draw, and the options or the command that help."""
    why = "no plot of bucket sizes: "
    if chosen:
        hint = "all gradients are in one bucket; give more --params or --tensors"
        found = chosen[0].details
        if isinstance(found, BucketAdvice) and found.curve[0].buckets > 1:
            hint = next((c for c in chosen[0].measure if WIDE_SIZES in c), "measure larger sizes")
        return UnavailableError(f"{why}there is only one size to draw", hint)
    lacking = next(each for each in report.missing if each.subject == DDP)
    if lacking.command:
        return UnavailableError(f"{why}{lacking.needs}", lacking.command)
    return UnavailableError(f"{why}the model is not given", "add --params 350M --backward 120ms")


def _paint(axes: Axes, advice: Advice) -> None:
    found = advice.details
    assert isinstance(found, BucketAdvice)
    sizes = [point.bucket_bytes for point in found.curve]
    middles, lows, highs = zip(*(_known(point.time) for point in found.curve), strict=True)
    style = plot_style.nth_style(0)
    low, high = found.good
    axes.axvspan(low / 1.06, high * 1.06, gid="good", linewidth=0, zorder=0.8, **GOOD)
    axes.fill_between(sizes, lows, highs, color=style.colour, alpha=0.18, linewidth=0)
    axes.plot(sizes, middles, **style.line)
    axes.axhline(_known(found.now.time)[0], gid="now", zorder=1.2, **NOW)
    axes.axhline(found.step.backward_s, gid="alone", zorder=1.1, **ALONE)
    chosen = found.recommended
    if advice.verdict != UNDECIDED:
        axes.plot([chosen.bucket_bytes], [_known(chosen.time)[0]], gid="recommended", **CHOSEN)
    values = (*middles, *lows, *highs, _known(found.now.time)[0], found.step.backward_s)
    plot_axes.set_log_times(axes, min(values) / 1.1, max(values) * 1.1)
    heading = f"Backward pass and all_reduce: {plain(advice.about, 90)}"
    plot_axes.set_heading(axes, heading, plot_style.MARGIN)
    width = plot_style.WIDTH - plot_style.LEFT - plot_style.RIGHT
    plot_axes.set_size_axis(axes, {*sizes, chosen.bucket_bytes}, width)


def _known(time: Estimate) -> tuple[float, float, float]:
    middle, low, high = (nan if value is None else value for value in time)
    return middle, low, high
