"""Rows as a pandas DataFrame. The only file of this folder that imports pandas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.analysis.columns import COLUMNS, INTEGERS, TEXTS, row_values
from commbench.analysis.rows import make_rows
from commbench.results.journal_reader import read_run

if TYPE_CHECKING:
    from pandas import DataFrame


def make_frame(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], texts: Collection[str] = TEXTS
) -> DataFrame:
    """A frame of these rows: INTEGERS as Int64, `texts` as string, other columns as Float64.
    None becomes `pandas.NA`."""
    import pandas

    frame = pandas.DataFrame(list(rows), columns=list(columns), dtype="object")
    types = dict.fromkeys(columns, "Float64")
    types |= {name: "Int64" for name in columns if name in INTEGERS}
    types |= {name: "string" for name in columns if name in texts}
    typed: DataFrame = frame.astype(types)
    return typed


def frame(*paths: Path | str) -> DataFrame:
    """The rows of one or several runs: columns as in results.csv, and `run`, the run's name.

    Each path is a run folder or its run.jsonl. Values that were not measured are `pandas.NA`.
    Raises RecordsError for what is no run.
    """
    runs = [read_run(Path(path)) for path in paths]
    rows = [(run.name, *row_values(row).values()) for run in runs for row in make_rows(run)]
    return make_frame(rows, ("run", *COLUMNS), ("run", *TEXTS))
