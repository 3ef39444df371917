"""What NCCL's own log says: of its communicator, and of the algorithm that it selects for a call.

The lines are those of NCCL_DEBUG=INFO with the subsystems INIT and TUNING, by the sources of NCCL
2.24 to 2.30 (src/init.cc, src/transport/, src/enqueue.cc).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from commbench.results.schema import RunHeader
from commbench.spec.case import Case
from commbench.spec.operations import OPERATIONS
from commbench.units import format_time

_SELECTION = re.compile(
    r"NCCL INFO (\w+)(?: \[[\w ]+\])?: (\d+) Bytes -> "
    r"Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}"
)
_KERNEL = re.compile(
    r"NCCL INFO (\w+) \[(Symmetric|Copy Engine|Hierarchical CE)\]: (\d+) Bytes -> "
    r"(?:Kernel )?(\S+)(?: nchannels (\d+))?"
)
"""What NCCL 2.27 and later write where they take no algorithm of their table."""
_VERSION = re.compile(r"NCCL version (\d\S*)")
_NETWORK = re.compile(r"NCCL INFO Using network (\S+)")
_ADAPTERS = re.compile(r"NCCL INFO NET/\w+ ?: Using (\[0\][^;]*)")
_CHANNELS = re.compile(r"NCCL INFO (?:comm \S+ )?(\d+) coll channels, (.*)")
_CONNECTION = re.compile(r"NCCL INFO Channel \d+(?:/\d+)? : .* via (\S+)")
_INIT = re.compile(r"NCCL INFO Init timings - \w+: rank \d+ nranks \d+ total ([\d.]+) \(([^)]*)\)")
MOST_CHARACTERS = 300


_KINDS = {
    "Symmetric": "SYMMETRIC", "Copy Engine": "COPY_ENGINE", "Hierarchical CE": "COPY_ENGINE",
}  # fmt: skip
SELECTIONS = "nccl_selections"
"""The fact of a run's environment that selections_by_call made."""


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

    @property
    def is_of_table(self) -> bool:
        """Whether the algorithm is one that NCCL_ALGO and a tuner can name."""
        return self.algorithm not in _KINDS.values()


def parse_selections(lines: Iterable[str]) -> tuple[NcclSelection, ...]:
    """NCCL's selections, each once, from the lines of its log of the subsystem TUNING."""
    found: dict[NcclSelection, None] = {}
    for line in lines:
        if match := _SELECTION.search(line):
            function, size, algorithm, protocol, low, high = match.groups()
            channels = int(high) - int(low) + 1
            found[NcclSelection(function, int(size), algorithm, protocol, channels)] = None
        elif match := _KERNEL.search(line):
            function, kind, size, kernel, number = match.groups()
            used = NcclSelection(function, int(size), _KINDS[kind], kernel, int(number or 0))
            found[used] = None
    return tuple(found)


def selections_by_call(lines: Iterable[str]) -> dict[str, list[list[str]]]:
    """NCCL's selections for a run's environment: by function and bytes, `AllReduce 1024`, each
    algorithm with its protocol and channels. There are several where NCCL's log does not tell calls
    apart, such as those of different dtypes."""
    found: dict[str, list[list[str]]] = {}
    for each in parse_selections(lines):
        known = found.setdefault(f"{each.function} {each.size_bytes}", [])
        known.append([each.algorithm, each.protocol, str(each.channels or "")])
    return found


def recorded_selections(environment: dict[str, Any]) -> dict[tuple[str, int], NcclSelection]:
    """NCCL's selections by function and bytes, as a run's environment has them; the last one where
    there are several."""
    known = environment.get(SELECTIONS)
    found = {}
    for call, entries in known.items() if isinstance(known, dict) else ():
        try:
            function, size = call.split()
            algorithm, protocol, channels = entries[-1]
            selection = NcclSelection(function, int(size), algorithm, protocol, int(channels or 0))
        except (TypeError, ValueError, IndexError, KeyError):  # a damaged journal
            continue
        found[function, selection.size_bytes] = selection
    return found


