"""The formats in which `run` and `show` print a run, for the options of commands; and what is
explained in texts.txt."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from commbench.errors import UsageError
from commbench.output.text import read_sections
from commbench.validation import choose

NCCL_TESTS = "nccl-tests"
FORMATS = ("text", "markdown", "html", "json", NCCL_TESTS)
"""Those of views.formats, which takes time to import, and one of runs only."""
FORMAT_HELP = "text; markdown; html; json; nccl-tests: as its output."
PEAK_HELP = (
    "Show the part of this speed that is reached: 450GB/s, 400Gbit/s, or one of `commbench links`."
)


ONLY_EXPORTED = ("csv", "parquet", "openmetrics", "curves", "nccl-perf", "autoparallel", "inductor")
"""Formats of `commbench export` that `show` does not print."""


def require_format(format_: str, peak: str | None) -> None:
    """Raise UsageError for an unknown format or a peak that cannot be parsed."""
    if format_ in ONLY_EXPORTED:
        hint = f"`commbench export RUN --format {format_}` writes it"
        raise UsageError(f"show has no format {format_!r}", hint)
    choose("format", format_, dict.fromkeys(FORMATS))
    if peak is not None:
        from commbench.plan.links import parse_peak

        parse_peak(peak)


@cache
def texts(section: str) -> tuple[str, ...]:
    """The paragraphs of a section of texts.txt."""
    return tuple(read_sections(Path(__file__).with_name("texts.txt"))[section].splitlines())


def meanings(*sections: str) -> list[tuple[str, str]]:
    """What columns mean: the names and the explanations of sections of texts.txt."""
    parts = (line.partition(": ") for section in sections for line in texts(section))
    return [(name, text) for name, _, text in parts]
