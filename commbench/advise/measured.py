"""The rows of several runs, by what ran: the same ranks and devices, under one or several settings
of the environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from commbench.advise.simulation import Slowdown
from commbench.analysis.rows import ResultRow, make_rows
from commbench.output.paragraphs import list_some
from commbench.results.schema import Run, RunHeader
from commbench.spec.variables import find_family, suggest_variable
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import NAME, UNSET, Setting
from commbench.units import format_count

MOST_NAMES = 3
"""Runs that are named, at most."""


class Measured(NamedTuple):
    """Runs on the same ranks and devices."""

    runs: tuple[str, ...]
    """Their names."""
    header: RunHeader
    """Of the first one under the default setting."""
    results: tuple[SettingResult, ...]
    """By setting, the default first: without variables where that was measured, else that of the
    first run. Of two rows of one case the later one counts."""
    ignored: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Variables in which the runs differ but that count as no setting, with their values."""
    is_only: bool = True
    """Whether no other group of runs has as many ranks and nodes."""

    @property
    def rows(self) -> tuple[ResultRow, ...]:
        """The rows of the default setting."""
        return self.results[0].rows

    @property
    def who(self) -> str:
        """`8 nccl ranks on 2 nodes`; with the names of the runs, where others have as many."""
        plan = self.header.plan
        ranks = format_count(plan.world_size, f"{plan.backend} rank".replace("  ", " "))
        nodes = self.header.num_nodes
        named = "" if self.is_only else f", in {list_some(self.runs, MOST_NAMES)}"
        return f"{ranks} on {format_count(nodes, 'node')}{named}" if nodes > 1 else ranks + named


def group_runs(runs: Iterable[Run]) -> list[Measured]:
    """The runs by ranks, nodes, device and CPU mode, in the order given."""
    by_ranks: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        header = run.header
        plan = header.plan
        key = (plan.world_size, header.num_nodes, plan.device, plan.cpu_mode, header.devices)
        by_ranks.setdefault((*key, header.gpu_shared), []).append(run)
    groups = [_measured(same) for same in by_ranks.values()]
    alike = Counter(each.who for each in groups)
    return [each._replace(is_only=alike[each.who] == 1) for each in groups]


def _measured(runs: Sequence[Run]) -> Measured:
    facts = [_facts(run.header) for run in runs]
    names = dict.fromkeys(name for own in facts for name in own)
    varied = [name for name in names if len({own.get(name, UNSET) for own in facts}) > 1]
    found: dict[Setting, list[Run]] = {}
    for run, own in zip(runs, facts, strict=True):
        values = [(name, own.get(name, UNSET)) for name in varied]
        setting = Setting(
            tuple(value for value in values if not value[0].islower()),
            tuple(value for value in values if value[0].islower()),
        )
        found.setdefault(setting, []).append(run)
    plain = (s for s in found if all(value == UNSET for _, value in s.variables))
    default = next(plain, next(iter(found)))
    order = [default, *(setting for setting in found if setting != default)]
    results = tuple(
        SettingResult(setting, same[-1], tuple(r for run in same for r in make_rows(run)), 1, "")
        for setting in order
        for same in [found[setting]]
    )
    ignored = tuple(each for each in _differing(runs) if each[0] not in names)
    return Measured(tuple(run.name for run in runs), found[default][0].header, results, ignored)


def _differing(runs: Sequence[Run]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The variables in which runs differ, each with its values."""
    every = [_variables(run.header) for run in runs]
    for name in dict.fromkeys(name for own in every for name in own):
        values = dict.fromkeys(own.get(name, UNSET) for own in every)
        if len(values) > 1:
            yield name, tuple(values)


def _variables(header: RunHeader) -> dict[str, str]:
    """The variables of a run that may make it faster or slower, and whose names fit a shell."""
    recorded = header.environment.get("variables")
    found = recorded.items() if isinstance(recorded, dict) else ()
    return {n: str(v) for n, v in found if NAME.fullmatch(n) and "DEBUG" not in n}


def _facts(header: RunHeader) -> dict[str, str]:
    """What may make communication faster or slower, and is chosen by variables or options: names in
    capitals are variables that the backend reads."""
    backend = header.plan.backend
    found = {"backend": backend, "nccl-option": ",".join(header.plan.nccl_options) or UNSET}
    for name, value in _variables(header).items():
        family = find_family(name)
        if family and backend in family.backends and suggest_variable(name, backend) is None:
            found[name] = value
    return found


def find_slowdown(rows: Sequence[ResultRow], operation: str) -> Slowdown:
    """What a computation and an operation cost each other while both go on: the median over the
    measured sizes, with the first computation of the plan; none where that was not measured."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        case = row.measurement.case
        if case.operation == operation and row.overlap:
            slow = row.overlap.communication_slowdown
            values = (row.overlap.computation_slowdown.value, slow.value if slow else 0.0)
            found.setdefault(case.overlap, []).append(values)
    for computation, pairs in found.items():
        of_computation, of_communication = zip(*pairs, strict=True)
        return Slowdown(
            max(0.0, median(of_computation)), max(0.0, median(of_communication)), computation
        )
    return Slowdown()
