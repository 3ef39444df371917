"""Makes ProcessGroupNCCL.Options of a plan's NCCL options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from commbench.errors import UnavailableError
from commbench.spec.nccl_options import NCCL_OPTIONS, parse_nccl_options, read_value, require_nccl
from commbench.spec.plan import Plan


def make_nccl_options(
    plan: Plan, timeout: timedelta | None = None, process_group: Any = None
) -> Any:
    """The Options of a plan, with the timeout of the group, for torch warns of another one; None
    where the plan has none.

    `process_group` is torch.distributed.ProcessGroupNCCL. Raises UsageError for another backend,
    UnavailableError for an option that this torch does not offer.
    """
    require_nccl(plan.backend, plan.nccl_options)
    if not plan.nccl_options:
        return None
    process_group = process_group or getattr(dist, "ProcessGroupNCCL", None)
    if process_group is None:
        raise UnavailableError(
            f"torch {torch.__version__} was built without NCCL", "leave --nccl-option out"
        )
    options = process_group.Options()
    for text in parse_nccl_options(plan.nccl_options):  # a file may hold another one
        name, _, value = text.partition("=")
        is_of_group = NCCL_OPTIONS[name].is_of_group
        target = options if is_of_group else getattr(options, "config", None)
        if not hasattr(target, name):
            raise UnavailableError(
                f"torch {torch.__version__} has no NCCL option {name}",
                "leave it out, or use a newer torch: which options it has depends on the NCCL "
                "that it was built with",
            )
        setattr(target, name, read_value(name, value))
    if timeout is not None:
        options._timeout = timeout
    return options
