"""A fork server on each of several hosts, as the tests have one, so that commbench starts fast."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import FORK_SERVER, START_TIMEOUT_S, clean_environment
from hosts import NAMESPACES, Cluster

SERVERS = """
import ctypes, json, os, socket, sys
sys.path.insert(0, sys.argv[1])
import fork_server
libc = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, NEW_NAME, PRIVATE, BIND = 0x20000, 0x4000000, 0x44000, 0x1000
fork_server._import_everything()
fork_server._import_everything = lambda: None
def enter(host):
    calls = [
        libc.setns(os.open(host["network"], os.O_RDONLY), 0),
        libc.unshare(NEW_MOUNTS | NEW_NAME),
        libc.mount(b"none", b"/", None, PRIVATE, None),
        libc.mount(host["names"].encode(), b"/etc/hosts", None, BIND, None),
    ]
    assert not any(calls), (calls, os.strerror(ctypes.get_errno()))
    socket.sethostname(host["name"])
    os.sched_setaffinity(0, [host["core"]])
    address = host["folder"] + "/socket"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    fork_server.serve(listening, address)
for host in json.loads(sys.argv[2]):
    if not os.fork():
        enter(host)
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
"""Imports torch once, and is then a fork server on each host, until its input is closed."""


@contextmanager
def fork_servers(cluster: Cluster) -> Iterator[dict[str, Path]]:
    """For each host a Python that starts commbench there."""
    found = {host.name: cluster.folder / f"python-{host.name}" for host in cluster}
    described = [
        {"name": host.name, "names": str(host.names), "core": host.core,
         "network": str(NAMESPACES / host.namespace), "folder": str(found[host.name])}
        for host in cluster
    ]  # fmt: skip
    for folder in found.values():
        folder.mkdir()
    line = [sys.executable, "-c", SERVERS, str(FORK_SERVER.parent), json.dumps(described)]
    with subprocess.Popen(line, env=clean_environment(), stdin=subprocess.PIPE) as server:
        deadline = time.monotonic() + 2 * START_TIMEOUT_S
        for folder in found.values():
            while not (folder / "python").exists():
                assert time.monotonic() < deadline and server.poll() is None
                time.sleep(0.1)
            text = (folder / "python").read_text()
            (folder / "forking").write_text(
                text.replace('"folder":', '"forks_ranks": True, "folder":')
            )
            (folder / "forking").chmod(0o700)
        yield {name: folder / "forking" for name, folder in found.items()}
