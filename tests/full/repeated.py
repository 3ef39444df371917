"""Runs `commbench` several times as one rank of a job, in processes forked after torch's import.

    python repeated.py TIMES RANK RANKS ADDRESS ARGUMENT...

Its runs are in the folders 0, 1, 2, ... Each has a port of its own. The exit code is that of the
first run that fails.
"""

from __future__ import annotations

import os
import sys

import torch.distributed  # noqa: F401 - takes longer to import than a run takes

from commbench.cli.main import main

FIRST_PORT = 29_600


def run(number: int, rank: str, ranks: str, address: str, arguments: list[str]) -> int:
    """The exit code of one run."""
    child = os.fork()
    if not child:
        os.environ |= {
            "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": address, "MASTER_PORT": str(FIRST_PORT + number),
        }  # fmt: skip
        sys.argv = ["commbench", *arguments, "--output", str(number)]
        try:
            main()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    times, own_rank, of_ranks, at, *rest = sys.argv[1:]
    for each in range(int(times)):
        if code := run(each, own_rank, of_ranks, at, rest):
            sys.exit(code)
