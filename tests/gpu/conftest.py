"""For scripts/gpu_check: a time limit for each GPU test, and a note of how each ended.

The notes are there also if pytest is killed: first the tests that will run, then a line for each.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT_S = float(os.environ.get("GPU_CHECK_TEST_S", "120"))


def note(**facts: object) -> None:
    if folder := os.environ.get("GPU_CHECK_STEP"):
        with Path(folder, "tests.jsonl").open("a") as file:
            file.write(json.dumps(facts) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    note(tests=[item.nodeid for item in session.items])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = report.longrepr[2] if report.skipped else crash.message if crash else ""
        note(test=report.nodeid, outcome=report.outcome, seconds=round(report.duration, 2),
             reason=reason.partition("\n")[0], said=report.longreprtext[-8000:],
             properties=report.user_properties)  # fmt: skip


def end_test(*_: object) -> None:
    pytest.fail(f"did not end within {LIMIT_S:g} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    signal.signal(signal.SIGALRM, end_test)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
