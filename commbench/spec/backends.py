"""The table of communication backends: devices each serves, and what each is known to refuse.

Only what a backend refuses for certain stands here, so that it is known before any rank starts;
whatever else a backend cannot do is found by the worker, which tries each combination once before
it measures. Refusals seen with torch 2.6 to 2.13.
"""

from __future__ import annotations

from typing import NamedTuple


class Backend(NamedTuple):
    """One backend of torch.distributed."""

    name: str
    devices: tuple[str, ...]
    """Device types it moves data for; the first is the one to choose."""
    refused_dtypes: tuple[str, ...] = ()
    refused_reduce_ops: tuple[str, ...] = ()


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            "gloo", ("cpu", "cuda"), refused_dtypes=("int16", "float8_e4m3fn", "float8_e5m2")
        ),
        Backend(
            "nccl", ("cuda",), refused_dtypes=("int16",),
            refused_reduce_ops=("band", "bor", "bxor"),
        ),
        Backend("xccl", ("xpu",), refused_reduce_ops=("band", "bor", "bxor")),
        Backend("mpi", ("cpu",)),
        Backend("ucc", ("cpu", "cuda")),
    )
}  # fmt: skip
"""Backends that torch itself names. Others may be registered with torch and are not judged."""
