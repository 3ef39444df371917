"""FORMATS: the table of ways to print comparisons. Each gives text that ends with a line's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from commbench.analysis.comparison.compare import Comparison
from commbench.report.comparison_data import comparisons_csv, comparisons_json
from commbench.report.comparison_markdown import comparisons_markdown
from commbench.report.comparison_table import comparisons_text

FORMATS: dict[str, Callable[[Sequence[Comparison]], str]] = {
    "table": lambda found: comparisons_text(found) + "\n",
    "markdown": lambda found: comparisons_markdown(found) + "\n",
    "csv": comparisons_csv,
    "json": comparisons_json,
}
