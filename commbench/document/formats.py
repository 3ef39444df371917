"""FORMATS: the formats in which a report is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from commbench.document.blocks import Document
from commbench.document.html import html_text
from commbench.document.markdown import markdown_text
from commbench.errors import UsageError
from commbench.validation import choose

HTML, MARKDOWN = "html", "markdown"
ENDINGS = {".html": HTML, ".htm": HTML, ".md": MARKDOWN, ".markdown": MARKDOWN}
FORMATS: dict[str, Callable[[Document], str]] = {HTML: html_text, MARKDOWN: markdown_text}


def choose_format(format_: str | None, output: str | Path | None) -> Callable[[Document], str]:
    """The writer of that format; without a name that of the file's ending, else HTML. Raises
    UsageError for an ending that is not in ENDINGS."""
    if format_ is not None:
        return choose("format", format_, FORMATS)
    if output is None:
        return FORMATS[HTML]
    ending = Path(output).suffix
    if ending.lower() not in ENDINGS:
        problem = f"{ending!r} is no ending of a report" if ending else f"{output} has no ending"
        raise UsageError(problem, "end the name in .html or .md, or give --format")
    return FORMATS[ENDINGS[ending.lower()]]
