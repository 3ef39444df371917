"""Fixtures of all tests: commbench in the folder of a test; and the order of tests."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commands import SERVER, Commbench, end_fork_server, fork_server, run_commbench, run_program

from commbench.cli.main import worded
from commbench.errors import CommbenchError

CommbenchError.worded = worded  # tests/test_api.py reads what Python programs do
pytest_plugins = ["retries"]
os.environ["COLUMNS"] = "100"  # the width of text that tests compare, as in commands.py

SHARED = (
    "tests/test_ranks.py", "tests/test_own_calls.py", "tests/worker/test_in_process.py",
    "tests/cli/test_sweep.py",
)  # fmt: skip
"""Files whose tests take long and share what they read: a worker gets all tests of the file."""
SEPARATE = (
    "tests/worker/test_device.py", "tests/test_nodes.py", "tests/test_api.py",
    "tests/test_launch.py", "tests/test_ground_truth.py", "tests/test_bad_input.py",
    "tests/test_write_faults.py", "tests/cli/test_smoke.py", "tests/cli/test_doctor.py",
    "tests/runner/test_resume.py", "tests/test_scripted_backend.py", "tests/cli/test_commands.py",
    "tests/cli/test_refused.py",
    "tests/test_action.py", "tests/answers/show/test_plots.py", "tests/golden/test_golden.py",
)  # fmt: skip
"""Files whose tests take long and share nothing: any worker runs any of them."""
FIRST = {file: place for place, file in enumerate((*SHARED, *SEPARATE))}


@pytest.fixture
def commbench(tmp_path: Path) -> Commbench:
    return lambda *arguments, **options: run_commbench(tmp_path, *arguments, **options)


@pytest.fixture
def program(tmp_path: Path) -> Commbench:
    return lambda text, *arguments, **variables: run_program(
        tmp_path, text, *arguments, **variables
    )


@pytest.fixture
def launches_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches differ in nothing, as those of most made-up runs do: one tells enough."""
    from commbench.plan.backends import BACKENDS

    for name, backend in BACKENDS.items():
        monkeypatch.setitem(BACKENDS, name, backend._replace(launch_spread=0.0))


def pytest_configure(config: pytest.Config) -> None:
    """Start the fork server before the workers, which share it."""
    if config.getoption("numprocesses", None):
        os.environ[SERVER] = fork_server()
    gc.disable()  # until all modules are imported
    if find_spec("hypothesis"):  # scripts/gpu_check needs none
        from hypothesis import Phase, settings

        # A failing test of random input shrinks its input. To trace its lines, too, takes minutes.
        settings.register_profile("short", phases=set(Phase) - {Phase.explain}, deadline=None)
        settings.load_profile("short")


def pytest_collection_finish() -> None:
    """Keep what was imported out of garbage collections, which otherwise take a tenth of the time
    of all tests."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: FIRST.get(_file(item.nodeid), len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker a file of tests at a time, or one test of the files in SEPARATE."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if (file := _file(nodeid)) in SEPARATE else file

    config.option.loadscopereorder = False
    return Scheduler(config, log)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_sessionfinish() -> None:
    end_fork_server()
