"""What NCCL's own log says: of its communicator, and of the algorithm that it selects for a call.

The lines are those of NCCL_DEBUG=INFO with the subsystems INIT and TUNING, by the sources of NCCL
2.24 to 2.30 (src/init.cc, src/transport/, src/enqueue.cc, src/ce_coll.cc,
src/scheduler/symmetric_sched.cc) and of its network plugin aws-ofi-nccl.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from commbench.plan.backends import DEFAULT_MEMORY
from commbench.plan.case import Case
from commbench.plan.computations import COMPUTATION
from commbench.plan.dimensions import EAGER
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import RunHeader
from commbench.units import format_time

_SELECTION = re.compile(
    r"NCCL INFO (\w+)(?: \[[\w ]+\])?: (\d+) Bytes -> "
    r"Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
)
_KERNEL = re.compile(
    r"NCCL INFO (\w+) \[(Symmetric|Copy Engine|Hierarchical CE)\]: (\d+) Bytes -> "
    r"(?:Kernel )?([^;\n]+?)(?: nchannels (\d+).*|;.*)?$"
)
"""What NCCL 2.27 and later write where they take no algorithm of their table."""
_FIRST = {
    "version": re.compile(r"NCCL version (\d\S*)"),
    "network": re.compile(r"NCCL INFO Using network (\S.*)"),
    "adapters": re.compile(
        r"NCCL INFO NET/(?:\w+ ?: Using (?=\[0\])|OFI Selected [Pp]rovider is )([^;]*)"
    ),
    "channels": re.compile(r"NCCL INFO (?:comm \S+ )?(\d+ coll channels, .*)"),
}
"""What the first line that matches says."""
_NVLS_CHANNELS = re.compile(r"(\d+) nvls channels")
_CONNECTION = re.compile(
    r"NCCL INFO (?:Channel|CollNet) \d+(?:/\d+)? : .* via (\S.*?)(?: comm 0x.*)?$"  # the end: RCCL
)
_NVLS = re.compile(r"NCCL INFO NVLS comm \S+ headRank -?\d+ nHeads (\d+)")
_MADE = re.compile(r"NCCL INFO \w+ comm \S+ rank \d+ nranks (\d+) .* - Init COMPLETE")
_INIT = re.compile(r"NCCL INFO Init timings - \w+: rank \d+ nranks \d+ total ([\d.]+) \(([^)]*)\)")
MOST_CHARACTERS = 300
_KINDS = {"Symmetric": "SYMMETRIC", "Copy Engine": "COPY_ENGINE", "Hierarchical CE": "COPY_ENGINE"}
SELECTIONS = "nccl_selections"
"""The fact of a run's environment that has selection_entries by selection_key."""
INIT_MODE = "nccl_init_mode"
"""The fact of a run's environment whether torch makes the communicator of a group when the group is
made (`eager`) or in its first call (`lazy`). Then the first send or recv outside of a batch makes
one of its own for each pair of ranks (torch: ProcessGroupNCCL.cpp, pointToPoint)."""
_NOT_SELECTED_BY = ("timing", "buffers", "overlap", "part")
"""Dimensions of a case on which NCCL's selection does not depend."""


class NcclSelection(NamedTuple):
    """What NCCL selected for one function and size."""

    function: str
    """NCCL's name: `AllReduce`."""
    size_bytes: int
    """As NCCL logs it: elements of the call times their size; for all_gather one rank's part."""
    algorithm: str
    """A name of NCCL's table, such as `RING`; SYMMETRIC or COPY_ENGINE where it used none."""
    protocol: str
    """`LL`, `LL128`, `SIMPLE`; of a symmetric kernel its name."""
    channels: int


def parse_selections(lines: Iterable[str]) -> tuple[NcclSelection, ...]:
    """NCCL's selections, each once, from the lines of its log of the subsystem TUNING."""
    found = []
    for line in lines:
        if match := _SELECTION.search(line):
            function, size, algorithm, protocol, low, high = match.groups()
            number = int(high) - int(low) + 1
            found.append(NcclSelection(function, int(size), algorithm, protocol, number))
        elif match := _KERNEL.search(line):
            function, kind, size, kernel, channels = match.groups()
            used = NcclSelection(function, int(size), _KINDS[kind], kernel, int(channels or 0))
            found.append(used)
    return tuple(dict.fromkeys(found))


