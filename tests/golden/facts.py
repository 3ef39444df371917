"""Whether the JSON of `expected/` still says what it said: values are compared, whatever their keys
and units are called."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden.runner import EXPECTED, HERE

Fact = tuple[str, Any]


def print_lost_facts(revision: str) -> None:
    """Print, for each file, the facts that it had at a revision and that it has no more."""
    folder = EXPECTED.relative_to(HERE.parents[1])
    names = _git("ls-tree", "--name-only", revision, f"{folder}/").splitlines()
    for name in sorted(name for name in names if name.endswith(".json")):
        path = Path(name)
        now = json.loads(path.read_text()) if path.exists() else None
        for keys, number in lost_facts(json.loads(_git("show", f"{revision}:{name}")), now):
            print(f"{path.name}: {keys} ({number})")


def lost_facts(before: Any, now: Any) -> list[tuple[str, int]]:
    """The keys and values that `now` lacks, each with how often it does. A number counts in any
    unit: 0.0015, 1.5 and 1500 are one value."""
    left = Counter(_value(value) for _, value in _leaves(now))
    lost: Counter[str] = Counter()
    for keys, value in _leaves(before):
        if left[_value(value)] > 0:
            left[_value(value)] -= 1
        elif value not in (None, "", False):
            lost[f"{keys} = {value!r}"] += 1
    return sorted(lost.items())


def _leaves(value: Any, keys: str = "") -> Iterator[Fact]:
    """The values of an object that are no objects, each with the keys that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{keys}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, f"{keys}[]")
    else:
        yield keys, value


def _value(value: Any) -> Any:
    """A value as it is compared: of a number its first six digits."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.5e}".partition("e")[0] if is_number else value


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True).stdout
