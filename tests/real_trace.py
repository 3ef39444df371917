"""The real trace in tests/data/kineto, and parts of it: fewer events, or fewer facts of each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "data" / "kineto" / "nccl_2ranks_rank0.json.gz"
SIZES = [4 * elements for elements in (2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040)]
"""Bytes of the buckets of ResNet-50's gradients, in the order in which they are reduced."""
_BETWEEN = "\n  },\n  {"
_KEPT = ("record_param_comms", '"nccl:', "c10d::", "nccl", "ProfilerStep#")
_EVERY = 20


@cache
def text() -> str:
    """The whole file."""
    return gzip.open(PATH, "rt", encoding="utf-8").read()


@cache
def small_text() -> str:
    """The events about communication, and one of so many of the others, as the file has them."""
    head, _, events = text().partition('"traceEvents": [')
    events, _, tail = events.rpartition("\n  ],")
    parts = events.split(_BETWEEN)
    kept = [
        part
        for number, part in enumerate(parts)
        if number in (0, len(parts) - 1)
        or any(word in part for word in _KEPT)
        or number % _EVERY == 0
    ]
    return f'{head}"traceEvents": [{_BETWEEN.join(kept)}\n  ],{tail}'


def changed(change: Callable[[dict[str, Any]], dict[str, Any] | None], **facts: Any) -> str:
    """The small trace with each event changed, without those for which `change` returns None, and
    with other facts of the file."""
    values = json.loads(small_text()) | facts
    values["traceEvents"] = [c for event in values["traceEvents"] if (c := change(event))]
    return json.dumps({name: value for name, value in values.items() if value is not None})