def selection_key(case: Case) -> str:
    """What a run's environment has the selections of a case by: all on which they may depend."""
    return f"{case.title_without(*_NOT_SELECTED_BY)} {case.size_bytes}"


def selection_entries(lines: Iterable[str]) -> list[list[str]]:
    """NCCL's selections in the calls of one case, for a run's environment: each algorithm with its
    protocol and channels. There are several where a call consists of several of NCCL."""
    found = [(f.algorithm, f.protocol, str(f.channels or "")) for f in parse_selections(lines)]
    return [*map(list, dict.fromkeys(found))]


def _recorded(environment: dict[str, Any], case: Case) -> tuple[list[list[str]], str]:
    """The selections of a case in a run's environment, and the word between several.

    Older journals have them by function and bytes. There a direct eager call in plain memory finds
    its own, `or` others of as many bytes.
    """
    known = environment.get(SELECTIONS)
    if not isinstance(known, dict) or case.part == COMPUTATION:
        return [], ""
    if found := known.get(selection_key(case)):
        return found, " and "
    function, has_new_group = OPERATIONS[case.operation].nccl_function, case.uses_new_group
    is_plain = (case.memory, case.launch_mode) == (DEFAULT_MEMORY, EAGER) and not case.step
    if not (is_plain and function and case.call_form.is_reference) or has_new_group:
        return [], ""
    return known.get(f"{function} {case.block_bytes}") or [], " or "


def one_selection(environment: dict[str, Any], case: Case) -> NcclSelection | None:
    """What NCCL selected for a case, by a run's environment; None where that is not known, and
    where there are several."""
    found, _ = _recorded(environment, case)
    try:
        ((algorithm, protocol, channels),) = found
        function = OPERATIONS[case.operation].nccl_function
        return NcclSelection(function, case.block_bytes, algorithm, protocol, int(channels or 0))
    except (TypeError, ValueError):  # none, several, or a damaged journal
        return None


def find_selection(environment: dict[str, Any], case: Case) -> tuple[str, str, str]:
    """The algorithm, protocol and number of channels that NCCL selected for a case; empty texts
    where that is not known. Where there are several, `and` is between them."""
    found, word = _recorded(environment, case)
    try:
        texts = [dict.fromkeys(filter(None, each)) for each in zip(*found, strict=True)]
        algorithm, protocol, channels = (word.join(each) for each in texts)
    except (TypeError, ValueError):  # none, or a damaged journal
        return "", "", ""
    return algorithm, protocol, channels


def is_symmetric(algorithm: str) -> bool:
    """Whether all that NCCL used needs symmetric windows, by the algorithm of find_selection."""
    return set(algorithm.split(" and ")) <= set(_KINDS.values())


def parse_communicator(lines: Iterable[str]) -> dict[str, Any]:
    """What one rank's log of the subsystem INIT says; what the log does not say is left out.

    Of the first communicator `version`, `network` (IB, Socket or a plugin's name), `adapters`,
    `channels`, `init_s` and `init_parts_s`: how long its making took, in seconds. Of all of them
    `transports` (by transport, the connections of this rank, one for each channel and direction
    that NCCL logs; of NVLS, which NCCL logs as one line, one for each channel and head) and
    `communicators`: by their number of ranks, how many.
    """
    found: dict[str, Any] = {}
    transports: Counter[str] = Counter()
    made: Counter[str] = Counter()
    nvls_channels = 0
    for line in lines:
        for name, pattern in _FIRST.items():
            if match := pattern.search(line):
                found.setdefault(name, match[1].strip()[:MOST_CHARACTERS])
        if match := _CONNECTION.search(line):
            transports[_transport(match[1])] += 1
        if match := _NVLS_CHANNELS.search(line):
            nvls_channels = int(match[1])
        if match := _NVLS.search(line):
            transports["NVLS"] += nvls_channels * int(match[1])
        if match := _MADE.search(line):
            made[match[1]] += 1
        if match := _INIT.search(line):
            found.setdefault("init_s", float(match[1]))
            parts = (part.rpartition(" ") for part in match[2].split(", "))
            found.setdefault("init_parts_s", {name: float(s) for name, _, s in parts if name})
    counted = {"transports": dict(transports), "communicators": dict(made)}
    return found | {name: numbers for name, numbers in counted.items() if numbers}


