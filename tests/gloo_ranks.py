"""Ranks that are threads of this process, each with a communicator over a real gloo group."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import Any

import torch.distributed as dist

from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.groups import lazy_gloo

TIMEOUT = timedelta(seconds=60)


@cache
def communicators(ranks: int) -> tuple[Communicator, ...]:
    """A communicator for each of so many ranks; they have no measured group."""
    store = dist.HashStore()
    # The variable is set once: torch reads variables in all threads, and none may change then.
    with lazy_gloo(), ThreadPoolExecutor(ranks) as pool:
        groups = list(
            pool.map(lambda r: dist.ProcessGroupGloo(store, r, ranks, TIMEOUT), range(ranks))
        )
    cpu = Device()
    return tuple(Communicator(r, ranks, cpu, control=group) for r, group in enumerate(groups))


def on_ranks(ranks: int, work: Callable[[Communicator], Any]) -> list[Any]:
    """What `work` returns on each rank, all of them at once."""
    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(work, communicators(ranks)))
