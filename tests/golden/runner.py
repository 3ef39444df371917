"""Runs a command line of `cases.py` on the recorded files, and compares or rewrites what it prints.

`expected/NAME.txt` has the exit code, the output and the files of a case; JSON lies beside it, with
sorted keys and a fact on each line: `NAME.json` of standard output, `NAME.FILE.json` of a file.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from commbench import __version__
from commbench.cli import main

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
FOLDERS = {
    "results": HERE / "data" / "runs",
    "files": HERE / "data" / "files",
    "other": HERE.parent / "data",
}
"""What the working folder of a case has, by its name there."""
ENVIRONMENT = {"COLUMNS": "80", "TZ": "UTC", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
INHERITED = ("PATH", "HOME", "TMPDIR", "COVERAGE_PROCESS_START")
PICTURES = (".png", ".pdf", ".parquet")
DAY = re.compile(r"\b\d{4}-\d{2}-\d{2} \d{2}:\d{2} UTC\b")
"""When a report was written."""


def name_of(line: str) -> str:
    """The name of a case's files."""
    return re.sub(r"[^\w.+=]+", "_", line).strip("_") or "commbench"


PROGRESS = re.compile(r"^\[ *\d+ %\].*\n", re.MULTILINE)
"""Lines of progress, which appear where a command takes long."""


def run_case(line: str, folder: Path) -> dict[str, str]:
    """Run `commbench LINE` in a new folder: the files that describe what it did, by their names."""
    for name, target in FOLDERS.items():
        (folder / name).symlink_to(target)
    code, out, err = _run(shlex.split(line), folder)
    made = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    parts = [f"$ commbench {line}", f"exit code {code}"]
    name, found = name_of(line), {}
    texts = {"standard output": out, "standard error": err}
    texts |= {str(path.relative_to(folder)): _content(path) for path in made}
    for title, text in texts.items():
        if (value := _json(text)) is not None:
            ending = "" if title == "standard output" else f".{title.replace('/', '_')}"
            file = f"{name}{ending}".removesuffix(".json") + ".json"
            found[file] = value
            parts.append(f"--- {title}: {file}")
        elif text:
            parts.append(f"--- {title}\n{text}".removesuffix("\n"))
    whole = "\n".join(parts) + "\n"
    return {f"{name}.txt": whole} | found


def _run(arguments: list[str], folder: Path) -> tuple[object, str, str]:
    """The exit code, output and errors of a command in this process."""
    with (
        _environment(folder),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
        patch.object(sys, "argv", ["commbench", *arguments]),
        patch.object(main, "_leave", sys.exit),
        pytest.raises(SystemExit) as end,
    ):
        main.main()
    return end.value.code, *(
        _neutral(PROGRESS.sub("", text.getvalue()), folder) for text in (out, err)
    )


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    before = Path.cwd()
    with patch.dict(os.environ, kept | ENVIRONMENT, clear=True):
        time.tzset()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            gc.enable()  # `compare` leaves it off for the end of its process
    time.tzset()


def _content(path: Path) -> str:
    """The text of a file that a command wrote; of a picture only that there is one."""
    if path.suffix in PICTURES:
        return "(not text)"
    return _neutral(path.read_text(), path.parent)


def _neutral(text: str, folder: Path) -> str:
    """A text without the day, the version and the place of the folder; of a page its text."""
    if text.lstrip().startswith("<!doctype html>"):
        text = PageText(text).whole()
    elif text.lstrip().startswith("<?xml") and "<svg" in text:
        text = "\n".join(re.findall(r"<!-- (.*?) -->", text))
    text = DAY.sub("DAY", text).replace(str(folder.resolve()), "FOLDER")
    return text.replace(f"commbench {__version__}", "commbench VERSION")


def _json(text: str) -> str | None:
    """A JSON object or array with sorted keys, a fact on each line; None for another text."""
    if not text.startswith(("{", "[")):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    pretty = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    numbers = re.compile(r"\[\s+([^][{}\"]*?)\s+\]")
    return numbers.sub(lambda match: f"[{' '.join(match[1].split())}]", pretty) + "\n"


class PageText(HTMLParser):
    """The text of an HTML page: a line for each row of a table and each paragraph. Of a drawing its
    title and description."""

    LINES = (
        "title", "h1", "h2", "h3", "h4", "p", "li", "tr", "caption", "dt", "dd", "div", "figure",
        "pre", "summary", "svg",
    )  # fmt: skip
    LEFT_OUT = ("style", "script", "defs")

    def __init__(self, page: str) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._left_out = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._left_out += tag in self.LEFT_OUT
        if tag in self.LINES:
            self._parts.append(f"\n{'#' * int(tag[1])} " if re.fullmatch("h[1-4]", tag) else "\n")
        elif tag in ("td", "th"):
            self._parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        self._left_out -= tag in self.LEFT_OUT
        if tag in self.LINES:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._left_out:
            self._parts.append(data)

    def whole(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._parts).splitlines())
        return "\n".join(line for line in lines if line) + "\n"


def rewrite(cases: Iterable[str], scratch: Path) -> None:
    """Write what every case prints now, and remove what belongs to no case."""
    written = set()
    for number, line in enumerate(cases):
        folder = scratch / str(number)
        folder.mkdir()
        for name, text in run_case(line, folder).items():
            assert name not in written, f"two cases write {name}"
            written.add(name)
            (EXPECTED / name).write_text(text)
    for path in EXPECTED.iterdir():
        if path.name not in written:
            path.unlink()
