"""The types of the keywords of functions that take options of a run, for type checkers and editors.

Made of RUN_OPTIONS by tests/api_keywords.py; do not change it by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch
    from torch.distributed import ReduceOp


class _A(TypedDict, total=False):
    """Of run, soak, measure, sweep."""

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


class _B(TypedDict, total=False):
    """Of run, pairs, soak, measure, sweep."""

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


class _C(TypedDict, total=False):
    """Of run, pairs, replay, soak, measure, sweep."""

    check: bool
    numerics: bool
    data: str
    warmup: int | None
    seed: int
    check_share: float | str | None
    timeout: float


class _D(TypedDict, total=False):
    """Of run, pairs, soak, sweep."""

    mesh: str
    over: str | Sequence[str] | None
    mesh_order: str
    groups: str
    group_size: int | None
    group_stride: int | None
    concurrency: str
    workload: str | Path | None


class _E(TypedDict, total=False):
    """Of run, pairs, replay, soak, sweep."""

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


class _F(TypedDict, total=False):
    """Of run, pairs, replay, measure, sweep."""

    iters: int | None
    precision: float | str
    budget: float
    order: str


class _G(TypedDict, total=False):
    """Of run, pairs, replay."""

    launches: int | None


class _H(TypedDict, total=False):
    """Of run, pairs, replay, soak."""

    duration: float | str | None
    cycles: int | None
    resume: str | None
    history: bool
    db: str | Path | None


class _I(TypedDict, total=False):
    """Of run, pairs, replay, soak, measure."""

    label: str | None
    output: str | Path | None


class _J(TypedDict, total=False):
    """Of run, replay, soak, measure, sweep."""

    peak: str | None


class RunKeywords(_A, _B, _C, _D, _E, _F, _G, _H, _I, _J, total=False):
    """The options of a run that `run` takes as keywords."""


class PairsKeywords(_B, _C, _D, _E, _F, _G, _H, _I, total=False):
    """The options of a run that `pairs` takes as keywords."""


class ReplayKeywords(_C, _E, _F, _G, _H, _I, _J, total=False):
    """The options of a run that `replay` takes as keywords."""


class SoakKeywords(_A, _B, _C, _D, _E, _H, _I, _J, total=False):
    """The options of a run that `soak` takes as keywords."""


class MeasureKeywords(_A, _B, _C, _F, _I, _J, total=False):
    """The options of a run that `measure` takes as keywords."""


class SweepKeywords(_A, _B, _C, _D, _E, _F, _J, total=False):
    """The options of a run that `sweep` takes as keywords."""
