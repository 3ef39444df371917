"""SHAPES: what a run found about groups, overlaps, unequal blocks, forms of a call, pairs of ranks
and new groups: figures of one row, and the sentence that says them.

The row is of the largest size of its kind of call. Of several kinds it is the decided one whose
interval is furthest from no effect. Where none is decided, it has the narrowest interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from commbench.analysis.clearer import more_precisely
from commbench.analysis.diagnostics import has_waited
from commbench.analysis.environment import find_crowd
from commbench.analysis.row_names import short_titles
from commbench.analysis.rows import ALONE_OR_NOT, WAYS, ResultRow, right_rows
from commbench.answers.pairs.matrix import has_matrix
from commbench.answers.show.formats import texts
from commbench.answers.show.rows import LATENCY_BOUND, size_of, time_of
from commbench.output.text import join_words
from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.case import Case
from commbench.plan.groups import ALONE
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import RunHeader
from commbench.stats import SAME, TOLERANCE, UNDECIDED, Estimate, collect, decide, ratio
from commbench.units import format_bytes, format_rough
from commbench.views import cells
from commbench.views.cells import BYTES, RATIO_WITH_INTERVAL, TEXT, TIME, Column
from commbench.views.document import Block, Items, Table, Text, summarise

VARIED = (*ALONE_OR_NOT, "part", "imbalance", *WAYS, "size_bytes")
"""The dimensions that the name of a call leaves out."""
Found = tuple[Sequence[ResultRow], str, str, Mapping[str, Any]]
"""The rows, of which the first names the call; what was compared, with what, and the figures."""


class Finding(NamedTuple):
    """Figures of a shape, at one size."""

    shape: str
    """The name of its entry in SHAPES."""
    call: str
    """The kind of call: `all_reduce`, `all_gather 16 tensors`."""
    size_bytes: int
    what: str
    """What was compared: a group, an imbalance, the fastest form."""
    other: str
    """With what."""
    figures: Mapping[str, Any]
    """In SI units. `ratio` is a time over another one: above 1 there is an effect."""
    has_waited: bool = False
    """Whether ranks waited for a core too long: then nothing is decided."""

    @property
    def sureness(self) -> tuple[float, ...]:
        """Of two findings the surer one has the larger value; without a ratio the faster one."""
        if not (found := self.figures.get("ratio")):
            return (-self.figures["time_s"].value,)
        if not found.has_interval:
            return (-1.0,)
        low, high = found.ends
        is_open, narrow = self.verdict == UNDECIDED, low / high if high else 0.0
        return (0.0, narrow) if is_open else (max(1.0, low, 1 / high), found.value)

    @property
    def verdict(self) -> str:
        """What its ratio decides; empty without one."""
        if not (found := self.figures.get("ratio")):
            return ""
        if (hidden := self.figures.get("hidden_share")) and not self.has_waited:
            low, high = hidden.ends  # of an overlap, what is hidden is the answer
            return UNDECIDED if high - low > MOST_UNSURE else ""
        is_open = self.has_waited or not found.has_interval
        return UNDECIDED if is_open else decide(found, TOLERANCE)


class Shape(NamedTuple):
    """A shape of communication."""

    find: Callable[[Sequence[ResultRow]], Iterator[Found]]
    """Its figures in timed rows."""
    words: str
    """What they say, with the names of the fields and figures of a Finding."""
    more: str = ""
    """What else they say, where all figures are known."""
    has_smallest: bool = False
    """Whether there is a finding of the smallest size, too."""
    threads: int = 1
    """The threads of a rank that need a core."""


def find_shapes(rows: Sequence[ResultRow]) -> list[Finding]:
    """The findings of a run, in the order of SHAPES; only those of right_rows count. None of a
    replay, of pairs in rounds and of a soak, which have answers of their own."""
    plan = rows[0].header.plan if rows else None
    if plan and (plan.workload or plan.is_soak or has_matrix(plan)):
        return []
    timed = [row for row in right_rows(rows) if row.time]
    chosen: list[Finding] = []
    titles = short_titles({row.case.key(*VARIED): row.case for row in timed}, VARIED)
    for name, shape in SHAPES.items():
        found = [
            Finding(
                name, titles[own[0].case.key(*VARIED)], own[0].case.size_bytes, what, other,
                figures, any(has_waited(row.queued_share) for row in own),
            )
            for own, what, other, figures in sorted(shape.find(timed), key=_size)
        ]  # fmt: skip
        found = [each for each in found if not each.has_waited] or found
        calls = collect((each.call, each) for each in found)
        ends = [f for own in calls.values() for f in own if f.size_bytes == own[-1].size_bytes]
        if ends:
            surest = max(ends, key=lambda each: each.sureness)
            smallest = calls[surest.call][0]
            is_other = shape.has_smallest and smallest.size_bytes < surest.size_bytes
            chosen += [smallest, surest] if is_other else [surest]
    return chosen


def _size(found: Found) -> int:
    return found[0][0].case.size_bytes


MOST_UNSURE = 0.2
"""An interval of the hidden part that is wider decides nothing."""
HAS_WAITED = ", ranks waited for a core"
"""Why it is undecided."""
_VERDICTS = {UNDECIDED: ": undecided", SAME: ": no difference"}


def shapes_sentence(header: RunHeader, found: Sequence[Finding]) -> str:
    """What the findings of a run say and their cause."""
    parts, explained = [], set[str]()
    for each in found:
        shape = SHAPES[each.shape]
        units = {n: next(u for end, u in _UNITS.items() if n.endswith(end)) for n in each.figures}
        texts = {name: "" if v is None else units[name](v) for name, v in each.figures.items()}
        more = "" if None in each.figures.values() else shape.more
        verdict = _VERDICTS.get(each.verdict, "")
        verdict += HAS_WAITED * (each.has_waited and bool(verdict))
        text = f"{{call}} at {{size}}: {shape.words}{verdict}{more}"
        texts |= {**each._asdict(), "size": format_bytes(each.size_bytes), "fastest": each.what}
        texts["tensors"] = texts.get("tensors", "") * ("tensors" not in each.call)
        for name in ("what", "other") if each.figures.get("tensors", 1) > 1 else ():
            form = texts[name]
            texts[name] += f" ({CALL_FORMS[form].summary})" * (form not in explained)
            explained.add(form)
        parts.append(text.format_map(texts))
    last = found[-1].verdict if found else SAME
    crowd = find_crowd([header], SHAPES[found[-1].shape].threads) if found else ""
    waited = any(each.has_waited for each in found)
    if crowd and (waited or last == UNDECIDED):
        parts.append(f"{crowd}: give each its own")
    elif last == UNDECIDED and not waited:
        parts.append(f"try `{more_precisely(header)}`")
    elif crowd and last != SAME:
        parts.append(f"{crowd}: suspect the processor before the network")
    text = "; ".join(parts).replace("  ", " ")
    return text and f"{text}."


def _whole(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows of whole calls, of all groups."""
    return [row for row in rows if not (row.case.part or row.case.group_ranks)]


