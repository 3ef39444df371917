"""On which addresses a process, and those it has started, wait for connections; see proc(5)."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from commands import Command

LISTENING = "0A"
FAMILIES = {"tcp": socket.AF_INET, "tcp6": socket.AF_INET6}


def listening_while(process: Command) -> dict[str, set[int]]:
    """Looks again and again until the process has ended: addresses, each with how often it was
    seen as the number of its look."""
    seen: dict[str, set[int]] = {}
    look = 0
    while process.poll() is None:
        for address in _addresses(_descendants(process.pid)):
            seen.setdefault(address, set()).add(look)
        look += 1
        time.sleep(0.03)
    return seen


def _descendants(root: int) -> set[int]:
    """The process and all that it, and they, have started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _addresses(pids: set[int]) -> set[str]:
    """The addresses that sockets of these processes listen on."""
    own = {link for pid in pids for link in _files(pid)}
    found = set()
    for family, number in FAMILIES.items():
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in own:
                found.add(socket.inet_ntop(number, _bytes(fields[1].partition(":")[0])))
    return found


def _bytes(address: str) -> bytes:
    """Words of four bytes, each as this machine's byte order has it."""
    words = [address[at : at + 8] for at in range(0, len(address), 8)]
    return b"".join(bytes.fromhex(word)[::-1] for word in words)


def _files(pid: int) -> set[str]:
    try:
        return {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return set()
