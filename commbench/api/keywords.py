"""The types of the keywords of functions that take options of a run, for type checkers and editors.

Made of RUN_OPTIONS by tests/api_keywords.py; do not change it by hand.
`_NotPairs` has what all of them take but `pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch
    from torch.distributed import ReduceOp


class _NotReplayPairs(TypedDict, total=False):
    op: str | Sequence[str]
    reduce_op: str | ReduceOp.RedOpType | Sequence[str | ReduceOp.RedOpType]
    root: int
    placement: str
    rounding: str
    tensors: str | int | Sequence[str | int]
    form: str | Sequence[str] | None
    calls: str | type | Sequence[str | type] | None
    overlap: str | Sequence[str]
    overlap_ratio: float | None
    imbalance: str | Sequence[str]


class _NotReplay(TypedDict, total=False):
    sizes: str | int | Sequence[int | str]
    dtype: str | torch.dtype | Sequence[str | torch.dtype]
    timing: str
    launch: str
    memory: str | Sequence[str]
    buffers: str | None
    p2p_call: str
    pairs: str | Sequence[str]
    latency_size: int | None
    window: int


class _All(TypedDict, total=False):
    check: bool
    numerics: bool
    data: str
    warmup: int | None
    seed: int
    check_share: float | str | None
    timeout: float


class _NotReplayMeasure(TypedDict, total=False):
    mesh: str
    over: str | Sequence[str] | None
    mesh_order: str
    groups: str
    group_size: int | None
    group_stride: int | None
    concurrency: str
    workload: str | Path | None


class _NotMeasure(TypedDict, total=False):
    open_groups: int
    step: str | Sequence[str] | None
    variant: str | Sequence[str]
    fit: str
    backend: str | None
    nccl_option: str | Sequence[str] | None
    device: str | None
    nproc_per_node: int | None
    launcher: str
    cpu_mode: str | None
    plots: bool
    nccl_log: bool


class _NotSoak(TypedDict, total=False):
    iters: int | None
    precision: float | str
    budget: float
    order: str


class _NotMeasureSweepSoak(TypedDict, total=False):
    launches: int | None


class _NotMeasureSweep(TypedDict, total=False):
    duration: float | str | None
    cycles: int | None
    resume: str | None
    history: bool
    db: str | Path | None


class _NotSweep(TypedDict, total=False):
    label: str | None
    output: str | Path | None


class _NotPairs(TypedDict, total=False):
    peak: str | None


class Replay(
    _NotPairs, _NotSweep, _NotMeasureSweep, _NotMeasureSweepSoak, _NotSoak, _NotMeasure, _All,
    total=False
):  # fmt: skip
    """The options of a run that `replay` takes as keywords."""


class Measure(_NotPairs, _NotSweep, _NotSoak, _All, _NotReplay, _NotReplayPairs, total=False):
    """The options of a run that `measure` takes as keywords."""


class Pairs(
    _NotSweep, _NotMeasureSweep, _NotMeasureSweepSoak, _NotSoak, _NotMeasure, _NotReplayMeasure,
    _All, _NotReplay, total=False
):  # fmt: skip
    """The options of a run that `pairs` takes as keywords."""


class Sweep(
    _NotPairs, _NotSoak, _NotMeasure, _NotReplayMeasure, _All, _NotReplay, _NotReplayPairs,
    total=False
):  # fmt: skip
    """The options of a run that `sweep` takes as keywords."""


class Soak(
    _NotPairs, _NotSweep, _NotMeasureSweep, _NotMeasure, _NotReplayMeasure, _All, _NotReplay,
    _NotReplayPairs, total=False
):  # fmt: skip
    """The options of a run that `soak` takes as keywords."""


class Run(Soak, _NotMeasureSweepSoak, _NotSoak, total=False):
    """The options of a run that `run` takes as keywords."""
