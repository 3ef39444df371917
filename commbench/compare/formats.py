"""FORMATS: the table of ways to print comparisons. Each gives text that ends with a line's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from commbench.compare.comparison import Comparison
from commbench.compare.data import comparisons_csv, comparisons_json
from commbench.compare.markdown import comparisons_markdown
from commbench.compare.text import comparisons_text

FORMATS: dict[str, Callable[[Sequence[Comparison]], str]] = {
    "table": lambda found: comparisons_text(found) + "\n",
    "markdown": lambda found: comparisons_markdown(found) + "\n",
    "csv": comparisons_csv,
    "json": comparisons_json,
}
