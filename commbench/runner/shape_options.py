"""The options of `commbench run` for shapes of communication other than one call of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from commbench.runner.option import declare_option, parse_tensor_list, parse_texts
from commbench.spec.call_forms import CALL_FORMS

_forms = partial(declare_option, "Forms of a call")


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
