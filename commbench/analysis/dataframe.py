"""Runs as one tidy pandas frame, for notebooks and comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commbench.analysis.columns import COLUMNS, columns_of
from commbench.analysis.rows import make_rows
from commbench.results.journal_reader import read_run

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(*paths: Path | str) -> DataFrame:
    """The rows of one or several runs: columns as in results.csv, and `run`, the run's name.

    Each path is a run folder or its run.jsonl. Values that were not measured are `pandas.NA`.
    Raises RecordsError for what is no run.
    """
    import pandas

    runs = [read_run(Path(path)) for path in paths]
    rows = [{"run": run.name, **columns_of(row)} for run in runs for row in make_rows(run)]
    table: DataFrame = pandas.DataFrame(rows, columns=["run", *COLUMNS]).convert_dtypes()
    return table
