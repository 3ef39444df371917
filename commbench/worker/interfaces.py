"""Finds the network interface that the measured backend uses on this host.

This matters only for ranks on several hosts. gloo uses the interface that GLOO_SOCKET_IFNAME names,
or the one whose address this host's name resolves to. NCCL may use further ones, InfiniBand too;
for NCCL this is the interface that NCCL_SOCKET_IFNAME names, or the one from which the kernel
reaches rank 0's host.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from commbench.host.interfaces import NetworkInterface, addresses
from commbench.worker.context import RankContext

_ANY_PORT = 9
_VARIABLES = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME"}


def find_interface(
    backend: str, rank_context: RankContext, variables: Mapping[str, str] = os.environ
) -> NetworkInterface:
    """The interface between this host and the others; empty fields where that is not known."""
    named = variables.get(_VARIABLES.get(backend, ""), "")
    interfaces = addresses()
    if named:
        matching = (found for found in interfaces if _is_named(found.interface, named, backend))
        return next(matching, NetworkInterface())
    if rank_context.is_single_node:
        return NetworkInterface()
    if backend == "gloo":
        address = _address_of_own_name()
    else:
        address = _source_address(_rank_0_host(rank_context, variables))
    matching = (found for found in interfaces if found.address == address)
    return next(matching, NetworkInterface(address=address))


def _is_named(interface: str, named: str, backend: str) -> bool:
    """Whether the value of a variable names the interface. For gloo it is a name. For NCCL it is a
    list of prefixes, of names after `=`, and of those not to use after `^`."""
    if backend != "nccl":
        return interface == named.split(",")[0]
    names = named.lstrip("^=").split(",")
    if named.startswith("="):
        return interface in names
    begins = any(interface.startswith(name) for name in names)
    return not begins if named.startswith("^") else begins


def _address_of_own_name() -> str:
    """The address that gloo uses by default: the first of this host's name that a socket can be
    bound to, otherwise the loopback's."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(address)
        except OSError:
            continue
        return str(address[0])
    return "127.0.0.1"


def _rank_0_host(rank_context: RankContext, variables: Mapping[str, str]) -> str:
    if rank_context.init_method == "env://":
        return variables.get("MASTER_ADDR", "")
    return rank_context.init_method.removeprefix("tcp://").rpartition(":")[0]


def _source_address(host: str) -> str:
    """The address from which the kernel would send to a host; nothing is sent. Empty where there is
    no route."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, _ANY_PORT, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.connect(address)
            return str(trial.getsockname()[0])
    except OSError:
        return ""
