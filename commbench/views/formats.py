"""FORMATS: the formats in which every answer is written, and how a command prints or writes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from commbench.errors import UsageError
from commbench.validation import choose
from commbench.views.as_json import json_text
from commbench.views.document import Document

TEXT, MARKDOWN, HTML, JSON = "text", "markdown", "html", "json"
ENDINGS = {
    ".txt": TEXT, ".md": MARKDOWN, ".markdown": MARKDOWN, ".html": HTML, ".htm": HTML,
    ".json": JSON,
}  # fmt: skip
"""The format of a file, by the ending of its name."""
WRITERS = {
    TEXT: "commbench.views.terminal", MARKDOWN: "commbench.views.markdown",
    HTML: "commbench.views.html",
}  # fmt: skip
"""The modules that write documents; each takes time to import."""


class View(NamedTuple):
    """How results of one kind are shown."""

    document: Callable[[Any], Document]
    """Describes a result."""
    schema: int | None
    """Version of its JSON; raised when a field changes its meaning or goes. None: it has none."""
    data: Callable[[Any], Any] = lambda result: result
    """What JSON holds of a result; the result itself, where its fields are what a reader needs."""
    more: Mapping[str, Callable[[Any], str]] = {}
    """The formats that only these results have."""

    @property
    def formats(self) -> tuple[str, ...]:
        """The names of the formats."""
        return (*WRITERS, *([JSON] if self.schema else []), *self.more)

    def require(self, format_: str) -> None:
        """Raise UsageError for an unknown format."""
        choose("format", format_, dict.fromkeys(self.formats))

    def write(self, result: Any, format_: str = TEXT, is_verbose: bool = False) -> str:
        """The result in that format. UsageError for an unknown one."""
        self.require(format_)
        if format_ in self.more:
            return self.more[format_](result)
        if format_ == JSON:
            return json_text(self.schema, self.data(result))
        write: Callable[[Document, bool], str] = import_module(WRITERS[format_]).write
        return write(self.document(result), is_verbose)


VIEW_OF_DOCUMENT = View(lambda document: document, schema=None)
"""Of a document that is there already."""


def choose_format(format_: str | None, output: str | Path | None, usual: str = TEXT) -> str:
    """That format; without a name that of the file's ending, else the usual one. Raises UsageError
    for an ending that is not in ENDINGS."""
    if format_ is not None or output is None:
        return format_ or usual
    ending = Path(output).suffix
    if ending.lower() not in ENDINGS:
        problem = f"{ending!r} is no ending of a format" if ending else f"{output} has no ending"
        raise UsageError(problem, f"end the name in {', '.join(ENDINGS)}, or give --format")
    return ENDINGS[ending.lower()]


def show(
    view: View,
    result: Any,
    format_: str | None = None,
    output: Path | None = None,
    is_verbose: bool = False,
) -> None:
    """Print a result, or write it into a new file and print the file's name."""
    from commbench.output.console import print_result

    text = view.write(result, choose_format(format_, output), is_verbose)
    if output is None:
        print_result(text, end="")
        return
    from commbench.results.files import write_new

    write_new(output, text)
    print_result(output)
