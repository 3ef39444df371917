"""FORMATS: the formats in which a report is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from commbench.document.blocks import Document
from commbench.document.html import html_text
from commbench.document.markdown import markdown_text
from commbench.validation import choose

HTML, MARKDOWN = "html", "markdown"
FORMATS: dict[str, Callable[[Document], str]] = {HTML: html_text, MARKDOWN: markdown_text}


def choose_format(format_: str | None, output: str | Path | None) -> Callable[[Document], str]:
    """The writer of that format; without a name that of the file, which is HTML but for `.md`."""
    if format_ is not None:
        return choose("format", format_, FORMATS)
    is_markdown = output is not None and Path(output).suffix.lower() in (".md", ".markdown")
    return FORMATS[MARKDOWN if is_markdown else HTML]
