"""Rules from a TOML file: tables `[[rule]]`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from commbench.analysis.gating.limits import LIMITS
from commbench.analysis.gating.rules import Rule, as_text, make_rule
from commbench.errors import UsageError, name_error
from commbench.records.files import why_unreadable
from commbench.typed import brief

_SELECTORS = ("operation", "sizes", "dtype")
_KEYS = (*_SELECTORS, *LIMITS, "optional")
_LARGEST_BYTES = 1 << 20


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a TOML file, which is a list of tables `[[rule]]`. Raises UsageError with what
    is wrong in it."""
    values = _toml(path)
    tables = values.get("rule")
    if unknown := [key for key in values if key != "rule"]:
        raise UsageError(f"{path} has an unknown key {unknown[0]!r}", "rules begin with [[rule]]")
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{path} holds no rule", "a rule begins with [[rule]]")
    rules: list[Rule] = []
    for number, table in enumerate(tables, start=1):
        try:
            rules += _rules_of(table)
        except UsageError as error:
            raise UsageError(f"{path}, rule {number}: {error.message}", error.hint) from None
    return tuple(rules)


def _rules_of(table: Any) -> list[Rule]:
    if not isinstance(table, dict):
        raise UsageError("it is no table", "a rule begins with [[rule]]")
    for key in table:
        if key not in _KEYS:
            raise name_error("key", key, list(_KEYS))
    optional = table.get("optional", False)
    if not isinstance(optional, bool):
        raise UsageError(f"optional is {brief(optional)}", "write true or false")
    limits = [key for key in table if key in LIMITS]
    if not limits:
        raise UsageError("it has no limit", f"give it one of {', '.join(LIMITS)}")
    chosen = {key: table[key] for key in _SELECTORS if key in table}
    return [
        make_rule(LIMITS[key], as_text(key, table[key]), chosen)._replace(optional=optional)
        for key in limits
    ]


def _toml(path: Path) -> dict[str, Any]:
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    if why := why_unreadable(path, _LARGEST_BYTES):
        raise UsageError(f"cannot read {path}: {why}", "give a TOML file")
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "give a TOML file") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError too
        raise UsageError(f"{path} is no TOML: {error}", "docs/comparing.md shows one") from None
    return values
