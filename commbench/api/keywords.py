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


class _All(TypedDict, total=False):
    check: bool
    numerics: bool
    data: str
    warmup: int | None
    seed: int
    check_share: float | str | None
    timeout: float


class _NotReplay(_All, total=False):
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


class _NotMeasure(_All, total=False):
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


class _NotSoak(_All, total=False):
    iters: int | None
    precision: float | str
    budget: float
    order: str


class _NotSweep(_All, total=False):
    label: str | None
    output: str | Path | None


class _NotPairs(_All, total=False):
    peak: str | None


class _NotReplayPairs(_NotReplay, _NotPairs, total=False):
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


class _NotReplayMeasure(_NotReplay, _NotMeasure, total=False):
    mesh: str
    over: str | Sequence[str] | None
    mesh_order: str
    groups: str
    group_size: int | None
    group_stride: int | None
    concurrency: str
    workload: str | Path | None


class _NotMeasureSweep(_NotMeasure, _NotSweep, total=False):
    duration: float | str | None
    cycles: int | None
    resume: str | None
    history: bool
    db: str | Path | None


class _NotMeasureSweepSoak(_NotSoak, _NotMeasureSweep, total=False):
    launches: int | None


class Replay(_NotPairs, _NotMeasureSweepSoak, total=False):
    """The options of a run that `replay` takes as keywords."""


class Measure(_NotSoak, _NotSweep, _NotReplayPairs, total=False):
    """The options of a run that `measure` takes as keywords."""


class Pairs(_NotReplayMeasure, _NotMeasureSweepSoak, total=False):
    """The options of a run that `pairs` takes as keywords."""


class Sweep(_NotSoak, _NotReplayPairs, _NotReplayMeasure, total=False):
    """The options of a run that `sweep` takes as keywords."""


class Soak(_NotReplayPairs, _NotReplayMeasure, _NotMeasureSweep, total=False):
    """The options of a run that `soak` takes as keywords."""


class Run(_NotReplayPairs, _NotReplayMeasure, _NotMeasureSweepSoak, total=False):
    """The options of a run that `run` takes as keywords."""