def find_selection(environment: dict[str, Any], case: Case) -> tuple[str, str, str]:
    """The algorithm, protocol and number of channels that NCCL selected for a case; empty texts
    where that is not known. Where there are several, `or` is between them."""
    known = environment.get(SELECTIONS)
    function = OPERATIONS[case.operation].nccl_function
    found = known.get(f"{function} {case.block_bytes}") if isinstance(known, dict) else None
    try:
        texts = [dict.fromkeys(filter(None, each)) for each in zip(*(found or ()), strict=True)]
        algorithm, protocol, channels = (" or ".join(each) for each in texts)
    except (TypeError, ValueError):  # none, or a damaged journal
        return "", "", ""
    return algorithm, protocol, channels


def parse_communicator(lines: Iterable[str]) -> dict[str, Any]:
    """What one rank's log of the subsystem INIT says of its first communicator; what the log does
    not say is left out.

    `version`, `network` (IB, Socket or a plugin's name), `adapters`, `channels`, `transports` (by
    transport, the connections of this rank, one for each channel and direction that NCCL logs),
    `init_s` and `init_parts_s`: how long the making of the communicator took, in seconds.
    """
    found: dict[str, Any] = {}
    transports: Counter[str] = Counter()
    for line in lines:
        for name, pattern in (("version", _VERSION), ("network", _NETWORK)):
            if match := pattern.search(line):
                found.setdefault(name, match[1])
        if match := _ADAPTERS.search(line):
            found.setdefault("adapters", match[1].strip()[:MOST_CHARACTERS])
        if match := _CHANNELS.search(line):
            found.setdefault("channels", f"{match[1]} coll channels, {match[2]}".strip())
        if match := _CONNECTION.search(line):
            transports[_transport(match[1])] += 1
        if match := _INIT.search(line):
            found.setdefault("init_s", float(match[1]))
            parts = (part.rpartition(" ") for part in match[2].split(", "))
            found.setdefault("init_parts_s", {name: float(s) for name, _, s in parts if name})
    return found | ({"transports": dict(transports)} if transports else {})


def _transport(text: str) -> str:
    """`NET/IB/0/GDRDMA/flush=None` without the adapter's number: `NET/IB/GDRDMA`."""
    return "/".join(part for part in text.split("/") if part and not re.search(r"^[\d-]|=", part))


def describe_communicator(facts: Any) -> str:
    """What parse_communicator found, without times, in a line; empty for anything else."""
    if not isinstance(facts, dict):
        return ""
    transports = facts.get("transports")
    used = transports.items() if isinstance(transports, dict) else ()
    adapters = f" ({facts['adapters']})" if facts.get("adapters") else ""
    parts = (
        f"NCCL {facts['version']}" if facts.get("version") else "",
        f"network {facts['network']}{adapters}" if facts.get("network") else "",
        str(facts.get("channels") or ""),
        ", ".join(f"{number} connections via {name}" for name, number in used),
    )
    return "; ".join(part for part in parts if part)


def describe_start_up(header: RunHeader) -> str:
    """How long the ranks took to join: `init_process_group 0.8 s (...), first operation 9 ms`;
    empty where that is not known."""
    found = header.start_up
    if found is None:
        return ""
    groups = "" if not header.plan.has_groups else f", groups {format_time(found.groups_s)}"
    return (
        f"init_process_group {format_time(found.init_s)} on the slowest rank and "
        f"{format_time(found.init_fastest_s)} on the fastest{groups}, first operation "
        f"{format_time(found.connect_s)}"
    )


def describe_init(facts: Any) -> str:
    """How long the communicator took to make: `1.58 s (kernels 0.26, alloc 0.97, ...)`."""
    if not isinstance(facts, dict) or not isinstance(facts.get("init_s"), int | float):
        return ""
    parts = facts.get("init_parts_s")
    named = [f"{name} {s}" for name, s in parts.items()] if isinstance(parts, dict) else []
    return f"{facts['init_s']:g} s" + (f" ({', '.join(named)})" if named else "")
