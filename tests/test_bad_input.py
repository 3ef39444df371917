"""Whatever is given: an answer, or two lines and an exit code; never a traceback or a hang."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import SERVER, fork_server, start_command

FUZZ = f"""
import runpy, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
runpy.run_path({str(Path(__file__).with_name("fuzz.py"))!r}, run_name="__main__")
"""
SEED = 2026
LONGEST_S = 3600


def fuzz(what: str, where: Path, *more: object) -> dict[str, Any]:
    """The result that fuzz.py prints; it shows its failures with their input."""
    shared = {SERVER: fork_server()}
    command = start_command(where, what, str(where), *map(str, more), program=FUZZ, **shared)
    out, err = command.communicate(LONGEST_S)
    assert command.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(
    ("files", "each"), [(60, 1), pytest.param(5000, 4, marks=pytest.mark.full)]
)
def test_damaged_files_give_an_answer_or_two_lines(tmp_path: Path, files: int, each: int) -> None:
    found = fuzz("files", tmp_path, SEED, files, each)
    assert not found["failures"], json.dumps(found["failures"], indent=1)
    assert sum(found["codes"].values()) == files * each
    assert min(found["codes"]["0"], found["codes"]["6"]) > files * each // 12


@pytest.mark.parametrize("lines", [50, pytest.param(5000, marks=pytest.mark.full)])
def test_random_command_lines_end_as_they_should(tmp_path: Path, lines: int) -> None:
    found = fuzz("lines", tmp_path, SEED, lines)
    assert not found["failures"], json.dumps(found["failures"], indent=1)
    assert sum(found["codes"].values()) == lines
    assert min(found["codes"][code] for code in "026") > lines // 100


UNREADABLE = {
    "fifo": "cannot read fifo: it is no regular file",
    "zero": "cannot read zero: it is no regular file",
    "socket": "cannot read socket: it is no regular file",
    "loop": "cannot read loop: Too many levels of symbolic links", "huge": "huge",
    "huge.csv": "huge.csv", "binary": "binary", "dir": "dir", "x" * 5000: "",
    "unnamed\udcff": "unnamed",
}  # fmt: skip
READERS = (
    ["show", "FILE"], ["plot", "FILE"], ["explain", "FILE"], ["compare", "FILE", "a"],
    ["compare", "a", "FILE"], ["check", "FILE", "--max-time", "1s"], ["export", "FILE"],
    ["check", "a", "--against", "FILE"], ["import", "FILE", "--output", "new"],
)  # fmt: skip
OTHERS = {
    ("check", "a", "--rules", "fifo"): (6, "cannot read fifo: it is no regular file"),
    ("check", "a", "--rules", "zero"): (6, "cannot read zero: it is no regular file"),
    ("check", "a", "--rules", "huge"): (6, "cannot read huge: it is larger than 1 MiB"),
    ("check", "a", "--rules", "dir"): (6, "cannot read dir: Is a directory"),
    ("check", "a", "--rules", "deep.toml"): (2, "deep.toml is not valid TOML"),
    ("check", "a", "--rules", "bad.toml"): (2, "bad.toml, rule 1: max_time is "),
    ("show", "latin.csv"): (6, "latin.csv has the rows of a run, but not its samples"),
    ("export", "latin.csv"): (6, "latin.csv is not text"),
    ("export", "a", "--output", "fifo", "--format", "csv"): (6, "fifo exists"),
    ("export", "a", "--output", "x" * 300, "--format", "csv"): (6, "File name too long"),
    ("explain", "barrier", "--ranks", "9" * 40, "--time", "1s"): (2, "--ranks is 9"),
    ("explain", "all_reduce", "--ranks", "2", "--size", "9" * 50, "--time", "1s"): (2, "range"),
}


def test_what_is_no_file_is_told_at_once(tmp_path: Path) -> None:
    lines: dict[tuple[str, ...], tuple[int | None, str]] = dict(OTHERS)
    for name, words in UNREADABLE.items():
        lines |= {tuple(w.replace("FILE", name) for w in line): (None, words) for line in READERS}
    asked = tmp_path / "lines.json"
    asked.write_text(json.dumps(list(lines)))
    told = fuzz("these", tmp_path, asked)
    assert told["seconds"] < 60
    for (line, (code, words)), (found, err) in zip(lines.items(), told["ended"], strict=True):
        assert found in ((2, 3, 6) if code is None else (code,)), (line, found, err)
        assert len(err.splitlines()) == 2, (line, err)
        first, second = err.splitlines()
        assert (first[:7], second[:6]) == ("error: ", "hint: "), line
        assert words in first, line
        assert len(err) < 9000
