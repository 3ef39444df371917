"""A program that carries packets between two TUN devices, each a while after it was sent.

    python forwarder.py MILLISECONDS NAME NAME     makes both devices, says `ready`, and carries on

A device keeps its other end here when it is moved into another network namespace.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_BYTES = 65536
AWAKE_NS = 60_000
"""About what waking up takes: it sleeps so much less, and looks at the clock for the rest."""

Travelling = deque[tuple[int, int, bytes]]
"""When each packet is due, where, and what it is. All take equally long: first come, first go."""


def make_tun(name: str) -> int:
    """Make a TUN device; what is read from the descriptor was sent into the device."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def carry(first: int, second: int, one_way_ns: int) -> None:
    """Write what is read from one descriptor to the other, so much later, for ever."""
    opposite = {first: second, second: first}
    travelling: Travelling = deque()
    while True:
        readable, _, _ = select.select([first, second], [], [], rest_s(travelling))
        now = time.monotonic_ns()
        for descriptor in readable:
            packet = os.read(descriptor, PACKET_BYTES)
            travelling.append((now + one_way_ns, opposite[descriptor], packet))
        deliver(travelling)


def rest_s(travelling: Travelling) -> float | None:
    """How long to sleep, unless a packet comes before."""
    if not travelling:
        return None
    return max(0, travelling[0][0] - AWAKE_NS - time.monotonic_ns()) / 1e9


def deliver(travelling: Travelling) -> None:
    """Write the packets that are due."""
    while travelling and travelling[0][0] <= time.monotonic_ns():
        _, descriptor, packet = travelling.popleft()
        with suppress(OSError):  # a device that is down loses its packets
            os.write(descriptor, packet)


if __name__ == "__main__":
    ends = [make_tun(name) for name in sys.argv[2:]]
    print("ready", flush=True)
    carry(*ends, one_way_ns=round(float(sys.argv[1]) * 1e6))