def _groups(rows: Sequence[ResultRow]) -> Iterator[Found]:
    for row in _whole(rows):
        case, plan = row.case, row.header.plan
        for ranks, found in row.group_interference.items():
            figures = {"ratio": found, "groups": len(plan.groups_of(case))}
            yield [row], ranks, case.group if plan.mesh else "", figures


def _overlaps(rows: Sequence[ResultRow]) -> Iterator[Found]:
    for row in rows:
        if (found := row.overlap) and row.parts:
            communication, computation = (part.time.median for part in row.parts if part.time)
            shorter = "communication" if communication <= computation else "computation"
            figures = {
                "ratio": found.gain, "hidden_share": found.hidden,
                "communication_slowdown": found.communication_slowdown,
                "computation_slowdown": found.computation_slowdown,
            }  # fmt: skip
            yield [row, *row.parts], row.case.overlap, shorter, figures


def _uneven(rows: Sequence[ResultRow]) -> Iterator[Found]:
    loads = [(row, row.case.key("imbalance"), row.case.load) for row in _whole(rows)]
    equal = {key: row for row, key, load in loads if load and not load.is_unequal}
    for row, key, load in loads:
        same = equal.get(key) if load and load.is_unequal else None
        if load and same and (found := ratio(time_of(row), time_of(same))):
            verb, most = load.busiest
            yield [row, same], row.case.imbalance, verb, {"ratio": found, "max_over_mean": most}


