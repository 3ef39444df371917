"""Which interface of this host the measured backend talks through, as far as that can be told.

Only where ranks of several hosts meet is that a question. gloo's answer is certain: it takes the
interface that GLOO_SOCKET_IFNAME names, or the one whose address this host's name resolves to. NCCL
may take others besides, InfiniBand too; what is told of it is the interface that
NCCL_SOCKET_IFNAME names, or the one from which the kernel reaches rank 0's host.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from commbench.worker.seat import Seat

_SIOCGIFCONF = 0x8912
"""Asks Linux for every IPv4 address of this host: netdevice(7)."""
_MOST, _ENTRY, _NAME, _IPV4_AT = 512, 40, 16, 20
"""Entries asked for; bytes of each, of its name, and where in it the address begins."""
_IPV6 = Path("/proc/net/if_inet6")
_ANY_PORT = 9
_VARIABLES = {"gloo": "GLOO_SOCKET_IFNAME", "nccl": "NCCL_SOCKET_IFNAME"}


class Way(NamedTuple):
    """An interface and its address; empty where they cannot be told."""

    interface: str = ""
    address: str = ""


def way_of(backend: str, seat: Seat, variables: Mapping[str, str] = os.environ) -> Way:
    """The way that the backend takes from this host to the others."""
    named = variables.get(_VARIABLES.get(backend, ""), "")
    ways = addresses()
    if named:
        return next((way for way in ways if _is_named(way.interface, named, backend)), Way())
    if seat.one_host:
        return Way()
    address = _of_own_name() if backend == "gloo" else _towards(_meeting_host(seat, variables))
    return next((way for way in ways if way.address == address), Way(address=address))


def addresses() -> list[Way]:
    """Every address of this host with its interface, IPv4 first; empty where the system does not
    tell."""
    entries = array.array("B", bytes(_MOST * _ENTRY))
    pointer, length = entries.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("iP", length, pointer)
            filled, _ = struct.unpack("iP", fcntl.ioctl(any_socket, _SIOCGIFCONF, request))
        lines = _IPV6.read_text().splitlines() if _IPV6.exists() else []
    except OSError:
        return []
    found = []
    for start in range(0, filled, _ENTRY):
        entry = entries[start : start + _ENTRY].tobytes()
        name = entry[:_NAME].split(b"\0")[0].decode(errors="replace")
        # An alias such as eth0:1 is an address of eth0.
        found.append(Way(name.split(":")[0], socket.inet_ntoa(entry[_IPV4_AT : _IPV4_AT + 4])))
    for line in lines:
        digits, *_, name = line.split()
        found.append(Way(name, str(ipaddress.IPv6Address(int(digits, 16)))))
    return found


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


def _meeting_host(seat: Seat, variables: Mapping[str, str]) -> str:
    if seat.meeting_point == "env://":
        return variables.get("MASTER_ADDR", "")
    return seat.meeting_point.removeprefix("tcp://").rpartition(":")[0]


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
