"""In how many turns two runs were measured, how far a run may be from another one for that, and
which sweep takes turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import groupby, pairwise
from operator import itemgetter, sub
from shlex import quote
from typing import NamedTuple, TypeAlias

from commbench.analysis import statistics
from commbench.analysis.clearer import same_options
from commbench.analysis.environment import NOT_SET, Difference
from commbench.analysis.load import LoadedRun
from commbench.analysis.rows import samples_by_launch
from commbench.results.schema import IN_SWEEP, Run, RunHeader, is_imported
from commbench.units import format_sizes

SURE_TURNS, TIMES_AS_WIDE = 3, 2.0
"""In fewer turns, two runs on CPUs are faster or slower only if an interval so many times as wide
says so: in two of eight series, equal runs differed twice as much as launches show (RUNS)."""


class RunFacts(NamedTuple):
    """What tells how far a run may be from another one."""

    turns: int
    """In how many turns it was measured: its launches between which none of the other run began
    are one turn."""
    spread: float
    """The standard deviation of launches by all its rows, 0 where it is not known; in turns that of
    the ratios of both runs by launch."""
    launches: int = 0
    """How many it has; 0 where that is not known."""
    is_apart: bool = False
    """Whether both ran on CPUs in fewer than SURE_TURNS turns, in no sweep: the host may have
    changed in between."""


def are_in_turns(runs: Sequence[RunFacts] | None) -> bool:
    """Whether each launch of two runs is a turn of its own."""
    return bool(runs) and all(run.turns == run.launches > 1 for run in runs or ())


TwoRuns: TypeAlias = tuple[RunFacts, RunFacts]
Side: TypeAlias = LoadedRun | Run | None
_latest: deque[tuple[Run, Run, TwoRuns]] = deque(maxlen=8)
"""The latest pairs of runs, and their facts: the settings of a sweep are compared kind by kind."""


def find_facts(first: Side, second: Side) -> TwoRuns:
    """Those of two runs; where they are not known, of runs that were measured one after another."""
    a, b = (each.run if isinstance(each, LoadedRun) else each for each in (first, second))
    if known := next((facts for x, y, facts in _latest if x is a and y is b), None):
        return known
    logs = [
        {m.case.key(): statistics.launch_logs(samples_by_launch(m)) for m in run.measurements}
        if run else {} for run in (a, b)
    ]  # fmt: skip
    turns = _count_turns(a.starts, b.starts) if a and b and a.starts and b.starts else (1, 1)
    spreads = (statistics.spread_of(own.values()) for own in logs)
    launches = (len(run.starts) if run else 0 for run in (a, b))
    of_a, of_b = map(RunFacts, turns, spreads, launches)
    if are_in_turns((of_a, of_b)):
        ratios = (subtract(logs[1].get(key, ()), own) for key, own in logs[0].items())
        spread = statistics.spread_of(ratios)
        of_a, of_b = of_a._replace(spread=spread), of_b._replace(spread=spread)
    elif min(turns) < SURE_TURNS and _is_on_cpus(first, a) and _is_on_cpus(second, b):
        is_apart = not (a and b) or IN_SWEEP not in (a.header.launcher, b.header.launcher)
        of_a, of_b = of_a._replace(is_apart=is_apart), of_b._replace(is_apart=is_apart)
    if a and b:
        _latest.append((a, b, (of_a, of_b)))
    return of_a, of_b


def _is_on_cpus(side: Side, run: Run | None) -> bool:
    """Whether a run is known to have been measured on CPUs; a history is no run."""
    if run or not isinstance(side, LoadedRun):
        return bool(run and run.header.plan.device == "cpu")
    return not side.history and all(row.device == "cpu" for row in side.rows)


def subtract(b: Sequence[float], a: Sequence[float]) -> list[float]:
    """By launch; empty where one side lacks any."""
    return [*map(sub, b, a)] if len(a) == len(b) else []


def _count_turns(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """In how many turns two runs were measured whose launches began at these times. Each launch is
    one where both made it before either made its next one, as in a sweep. Of launches that began in
    one second, those with the same numbers in both runs alternate; others have the order of fewest
    turns."""
    both = [*zip(a, b, strict=False)]
    if len(both) == len(a) == len(b) and all(max(p) < min(q) for p, q in pairwise(both)):
        return len(a), len(b)
    every = ((at, number, side) for side in (0, 1) for number, at in enumerate((a, b)[side]))
    began: list[int] = []
    for _, same in groupby(sorted(every), itemgetter(0)):
        order = [(number, side) for _, number, side in same]
        if {(number, 1 - side) for number, side in order} != {*order}:
            order.sort(key=lambda each: began[-1:] != [each[1]])
        began += [side for _, side in order]
    sides = [side for side, _ in groupby(began)]
    return sides.count(0), sides.count(1)


def varied(
    differences: Sequence[Difference], is_own_call: bool, header: RunHeader | None
) -> tuple[str, str]:
    """What a sweep compares in turns, and its options: the only difference that may change times,
    if that can be varied, and what a run was measured with."""
    likely = [each for each in differences if each.is_likely]
    name, *values = likely[0] if len(likely) == 1 else ("", "", "")
    what, option = "two environments", "--vary python=OLD,NEW"
    if name == "cpu_mode":
        what, option = "both CPU modes", f"--vary cpu-mode={values[0]},{values[1]}"
    elif name and likely[0].is_variable:
        old, new = ("-" if value == NOT_SET else value for value in values)
        option = f"--env {quote(f'{name}={old},{new}')}"
    elif is_own_call:
        what, option = "two versions of a call", "--vary call=OLD/FILE.py:NAME,NEW/FILE.py:NAME"
    if not header or is_imported(header):
        return what, option
    plan = header.plan
    sizes = f" --sizes {format_sizes(plan.sizes)}" * bool(plan.sizes)
    operations = f" --op {','.join(plan.operations)}" * bool(plan.operations)
    return what, f"{option}{operations}{sizes}{same_options(header, option)}"
