"""Fixtures of all tests: commbench in the folder of a test."""

import os
from pathlib import Path

import pytest
from commands import Commbench, end_fork_server, run_commbench, run_program

pytest_plugins = ["retries"]
os.environ["COLUMNS"] = "100"  # the width of text that tests compare, as in commands.py


@pytest.fixture
def commbench(tmp_path: Path) -> Commbench:
    return lambda *arguments, **options: run_commbench(tmp_path, *arguments, **options)


@pytest.fixture
def program(tmp_path: Path) -> Commbench:
    return lambda text, *arguments, **variables: run_program(
        tmp_path, text, *arguments, **variables
    )


def pytest_sessionfinish() -> None:
    end_fork_server()
