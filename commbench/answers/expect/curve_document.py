"""What a document of a run beside published curves says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from commbench.analysis.columns import COLUMNS, row_type, row_values
from commbench.analysis.environment import fabric_of
from commbench.analysis.row_names import format_range
from commbench.analysis.rows import ResultRow
from commbench.answers.expect import curves
from commbench.output.text import join_words
from commbench.plan.links import find_gpu
from commbench.stats import FASTER, NOT_MEASURED, SAME, SLOWER, UNDECIDED
from commbench.units import format_bytes, format_count, format_share
from commbench.views import cells
from commbench.views.cells import NUMBER, RATIO, RATIO_INTERVAL, TEXT, Column
from commbench.views.document import BAD, GOOD, Block, Document, Items, Table

WORDS = {
    SLOWER: "slow", UNDECIDED: "undecided", FASTER: "fast", SAME: "normal",
    NOT_MEASURED: "cannot judge",
}  # fmt: skip
"""What a range of sizes is called, the most important first."""
_CAUSES = {
    True: "Usual causes at large sizes: NVLink or, from H100 on, NVLS is off, one GPU is throttled "
    "or has a narrow link, or ranks share GPUs. Look at `commbench pairs`, `commbench doctor` and "
    "NCCL's log.",
    False: "Usual causes at small sizes: ranks on far cores, busy cores, NCCL_DEBUG=INFO, or a set "
    "NCCL_ALGO or NCCL_PROTO. Look at `commbench doctor`.",
}
"""By whether sizes are large."""
_SEE = "; `commbench expect` names usual causes"


def describe(found: curves.OnCurves) -> Document:
    """The verdict, the ranges of sizes, where the curves come from, and usual causes."""
    slow = [each for each in found.ranges if each.verdict == SLOWER]
    causes = [_CAUSES[is_large] for is_large in sorted({x.low_bytes >= curves.LARGE for x in slow})]
    columns = (
        Column("sizes", lambda each: format_range(each.low_bytes, each.high_bytes), NUMBER),
        Column("measured /\npublished", attrgetter("ratio"), RATIO),
        Column("95 %\ninterval", attrgetter("ratio"), RATIO_INTERVAL, 6),
        Column("sound", _sound, TEXT),
        Column("verdict", lambda each: WORDS[each.verdict], TEXT),
        Column("why", attrgetter("reason"), TEXT, 8, is_wrapped=True),
    )
    ranges = Table("", columns, found.ranges if found.curves else (), attrgetter("call"),
                   tone=lambda each: BAD if each.verdict == SLOWER else "")  # fmt: skip
    judged = {each.verdict for each in found.ranges if each.ratio}
    is_good = judged and not found.is_slow and UNDECIDED not in judged
    tone = BAD if found.is_slow else GOOD if is_good else ""
    blocks: list[Block] = [ranges, _other_ranks(found), Items([*curve_notes(found), *causes])]
    judged_by = list(filter(None, (answer(found), _other_judges(found))))
    return Document(f"{found.run.name} beside published curves", (), judged_by, blocks, tone)


def answer(found: curves.OnCurves) -> str:
    """Whether the machine is sound, in one sentence."""
    name, whose = found.run.name, _machine(found)
    if not whose:
        reasons = dict.fromkeys(each.reason for each in found.ranges)
        return f"Cannot judge {name}: {'; '.join(reasons) or 'it has no rows'}."
    if found.too_fast:
        ratios = [row.ratio.value for row in found.too_fast if row.ratio]
        return (
            f"{name} is faster than sound {whose}: {len(ratios)} of {len(found.rows)} rows take "
            f"{cells.ratios_text(ratios)} times as long; look for a mistake, such as a wrong "
            "unit."
        )
    verdicts = [row.verdict for row in found.rows]
    counts = [f"{verdicts.count(v)} {word}" for v, word in WORDS.items() if v in verdicts]
    every = len(verdicts)
    rows = f"of {every} rows, {join_words(counts)}" if counts[1:] else f"all {every} rows"
    slow = [each for each in found.ranges if each.verdict == SLOWER]
    word = WORDS[SLOWER if found.is_slow else UNDECIDED if UNDECIDED in verdicts else SAME]
    if not slow:
        return f"{name} is {word} for {whose}: {rows}."
    worst = max(slow, key=lambda each: each.ratio.value if each.ratio else 0.0)
    sizes = format_range(worst.low_bytes, worst.high_bytes)
    return (
        f"{name} is {word} for {whose}{':' if found.is_slow else ', but'} "
        f"{worst.call.split()[0]} {sizes} takes {cells.ratio_with_interval_text(worst.ratio)} "
        f"times as long; {rows}."
    )


def _other_judges(found: curves.OnCurves) -> str:
    """What judges a run that has no published curves; empty for one that has."""
    if {row.row.world_size for row in found.rows} == {1}:
        return "With one rank nothing crosses a link: start a rank on each of several GPUs."
    if not found.rows or found.curves:
        return ""
    name = found.run.name
    other = (
        f"`commbench check {name} --against OTHER` judges by an earlier run or a like machine, "
        f"`commbench check {name} --min-busbw all_reduce:1M-:3GB/s` by a limit, and `commbench "
        f"show {name} --peak 12.5GB/s` compares with the speed of a link."
    )
    by_figures = (
        f"`commbench check {name} --expect run` judges its bandwidths by what others measured and "
        "by what the links allow. "
    )
    return by_figures * bool(found.system) + other


def range_lines(rows: Sequence[ResultRow]) -> tuple[list[str], list[str]]:
    """A line for each range of sizes of one call that was compared; and how to measure what curves
    can be compared with."""
    fabric, make_row = fabric_of(rows[0].header), row_type(tuple(COLUMNS))
    if not fabric or not fabric.gpu:
        return [], []
    system, published = fabric.gpu.name, curves.load_curves()
    found = [curves.compare_row(make_row(*row_values(row)), system, published) for row in rows]
    whose = f"{rows[0].header.plan.world_size} x {fabric.gpu.what}"
    lines = [
        f"{format_range(each.low_bytes, each.high_bytes)}: "
        f"{cells.ratio_with_interval_text(each.ratio)} times the published time of {whose} (sound: "
        f"{_sound(each)}): {WORDS[each.verdict]}{_SEE * (each.verdict == SLOWER)}."
        for each in curves.find_ranges(found) if each.ratio
    ]  # fmt: skip
    return lines, [*_command(found)]


def curve_notes(found: curves.OnCurves) -> Iterator[str]:
    """What counts as sound, a likely mistake in the sizes, where the curves come from, and how to
    measure what can be compared."""
    steps = [
        f"{format_share(part)} {f'from {format_bytes(size)} on' if size else 'below'}"
        for size, part in curves.TOLERANCES
    ]
    if found.curves and found.tolerance is None:
        yield (
            f"Sound machines are within {join_words(steps)} of their curve, or as far as versions "
            "of NCCL are from each other."
        )
    for source in dict.fromkeys(curve.source for curve in found.curves):
        of_source = [curve for curve in found.curves if curve.source == source]
        systems = join_words(sorted({curve.system for curve in of_source}))
        number = format_count(len(of_source), "curve")
        yield f"{number} of {systems}{_versions(of_source)}: {source}"
    yield from _command(found.rows)


def _command(rows: Iterable[curves.RowOnCurve]) -> Iterator[str]:
    """The command that measures rows as curves were measured; none where that is not the matter."""
    others = [row for row in rows if not row.ratio and row.row.world_size in row.known]
    if not others:
        return
    sizes = [row.row.size_bytes for row in others]
    operations = ",".join(dict.fromkeys(row.row.operation for row in others))
    curve = others[0].curves[0]
    low, high = (format_range(size, size) for size in (min(sizes), max(sizes)))
    yield (
        f"Curves are compared with calls like theirs: `commbench run --op {operations} --sizes "
        f"{low}-{high} --timing {curve.timing} --dtype {curve.dtype}`. `commbench check --expect "
        "run` judges the bandwidths of other calls."
    )


def _other_ranks(found: curves.OnCurves) -> Table:
    """The largest size of each call of whose number of ranks there are no curves, beside the times
    of the next smaller and larger numbers."""
    rows = {row.case.title: row for row in found.rows if row.nearest}

    def published(ranks: int) -> Column:
        return Column(f"published\nof {ranks} GPUs", lambda row: row.nearest.get(ranks), cells.TIME)

    columns = (
        Column("operation", attrgetter("row.operation"), TEXT),
        Column("size", attrgetter("row.size_bytes"), cells.BYTES),
        Column("measured\nhere", attrgetter("row.time"), cells.TIME),
        *map(published, sorted({ranks for row in rows.values() for ranks in row.nearest})),
    )
    return Table("Nearest numbers of GPUs, which are not compared", columns, [*rows.values()])


def curves_text(found: curves.OnCurves) -> str:
    """What the curves are of that rows were compared with: `8 x H100 with NCCL 2.29.2`."""
    return f"{_machine(found)}{_versions(found.curves)}"


def _machine(found: curves.OnCurves) -> str:
    """The number and name of its accelerators: `8 x H100`; empty where nothing is compared."""
    numbers, gpu = sorted({curve.ranks for curve in found.curves}), find_gpu(found.system)
    return f"{join_words([*map(str, numbers)])} x {gpu.what}" if gpu and numbers else ""


def _sound(found: curves.RangeOnCurve) -> str:
    """The ratios of sound machines: `0.91 … 1.10`; empty where nothing is compared."""
    most = 1 + found.tolerance
    return f"{1 / most:.2f} … {most:.2f}" if found.ratio else ""


def _versions(found: Iterable[curves.Curve]) -> str:
    """` with NCCL 2.27.3 and 2.29.2`; empty where no version is known."""
    versions = sorted({curve.nccl for curve in found if curve.nccl})
    return f" with NCCL {join_words(versions)}" if versions else ""
