"""A comparison as CSV and JSON: every row, matched or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commbench.analysis.columns import KEY, as_nullable, records
from commbench.analysis.load import LoadedRun
from commbench.compare.comparison import Comparison

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = 1
"""Version of the JSON; raised when a field changes its meaning or goes."""

_SIDE_COLUMNS = {
    "time_us": "time_{}_us",
    "time_ci_low_us": "time_{}_ci_low_us",
    "time_ci_high_us": "time_{}_ci_high_us",
    "busbw_GBps": "busbw_{}_GBps",
}
COLUMNS = (
    *KEY,
    *(name.format(side) for side in "ab" for name in _SIDE_COLUMNS.values()),
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "p_value",
    "units",
    "verdict",
    "reason",
)


def comparisons_csv(comparisons: Sequence[Comparison]) -> str:
    """A line per row of either side; `a` and `b` name the sides."""
    import pandas

    frames = []
    for found in comparisons:
        frame = rows_of(found)
        frame.insert(0, "a", found.a.name)
        frame.insert(1, "b", found.b.name)
        frames.append(frame)
    text: str = pandas.concat(frames, ignore_index=True).to_csv(index=False, lineterminator="\n")
    return text


def rows_of(found: Comparison) -> DataFrame:
    """The rows of a comparison, then those that only one side has, with COLUMNS."""
    import pandas

    parts = [found.rows.reindex(columns=list(COLUMNS))]
    for side, alone in (("a", found.only_a), ("b", found.only_b)):
        if len(alone):
            names = {name: new.format(side) for name, new in _SIDE_COLUMNS.items()}
            told = alone.rename(columns=names).reindex(columns=list(COLUMNS))
            parts.append(told.assign(verdict=f"only in {side.upper()}", units="", reason=""))
    texts = ("units", "verdict", "reason")
    plain = [as_nullable(part).astype(dict.fromkeys(texts, "str")) for part in parts]
    frame: DataFrame = pandas.concat(plain, ignore_index=True)
    return frame


def comparisons_json(comparisons: Sequence[Comparison]) -> str:
    """Everything that is known of each comparison; null stands for what is not."""
    told = {
        "schema": SCHEMA,
        "ratio": "time of b over time of a",
        "comparisons": [_told(found) for found in comparisons],
    }
    return json.dumps(told, indent=1, allow_nan=False) + "\n"


def _told(found: Comparison) -> dict[str, Any]:
    return {
        "a": _side(found.a),
        "b": _side(found.b),
        "tolerance": found.tolerance,
        "counts": found.counts,
        "mismatches": [fact._asdict() for fact in found.mismatches],
        "differences": [fact._asdict() for fact in found.differences],
        "crossovers": [crossover._asdict() for crossover in found.crossovers],
        "rows": records(rows_of(found)),
    }


def _side(source: LoadedRun) -> dict[str, Any]:
    return {"name": source.name, "path": str(source.path), "has_samples": source.run is not None}
