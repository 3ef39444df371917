"""Which interface of this host the measured backend talks through, as far as that can be told.

Only where ranks of several hosts meet is that a question. gloo's answer is certain: it takes the
interface that GLOO_SOCKET_IFNAME names, or the one whose address this host's name resolves to. NCCL
may take others besides, InfiniBand too; what is told of it is the interface that
NCCL_SOCKET_IFNAME names, or the one from which the kernel reaches rank 0's host.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from commbench.host.interfaces import NetworkInterface, addresses
from commbench.worker.context import RankContext

_ANY_PORT = 9
_VARIABLES = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME"}


def way_of(
    backend: str, rank_context: RankContext, variables: Mapping[str, str] = os.environ
) -> NetworkInterface:
    """The way that the backend takes from this host to the others."""
    named = variables.get(_VARIABLES.get(backend, ""), "")
    ways = addresses()
    if named:
        return next(
            (way for way in ways if _is_named(way.interface, named, backend)), NetworkInterface()
        )
    if rank_context.one_host:
        return NetworkInterface()
    address = (
        _of_own_name() if backend == "gloo" else _towards(_meeting_host(rank_context, variables))
    )
    return next((way for way in ways if way.address == address), NetworkInterface(address=address))


def _is_named(interface: str, named: str, backend: str) -> bool:
    """Whether a variable names the interface: gloo by its name; NCCL by how it begins, or after
    `=` by its name, and after `^` those it must not be."""
    if backend != "nccl":
        return interface == named.split(",")[0]
    names = named.lstrip("^=").split(",")
    if named.startswith("="):
        return interface in names
    begins = any(interface.startswith(name) for name in names)
    return not begins if named.startswith("^") else begins


def _of_own_name() -> str:
    """The address that gloo takes where nobody names an interface: the first of this host's name
    that a socket can be bound to, otherwise the loopback's."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(place)
        except OSError:
            continue
        return str(place[0])
    return "127.0.0.1"


def _meeting_host(rank_context: RankContext, variables: Mapping[str, str]) -> str:
    if rank_context.meeting_point == "env://":
        return variables.get("MASTER_ADDR", "")
    return rank_context.meeting_point.removeprefix("tcp://").rpartition(":")[0]


def _towards(host: str) -> str:
    """The address from which the kernel would send to a host; nothing is sent. Empty: it cannot."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, _ANY_PORT, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.connect(place)
            return str(trial.getsockname()[0])
    except OSError:
        return ""
