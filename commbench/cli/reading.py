"""The commands that read runs: list, show, plot, explain, export, import and report."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from commbench import api
from commbench.api.runs import export_parts, hints_for, load_one_of, load_rows
from commbench.cli.commands import Show
from commbench.errors import UsageError
from commbench.output.console import print_result, print_status
from commbench.results.files import is_file, is_folder, write_new
from commbench.results.run_folder import JOURNAL, find_newest, find_sweep, next_step
from commbench.results.schema import COMPLETE, INCOMPLETE, tell_incomplete
from commbench.views.formats import JSON, choose_format
from commbench.views.formats import show as show_result


def list_(show: Show) -> None:
    """List the runs and sweeps in the folder `results`, the newest first.

    Other commands take the label of a run or the name of its folder.

    \b
    commbench list
    """
    show(api.list_runs())


def show(
    run: str | None, format: str | None, output: Path | None, peak: str | None, warnings: bool,
    verbose: bool, groups: bool, op: str | None, size: str | None, **hints: Any,
) -> None:  # fmt: skip
    """Print the table of a run, finished or not; or the result of a sweep.

    \b
    commbench show
    commbench show mine --peak nvlink4                # the newest of that label
    commbench show results/20261121-120000-all_reduce --warnings
    commbench show mine --groups
    commbench show results/20261121-120000-sweep
    """
    from commbench.answers.show.formats import NCCL_TESTS, require_format

    name = str(find_newest()) if run is None else run
    if folder := find_sweep(name):
        from commbench.answers.sweep.document import VIEW as SWEEP_VIEW

        if groups or any((size, peak, op, *hints.values())):
            why = f"{name} is a sweep, and these options are for runs"
            raise UsageError(why, "leave out all options but --format, --verbose and --warnings")
        show_result(SWEEP_VIEW, api.load_sweep(folder), format, output, warnings or verbose)
        return
    from commbench.answers.show.run_document import VIEW, ShownRun

    format = choose_format(format, output)
    require_format(format, peak)
    loaded = api.load(name, op=op, size=size, **hints, notify=print_status)
    shown = ShownRun(
        loaded, peak, warnings, verbose, only_groups=groups,
        only_warnings=warnings and not verbose,
    )  # fmt: skip
    show_result(VIEW, shown, format, output, verbose)
    if format in (JSON, NCCL_TESTS) or groups:  # the text says it
        tell_incomplete(loaded, print_status)
    if (end := loaded.end) is None or end.status not in (COMPLETE, INCOMPLETE):
        own = bool(loaded.header and loaded.header.plan.own_calls)
        text = next_step(loaded.path, end.error if end else "", own)
        if is_file(Path(name)) and Path(name).name != JOURNAL:
            text = f"Copy it to FOLDER/{JOURNAL}: {next_step('FOLDER', '', own)}"
        print_status(f"{'' if end else 'If it was killed: '}{text}")


def plot(runs: list[str], output: Path | None, peak: str | None, **given: Any) -> None:
    """Draw bus bandwidth and time against size; several runs share their axes.

    \b
    commbench plot                                # the newest run
    commbench plot ring tree --output plots       # runs under results/, by label
    commbench plot results/ring --output ring.svg --peak 12.5GB/s
    commbench plot results/20261121-120000-sweep  # a sweep, as `sweep` draws it
    """
    runs = runs or [str(find_newest())]
    hints = hints_for(runs, **given)
    found: list[Any] = [find_sweep(run) or load_one_of(run, hints, print_status) for run in runs]
    for run in found:
        if isinstance(run, api.Run):
            tell_incomplete(run, print_status)
    first = Path(getattr(found[0], "path", found[0]))
    beside = first if is_folder(first) else first.parent
    for file in api.plot(*found, output=output or beside, peak=peak):
        print_result(file)
    print_status(f"plotted: {', '.join(run.name for run in found)}")


def explain(show: Show, what: str, **given: Any) -> None:
    """Explain a number: the data moved, the formulas of the bandwidths, what a link allows, and
    whether latency or bandwidth bounds it.

    \b
    commbench explain all_reduce --ranks 8 --size 1G --time 4.2ms --peak nvlink4
    commbench explain all_gather --ranks 32 --nodes 4 --size 1G --time 5ms \\
        --peak 400GB/s/node
    commbench explain results/reference
    commbench explain results/reference --op all_reduce --size 1M
    commbench explain all_reduce --ranks 64 --nodes 8 --size 1G --time 12ms \\
        --model machine.json
    """
    show(api.explain(what, **given, notify=print_status))


def export(run: str, format: str | None, output: Path | None) -> None:
    """Write the rows of a run in another format.

    \b
    commbench export results/mine --output mine.json
    commbench export mine --format openmetrics --output commbench.prom
    """
    parts = export_parts(run, format, output, print_status)
    if output is not None:
        write_new(output, parts)
        print_result(output)
        return
    for part in parts:
        if isinstance(part, bytes):
            raise UsageError(f"{format} is not text", "write it to a file: --output FILE")
        print_result(part, end="")


def import_(file: Path, **given: Any) -> None:
    """Make a run folder of another tool's results.

    Operation, ranks and element type are never guessed: where the file does not say one, give it as
    an option. show, plot, explain, compare and check also read such files directly.

    \b
    commbench import nccl-tests.log --op all_reduce
    commbench import osu_allgather.txt --ranks 16 --label mpi
    """
    run = api.import_results(file, **given)
    print_result(run.text())
    for note in run.header.environment["notes"]:
        print_status(f"note: {' '.join(note.split())}")
    print_status(f"results are in {run.path}")


def report(
    runs: list[str], output: Path | None, format: str | None, tolerance: str | None, **given: Any
) -> None:
    """Write one file about a run, a comparison, a check or a sweep, to send to other people.

    Several runs are compared with the first. With one of the options under Rules, one run is
    checked as `commbench check` does; the exit code is 0 even if the check fails. The HTML
    contains everything, also the recorded data, and needs no network. The Markdown is for tickets.

    \b
    commbench report                                 # the newest run, as text
    commbench report mine -o report.html
    commbench report before after -o comparison.html
    commbench report new --against old --max-slowdown 10% -o check.html
    commbench report results/20261121-120000-sweep -o sweep.html
    commbench report before after --format markdown  # for a ticket
    """
    from commbench.cli.reading_options import FILE_HINTS, LIMITS

    runs = runs or [str(find_newest())]
    is_check = any(given[name] for name in ("rules", *LIMITS))
    if is_check and len(runs) > 1:
        raise UsageError("a check is of one run", "name one RUN, and the other with --against")
    if output is None and format is None and sys.stdout.isatty():
        format = "markdown"
    write = partial(api.report, output=output, format=format)
    hints = hints_for(runs, **{name: given.pop(name) for name in FILE_HINTS})
    find = partial(load_rows, hints=hints, notify=print_status)
    if is_check:
        checked = find(runs[0])
        if given["against"] not in (None, "history"):
            given["against"] = find(given["against"])
        text = write(api.check(checked, tolerance=tolerance if given["expect"] else None, **given))
    elif len(runs) > 1:
        first, *others = map(find, runs)
        compare = partial(api.compare, first, tolerance=tolerance or "5%", force=given["force"])
        text = write(*map(compare, others))
    else:
        text = write(runs[0] if find_sweep(runs[0]) else find(runs[0]))
    if output is None:
        print_result(text, end="")
    else:
        print_result(output)
