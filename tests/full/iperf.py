"""What iperf3 gets through a link: the figure that a collective on it is held against."""

from __future__ import annotations

import json
import subprocess
import time
from statistics import median

from hosts import Host

REALTIME = ("chrt", "--fifo", "10")
"""As commbench's realtime mode, so that both wait for the link alone."""
INTERVAL_S = 0.2
PATIENCE_S = 10


def goodput_gbps(sender: Host, receiver: Host, seconds: int = 2) -> float:
    """What arrives, in Gbit/s: the median over intervals, the first second left out.

    A median, as a collective's time is one: it does not see the moments when something else had
    the machine.
    """
    server = receiver.start(
        *REALTIME, "iperf3", "--server", "--one-off", "--json", "--interval", str(INTERVAL_S)
    )
    with server:
        try:
            _wait_for_listener(receiver, server)
            sender.run(
                *REALTIME, "iperf3", "--client", receiver.address,
                "--time", str(seconds), "--omit", "1",
            )  # fmt: skip
            report, _ = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
    intervals = [interval["sum"] for interval in json.loads(report)["intervals"]]
    return median(
        part["bits_per_second"] / 1e9
        for part in intervals
        if not part["omitted"] and part["seconds"] > INTERVAL_S / 2
    )


def _wait_for_listener(host: Host, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not host.run("ss", "--no-header", "--listening", "--tcp"):
        assert server.poll() is None and time.monotonic() < deadline, "iperf3 does not listen"
        time.sleep(0.02)
