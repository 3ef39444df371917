"""JUnit's XML, which continuous integration reads: one suite, one test case per trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from commbench.errors import RecordsError
from commbench.output.table import clean


class JUnitCase(NamedTuple):
    """One thing that was tried."""

    name: str
    cases: int
    seconds: float
    failure: str
    """Empty: it is as it should be."""


def write_junit(path: Path, suite: str, trials: Sequence[JUnitCase], seconds: float) -> None:
    """Write a report; RecordsError where it cannot be written."""
    failures = sum(bool(trial.failure) for trial in trials)
    counts = {"tests": str(len(trials)), "failures": str(failures), "time": f"{seconds:.3f}"}
    root = ElementTree.Element("testsuites", counts)
    within = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts})
    for trial in trials:
        case = ElementTree.SubElement(
            within,
            "testcase",
            {"name": clean(trial.name), "classname": suite, "time": f"{trial.seconds:.3f}"},
        )
        if trial.failure:
            failure = clean(trial.failure)
            ElementTree.SubElement(case, "failure", {"message": failure}).text = failure
    ElementTree.indent(root)
    try:
        # A FIFO that nobody reads would wait for ever.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o666)
        with os.fdopen(file, "wb") as report:
            ElementTree.ElementTree(root).write(report, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise RecordsError(
            f"cannot write {path}: {error.strerror}", "name a writable file"
        ) from None
