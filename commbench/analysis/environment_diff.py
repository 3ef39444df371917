"""Checks whether two runs can be compared, and lists other differences of their environments.

Facts that are unknown on either side are not compared: results.csv holds few, and files of other
tools hold fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from commbench.analysis.columns import TEXTS
from commbench.analysis.load import LoadedRun
from commbench.analysis.nccl_log import SELECTIONS, describe_communicator
from commbench.host.gpu_system import GPU_FACTS, describe_gpu_facts
from commbench.results.schema import RunHeader
from commbench.spec.backends import BACKENDS

MUST_MATCH = ("world_size", "num_nodes", "device", "cpu_mode", "gpu_shared")
"""Columns of results.csv. Where two runs differ in one, a ratio of times does not show a change
of what is measured."""
NEEDED_FACTS = (*MUST_MATCH, "backend")

_UNIMPORTANT = ("host", "boot_id", "variables", "other_gpus", SELECTIONS)
"""Facts of an environment that are compared otherwise, or differ between any two runs."""
_HOW = (
    "iterations", "warmup", "precision", "budget_s", "order", "launches", "check", "mesh",
    "mesh_order", "groups", "group_size", "group_stride",
)  # fmt: skip
"""Fields of a plan that say how the run measured."""
_STATISTIC = "median over iterations, slowest rank"
NOT_SET = "not set"
_SET_FOR_RANKS = {
    "GLOO_SOCKET_IFNAME": "lo",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
}
"""Variables that commbench (the first only on a single node) or torchrun sets if they are unset."""


class Difference(NamedTuple):
    """Something in which two runs differ."""

    name: str
    a: str
    b: str


def mismatches(a: LoadedRun, b: LoadedRun) -> tuple[Difference, ...]:
    """The facts that must match and do not; for each dimension of groups, how many ranks a group
    has."""
    pairs = [(name, _column(a, name), _column(b, name)) for name in MUST_MATCH]
    if a.header and b.header:
        first, second = (_group_sizes(run.header) for run in (a, b) if run.header)
        common = [name for name in first if name in second]
        pairs += [(f"ranks in a group of {name}", first[name], second[name]) for name in common]
    return _make_differences(pairs)


def _group_sizes(header: RunHeader) -> dict[str, str]:
    """By dimension, the numbers of ranks of its groups."""
    return {
        name: ", ".join(map(str, sorted({len(group) for group in groups})))
        for name, groups in header.plan.group_sets
        if name
    }


def differences(a: LoadedRun, b: LoadedRun) -> tuple[Difference, ...]:
    """In what else two runs differ: backend, hosts, versions, variables, how they measured."""
    pairs = [("backend", _column(a, "backend"), _column(b, "backend"))]
    if a.header and b.header:
        first, second = _header_facts(a.header), _header_facts(b.header)
        names = dict.fromkeys((*first, *second))
        pairs += [(name, first.get(name, ""), second.get(name, "")) for name in names]
        pairs += _variables(a.header, b.header)
        pairs.append(("statistic of a time", time_statistic(a), time_statistic(b)))
    return _make_differences(pairs)


def changes(began: RunHeader, now: RunHeader) -> tuple[Difference, ...]:
    """In what two launches of one plan differ, of everything that a result depends on."""
    first, second = _header_facts(began), _header_facts(now)
    pairs = [(name, text, second.get(name, "")) for name, text in first.items()]
    for name in ("num_nodes", "gpu_shared"):
        pairs.append((name, str(getattr(began, name)), str(getattr(now, name))))
    return _make_differences(pairs + _variables(began, now))


def _make_differences(pairs: Iterable[tuple[str, str, str]]) -> tuple[Difference, ...]:
    return tuple(Difference(*pair) for pair in pairs if pair[1] and pair[2] and pair[1] != pair[2])


def _column(run: LoadedRun, name: str) -> str:
    """The values of a column, each once; empty where it has none."""
    if name not in run.columns:
        return ""
    values = {getattr(row, name) for row in run.rows} - {None, ""}
    return ", ".join(sorted(str(value) if name in TEXTS else f"{value:g}" for value in values))


def environment_facts(header: RunHeader) -> dict[str, str]:
    """What a header holds about the environment, without the variables; empty where unknown."""
    environment = {k: v for k, v in header.environment.items() if k not in _UNIMPORTANT}
    environment |= dict.fromkeys(GPU_FACTS, "") | describe_gpu_facts(environment)
    environment["nccl_log"] = describe_communicator(environment.get("nccl_log"))
    devices = dict.fromkeys(rank.device.partition(" ")[2] for rank in header.ranks)
    facts = {"hosts": header.hosts, "devices": tuple(filter(None, devices)), **environment}
    backend = BACKENDS.get(header.plan.backend)
    if backend and backend.is_nccl:
        facts["nccl_options"] = ", ".join(header.plan.nccl_options) or "none"
    facts |= {"commbench": environment.get("commbench") or header.commbench}
    interfaces = dict.fromkeys(rank.interface for rank in header.ranks if rank.interface)
    facts |= {"launcher": header.launcher, "interfaces": tuple(interfaces)}
    facts |= {f"gpus of {host}": text for host, text in _other_gpus(header).items()}
    return {name: _text(value) for name, value in facts.items()}


def _other_gpus(header: RunHeader) -> dict[str, str]:
    """The GPUs, links and HCAs of hosts that have others than rank 0's host."""
    found = header.environment.get("other_gpus")
    others = found.items() if isinstance(found, dict) else ()
    return {
        str(host): "; ".join(map(str, facts.values())) or "none"
        for host, facts in others
        if isinstance(facts, dict)
    }


def environment_variables(header: RunHeader) -> dict[str, str]:
    """The recorded environment variables that communication libraries read."""
    found = header.environment.get("variables")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def chosen_variables(header: RunHeader) -> dict[str, str]:
    """The recorded variables without those that commbench or torchrun sets to the same value where
    the user sets none."""
    return {
        name: value
        for name, value in environment_variables(header).items()
        if not is_default(header, name, value)
    }


def is_default(header: RunHeader, name: str, value: str) -> bool:
    """Whether commbench or torchrun sets the variable to this value where the user sets none."""
    is_loopback = name == "GLOO_SOCKET_IFNAME" and header.num_nodes > 1
    return _SET_FOR_RANKS.get(name) == value and not is_loopback


def _header_facts(header: RunHeader) -> dict[str, str]:
    """What a header holds about the environment, and about how the run measured."""
    how = {name: getattr(header.plan, name) for name in _HOW}
    texts = {name: "as needed" if v is None else _text(v) for name, v in how.items()}
    return environment_facts(header) | texts


def _variables(a: RunHeader, b: RunHeader) -> list[tuple[str, str, str]]:
    first, second = (header.environment.get("variables") for header in (a, b))
    if not isinstance(first, dict) or not isinstance(second, dict):
        return []
    names = sorted({*first, *second})
    return [(n, str(first.get(n, NOT_SET)), str(second.get(n, NOT_SET))) for n in names]


def time_statistic(run: LoadedRun) -> str:
    """What the times of a run are, such as `mean over ranks`; empty for a results.csv."""
    measurements = run.run.measurements if run.run else ()
    statistics = {
        m.reported.statistic if m.reported else _STATISTIC
        for m in measurements
        if m.reported or m.batches
    }
    return "; ".join(sorted(statistics))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
