"""The files of verdicts about nodes: a list of names for each verdict, JSON, a page, JUnit XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.results.files import write_new
from commbench.views.formats import HTML, JSON, View

if TYPE_CHECKING:
    from commbench.output.ci import JUnitCase


def write_verdict_files(
    folder: Path,
    stem: str,
    lists: Mapping[str, Sequence[str]],
    shown: tuple[View, Any],
    cases: Sequence[JUnitCase],
    answer: str,
) -> list[Path]:
    """Write a list for each verdict with a name in each line, and a result in the other formats as
    files named `stem`; their paths. `cases` are those of JUnit, with `answer` as their title."""
    from commbench.output import ci

    view, result = shown
    files: dict[str, str | bytes] = {
        f"{verdict}.txt": "".join(f"{name}\n" for name in names) for verdict, names in lists.items()
    }
    files |= {f"{stem}.{each}": view.write(result, each) for each in (JSON, HTML)}
    files["junit.xml"] = ci.junit_xml([ci.JUnitSuite(f"commbench {stem}", cases)], answer)
    for name, content in files.items():
        write_new(folder / name, content)
    return [*map(folder.joinpath, files)]
