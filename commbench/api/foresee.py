"""Cost models from Python: fits to measured times, predictions of what was not measured; and advice
from runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.answers.cost import observations
from commbench.answers.cost.machine import WARNING, Machine, read_machine, write_machine
from commbench.answers.cost.predict import Projection, Request, project
from commbench.answers.cost.selection import Source, fit_machine, parse_leave_out
from commbench.answers.expect.curves import PUBLISHED, published_of
from commbench.api.runs import hints_for, ignore, load_one_of, load_rows, require_some
from commbench.errors import UsageError, wrong_value
from commbench.output.text import list_some
from commbench.plan.operations import find_operation
from commbench.readers.source import ImportHints
from commbench.results import schema
from commbench.results.files import require_new
from commbench.results.run_folder import find_sweep
from commbench.runner.option import parse_size_list, split
from commbench.units import parse_parameters, parse_size, parse_sizes, parse_time, parse_tolerance
from commbench.validation import require_within

if TYPE_CHECKING:
    from commbench.answers.advise.advice import AdviceReport
    from commbench.api.runs import AnyRun


def fit_model(
    *runs: AnyRun,
    output: str | Path | None = None,
    leave_out: str | Sequence[str] = (),
    name: str = "",
    ranks_per_node: int | None = None,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> Machine:
    """Fit cost models to runs, and to tables of published figures (CSV, see docs/models.md).

    With `output` the machine is also written to that new file, and a picture of the residuals
    beside it, with the ending .png. `leave_out` keeps measurements from the fit, such as
    "ranks=512" or "sizes=1M-64M", and the machine's text says how well they are predicted. `name`
    is by default that of the file, or those of the runs. `ranks_per_node` is for files that do not
    name their hosts. `ranks`, `op` and `dtype` choose the times that are fitted; for another tool's
    file that does not say them, they are also those of `load`.

    Raises UsageError for runs of different machines, UnavailableError where there is nothing to
    fit, RecordsError for a file that cannot be read.
    """
    texts = [leave_out] if isinstance(leave_out, str) else leave_out
    parts = [part for text in texts for part in parse_leave_out(text)]
    require_some(runs, "fit")
    require_within("--ranks-per-node", ranks_per_node, 1, inf)
    files = [] if output is None else [Path(output), Path(output).with_suffix(".png")]
    for path in files:
        require_new(path)
    hints = ImportHints(ranks, op, dtype).validate()
    notes: list[str] = []
    sources = [_open(run, ranks_per_node, hints, notes, notify) for run in runs]
    names = [*dict.fromkeys(source.name for source in sources)]
    usual = name or (files[0].stem if files else list_some(names, 3))
    made = fit_machine(sources, usual, parts, notes, notify, hints)
    if files:
        write_machine(made, files[0])
        made.plot(files[1])
    return made


def _open(
    run: AnyRun,
    ranks_per_node: int | None,
    hints: ImportHints,
    notes: list[str],
    notify: Callable[[str], None],
) -> Source:
    """The times of a run, of another tool's file, or of a table of published figures."""
    if isinstance(run, str) and run.startswith(PUBLISHED):
        return Source(run, observations.observe_curves(published_of(run.removeprefix(PUBLISHED))))
    if isinstance(run, (str, Path)) and (columns := observations.table_columns(Path(run))):
        if columns >= observations.PREDICTED:
            notes.append(
                f"{WARNING}{Path(run).stem} has predictions, not measurements: a fit to them knows "
                "no more than the machine that made them. Intervals of new predictions are at "
                "least as wide as theirs."
            )
        return Source(Path(run).stem, observations.read_published(Path(run)))
    loaded = load_rows(run, hints=hints, notify=notify)
    schema.tell_incomplete(loaded, notify)
    return Source(loaded.name, observations.observe(loaded, ranks_per_node, notes), loaded.header)


def load_machine(machine: Machine | str | Path, op: str | None = None) -> Machine:
    """The machine of such a file, or of "published:h100", if need be for one operation only; a
    machine itself. Raises RecordsError and UsageError as `predict`."""
    if isinstance(machine, str) and machine.startswith(PUBLISHED):
        return fit_model(machine, op=op)
    found = read_machine(machine) if isinstance(machine, (str, Path)) else machine
    if not isinstance(found, Machine):
        raise UsageError(
            "machine: this is no machine that fit_model made, and no path of its file",
            "fit the runs first: predict(fit_model(run), ranks=8)",
        )
    return found


