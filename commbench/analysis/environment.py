"""What hardware a run used, by its header; whether two runs can be compared; and in what else their
environments differ.

Facts that are unknown on either side are not compared: results.csv holds few, and files of other
tools hold fewer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from commbench.analysis.columns import TEXTS
from commbench.analysis.diagnostic_figures import fact_of, mappings_of
from commbench.analysis.load import LoadedRun
from commbench.analysis.nccl_log import SELECTIONS, describe_communicator
from commbench.analysis.rows import ResultRow
from commbench.host.gpu_system import GPU_FACTS, describe_gpu_facts
from commbench.output.text import list_some
from commbench.plan.backends import BACKENDS
from commbench.plan.links import Fabric, Nics, Peak, unique_gpu
from commbench.plan.plan import OPTIONS
from commbench.readers.source import OF_FILES
from commbench.results.schema import RunHeader, is_imported
from commbench.stats import collect
from commbench.units import GB, format_count

MUST_MATCH = ("world_size", "num_nodes", "device", "cpu_mode", "gpu_shared")
"""Columns of results.csv. Where two runs differ in one, a ratio of times does not show a change
of what is measured."""
NEEDED_FACTS = (*MUST_MATCH, "backend")

_MACHINE = ("processor", "devices")
"""Facts that differ between two machines only."""
CORES = "cores"
"""How many cores a run may use: with taskset or in a container, fewer than the machine has."""
_UNIMPORTANT = ("host", "boot_id", "variables", "other_gpus", SELECTIONS)
"""Facts of an environment that are compared otherwise, or differ between any two runs."""
_HOW = (
    "iterations", "warmup", "precision", "budget_s", "order", "launches", "check", "mesh",
    "mesh_order", "groups", "group_size", "group_stride",
)  # fmt: skip
"""Fields of a plan that say how the run measured."""
_UNLIKELY = (*_HOW, "commbench", "python", "launcher", "imported_from", "notes")
"""Differences that hardly change times."""
NOT_SET = "not set"
CODE_OF = "code of "
"""With the name of an own call, the fact that is a digest of its code."""
_SET_FOR_RANKS = {
    "GLOO_SOCKET_IFNAME": "lo",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
}
"""Variables that commbench (the first only on a single node) or torchrun sets if they are unset."""


_VERBS = {
    "world_size": ("has", "rank"), "num_nodes": ("ran on", "node"), "hosts": ("ran on", ""),
    "device": ("ran on", ""), "cpu_mode": ("ran in CPU mode", ""), "processor": ("ran on", ""),
    "cores": ("had", "core"),
}  # fmt: skip
"""How a sentence says a fact of a run: a verb, and what a number counts."""


class Difference(NamedTuple):
    """Something in which two runs differ."""

    name: str
    a: str
    b: str

    @property
    def is_likely(self) -> bool:
        """Whether it may change times."""
        return self.name not in _UNLIKELY

    def concerns(self, call: str) -> bool:
        """Whether it may change times of this own call; of torch's, for an empty name."""
        return not self.is_of_call or self.name == CODE_OF + call

    @property
    def shown(self) -> str:
        """Its name in a sentence or a table: of how the run measured, the option."""
        if self.name in _HOW:
            return OPTIONS.get(self.name, f"--{self.name.replace('_', '-')}")
        return self.name.replace("_", " ") if self.name.islower() else self.name

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of the environment."""
        return self.name.isupper()

    @property
    def is_of_call(self) -> bool:
        """Whether it is the code of an own call."""
        return self.name.startswith(CODE_OF)

    def in_words(self, a: str, b: str) -> str:
        """The difference of runs with these names: `a has 2 ranks, b has 3`."""
        first, second = (list_some(text.split(", "), 3) for text in (self.a, self.b))
        verb, noun = _VERBS.get(self.name, ("", ""))
        if not verb:
            return f"{self.shown} is {first} in {a}, {second} in {b}"
        first = format_count(int(first), noun) if noun and first.isdecimal() else first
        return f"{a} {verb} {first}, {b} {verb} {second}"


def mismatches(a: LoadedRun, b: LoadedRun) -> tuple[Difference, ...]:
    """The facts that must match and do not; for each dimension of groups, how many ranks a group
    has."""
    return _compare(_needed_facts(a), _needed_facts(b))


def _needed_facts(run: LoadedRun) -> dict[str, str]:
    facts = {name: _column(run, name) for name in MUST_MATCH}
    for name, groups in run.header.plan.group_sets if run.header else ():
        sizes = sorted({len(group) for group in groups})
        facts |= {f"ranks in a group of {name}": ", ".join(map(str, sizes))} if name else {}
    return facts


def differences(a: LoadedRun, b: LoadedRun) -> tuple[Difference, ...]:
    """In what else two runs differ: backend, hosts, versions, variables, how they measured."""
    backend, statistic = "backend", "statistic of a time"
    found = _compare({backend: _column(a, backend)}, {backend: _column(b, backend)})
    if a.header and b.header:
        found += compare_recorded(_recorded(a.header), _recorded(b.header))
        found += _compare({statistic: time_statistic(a)}, {statistic: time_statistic(b)})
    return found


class Recorded(NamedTuple):
    """What is known of the environment of a run, as text."""

    facts: Mapping[str, str]
    variables: Mapping[str, str] | None
    """None where they are not known."""


def recorded_of(run: LoadedRun) -> Recorded:
    """The facts that must match for a comparison, those of the environment and of how the run
    measured, and its variables."""
    facts, found = _needed_facts(run), _recorded(run.header) if run.header else Recorded({}, None)
    known = {name: text for name, text in (facts | {**found.facts}).items() if text}
    return found._replace(facts=known)


def _recorded(header: RunHeader) -> Recorded:
    """What a header holds about the environment and about how the run measured; its variables."""
    how = {name: getattr(header.plan, name) for name in _HOW}
    if is_imported(header):
        how = {n: v for n, v in how.items() if n in OF_FILES and v not in (None, "", False)}
    texts = {name: "as needed" if v is None else _text(v) for name, v in how.items()}
    has_variables = isinstance(header.environment.get("variables"), dict)
    variables = environment_variables(header) if has_variables else None
    return Recorded(environment_facts(header) | texts, variables)


def compare_recorded(a: Recorded, b: Recorded) -> tuple[Difference, ...]:
    """In what two environments differ; variables where both are known."""
    found = _compare(a.facts, b.facts)
    if a.variables is not None and b.variables is not None:
        found += _compare(a.variables, b.variables, NOT_SET)
    return found


def are_other_machines(a: LoadedRun, b: LoadedRun) -> bool:
    """Whether two runs are known to have been measured on different machines. The kernel of a
    machine has the same boot id in all of its containers."""
    if not (a.header and b.header):
        return False
    boots = {run.header.environment.get("boot_id") for run in (a, b) if run.header}
    machine = _MACHINE if len(boots) == 1 and None not in boots else ("hosts", *_MACHINE)
    found = compare_recorded(_recorded(a.header), _recorded(b.header))
    return any(each.name in machine for each in found)


def describe_changes(began: RunHeader, now: RunHeader) -> str:
    """In what two launches of one plan differ, of everything that a result depends on: `torch was
    2.12.0 and is 2.13.0`; empty where nothing differs."""
    first, second = (
        {"num_nodes": str(header.num_nodes), "gpu_shared": str(header.gpu_shared)}
        for header in (began, now)
    )
    found = compare_recorded(_recorded(began), _recorded(now)) + _compare(first, second)
    return "; ".join(f"{each.shown} was {each.a} and is {each.b}" for each in found)


def _compare(
    a: Mapping[str, str], b: Mapping[str, str], missing: str = ""
) -> tuple[Difference, ...]:
    """The facts that are known of both and differ."""
    names = sorted({*a, *b}) if missing else dict.fromkeys((*a, *b))
    pairs = [Difference(name, a.get(name, missing), b.get(name, missing)) for name in names]
    return tuple(pair for pair in pairs if pair.a and pair.b and pair.a != pair.b)


def _column(run: LoadedRun, name: str) -> str:
    """The values of a column, each once; empty where it has none."""
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
    if backend and backend.is_nccl and not is_imported(header):
        facts["nccl_options"] = ", ".join(header.plan.nccl_options) or "none"
    facts |= {"commbench": environment.get("commbench") or header.commbench}
    interfaces = dict.fromkeys(rank.interface for rank in header.ranks if rank.interface)
    facts |= {"launcher": header.launcher, "interfaces": tuple(interfaces)}
    for host, found in mappings_of(header, "other_gpus").items():  # others than rank 0's host has
        facts[f"gpus of {host}"] = "; ".join(map(str, found.values())) or "none"
    facts |= {f"{CODE_OF}{own.name}": own.digest for own in header.plan.own}
    return {name: _text(value) for name, value in facts.items()}


def environment_variables(header: RunHeader) -> dict[str, str]:
    """The recorded environment variables that communication libraries read."""
    return {str(k): str(v) for k, v in fact_of(header, "variables", dict).items()}


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


def time_statistic(run: LoadedRun) -> str:
    """What the times of a run are, such as `mean over ranks`; empty for a results.csv."""
    statistics = {
        m.reported.statistic if m.reported else "median over iterations, slowest rank"
        for m in (run.run.measurements if run.run else ())
        if m.reported or m.batches
    }
    return "; ".join(sorted(statistics))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


_HCA_RATE = re.compile(r"(\d{1,5}) Gb/sec", re.ASCII)
_SPEED = re.compile(r"(\d{1,7}) Mbit/s", re.ASCII)
_NVLINK = re.compile(r"NV\d+", re.ASCII)
_LAYERS = ("InfiniBand", "Ethernet")
RING, TREE, NVLS, NVLS_TREE = "ring", "tree", "nvls", "nvlstree"
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE)
"""Algorithms of NCCL that can be asked about."""
_ALGORITHMS = {"NVLS_TREE": NVLS_TREE} | {name.upper(): name for name in ALGORITHMS}


def fabric_of(header: RunHeader) -> Fabric | None:
    """What connected the ranks of a run, by its header; None where nothing is known of it."""
    if header.gpu_shared:
        return None
    gpu = unique_gpu(header.devices) if header.plan.device != "cpu" else None
    link = (gpu.slot if _has_no_nvlink(header) else gpu.link) if gpu else None
    nics = _nics_of(header)
    return Fabric(gpu, link, nics) if gpu or nics else None


def _has_no_nvlink(header: RunHeader) -> bool:
    """Whether the link matrix or a variable says that NVLink was not used."""
    if fact_of(header, "variables", dict).get("NCCL_P2P_DISABLE") == "1":
        return True
    rows = [str(line).partition(": ")[2].split() for line in fact_of(header, "gpu_links", list)]
    between = [word for row in rows for word in row[: len(rows)] if word != "X"]
    return bool(between) and not any(_NVLINK.fullmatch(word) or word == "?" for word in between)


def _nics_of(header: RunHeader) -> Nics | None:
    """The network of a node: the ports of its adapters (HCAs) that are up, or, for gloo, the
    network interface of its ranks. None on one node, and where a rate is not known."""
    if header.num_nodes < 2:
        return None
    if header.plan.device == "cpu":
        return _interface_of(header)
    ports = [port for port in fact_of(header, "hcas", list) if isinstance(port, dict)]
    ports = [port for port in ports if str(port.get("state") or "ACTIVE") == "ACTIVE"]
    rates = [_HCA_RATE.match(str(port.get("rate"))) for port in ports]
    is_known = all(rate and int(rate[1]) for rate in rates)
    if not (ports and is_known and all(port.get("link_layer") in _LAYERS for port in ports)):
        return None
    speeds = sorted(int(rate[1]) for rate in rates if rate)
    fastest = speeds.count(speeds[-1])
    same = f"{fastest} x {speeds[-1]} Gbit/s"
    others = len(speeds) - fastest
    name = f"{same} and {others} slower" if others else same
    reduces = any(port.get("link_layer") == "InfiniBand" for port in ports)
    source = "the adapters that the run recorded"
    return Nics(name, sum(speeds) * GB / 8, len(speeds), can_reduce=reduces, source=source)


def _interface_of(header: RunHeader) -> Nics | None:
    """The one interface that all ranks used, if the speed of it was recorded."""
    speeds = fact_of(header, "interface_speeds", dict)
    names = {rank.interface for rank in header.ranks}
    if len(names) != 1:
        return None
    speed = _SPEED.fullmatch(str(speeds.get(name := names.pop())))
    if not speed or not int(speed[1]):
        return None
    rate = int(speed[1]) * GB / 8e3
    return Nics(f"{name}, {speed[0]}", rate, 1, can_reduce=False, source=f"Linux, {name}/speed")


def peak_remark(header: RunHeader, peak: Peak) -> str:
    """That a peak is faster than the links of the run, with the likely mistake; empty otherwise."""
    fabric = fabric_of(header) or Fabric()
    link, nics = fabric.link, fabric.nics
    known = [(link.what, link.bytes_per_second)] if link else []
    if peak.is_per_node:
        known = [(nics.name, nics.bytes_per_second)] if nics else []
    for what, speed in known:
        times = peak.bytes_per_second / speed
        if times >= 1.01:
            mistakes = {2: "both directions together", 8: "Gbit/s taken for GB/s"}
            near = [text for ratio, text in mistakes.items() if abs(times / ratio - 1) < 0.02]
            likely = "".join(f"; the peak is {text}" for text in near)
            used = f"the run used {what}, {speed / GB:g} GB/s one way"
            return f"This peak is impossible: {used}{likely}."
    return ""


def algorithm_of(row: ResultRow) -> str | None:
    """The algorithm of NCCL by its log, or where a variable allows only one; None if unknown."""
    asked = str(fact_of(row.header, "variables", dict).get("NCCL_ALGO", ""))
    return _ALGORITHMS.get((row.nccl_selection[0] or asked).strip().upper())


def find_crowd(headers: Sequence[RunHeader], threads: int = 1) -> str:
    """`4 ranks share 2 cores`, of the run and host with the most ranks, or `threads` of each, for
    its cores; empty where none on CPUs share cores."""
    cores = collect(
        ((number, rank.host), rank.cores)
        for number, header in enumerate(headers)
        for rank in (header.ranks if header.plan.device == "cpu" else ())
    )
    pairs = [(threads * len(own), len({*chain(*own)})) for own in cores.values() if all(own)]
    most, number = max(pairs, key=lambda pair: pair[0] / pair[1], default=(0, 0))
    what = "ranks" if threads == 1 else "threads"
    return f"{most} {what} share {format_count(number, 'core')}" if most > number else ""
