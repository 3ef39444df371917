"""What a document of a run beside published curves says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter, truediv

from commbench.analysis.columns import COLUMNS, row_type, row_values
from commbench.analysis.load import as_loaded_run
from commbench.analysis.row_names import format_range
from commbench.analysis.rows import ResultRow
from commbench.answers.expect.curves import (
    TOLERANCES,
    Curve,
    OnCurves,
    RangeOnCurve,
    compare_row,
    compare_run,
    find_ranges,
    load_curves,
    sizes_are_elements,
)
from commbench.answers.expect.question import fabric_of
from commbench.output.paragraphs import join_words
from commbench.plan.fabrics import find_gpu
from commbench.results.schema import Run
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import FASTER, NOT_MEASURED, SAME, SLOWER, UNDECIDED
from commbench.units import format_bytes, format_count, format_share
from commbench.views.cells import (
    NUMBER,
    RATIO,
    RATIO_INTERVAL,
    TEXT,
    Column,
    ratio_text,
    ratio_with_interval_text,
)
from commbench.views.document import BAD, GOOD, Document, Items, Pictures, Table
from commbench.views.pictures import GREY, RATIOS, Curves, Look, Picture, Series, nth_look

WORDS = {
    SLOWER: "slow", UNDECIDED: "undecided", FASTER: "fast", SAME: "normal",
    NOT_MEASURED: "cannot judge",
}  # fmt: skip
"""What a range of sizes is called, the most important first."""
_LARGE = TOLERANCES[0][0]
_SOUND = "published, with the range of sound machines"
_MANY = 0.1
"""A larger part of rows that are too fast is named first."""
_CAUSES = (
    (_LARGE, "Usual causes at large sizes: NVLink or, from H100 on, NVLS is off, one GPU is "
     "throttled or has a narrow link, or ranks share GPUs. Look at `commbench pairs`, `commbench "
     "doctor` and NCCL's log."),
    (0, "Usual causes at small sizes: ranks on far cores, busy cores, NCCL_DEBUG=INFO, or a set "
     "NCCL_ALGO or NCCL_PROTO. Look at `commbench doctor`."),
)  # fmt: skip


def describe(found: OnCurves) -> Document:
    """The verdict, the ranges of sizes, where the curves come from, and usual causes."""
    slow = [each for each in found.ranges if each.verdict == SLOWER]
    causes = [text for least, text in _CAUSES
              if any((each.low_bytes >= _LARGE) == (least > 0) for each in slow)]  # fmt: skip
    columns = (
        Column("sizes", lambda each: format_range(each.low_bytes, each.high_bytes), NUMBER),
        Column("measured /\npublished", attrgetter("ratio"), RATIO),
        Column("95 %\ninterval", attrgetter("ratio"), RATIO_INTERVAL, 6),
        Column("sound", sound_text, TEXT),
        Column("verdict", lambda each: WORDS[each.verdict], TEXT),
        Column("why", attrgetter("reason"), TEXT, 8, is_wrapped=True),
    )
    shown = found.ranges if found.curves else ()
    ranges = Table("", columns, shown, attrgetter("call"),
                   tone=lambda each: BAD if each.verdict == SLOWER else "")  # fmt: skip
    notes = [*curve_notes(found), *causes, *_advice(found)]
    judged = [each.verdict for each in found.ranges if each.ratio]
    tone = BAD if slow else GOOD if judged and {*judged} <= {SAME, FASTER} else ""
    title = f"{found.run.name} beside published curves"
    return Document(
        title,
        (),
        [answer(found)],
        [ranges, Items(notes), Pictures(partial(_pictures, found))],
        tone,
    )


def _pictures(found: OnCurves) -> list[Picture]:
    """The ratio of each kind of call against the size, over the range of sound machines; none where
    fewer than two sizes are compared."""
    kinds: dict[str, dict[float, Estimate | None]] = {}
    sound: dict[float, Estimate | None] = {}
    for row in sorted((row for row in found.rows if row.ratio), key=lambda r: r.case.size_bytes):
        kinds.setdefault(row.case.title, {})[row.case.size_bytes] = row.ratio
        most = 1 + row.tolerance
        sound[row.case.size_bytes] = Estimate(1.0, 1 / most, most)
    if len(sound) < 2:
        return []
    series = [Series(_SOUND, Look(GREY, dashes=(4, 2), fill=0.2), [*sound.items()])]
    for number, (title, ratios) in enumerate(kinds.items()):
        series.append(Series(title, nth_look(number), [*ratios.items()], has_band=False))
    panel = Curves("Time over the published one; above 1: slower", series, RATIOS)
    title = f"Times of {found.run.name} over published ones"
    return [Picture("expect", title, answer(found), [panel], [answer(found)], has_bands=True)]


def sound_text(found: RangeOnCurve) -> str:
    """The ratios of sound machines: `0.91 … 1.10`; empty where nothing is compared."""
    most = 1 + found.tolerance
    return f"{1 / most:.2f} … {most:.2f}" if found.ratio else ""


def answer(found: OnCurves) -> str:
    """Whether the machine is sound, in one sentence."""
    ranks = {row.curves[0].ranks for row in found.rows if row.ratio}
    gpu = find_gpu(found.system)
    whose = f"{join_words(list(map(str, sorted(ranks))))} x {gpu.what}" if gpu and ranks else ""
    by = {verdict: [each for each in found.ranges if each.verdict == verdict] for verdict in WORDS}
    if not whose:
        reasons = dict.fromkeys(each.reason for each in found.ranges)
        return f"Cannot judge {found.run.name}: {'; '.join(reasons) or 'it has no rows'}."
    if sizes_are_elements(found.rows):
        return (
            f"Sizes of {found.run.name} may be elements instead of bytes: then it is like {whose}."
        )
    too_fast = [row.ratio.value for row in found.rows if row.ratio and row.is_too_fast]
    if len(too_fast) > _MANY * len(found.rows):
        ends = dict.fromkeys(map(ratio_text, (min(too_fast), max(too_fast))))
        return (
            f"{found.run.name} is faster than sound {whose}: {len(too_fast)} of {len(found.rows)} "
            f"rows take {' to '.join(ends)} times as long; "
            "look for a mistake, such as a wrong unit."
        )
    counted = {word: sum(each.rows for each in by[verdict]) for verdict, word in WORDS.items()}
    others = [f"{number} {word}" for word, number in counted.items() if number]
    rows = f"of {len(found.rows)} rows, {join_words(others)}"
    if len(others) == 1:
        rows = f"all {len(found.rows)} rows"
    if not (slow := by[SLOWER]):
        word = WORDS[UNDECIDED if by[UNDECIDED] else SAME]
        return f"{found.run.name} is {word} for {whose}: {rows}."
    more = f" (and {format_count(len(slow) - 1, 'more range')})" if len(slow) > 1 else ""
    worst = max(slow, key=lambda each: each.ratio.value if each.ratio else 0.0)
    return (
        f"{found.run.name} is slow for {whose}: {range_title(worst)} takes "
        f"{ratio_with_interval_text(worst.ratio)} times as long{more}; {rows}."
    )


def range_lines(rows: Sequence[ResultRow]) -> list[str]:
    """A line for each range of sizes of one call; or how to measure what curves can be compared
    with. None where there are no curves of such calls."""
    fabric = fabric_of(rows[0].header)
    if not fabric or not fabric.gpu:
        return []
    make_row = row_type(tuple(COLUMNS))
    system, curves = fabric.gpu.name, load_curves()
    found = [compare_row(make_row(*row_values(row)), system, curves) for row in rows]
    whose = f"{rows[0].header.plan.world_size} x {fabric.gpu.what}"
    lines = [
        f"{format_range(each.low_bytes, each.high_bytes)}: {ratio_with_interval_text(each.ratio)} "
        f"times the published time of {whose} (sound: {sound_text(each)}): {WORDS[each.verdict]}."
        for each in find_ranges(found) if each.ratio
    ]  # fmt: skip
    if not lines and any("--timing" in row.reason for row in found):
        return ["Published curves are of calls back to back: compare with --timing pipelined."]
    return lines


def range_title(found: RangeOnCurve) -> str:
    """`all_reduce 16M-512M`."""
    return f"{found.call.split()[0]} {format_range(found.low_bytes, found.high_bytes)}"


def curve_notes(found: OnCurves) -> Iterator[str]:
    """What counts as sound, a likely mistake in the sizes, and where the curves come from."""
    if not found.curves:
        return
    steps = [
        f"{format_share(part)} {f'from {format_bytes(size)} on' if size else 'below'}"
        for size, part in TOLERANCES
    ]
    yield f"Sound machines are within {join_words(steps)} of their curve."
    if sizes_are_elements(found.rows):
        yield "At so many elements instead of bytes, the times are those of the curves."
    for source in dict.fromkeys(curve.source for curve in found.curves):
        of_source = [curve for curve in found.curves if curve.source == source]
        systems = join_words(sorted({curve.system for curve in of_source}))
        curves = format_count(len(of_source), "curve")
        yield f"{curves} of {systems}{_versions(of_source)}: {source}"


def published_series(runs: Sequence[Run], operation: str, is_time: bool) -> list[Series]:
    """The published curve of an operation, with the range that counts as sound, beside the one run
    that can be compared with it."""
    if len(runs) != 1 or not (fabric := fabric_of(runs[0].header)) or not fabric.gpu:
        return []
    found = compare_run(as_loaded_run(runs[0]), load_curves())
    rows = [row for row in found.rows if row.ratio and row.case.operation == operation]
    factor = rows and rows[0].case._replace(ranks=rows[0].curves[0].ranks).busbw_factor
    if not rows or not (is_time or factor):
        return []
    points: dict[float, Estimate] = {}
    for row in rows:
        size, most = row.case.size_bytes, 1 + row.tolerance
        sound = Estimate(row.published_s, row.published_s / most, row.published_s * most)
        to_busbw = partial(truediv, size * (factor or 0.0))
        points[size] = sound if is_time else sound.map(to_busbw)
    curves = rows[0].curves
    machine = f"{curves[0].ranks} x {fabric.gpu.what}{_versions(curves)}"
    name = f"{_SOUND}: {machine}"
    return [Series(name, Look(GREY, dashes=(4, 2), fill=0.2), sorted(points.items()))]


def _versions(curves: Sequence[Curve]) -> str:
    """` with NCCL 2.27.3 and 2.29.2`; empty where no version is known."""
    versions = sorted({curve.nccl for curve in curves if curve.nccl})
    return f" with NCCL {join_words(versions)}" if versions else ""


def _advice(found: OnCurves) -> Iterator[str]:
    """How to measure rows that can be compared."""
    if any("--timing" in row.reason for row in found.rows):
        yield "Calls back to back can be compared: measure with --timing pipelined or both."
    if any("elements of" in row.reason for row in found.rows):
        yield (
            "Elements of the curves' width can be compared: measure with --dtype float16. "
            f"`commbench check {found.run.path} --expect run` judges bandwidths of any dtype."
        )
