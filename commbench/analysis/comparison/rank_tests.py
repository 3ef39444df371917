"""The rank test of each pair of rows, over launches or visits: single samples are not independent.

A launch is an experimental factor of its own (Hunold and Carpen-Amarie, TPDS 2016). So launches are
ranked where there are enough; otherwise visits to the case, other cases having come in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from commbench.analysis.comparison.mann_whitney import mann_whitney
from commbench.analysis.comparison.matching import Match
from commbench.analysis.readers import Source
from commbench.analysis.rows import Row
from commbench.analysis.statistics import median

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

FEWEST = 4
"""With three values against three, no rank test can reach 5 %."""


def rank_tests(a: Source, b: Source, matched: Match) -> tuple[Numbers, list[str]]:
    """The p-value of each pair of rows, and what was ranked; NaN and empty where a side has too
    few of either, or holds no samples."""
    import numpy as np

    p_values = np.full(len(matched.in_a), np.nan)
    units = [""] * len(p_values)
    if a.run is None or b.run is None:
        return p_values, units
    for index, (in_a, in_b) in enumerate(zip(matched.in_a, matched.in_b, strict=True)):
        sides = [
            Row(run.header, run.measurements[place], None)
            for run, place in ((a.run, in_a), (b.run, in_b))
        ]
        for name, medians in UNITS.items():
            first, second = map(medians, sides)
            if min(len(first), len(second)) >= FEWEST:
                p_values[index], units[index] = mann_whitney(first, second), name
                break
    return p_values, units


def visit_medians(row: Row) -> tuple[float, ...]:
    """The median of each visit to a case, in seconds."""
    visits = row.measurement.visits
    return tuple(median(sorted(visit.samples_s)) for visit in visits if visit.samples_s)


UNITS: dict[str, Callable[[Row], tuple[float, ...]]] = {
    "launches": lambda row: row.launch_medians,
    "visits": visit_medians,
}
"""What may be ranked, best first."""
