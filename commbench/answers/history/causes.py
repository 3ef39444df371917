"""What may have changed times between runs of a history: what is recorded of them, and what their
hosts did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import exp, log
from operator import attrgetter
from statistics import median

from commbench.analysis.diagnostics import longer_waits
from commbench.analysis.environment import Difference, Recorded, compare_recorded
from commbench.answers.compare.host import find_change
from commbench.answers.history.records import WRITTEN, HistoryRun, Point
from commbench.output.text import join_words, list_some
from commbench.stats import collect
from commbench.units import format_count

MOST_CAUSES = 4
WAITING = "the time that ranks waited for a core"
LEAST_SHARE = 0.5
"""Of the change of a row that a figure of its hosts has, to be a cause."""
LEAST_PART = 0.05
"""To be a part of it, where no cause is known."""


def describe_causes(causes: Iterable[Difference]) -> str:
    """`nccl went from 2.27.5 to 2.28.9 then`; empty for none."""
    texts = []
    for each in causes:
        old, new = (list_some(value.split(", "), 3) for value in (each.a, each.b))
        texts.append(f"{each.shown} went from {old} to {new}")
    more = len(texts) - MOST_CAUSES
    texts = [*texts[:MOST_CAUSES], *[format_count(more, "more difference")] * (more > 0)]
    return f"{join_words(texts)} then" if texts else ""


def what_is_new(
    environments: Mapping[int, Recorded], before: Iterable[HistoryRun],
    since: Iterable[HistoryRun], calls: Collection[str],
) -> list[str]:  # fmt: skip
    """In what may change times of these own calls (empty: torch's) most of some runs, or the
    newest, differ from what most earlier ones of its system have, and which runs do."""
    runs = sorted(since, key=attrgetter("placed", "id"), reverse=True)
    usual = usual_of(environments, (each for each in before if each.system == runs[0].system))
    found = collect(
        (each, run) for run in runs
        for each in compare_recorded(usual, environments[run.environment_id])
        if each.is_likely and any(map(each.concerns, calls))
    )  # fmt: skip
    texts = []
    for each, own in found.items():
        if 2 * len(own) >= len(runs) or runs[0] in own:
            texts.append(each.in_words("the runs before", name_runs(own)))
    return texts


def name_runs(runs: Collection[HistoryRun]) -> str:
    """`run 3`, `runs 3 to 5`, or `runs 3, 5 and 9`: by number, which is the order of adding."""
    ids = sorted(run.id for run in runs)
    is_range = len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1
    which = f"{ids[0]} to {ids[-1]}" if is_range else join_words([*map(str, ids)])
    return f"run{'s' * (len(ids) > 1)} {which}"


def usual_of(environments: Mapping[int, Recorded], runs: Iterable[HistoryRun]) -> Recorded:
    """What most of the environments of several runs have in common."""
    own = [environments[run.environment_id] for run in runs]

    def most(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
        counts = Counter(item for each in found for item in each.items())
        return dict(item for item, number in counts.items() if 2 * number > len(found))

    known = [each.variables for each in own if each.variables is not None]
    return Recorded(most([each.facts for each in own]), most(known) if known else None)


def host_causes(
    before: Collection[Point], after: Collection[Point], times: float, least: float = LEAST_SHARE
) -> Iterator[Difference]:
    """Whether ranks waited for a core longer where they were slower; and which figures of the
    hosts, measured beside each run, changed in the same direction from some points to others. The
    latter take so many `times` as long. The medians of the figures changed by at least this share
    of that (of logarithms)."""
    old, new = ([point.queued_share for point in points] for points in (before, after))
    if parts := longer_waits(old, new, times > 1):
        yield Difference(WAITING, *parts)
    sides = [
        collect((name, log(each)) for point in points for name, each in point.run.beside)
        for points in (before, after)
    ]
    for name, write in WRITTEN.items():
        a, b = (side.get(name, []) for side in sides)
        if min(len(a), len(b)) > 1 and find_change(a, b, 0.0):
            old_log, new_log = median(a), median(b)  # which one run does not change
            if (new_log - old_log) / log(times) >= least:
                yield Difference(name, write(exp(old_log)), write(exp(new_log)))
