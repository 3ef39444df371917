"""The network interfaces of this host and their addresses."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from commbench.host.procfs import HOST, read_number

_SIOCGIFCONF = 0x8912
"""The request to Linux for every IPv4 address of this host: netdevice(7)."""
_MOST, _ENTRY, _NAME, _IPV4_AT = 512, 40, 16, 20
"""Largest number of entries; bytes of an entry and of its name; offset of its address."""
_IPV6 = Path("/proc/net/if_inet6")


def read_interface_speeds(host: Path = HOST) -> dict[str, str]:
    """The speed of each network interface that is a device and is up, such as `10000 Mbit/s`.
    Interfaces of software, such as veth and bridges, name a speed that does not limit them."""
    speeds = {}
    for interface in sorted((host / "sys/class/net").glob("*")):
        speed = read_number(interface / "speed") if (interface / "device").exists() else None
        if speed and speed > 0:
            speeds[interface.name] = f"{speed} Mbit/s"
    return speeds


class NetworkInterface(NamedTuple):
    """A network interface and its address; empty where they are not known."""

    interface: str = ""
    address: str = ""


def addresses() -> list[NetworkInterface]:
    """Every address of this host with its interface, IPv4 first; empty where they are not known."""
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
        found.append(
            NetworkInterface(name.split(":")[0], socket.inet_ntoa(entry[_IPV4_AT : _IPV4_AT + 4]))
        )
    for line in lines:
        digits, *_, name = line.split()
        found.append(NetworkInterface(name, str(ipaddress.IPv6Address(int(digits, 16)))))
    return found