def _forms(rows: Sequence[ResultRow]) -> Iterator[Found]:
    """The usual form of each size, which comes first, over the fastest one; where these are not
    told apart, the next slower one. The other forms that are not told apart from the fastest are
    named. A single tensor of all bytes is none of the forms of several, where there are others.
    Compressed forms give another result."""
    rows = [row for row in _whole(rows) if row.case.call_form.calls_before is None]
    exact = (row for row in rows if not row.case.call_form.compression)
    for own in collect((row.case.key(*WAYS), row) for row in exact).values():
        apart = [row for row in own if row.case.call_form.has_tensors]
        compared = apart if len(apart) > 1 else own
        ordered = sorted(compared, key=lambda row: row.time.median if row.time else 0.0)
        slower = {_way(r): ratio(time_of(r), time_of(ordered[0])) for r in ordered}
        best, *names = slower
        alike = [name for name in names if (found := slower[name]) and found.ends[0] <= 1]
        usual = _way(compared[0])
        if usual in (best, *alike):
            open_ = usual if usual != best or not names else names[0]
            usual = next((name for name in names if name not in alike), open_)
        alike = [name for name in alike if name != usual]
        if usual != best and (found := slower[usual]):
            told = [row for row in ordered if _way(row) in (best, *alike, usual)]
            figures = {"ratio": found, "tensors": own[0].case.num_tensors, "as_fast": alike or None}
            yield told, best, usual, figures


def _way(row: ResultRow) -> str:
    """Its form of the call, or its own call."""
    return row.case.call or row.case.form


def _bandwidth(rows: Sequence[ResultRow]) -> Iterator[Found]:
    """Rows of pairs of ranks, where a run has only point to point."""
    operations = [OPERATIONS[row.case.operation] for row in rows]
    if all(operation.p2p_calls for operation in operations):
        for row, operation in zip(rows, operations, strict=True):
            if operation.is_paired:
                yield [row], "", "", {"time_s": time_of(row), "busbw_per_s": row.known_busbw}


def _latency(rows: Sequence[ResultRow]) -> Iterator[Found]:
    """Those of the smallest message there and back."""
    own = [each for each in _bandwidth(rows) if OPERATIONS[each[0][0].case.operation].is_latency]
    yield from (found for found in own if _size(found) == min(map(_size, own)))


def _large_messages(rows: Sequence[ResultRow]) -> Iterator[Found]:
    """Those of messages that are not bound by latency."""
    yield from (found for found in _bandwidth(rows) if _size(found) >= LATENCY_BOUND)


def _first_calls(rows: Sequence[ResultRow]) -> Iterator[Found]:
    for row in _whole(rows):
        if row.case.call_form.calls_before == 0 and row.reference and (found := row.form_ratio):
            times = {"first_s": time_of(row), "later_s": time_of(row.reference)}
            yield [row, row.reference], row.case.form, "later", {"ratio": found, **times}


def _times(found: Estimate) -> str:
    unknown = "" if found.has_interval else " (no interval is known)"
    if cells.is_too_noisy(found):
        low, high = found.ends
        is_open = high == inf
        return f"at least {low:.1g} times" if is_open else f"{low:.1g} … {format_rough(high)} times"
    return f"{cells.ratio_with_interval_text(found)}{unknown} times"


def _seconds(found: Estimate) -> str:
    return cells.time_with_interval_text(found) + f", {cells.UNSURE}" * found.is_wider(cells.WIDE)


def _share(found: Estimate) -> str:
    return cells.share_with_interval_text(found) if found.ends[1] else "none"


