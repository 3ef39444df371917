"""One `commbench run` from request to table: choose a place, plan, launch or join, report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


QUIET = "ERROR"
"""What torch's C++ warns of while nodes come and go is no news."""


THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def import_torch() -> None:
    """Import torch, once for this process and all ranks forked from it.

    One compute thread per process: torchrun's default, and a thread of a numeric library would make
    forking unsafe. Without collecting garbage meanwhile: an import makes much and drops little, and
    collecting takes a fifth of its time.
    """
    import gc

    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", QUIET)
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.enable()
