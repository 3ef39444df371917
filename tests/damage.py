"""Texts with a damage or several: cut off, other letters, lines and numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
STRANGE = [
    "nan", "-nan", "inf", "-inf", "NaN", "N/A", "1e999", "-1", "0", "9" * 25, "9" * 5000,
    "1e-300", "0x10", "١٢", "１２", "\x00", "\x0b", "\x1b[31m", "\x85", "\u2028", "\ufffd",
    "[" * 3000, '"', "{", "#", "# Rank", "\r", "null", "true", "%s{}", "[]", "}", "]", ",",
    "[[[1]]]", '""', '"\\u0000"', "\xff\xfe", "9" * 400, "4611686018427387904", '"[0, 1, 2"',
    '"Process Group Name": "9"', '"x' + "y" * 3000 + '"',
]  # fmt: skip


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _delete(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.choice((1, 1, 2, 5, 50)) :]


def rearrange(lines: list[Any], rng: random.Random) -> tuple[int, int] | None:
    """Remove, repeat or exchange lines; or change nothing, and give two places."""
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines.insert(j, lines[i])
    elif how == 2:
        lines[i], lines[j] = lines[j], lines[i]
    return (i, j) if how == 3 else None


def _lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    if found := rearrange(lines, rng):
        i, j = found
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


def damaged(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(NUMBER.findall(text)):
            text = rng.choice(MUTATIONS)(text, rng)
    return text
