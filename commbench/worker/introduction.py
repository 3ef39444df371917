"""How the ranks of a run get to know each other: whether all have the same plan, who runs where,
and what differs between them.

The network interface of a host matters only for ranks on several hosts. gloo uses the one that
GLOO_SOCKET_IFNAME names, or the one whose address this host's name resolves to. NCCL may use
further ones, InfiniBand too; for NCCL it is the one that NCCL_SOCKET_IFNAME names, or the one from
which the kernel reaches rank 0's host.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from commbench import __version__, errors, units, validation
from commbench.host import environment
from commbench.host.environment import NetworkInterface, boot_id
from commbench.host.gpu_system import describe_gpu_facts, gpu_facts
from commbench.host.gpus import read_place
from commbench.plan.plan import OPTIONS, Plan
from commbench.results.records import RankInfo
from commbench.results.run_folder import create_folder
from commbench.results.schema import IN_PROCESS
from commbench.worker.communicator import Communicator
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.watchdog.shared_folder import find_store

MOST_OTHERS = 3
"""Ranks whose other variables are recorded, and hosts whose other GPUs are."""
NOT_SET = "not set"
SAME_COMMAND = (
    "start every rank with the same command and the same commbench; the run that --resume names "
    "must be the same on every node"
)
SAME_CALL = "call measure() with the same arguments, of the same commbench, on all ranks"
MAX_VALUE = 60
"""Characters of a shortened value."""
_VARIABLES = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME"}


class GroupInfo(NamedTuple):
    """What the ranks of a group learn of each other before they measure."""

    ranks: tuple[RankInfo, ...]
    """On rank 0; empty elsewhere."""
    differences: dict[str, dict[str, dict[str, str]]]
    """Facts for the run's environment, on rank 0: `other_variables`, by rank the environment
    variables that it has otherwise than rank 0, and `other_gpus`, by host the GPUs, links and HCAs
    where they differ from those of rank 0's host. Empty where nothing differs."""
    first_ranks: list[int]
    """Of each rank, the first rank on its host."""
    folder: str
    """The run folder: only rank 0 knows it where a launcher started the ranks."""

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each host."""
        return tuple(sorted(set(self.first_ranks)))


def introduce(task: LaunchTask, rank_context: RankContext, comm: Communicator) -> GroupInfo:
    """Tell the ranks about each other. Where all have the same plan, rank 0 creates the run folder
    if needed. Raises UsageError on every rank where plans differ, UnavailableError where versions
    or journals do."""
    # One rank of each host looks for its GPUs.
    gpus = {} if rank_context.local_rank else describe_gpu_facts(gpu_facts())
    found = environment.nccl_settings() | environment.relevant_variables()
    ignored = environment.DIFFERENT_BY_NATURE
    variables = {name: value for name, value in found.items() if name not in ignored}
    info = _own_info(task.plan, rank_context, comm)
    hint = SAME_CALL if rank_context.launcher == IN_PROCESS else SAME_COMMAND
    _require_same_plan(task, info, comm, hint)
    make_folder = Path if task.folder_exists else create_folder
    folder = comm.on_rank_0(lambda: str(make_folder(task.folder)))
    infos = comm.gather_values(info._asdict())
    ranks = tuple(validation.build(RankInfo, each) for each in infos)
    own = [boot_id(), [info.host, boot_id()], sorted(variables.items()), sorted(gpus.items())]
    boots, hosts, of_variables, of_gpus = comm.first_alike(own)
    comm.shares_clock = bool(boot_id()) and not boots.any()
    other_variables, first_ranks = {}, hosts.tolist()
    for rank in _first_others(of_variables.unique().tolist(), of_variables):
        theirs = comm.share_value(variables, rank)
        names = [n for n in sorted(variables | theirs) if variables.get(n) != theirs.get(n)]
        other_variables[f"rank {rank}"] = {name: theirs.get(name, NOT_SET) for name in names}
    others = _first_others(hosts.unique().tolist(), of_gpus)
    other_gpus = dict(comm.share_value([info.host, gpus], rank) for rank in others)
    differences = {"other_variables": other_variables, "other_gpus": other_gpus}
    known = {name: each for name, each in differences.items() if each}
    return GroupInfo(ranks, known, first_ranks, folder)


def _first_others(ranks: Iterable[int], first_alike: Any) -> list[int]:
    """Of these ranks, of which rank 0 is the first, those that are the first with a value that rank
    0 does not have; `first_alike` as Communicator.first_alike gives it for that value."""
    first: dict[int, int] = {}
    for rank in ranks:
        first.setdefault(int(first_alike[rank]), rank)
    return list(first.values())[1 : 1 + MOST_OTHERS]


def _require_same_plan(task: LaunchTask, info: RankInfo, comm: Communicator, hint: str) -> None:
    """Raise an error on every rank where plans, versions or journals differ: it names the first
    rank that differs from rank 0."""
    own = {"commbench": __version__, "plan": task.plan.digest, "journal": task.journal}
    first = comm.share_value(own)
    others = comm.first_rank([own[key] != value for key, value in first.items()])
    for key, other in ((k, rank) for k, rank in zip(own, others, strict=True) if rank is not None):
        kind: type[errors.CommbenchError] = errors.UnavailableError
        host, value = comm.share_value([info.host, own[key]], other)
        found = f"{key} ({value}) from rank 0 ({first[key]})"
        if key == "plan":
            plans = (comm.share_value(task.plan.as_json(), source) for source in (0, other))
            found = "plan: " + "; ".join(describe_differences(*plans))
            kind = errors.UsageError
        raise kind(f"rank {other} on {host} has a different {found}", hint)


def _own_info(plan: Plan, rank_context: RankContext, comm: Communicator) -> RankInfo:
    """What is recorded of this rank."""
    cores = sorted(os.sched_getaffinity(0))
    node, near = read_place(comm.device.pci_bus_id)
    return RankInfo(
        rank=comm.rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=comm.device.name,
        device_uuid=comm.device.uuid,
        pci_bus_id=comm.device.pci_bus_id,
        cores=tuple(cores),
        numa_node=node,
        near_cores=None if node is None else len(near.intersection(cores)),
        cpu_mode=plan.cpu_mode,
        local_rank=rank_context.local_rank,
        **find_interface(plan.backend, rank_context)._asdict(),
    )


def describe_differences(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """How another plan, as JSON, differs, by option: `--sizes 2K instead of --sizes 1K`."""
    return [
        f"{_with_option(name, other[name])} instead of {_with_option(name, value)}"
        for name, value in first.items()
        if value != other[name]
    ]


def _with_option(name: str, value: Any) -> str:
    """An option and its value in ASCII; of a long one its beginning, its end and its length."""
    option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if value is None or isinstance(value, bool):
        return {None: f"no {option}", True: option, False: f"--no-{option[2:]}"}[value]
    if name == "sizes":
        value = units.format_sizes(tuple(value))
    elif isinstance(value, list):
        value = ",".join(value)
    shown, half = ascii(str(value))[1:-1], MAX_VALUE // 2
    if len(shown) > MAX_VALUE:
        shown = f"{shown[:half]} ... {shown[-half:]} ({len(shown)} characters)"
    return f"{option} {shown}"


def find_interface(backend: str, rank_context: RankContext) -> NetworkInterface:
    """The interface between this host and the others; empty fields where that is not known."""
    known = environment.addresses()
    if named := os.environ.get(_VARIABLES.get(backend, ""), ""):
        matching = (one for one in known if _is_named(one.interface, named, backend))
        return next(matching, NetworkInterface())
    if rank_context.is_single_node:
        return NetworkInterface()
    if backend == "gloo":
        address = _address_of_own_name()
    else:
        host, _ = find_store(rank_context) or ("", 0)
        address = _source_address(host)
    return next((o for o in known if o.address == address), NetworkInterface(address=address))


def _is_named(interface: str, named: str, backend: str) -> bool:
    """Whether the value of a variable names the interface. For gloo it is a name. For NCCL it is a
    list of prefixes, of names after `=`, and of those not to use after `^`."""
    if backend != "nccl":
        return interface == named.split(",")[0]
    names = named.lstrip("^=").split(",")
    if named.startswith("="):
        return interface in names
    return interface.startswith(tuple(names)) != named.startswith("^")


def _address_of_own_name() -> str:
    """The address that gloo uses by default: the first of this host's name that a socket can be
    bound to, otherwise the loopback's."""
    with suppress(OSError):
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            with suppress(OSError), socket.socket(family, kind, protocol) as trial:
                trial.bind(address)
                return str(address[0])
    return "127.0.0.1"


def _source_address(host: str) -> str:
    """The address from which the kernel would send to a host; nothing is sent. Empty where there is
    no route."""
    with suppress(OSError):
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)  # any port
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.connect(address)
            return str(trial.getsockname()[0])
    return ""
