"""How fast cores copy memory: what no transfer between processes on one host can exceed."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from functools import partial

from commbench.doctor.parallel import together
from commbench.doctor.sample_range import SampleRange, spread
from commbench.host.cgroup import read_free_bytes

SMALLEST_BYTES = 16 << 20
UNKNOWN_CACHE_BYTES = 64 << 20
BEYOND_CACHE = 2
"""Each buffer is so many times as large as the part of the last-level cache that it can have."""
PAGE_BYTES = 4096
MOST_MEMORY = 0.25
"""Of what is free, for all buffers together."""


def copy_rate(
    cores: int, cache_bytes: int | None, sharing: int, repeats: int, seconds: float
) -> SampleRange | None:
    """Bytes per second copied by so many processes at once, one for each core; a byte copied is
    read once and written once. None where there is too little memory for it.

    Buffers exceed the last-level cache of `cache_bytes`, which `sharing` of the processes share.
    """
    part = -(-(cache_bytes or UNKNOWN_CACHE_BYTES) // sharing)
    size = max(SMALLEST_BYTES, BEYOND_CACHE * part)
    if 2 * size * cores > MOST_MEMORY * (read_free_bytes() or 0):
        return None
    try:
        # Before all other work on a single core only: a host wants to stay alive on the others.
        found = together([partial(_copier, size, repeats, seconds)] * cores, undisturbed=cores == 1)
    except OSError:
        return None
    return spread([sum(rates) for rates in zip(*found, strict=True)])


def _copier(size: int, repeats: int, seconds: float, ready: Callable[[], None]) -> list[float]:
    source, target = (memoryview(mmap.mmap(-1, size)) for _ in range(2))
    for offset in range(0, size, PAGE_BYTES):
        source[offset] = target[offset] = 1  # now the memory is there
    ready()
    return [_rate(source, target, seconds) for _ in range(repeats)]


def _rate(source: memoryview, target: memoryview, seconds: float) -> float:
    copied, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds or not copied:
        target[:] = source  # one memcpy of the C library
        copied += len(source)
    return copied / elapsed
