"""The peak memory and the time of a process by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_TOLD = """
import atexit, re, sys, time
from pathlib import Path

def tell():  # what wait4 knows contains the memory of the process that forked this one
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(peak, time.process_time(), file=sys.stderr)

atexit.register(tell)
"""
COMMAND = "sys.argv[0] = 'commbench'; from commbench.cli.main import main; main()"


def measure_process(code: str, *words: str, cwd: Path) -> tuple[float, float]:
    """The most MiB that a Python process of this code took, and its seconds of CPU time."""
    process = subprocess.run(
        [sys.executable, "-c", _TOLD + code, *words], cwd=cwd, text=True, check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    peak_kib, cpu_s = process.stderr.splitlines()[-1].split()
    return int(peak_kib) / 1024, float(cpu_s)
