"""Cost models from Python: predictions of what was not measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.errors import UsageError
from commbench.units import parse_sizes

if TYPE_CHECKING:
    from commbench.models.machine import Machine
    from commbench.models.projection import Projection


def predict(
    machine: Machine | str | Path,
    *,
    op: str | Sequence[str] | None = None,
    ranks: int | str | Sequence[int],
    ranks_per_node: int | None = None,
    sizes: str | Sequence[int] = "1K-1G:x4",
    variant: str = "",
) -> Projection:
    """Predict times for numbers of ranks and sizes that were not measured, from a machine file of
    `commbench model fit`.

    `op` is one or several operations, by default all of the machine. `ranks` is a number, or
    several: "8,64", "8-512". `variant` names what the calls have besides, such as "bfloat16", where
    the machine has several models of an operation. The result has `predictions`, `notes`, `text`
    and `plot`.

    Raises UnavailableError where no measurement supports the prediction, and RecordsError for a
    file that is no machine.
    """
    from commbench.models.machine import read_machine
    from commbench.models.projection import Request, project
    from commbench.spec.operations import find_operation

    found = read_machine(machine) if isinstance(machine, (str, Path)) else machine
    names = op.split(",") if isinstance(op, str) else op or ()
    request = Request(
        tuple(dict.fromkeys(find_operation(name).name for name in names)),
        _parse_ranks(ranks) if isinstance(ranks, str) else _several(ranks),
        ranks_per_node,
        parse_sizes(sizes) if isinstance(sizes, str) else tuple(sizes),
        variant,
    )
    return project(found, request)


def _several(ranks: int | Sequence[int]) -> tuple[int, ...]:
    return (ranks,) if isinstance(ranks, int) else tuple(ranks)


def _parse_ranks(text: str) -> tuple[int, ...]:
    """Numbers of ranks: `8,64,512`; `8-512` doubles, `8-64:+8` adds."""
    if re.fullmatch(r"[0-9,:x+ -]+", text):
        try:
            return parse_sizes(text)
        except UsageError:
            pass
    raise UsageError(
        f"{text!r} are no numbers of ranks", "write 512, or 8,64,512, or 8-512 to double"
    )