_UNITS: dict[str, Callable[[Any], str]] = {
    "ratio": _times, "slowdown": lambda found: _times(found.map(lambda more: 1 + more)),
    "share": _share, "mean": "{:.2f}".format, "groups": str,
    "tensors": lambda number: f"of {number} tensors, " * (number > 1), "as_fast": join_words,
    "_per_s": cells.bandwidth_with_interval_text,
    "time_s": _seconds, "_s": cells.time_with_interval_text,
}  # fmt: skip
"""How figures are written, by the end of their names."""
SHAPES: dict[str, Shape] = {
    "groups": Shape(_groups, "group {what} takes {ratio} as long beside the other {other} groups"),
    "overlap": Shape(
        _overlaps, "{hidden_share} of the {other} is hidden",
        "; beside each other the communication takes {communication_slowdown} as long, "
        "the computation {computation_slowdown}",
        threads=2,
    ),
    "uneven": Shape(
        _uneven, "the imbalance {what} takes {ratio} as long as equal blocks",
        "; the busiest rank {other} {max_over_mean} times the mean",
    ),
    "forms": Shape(
        _forms, "{tensors}{other} takes {ratio} as long as {what}",
        "; {as_fast} may be as fast as {fastest}",
        has_smallest=True,
    ),
    "first_call": Shape(
        _first_calls, "the first call on a new group takes {first_s}, a later one {later_s}; "
        "the first takes {ratio} as long",
    ),
    "latency": Shape(_latency, "a message between two ranks takes {time_s}"),
    "bandwidth": Shape(_large_messages, "a link carries {busbw_per_s} in one direction"),
}  # fmt: skip
"""The shapes that have a sentence of their own, in its order."""


class GroupRow(NamedTuple):
    """One group at one size."""

    title: str
    """Its kind of call."""
    case: Case
    ranks: str
    together: Estimate | None
    """Its time in seconds when all groups call together."""
    alone: Estimate | None

    @property
    def interference(self) -> Estimate | None:
        """Its time when all groups call together over that when it calls alone."""
        return ratio(self.together, self.alone)


COLUMNS = (
    Column("size", lambda group: size_of(group.case), BYTES),
    Column("group", attrgetter("ranks"), TEXT),
    Column("alone", attrgetter("alone"), TIME, 8),
    Column("together", attrgetter("together"), TIME, 8),
    Column("interference", attrgetter("interference"), RATIO_WITH_INTERVAL, 8),
)


def groups_blocks(rows: Sequence[ResultRow]) -> list[Block]:
    """A table of the groups of each kind of call at each size, and what its times are. Of
    many groups those that are slowed most, or that are slowest beside others of their kind, and the
    distribution."""
    groups = group_rows(rows)
    if not groups:
        return [Text("The run has no groups of ranks: it measured all ranks as one group.")]
    lacking = any(group.together and group.together.low is None for group in groups)
    notes = [*texts("groups"), *texts("medians only") * lacking]
    timed = [(group, time) for group in groups if (time := group.together or group.alone)]
    times = collect(((group.title, group.case.size_bytes), time.value) for group, time in timed)
    usual = {kind: median(found) for kind, found in times.items()}

    def slowness(group: GroupRow) -> float:
        time = group.together or group.alone or Estimate(0.0)
        usual_s = usual.get((group.title, group.case.size_bytes), 1.0)
        return group.interference.value if group.interference else time.value / usual_s

    table = Table("Time of each group", COLUMNS, groups, attrgetter("title"))
    return [*summarise(table, slowness, COLUMNS[2:], "groups", COLUMNS[:1]), Items(notes)]


def group_rows(rows: Sequence[ResultRow]) -> list[GroupRow]:
    """The groups of each kind of call, by size, in the order of the plan."""
    found: dict[tuple[str, int, str], GroupRow] = {}
    for row in rows:
        title = row.case.title_without("concurrency", "group_ranks")
        for ranks, time in row.group_times.items():
            key = (title, row.case.size_bytes, ranks)
            known = found.get(key, GroupRow(title, row.case, ranks, None, None))
            is_alone = row.case.concurrency == ALONE
            found[key] = known._replace(alone=time) if is_alone else known._replace(together=time)
    titles = collect((group.title, group) for group in found.values())
    sizes = (collect((g.case.size_bytes, g) for g in own) for own in titles.values())
    return [group for by_size in sizes for own in by_size.values() for group in own]
