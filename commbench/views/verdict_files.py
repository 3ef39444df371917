"""The files of verdicts about nodes: a list of names for each verdict, JSON, a page, JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from commbench.results.files import write_new
from commbench.stats.verdict import PASS
from commbench.views.formats import HTML, JSON, View


def write_verdict_files(
    folder: Path,
    stem: str,
    lists: Mapping[str, Sequence[str]],
    shown: tuple[View, Any],
    nodes: Iterable[tuple[str, str, str]],
    answer: str,
) -> list[Path]:
    """Write a list for each verdict with a name in each line, and a result in the other formats as
    files named `stem`; their paths. `nodes` are names, verdicts and reasons: in JUnit, with
    `answer` as the title, each is a test case, which fails unless its verdict is PASS."""
    from commbench.output.ci import FAILURE, PASSED, JUnitCase, JUnitSuite, junit_xml

    view, result = shown
    cases = [
        JUnitCase(name, PASSED if verdict == PASS else FAILURE, reason, verdict)
        for name, verdict, reason in nodes
    ]
    files: dict[str, str | bytes] = {
        f"{verdict}.txt": "".join(f"{name}\n" for name in names) for verdict, names in lists.items()
    }
    files |= {f"{stem}.{each}": view.write(result, each) for each in (JSON, HTML)}
    files["junit.xml"] = junit_xml([JUnitSuite(f"commbench {stem}", cases)], answer)
    for name, content in files.items():
        write_new(folder / name, content)
    return [*map(folder.joinpath, files)]
