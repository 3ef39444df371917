"""Advice from runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.api.runs import ignore, load
from commbench.errors import UsageError
from commbench.results import schema
from commbench.units import parse_parameters, parse_size, parse_time, parse_tolerance

if TYPE_CHECKING:
    from commbench.answers.advise.advice import AdviceReport
    from commbench.api.runs import AnyRun
    from commbench.results.schema import Run

MOST_TENSORS, MOST_BLOCKS = 1 << 16, 1024


def advise(
    *runs: AnyRun,
    params: str | float | None = None,
    model_bytes: str | int | None = None,
    backward: str | float | None = None,
    tensors: int | None = None,
    blocks: int | None = None,
    bucket_cap: str | int | None = None,
    tolerance: str | float = "2%",
    output: str | Path | None = None,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> AdviceReport:
    """Say which bucket size, form of call or setting is faster (docs/advice.md).

    A run is a Run, or a path or label, also of a sweep. `params` is a number of parameters or a
    text such as "7B", `model_bytes` the bytes of all gradients, `backward` the time of a backward
    pass without communication (seconds, or "300ms"), `tensors` the number of gradients of equal
    size, `blocks` those of the model for FSDP2, and `bucket_cap` the bucket size in use. Gains
    within `tolerance` count as none. `output` is a new file to draw into. `ranks`, `op`, `dtype`
    and `notify` are those of `load`. Raises UsageError for values that make no sense.
    """
    from commbench.answers.advise.advice import Question, find_advice

    question = Question(
        params=None if params is None else parse_parameters(str(params)),
        model_bytes=None if model_bytes is None else parse_size(str(model_bytes)),
        backward_s=None if backward is None else _parse_seconds(backward),
        tensors=_positive("tensors", tensors, MOST_TENSORS),
        blocks=_positive("blocks", blocks, MOST_BLOCKS),
        bucket_bytes=None if bucket_cap is None else parse_size(str(bucket_cap)),
        tolerance=parse_tolerance(tolerance),
    )
    if not runs:
        raise UsageError("there is no run to read", "name at least one run")
    if output is not None:
        from commbench.views.draw import require_ending

        require_ending(Path(output))
    found = [_load(run, ranks=ranks, op=op, dtype=dtype, notify=notify) for run in runs]
    report = find_advice([run for several in found for run in several], question)
    if output is not None:
        from commbench.answers.advise.document import advice_picture
        from commbench.views.draw import write_pictures

        write_pictures([advice_picture(report)], Path(output))
    return report


def _load(run: AnyRun, **how: Any) -> list[Run]:
    """A run; of a sweep, the runs of its settings."""
    from commbench.answers.sweep.result import load_sweep
    from commbench.results.run_folder import find_sweep

    if isinstance(run, (str, Path)) and (folder := find_sweep(str(run))):
        found = [each.run for each in load_sweep(folder).settings if each.run]
        return [one for one in found if one]
    one = load(run, **how)
    schema.tell_incomplete(one, how["notify"])
    return [one]


def _parse_seconds(value: str | float) -> float:
    seconds = value if isinstance(value, (int, float)) else parse_time(value)
    if not 0 < seconds <= 1e6:
        raise UsageError(f"--backward {value} is out of range", "write for example 300ms")
    return float(seconds)


def _positive(name: str, value: int | None, most: int) -> int | None:
    if value is not None and not 1 <= value <= most:
        raise UsageError(
            f"--{name} {value} is not between 1 and {most}", f"write for example --{name} 32"
        )
    return value