def predict(
    machine: Machine | str | Path,
    *,
    op: str | Sequence[str] | None = None,
    ranks: int | str | Sequence[int | str],
    ranks_per_node: int | None = None,
    sizes: str | int | Sequence[int | str] = "1K-1G:x4",
    variant: str = "",
) -> Projection:
    """Predict times for numbers of ranks and sizes that were not measured, from a machine file of
    `commbench model fit`, or from published curves: "published:h100".

    `op` is one or several operations, by default all of the machine. `ranks` is a number, or
    several: "8,64", "8-512". `variant` names what the calls have besides, such as "bfloat16", where
    the machine has several models of an operation. The result has `predictions`, `notes`,
    `warnings`, `text` and `plot`. UnavailableError where no measurement supports a prediction.

    Raises RecordsError for a file that is no machine, UsageError for an unknown operation.
    """
    found = load_machine(machine, op if isinstance(op, str) and "," not in op else None)
    names = op.split(",") if isinstance(op, str) else op or ()
    request = Request(
        tuple(dict.fromkeys(find_operation(name).name for name in names)),
        _parse_ranks(ranks),
        ranks_per_node,
        parse_size_list(sizes),
        variant,
    )
    made = project(found, request)
    made.predictions  # noqa: B018 - it raises here what is wrong
    return made


def _parse_ranks(given: int | str | Sequence[int | str]) -> tuple[int, ...]:
    """Numbers of ranks: `8,64,512`; `8-512` doubles, `8-64:+8` adds."""
    several = [given] if isinstance(given, (int, str)) else given
    numbers = tuple(each for each in several if type(each) is int)
    if numbers and len(numbers) == len(several):
        return numbers
    text = ",".join(split(several))
    if re.fullmatch(r"[0-9,:x+ -]+", text):
        with suppress(UsageError):
            return parse_sizes(text)
    raise wrong_value(text, "are no numbers of ranks", "write 512, or 8,64,512, or 8-512 to double")


MOST_TENSORS = 1 << 16


def advise(
    *runs: AnyRun,
    params: str | float | None = None,
    model_bytes: str | int | None = None,
    backward: str | float | None = None,
    tensors: int | None = None,
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
    size, and `bucket_cap` the bucket size in use. Gains within `tolerance` count as none. `output`
    is a new file to draw into. `ranks`, `op`, `dtype` and `notify` are those of `load`. Raises
    UsageError for values that make no sense.
    """
    from commbench.answers.advise.advice import Question, find_advice

    require_within("--tensors", tensors, 1, MOST_TENSORS)
    question = Question(
        params=None if params is None else parse_parameters(str(params)),
        model_bytes=None if model_bytes is None else parse_size(str(model_bytes)),
        backward_s=None if backward is None else _parse_seconds(backward),
        tensors=tensors,
        bucket_bytes=None if bucket_cap is None else parse_size(str(bucket_cap)),
        tolerance=parse_tolerance(tolerance),
    )
    require_some(runs, "read")
    if output is not None:
        from commbench.views.draw import require_ending

        require_ending(Path(output))
    hints = hints_for(runs, ranks, op, dtype)
    found = [_load(run, hints, notify) for run in runs]
    report = find_advice([run for several in found for run in several], question)
    if output is not None:
        from commbench.answers.advise.document import advice_picture
        from commbench.views.draw import write_pictures

        write_pictures([advice_picture(report)], Path(output))
    return report


def _load(run: AnyRun, hints: ImportHints, notify: Callable[[str], None]) -> list[schema.Run]:
    """A run; of a sweep, the runs of its settings."""
    from commbench.answers.sweep.result import load_sweep

    if isinstance(run, (str, Path)) and (folder := find_sweep(str(run))):
        return [found for each in load_sweep(folder).settings if (found := each.run)]
    one = load_one_of(run, hints, notify)
    schema.tell_incomplete(one, notify)
    return [one]


def _parse_seconds(value: str | float) -> float:
    seconds = value if isinstance(value, (int, float)) else parse_time(value)
    if not 0 < seconds <= 1e6:
        raise UsageError(f"--backward {value} is out of range", "write for example 300ms")
    return float(seconds)
