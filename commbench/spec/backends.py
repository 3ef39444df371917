"""The table of communication backends: the devices of each, and what each is known to refuse.

The table holds what a backend always refuses, so that this is known before any rank starts. The
worker finds what else a backend cannot do: it tries each combination once before it measures.
The refusals were observed with torch 2.6 to 2.13.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.validation import by_name


class Backend(NamedTuple):
    """One backend of torch.distributed."""

    name: str
    devices: tuple[str, ...]
    """The device types whose data it moves; the first is the default."""
    refused_dtypes: tuple[str, ...] = ()
    refused_reduce_ops: tuple[str, ...] = ()
    is_nccl: bool = False
    """Whether it is NCCL, which has a log (worker.nccl_log) and can be asked what its communicators
    do (worker.watchdog.nccl_ras)."""
    calls_at_once: int = 1
    """How many calls of one group with async_op=True it works on at once; others wait."""
    launch_spread: float = 0.03
    """The usual standard deviation of the log medians of launches that differ in nothing. Gloo's
    was measured: the median of 120 rows of 24 runs of 2 ranks on 2 cores. The others are
    assumptions, as no run on their devices has been recorded."""


BACKENDS = by_name(
    Backend(
        "gloo", ("cpu", "cuda"), ("int16", "float8_e4m3fn", "float8_e5m2"), ("premul_sum",),
        calls_at_once=2,  # threads of ProcessGroupGloo.Options by default
        launch_spread=0.04,
    ),
    Backend("nccl", ("cuda",), ("int16",), ("band", "bor", "bxor"), is_nccl=True),
    Backend("xccl", ("xpu",), refused_reduce_ops=("band", "bor", "bxor", "premul_sum")),
    Backend("mpi", ("cpu",), refused_reduce_ops=("premul_sum",)),
    Backend("ucc", ("cpu", "cuda"), refused_reduce_ops=("premul_sum",)),
)  # fmt: skip
"""The backends that torch names. Others may be registered with torch; they are not checked."""


def usual_launch_spread(backend: str) -> float:
    """The usual spread of launches of a backend, also of one that torch does not name."""
    known = BACKENDS.get(backend)
    return known.launch_spread if known else Backend._field_defaults["launch_spread"]
