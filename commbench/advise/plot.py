"""The picture of advice: the time of a backward pass over the bucket size, a panel for each group
of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.advise.advice import DDP, Advice, AdviceReport
from commbench.advise.buckets import BucketAdvice
from commbench.advise.commands import WIDE_SIZES
from commbench.advise.document import answers
from commbench.errors import UnavailableError
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import UNDECIDED
from commbench.views import pictures
from commbench.views.pictures import Axis, Curves, Look, Mark, Picture, Series
from commbench.views.ticks import size_label

MOST_PANELS = 6
BUCKETS = Axis(size_label, "bucket size: bucket_cap_mb in MiB")


def advice_picture(report: AdviceReport) -> Picture:
    """The picture of a report; UnavailableError where it has no bucket sizes."""
    chosen = [a for a in report.advice if isinstance(a.details, BucketAdvice)][:MOST_PANELS]
    drawable = [
        (each, each.details)
        for each in chosen
        if isinstance(each.details, BucketAdvice) and each.details.curve[1:]
    ]
    if not drawable:
        raise _undrawable(report, chosen)
    panels = [_panel(*each, report.question.tolerance) for each in drawable]
    sentences = answers([each for each, _ in drawable], report.question)
    return Picture(
        "buckets",
        f"Backward pass of DistributedDataParallel over the bucket size: {report.runs[0]}",
        " ".join(sentences),
        panels,
        sentences if len(panels) == 1 else [],
        has_bands=True,
    )


def _panel(advice: Advice, found: BucketAdvice, tolerance: float) -> Curves:
    low, high = found.good
    marks = [
        Mark(Look(pictures.COLOURS[2], fill=0.18), low / 1.06, high * 1.06,
             f"within {100 * tolerance:g} % of the best", is_upright=True),
        Mark(Look(pictures.COLOURS[1], dashes=(5, 2), width=1.3), found.now.time.value,
             name="buckets in use"),
        Mark(Look(pictures.GREY, dashes=(1.2, 1.2), width=1.0), found.step.backward_s,
             name="computation alone"),
    ]  # fmt: skip
    points = [(point.bucket_bytes, point.time) for point in found.curve]
    series = [Series("simulated from measured times", pictures.nth_look(0), points)]
    if advice.verdict != UNDECIDED:
        best = (found.recommended.bucket_bytes, Estimate(found.recommended.time.value))
        series.append(Series("recommended", Look(pictures.INK, "*", None, size=8), [best]))
    heading = f"Backward pass and all_reduce: {advice.about}"
    return Curves(heading, series, across=BUCKETS, marks=marks, inches=2.8)


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
