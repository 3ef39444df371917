"""What two runs must have in common to be compared, and in what else they differ.

Facts that are unknown on either side are not compared: results.csv tells few, another tool's file
fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from commbench.analysis.columns import TEXTS
from commbench.analysis.load import LoadedRun
from commbench.results.schema import RunHeader

MUST_MATCH = ("world_size", "num_nodes", "device", "cpu_mode", "gpu_shared")
"""Columns of results.csv without which a ratio would mean something else than a change."""
NEEDED_FACTS = (*MUST_MATCH, "backend")

_UNIMPORTANT = ("host", "boot_id", "variables")
"""Facts of an environment that are told otherwise, or differ between any two runs."""
_HOW = ("iterations", "warmup", "precision", "budget_s", "order", "launches", "check")
"""Fields of a plan that say how was measured."""
_OURS = "median over iterations, slowest rank"
NOT_SET = "not set"


class Difference(NamedTuple):
    """Something in which two runs differ."""

    name: str
    a: str
    b: str


def mismatches(a: LoadedRun, b: LoadedRun) -> tuple[Difference, ...]:
    """The facts that must match and do not."""
    return _differing((name, _column(a, name), _column(b, name)) for name in MUST_MATCH)


def differences(a: LoadedRun, b: LoadedRun) -> tuple[Difference, ...]:
    """In what else two runs differ: backend, hosts, versions, variables, how was measured."""
    pairs = [("backend", _column(a, "backend"), _column(b, "backend"))]
    if a.header and b.header:
        first, second = _told(a.header), _told(b.header)
        names = dict.fromkeys((*first, *second))
        pairs += [(name, first.get(name, ""), second.get(name, "")) for name in names]
        pairs += _variables(a.header, b.header)
        pairs.append(("what a time is", _statistic(a), _statistic(b)))
    return _differing(pairs)


def changes(began: RunHeader, now: RunHeader) -> tuple[Difference, ...]:
    """In what two launches of one plan differ, of all that a result depends on."""
    first, second = _told(began), _told(now)
    pairs = [(name, text, second.get(name, "")) for name, text in first.items()]
    for name in ("num_nodes", "gpu_shared"):
        pairs.append((name, str(getattr(began, name)), str(getattr(now, name))))
    return _differing(pairs + _variables(began, now))


def _differing(pairs: Iterable[tuple[str, str, str]]) -> tuple[Difference, ...]:
    return tuple(Difference(*pair) for pair in pairs if pair[1] and pair[2] and pair[1] != pair[2])


def _column(source: LoadedRun, name: str) -> str:
    """The values of a column, each once; empty where it has none."""
    if name not in source.frame:
        return ""
    values = source.frame[name].dropna().unique()
    texts = (str(value) if name in TEXTS else f"{value:g}" for value in values)
    return ", ".join(sorted(text for text in texts if text))


def _told(header: RunHeader) -> dict[str, str]:
    """What a header tells of the environment, and of how was measured."""
    environment = {k: v for k, v in header.environment.items() if k not in _UNIMPORTANT}
    devices = dict.fromkeys(rank.device.partition(" ")[2] for rank in header.ranks)
    facts = {"hosts": header.hosts, "devices": tuple(filter(None, devices)), **environment}
    facts |= {"commbench": environment.get("commbench") or header.commbench}
    interfaces = dict.fromkeys(rank.interface for rank in header.ranks if rank.interface)
    facts |= {"launcher": header.launcher, "interfaces": tuple(interfaces)}
    texts = {name: _text(value) for name, value in facts.items()}
    how = {name: getattr(header.plan, name) for name in _HOW}
    return texts | {name: "as needed" if v is None else _text(v) for name, v in how.items()}


def _variables(a: RunHeader, b: RunHeader) -> list[tuple[str, str, str]]:
    first, second = (header.environment.get("variables") for header in (a, b))
    if not isinstance(first, dict) or not isinstance(second, dict):
        return []
    names = sorted({*first, *second})
    return [(n, str(first.get(n, NOT_SET)), str(second.get(n, NOT_SET))) for n in names]


def _statistic(source: LoadedRun) -> str:
    if source.run is None:
        return ""
    told = {
        m.reported.statistic if m.reported else _OURS
        for m in source.run.measurements
        if m.reported or m.batches
    }
    return "; ".join(sorted(told))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
