"""A pytest plugin that reports tests which failed at first and passed when scripts/test ran them
again: such a test is not simply a passed one.

The first run stores what failed, and how, in pytest's cache. The second run, in which
COMMBENCH_RETRY_NOTES names a file, appends to that file the number of tests that passed and one
line for each test that passed only now. scripts/test prints the file at the very end.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOTES = "COMMBENCH_RETRY_NOTES"
STORED = "commbench/first_try"


class Retries:
    """The outcomes of a run, and those of the first run in a second one."""

    def __init__(self, config: pytest.Config) -> None:
        self._cache: pytest.Cache = config.cache  # type: ignore[assignment]
        self._failed: dict[str, str] = {}
        """By test id the first line of how it failed."""
        self._counts = {"passed": 0, "skipped": 0}
        self._notes = os.environ.get(NOTES)
        self._passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longreprtext
            self._failed.setdefault(report.nodeid, (text.splitlines() or ["no reason given"])[0])
        elif report.when == "call" or report.skipped:
            self._counts[report.outcome] += 1
            self._passed.add(report.nodeid)

    def pytest_unconfigure(self) -> None:
        if not self._notes:
            self._cache.set(STORED, {"failed": self._failed, **self._counts})
            return
        first = self._cache.get(STORED, None)
        again = {
            test: how
            for test, how in first["failed"].items()
            if test in self._passed and test not in self._failed
        }
        counts = f"{first['passed']} passed, {first['skipped']} skipped, "
        lines = [f"{counts}{len(again)} passed only on the second try"] if again else []
        lines += [f"{test}: {how}" for test, how in again.items()]
        with Path(self._notes).open("a") as file:
            file.writelines(line + "\n" for line in lines)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the outcomes where all of them arrive: not in a worker of xdist."""
    if not hasattr(config, "workerinput") and getattr(config, "cache", None):
        config.pluginmanager.register(Retries(config))
