"""What scripts/test prints of tests that fail at first and pass on the second try."""

import subprocess
import sys
from pathlib import Path

from commands import clean_environment
from retries import NOTES

FLAKY = """
from pathlib import Path
import pytest

@pytest.fixture
def disturbed():
    path = Path("setup")
    if not path.exists():
        path.write_text("")
        raise OSError("no room")

def test_passes_then(disturbed):
    pass

def test_flaky():
    path = Path("call")
    first, _ = path.exists(), path.write_text("")
    assert first, "a rank was late"

def test_broken():
    assert 1 == 2

def test_sound():
    pass

def test_skipped():
    pytest.skip("not here")
"""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> int:
    line = [sys.executable, "-m", "pytest", "-q", "-p", "retries", *arguments]
    environment = clean_environment(PYTHONPATH=str(Path(__file__).parent), **variables)
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(line, cwd=folder, env=environment, stdout=subprocess.DEVNULL).returncode


def test_a_test_that_passes_only_on_the_second_try_is_named_with_how_it_failed(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(FLAKY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    notes = tmp_path / "notes"
    assert run_pytest(tmp_path) == 1
    assert run_pytest(tmp_path, "--last-failed", **{NOTES: str(notes)}) == 1
    assert notes.read_text().splitlines() == [
        "1 passed, 1 skipped, 2 passed only on the second try",
        "test_it.py::test_passes_then: OSError: no room",
        "test_it.py::test_flaky: AssertionError: a rank was late",
    ]
