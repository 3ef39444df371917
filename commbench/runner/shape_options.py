"""The options of `commbench run` for shapes of communication other than one call of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from commbench.runner.option import (
    declare_option,
    parse_overlap_list,
    parse_pair_list,
    parse_tensor_list,
    parse_texts,
)
from commbench.spec.call_forms import CALL_FORMS

SHAPE_GROUPS = ("Forms of a call", "Overlap", "Point to point")
"""The headings of these options in the help."""
_forms, _overlap, _point_to_point = (partial(declare_option, group) for group in SHAPE_GROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """Some of the RunOptions."""

    tensors: tuple[str, ...] = _forms(
        "K", "Cut each size into K tensors, and measure one call of all bytes and the forms that "
        "take several tensors. ddp:25M cuts it as DistributedDataParallel cuts gradients into "
        "buckets: 1 MiB, then 25 MiB each. Several with commas.", flags=("--tensors", "--split"),
        plan="tensors", parse=parse_tensor_list, cli_type=list[str] | None,
    )  # fmt: skip
    form: tuple[str, ...] = _forms(
        "FORM", "Ways to the same result, measured beside the direct call: "
        f"{', '.join(f.name for f in CALL_FORMS.values() if not f.is_reference)}, or all. "
        "`commbench ops` explains them. Several with commas.", flags=("--form", "--via"),
        plan="forms", parse=parse_texts, cli_type=list[str] | None,
        default_text="the direct call; with --tensors, all",
    )  # fmt: skip
    overlap: tuple[str, ...] = _overlap(
        "WORK", "Compute during the communication, and measure each alone and both at once. "
        "matmul[:MxNxK]: products of matrices, on GPUs of two shapes (matmul:exact, with a tile "
        "for each multiprocessor, and matmul:ragged); memory[:SIZE]: copies; none: only the "
        "communication. Several with commas.", plan="overlap", parse=parse_overlap_list,
        cli_type=list[str] | None, is_varied=True,
    )  # fmt: skip
    overlap_ratio: float | None = _overlap(
        "R", "Compute R times as long as the communication takes alone.", plan="overlap_ratio",
        default_text="1",
    )  # fmt: skip
    p2p_call: str = _point_to_point(
        "CALL", "send: blocking send and recv; isend: isend and irecv; batch: batch_isend_irecv; "
        "all; natural: the usual one of each operation.", plan="p2p_call", is_varied=True,
    )  # fmt: skip
    pairs: tuple[str, ...] = _point_to_point(
        "PAIRS", "Which ranks are pairs. halves: i with i + n/2; neighbours: 0 with 1, 2 with 3; "
        "0-5: these two only. One or several with commas.", plan="pairs", parse=parse_pair_list,
        cli_type=list[str] | None,
    )  # fmt: skip
    window: int = _point_to_point(
        "N", "Messages that the operation stream sends before it waits for a reply.", plan="window",
    )  # fmt: skip
