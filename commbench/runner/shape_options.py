"""The options of `commbench run` for shapes of communication other than one call of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from commbench.runner.option import declare_option, parse_pair_list

SHAPE_GROUPS = ("Point to point",)
"""The headings of these options in the help."""
_point_to_point = partial(declare_option, SHAPE_GROUPS[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """Some of the RunOptions."""

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
