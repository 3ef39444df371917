"""The types of the keywords of `run`, `measure` and `sweep`, for type checkers and editors.

Made of RUN_OPTIONS by tests/api_keywords.py; do not change it by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch
    from torch.distributed import ReduceOp


class SharedKeywords(TypedDict, total=False):
    """The options of a run that `measure` and `sweep` take as keywords."""

    op: str | Sequence[str]
    sizes: str | int | Sequence[int | str]
    dtype: str | torch.dtype | Sequence[str | torch.dtype]
    reduce_op: str | ReduceOp.RedOpType | Sequence[str | ReduceOp.RedOpType]
    root: int
    placement: str
    rounding: str
    timing: str
    launch: str
    memory: str | Sequence[str]
    buffers: str | None
    check: bool
    numerics: bool
    data: str
    tensors: str | int | Sequence[str | int]
    form: str | Sequence[str] | None
    calls: str | type | Sequence[str | type] | None
    overlap: str | Sequence[str]
    overlap_ratio: float | None
    p2p_call: str
    pairs: str | Sequence[str]
    latency_size: int | None
    window: int
    imbalance: str | Sequence[str]
    iters: int | None
    warmup: int | None
    precision: float | str
    budget: float
    order: str
    seed: int
    check_share: float | str | None
    timeout: float
    peak: str | None


class MeasureKeywords(SharedKeywords, total=False):
    """The options of a run that `measure` takes as keywords."""

    label: str | None
    output: str | Path | None


class SweepKeywords(SharedKeywords, total=False):
    """The options of a run that `sweep` takes as keywords."""

    mesh: str
    over: str | Sequence[str] | None
    mesh_order: str
    groups: str
    group_size: int | None
    group_stride: int | None
    concurrency: str
    open_groups: int
    workload: str | Path | None
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


class RunKeywords(MeasureKeywords, SweepKeywords, total=False):
    """The options of a run that `run` takes as keywords."""

    launches: int | None
    duration: float | str | None
    cycles: int | None
    resume: str | None
    history: bool
    db: str | Path | None
