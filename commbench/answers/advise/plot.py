"""The picture of a backward pass over the bucket size."""

from __future__ import annotations

from itertools import starmap

from commbench.answers.advise.advice import DDP, Advice, AdviceReport
from commbench.answers.advise.measured import WIDE_SIZES
from commbench.answers.advise.training_step import BucketAdvice
from commbench.errors import UnavailableError
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import UNDECIDED
from commbench.views import pictures
from commbench.views.cells import short_time
from commbench.views.document import Block, Pictures
from commbench.views.pictures import Axis, Curves, Look, Mark, Picture, Series, size_label

MOST_PANELS = 6
BUCKETS = Axis(size_label, "bucket size; bucket_cap_mb is this in MiB")


def advice_picture(report: AdviceReport) -> Picture:
    """The backward pass over the bucket size, a panel for each group of ranks; UnavailableError,
    with the options or the command that help, where no size was simulated or only one."""
    chosen = [(a, a.details) for a in report.advice if isinstance(a.details, BucketAdvice)]
    drawable = [pair for pair in chosen[:MOST_PANELS] if len(pair[1].curve) > 1]
    if not drawable:
        why = "no plot of bucket sizes: "
        if chosen:
            larger = (line for line in chosen[0][0].measure if WIDE_SIZES in line)
            hint = next(larger, "give more --params or --tensors, or measure larger sizes")
            raise UnavailableError(f"{why}there is only one size to draw", hint)
        lacking = next(each for each in report.missing if each.subject.startswith(DDP))
        hint = lacking.command or "add --params 350M --backward 120ms"
        raise UnavailableError(f"{why}{lacking.needs}", hint)
    from commbench.answers.advise.document import answers  # which shows this picture

    sentences = answers([advice for advice, _ in drawable], report.question)
    return Picture(
        "buckets",
        f"Backward pass of DistributedDataParallel over the bucket size: {report.runs[0]}",
        " ".join(sentences),
        [_panel(*pair) for pair in drawable],
        [*(sentences if len(drawable) == 1 else []), *filter(None, starmap(_far_note, drawable))],
        has_bands=True,
    )


def picture_blocks(report: AdviceReport) -> list[Block]:
    """The picture, where several bucket sizes were simulated."""
    curves = [a.details.curve for a in report.advice if isinstance(a.details, BucketAdvice)]
    return [Pictures(lambda: [advice_picture(report)])] if any(c[1:] for c in curves) else []


def _panel(advice: Advice, found: BucketAdvice) -> Curves:
    sizes = [point.bucket_bytes for point in found.curve]
    low, high = max(found.good[0], sizes[0]), min(found.good[1], sizes[-1])
    good = Mark(
        Look(pictures.COLOURS[2], fill=0.18), low / 1.06, high * 1.06, "as good as the best",
        is_upright=True,
    )  # fmt: skip
    marks = [*([good] if low <= high and advice.verdict != UNDECIDED else []), *_times(found)[0]]
    points = [(point.bucket_bytes, point.time) for point in found.curve]
    series = [Series("simulated from measured times", pictures.nth_look(0), points)]
    if advice.verdict != UNDECIDED:
        best = (found.recommended.bucket_bytes, Estimate(found.recommended.time.value))
        series.append(Series("recommended", Look(pictures.INK, "*", None, size=8), [best]))
    heading = f"Backward pass and all_reduce: {advice.about}"
    return Curves(heading, series, across=BUCKETS, marks=marks, inches=2.8)


def _times(found: BucketAdvice) -> tuple[list[Mark], list[Mark]]:
    """The times that the curve is compared with: those near it, and those so far from it that they
    would take most of its panel."""
    now, alone = found.now.time.value, found.step.backward_s
    values = [point.time.value for point in found.curve]
    marks = (
        Mark(Look(pictures.COLOURS[1], dashes=(5, 2), width=1.3), now, name="buckets in use"),
        Mark(Look(pictures.GREY, dashes=(1.2, 1.2), width=1.0), alone, name="backward alone"),
    )
    near = [m for m in marks if min(values) / 2 <= m.low <= max(values) * 2]
    return near, [mark for mark in marks if mark not in near]


def _far_note(advice: Advice, found: BucketAdvice) -> str:
    """The marks that are not drawn."""
    far = [f"{mark.name} {short_time(mark.low)}" for mark in _times(found)[1]]
    return f"Far from the curve of {advice.about}: {', '.join(far)}" if far else ""