def _transport(text: str) -> str:
    """`NET/IB/0/GDRDMA/flush=None` without the adapter's number: `NET/IB/GDRDMA`."""
    return "/".join(part for part in text.split("/") if part and not re.search(r"^[\d-]|=", part))


def describe_communicator(facts: Any) -> str:
    """What parse_communicator found, without times, in a line; empty for anything else."""
    if not isinstance(facts, dict):
        return ""
    used, made = (
        numbers.items() if isinstance(numbers := facts.get(name), dict) else ()
        for name in ("transports", "communicators")
    )
    adapters = f" ({facts['adapters']})" if facts.get("adapters") else ""
    parts = (
        f"NCCL {facts['version']}" if facts.get("version") else "",
        f"network {facts['network']}{adapters}" if facts.get("network") else "",
        str(facts.get("channels") or ""),
        ", ".join(f"{number} connections via {name}" for name, number in used),
        "communicators: " * bool(made)
        + ", ".join(f"{number} of {ranks} ranks" for ranks, number in made),
    )
    return "; ".join(part for part in parts if part)


def describe_start_up(header: RunHeader) -> str:
    """How long the ranks took to join: `init_process_group 0.8 s (...), first operation 9 ms`;
    empty where that is not known."""
    found = header.start_up
    if found is None:
        return ""
    parts = (
        ("groups", found.groups_s if header.plan.has_groups else None),
        ("first operation", found.connect_s),
        ("agreement of the ranks", found.agreement_s),
    )
    inside = found.rendezvous_s
    return (
        f"init_process_group {format_time(found.init_s)} on the slowest rank and "
        f"{format_time(found.init_fastest_s)} on the fastest"
        + "".join(f", {name} {format_time(s)}" for name, s in parts if s is not None)
        + (f"; rendezvous {format_time(inside)} (part of init_process_group)" if inside else "")
    )


def describe_init(facts: Any) -> str:
    """How long the communicator took to make: `1.58 s (kernels 0.26, alloc 0.97, ...)`."""
    if not isinstance(facts, dict) or not isinstance(facts.get("init_s"), int | float):
        return ""
    parts = facts.get("init_parts_s")
    named = [f"{name} {s}" for name, s in parts.items()] if isinstance(parts, dict) else []
    return f"{facts['init_s']:g} s" + (f" ({', '.join(named)})" if named else "")


class TunerRange(NamedTuple):
    """A range of sizes in which one algorithm and protocol are best for one operation."""

    operation: str
    low_bytes: int
    high_bytes: int
    """Inclusive."""
    algorithm: str
    protocol: str
    channels: int


def tuner_lines(ranges: Sequence[TunerRange], nodes: int, ranks: int) -> list[str]:
    """Lines of a configuration for NCCL's example tuner plugin (plugins/tuner/example of NCCL
    2.30).

    `collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff`
    without a header row, which the plugin would take for an entry. The first matching line counts.
    Every line gives the measured number of channels, because the plugin's default is one. The last
    range of each collective has no upper end.
    """
    last = {each.operation: index for index, each in enumerate(ranges)}
    lines = []
    for index, each in enumerate(ranges):
        function = OPERATIONS[each.operation].nccl_function.lower()
        high = 2**63 - 1 if index == last[each.operation] else each.high_bytes
        choice = (each.algorithm, each.protocol, each.channels)
        cells = (function, each.low_bytes, high, *choice, nodes, ranks, -1, -1)
        lines.append(",".join(map(str, cells)))
    return lines
