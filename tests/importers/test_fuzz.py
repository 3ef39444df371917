"""Whatever happens to a file: the rows that are in it, or an error; nothing else, and soon."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commbench.errors import CommbenchError
from commbench.importers.base import ImportedFile
from commbench.importers.hints import ImportHints
from commbench.importers.registry import IMPORTERS
from commbench.importers.text_source import SourceText, parse_source

DATA = Path(__file__).parents[1] / "data"
INPUTS = 150
INPUTS_FULL = 2000
LONGEST_S = 60
"""It takes a few seconds; a machine may be busy."""

SEEDS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "nccl-tests-text": [
        ("nccl-tests/nccl_allreduce.log", {"operation": "all_reduce"}),
        ("nccl-tests/nccl_alltoall.log", {"operation": "all_to_all"}),
        ("foreign/nccl-tests-several.txt", {}),
        ("foreign/nccl-tests-per-iteration.txt", {}),
        ("foreign/nccl-tests-tagged.txt", {}),
    ],
    "nccl-tests-json": [("foreign/nccl-tests-1.json", {}), ("foreign/nccl-tests-3.json", {})],
    "osu": [("foreign/osu.txt", {"ranks": 8})],
    "imb": [("foreign/imb.txt", {"ranks": 4})],
    "param": [("foreign/param.txt", {})],
}

NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
STRANGE = [
    "nan", "-nan", "inf", "-inf", "NaN", "N/A", "1e999", "-1", "0", "9" * 25, "9" * 5000,
    "1e-300", "0x10", "١٢", "１２", "\x00", "\x0b", "\x1b[31m", "\x85", "\u2028", "\ufffd",
    "[" * 3000, '"', "{", "#", "# Rank", "\r", "null", "true", "%s{}",
]  # fmt: skip


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _delete(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.choice((1, 1, 2, 5, 50)) :]


def _lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines.insert(j, lines[i])
    elif how == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines = lines[:i] + lines[j:]
    return "\n".join(lines)


def _bytes(text: str, rng: random.Random) -> str:
    letters = list(text)
    for _ in range(rng.choice((1, 1, 3, 20))):
        letters[rng.randrange(len(letters))] = chr(rng.choice((rng.randrange(256), 10, 32, 48)))
    return "".join(letters)


def _token(text: str, rng: random.Random) -> str:
    """Replace a number, or insert something strange anywhere."""
    found = rng.choice(list(NUMBER.finditer(text)))
    begin, end = found.span() if rng.random() < 0.7 else (rng.randrange(len(text)),) * 2
    return text[:begin] + rng.choice(STRANGE) + text[end:]


MUTATIONS: list[Callable[[str, random.Random], str]] = [_cut, _delete, _lines, _bytes, _token]


def _mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(NUMBER.findall(text)):
            text = rng.choice(MUTATIONS)(text, rng)
    return text


def _assert_nothing_is_invented(file: ImportedFile, source: SourceText) -> None:
    is_json = file.format == "nccl-tests-json"
    everything = _numbers(source.text) if is_json else set()
    for row in file.rows:
        present = everything if is_json else _numbers(source.lines[row.line - 1].text)
        assert {row.size_bytes, row.size_bytes / file.ranks} & present or not row.dtype
        assert {f"{row.time_s * 1e6:.9g}"} & {f"{number:.9g}" for number in present}
    assert len(file.rows) <= 2 * max(len(source.lines), source.text.count('"size"'))


def _numbers(text: str) -> set[float]:
    return {float(token) for token in NUMBER.findall(text)}


@pytest.mark.parametrize("inputs", [INPUTS, pytest.param(INPUTS_FULL, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", IMPORTERS)
def test_mutated_files_give_their_own_rows_or_an_error(name: str, inputs: int) -> None:
    rng = random.Random(f"{name} 1")
    seeds = [((DATA / path).read_bytes().decode(), asked) for path, asked in SEEDS[name]]
    began, outcomes = time.monotonic(), {"rows": 0, "errors": 0}
    for _ in range(inputs):
        text, asked = rng.choice(seeds)
        source = parse_source("x", _mutated(text, rng))
        try:
            file = IMPORTERS[name].read(source, ImportHints(**asked))
        except CommbenchError as error:
            assert error.message and error.hint
            assert "\n" not in error.message + error.hint
            outcomes["errors"] += 1
        else:
            _assert_nothing_is_invented(file, source)
            outcomes["rows"] += 1
    assert min(outcomes.values()) > inputs // 20
    assert time.monotonic() - began < LONGEST_S
