"""Plain data as YAML text: every string that YAML might read as something else goes as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/-]*", re.ASCII)
_OTHERWISE_READ = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def yaml_text(data: dict[str, Any]) -> str:
    """A document. A JSON string of printable characters is a YAML string of the same text
    (YAML 1.2, section 1.3), so nothing within it can end it or begin something else."""
    return "\n".join(_lines(data)) + "\n"


def _lines(data: Any) -> list[str]:
    if isinstance(data, dict) and data:
        return [line for key, value in data.items() for line in _entry(_scalar(key) + ":", value)]
    if isinstance(data, list) and data:
        return [line for value in data for line in _item(_lines(value))]
    return [_scalar(data)]


def _entry(key: str, value: Any) -> list[str]:
    lines = _lines(value)
    if isinstance(value, (dict, list)) and value:
        return [key, *(f"  {line}" for line in lines)]
    return [f"{key} {lines[0]}"]


def _item(lines: list[str]) -> list[str]:
    return [f"- {lines[0]}", *(f"  {line}" for line in lines[1:])]


def _scalar(value: Any) -> str:
    plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    if plain and value.lower() not in _OTHERWISE_READ:
        return str(value)
    return json.dumps(value, ensure_ascii=False)
