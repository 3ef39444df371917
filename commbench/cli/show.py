"""`commbench show`: the table of a run."""

from __future__ import annotations

from shlex import quote

from typer import Argument, Option

from commbench.cli.old_options import Dtype, Format, Op, Peak, Ranks


def show(
    run: str | None = Argument(
        None,
        metavar="[RUN]",
        help="Run folder, its run.jsonl, label, another tool's file, or folder of a sweep.  "
        "[default: the newest run]",
        show_default=False,
    ),
    format_: Format = "table",
    peak: Peak = None,
    warnings: bool = Option(False, "--warnings", help="Explain every warning."),
    groups: bool = Option(
        False, "--groups", help="Print the time of each group of ranks instead: alone, together."
    ),
    calls: bool = Option(
        False, "--calls", help="Print also the tables of the single calls of a replay."
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Print the table of a run, finished or not; or the result of a sweep.

    \b
    commbench show
    commbench show mine --peak nvlink4                  the newest of that label
    commbench show results/20261121-120000-all_reduce --warnings
    commbench show mine --groups
    commbench show results/20261121-120000-sweep
    """
    from commbench import api
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status
    from commbench.report.formats import TABLE, require_format
    from commbench.results.run_folder import find_newest, find_sweep
    from commbench.results.schema import COMPLETE, INCOMPLETE, tell_incomplete

    name = str(find_newest()) if run is None else run
    if folder := find_sweep(name):
        from commbench.sweep.document import VIEW
        from commbench.views.formats import TEXT, show

        if groups or calls or any(option is not None for option in (peak, ranks, op, dtype)):
            raise UsageError(
                f"{name} is a sweep, and these options are for runs",
                "leave out all options but --format and --warnings",
            )
        form = TEXT if format_ == TABLE else format_
        show(VIEW, api.load_sweep(folder), form, is_verbose=warnings)
        return
    require_format(format_, peak)
    loaded = api.load(name, ranks=ranks, op=op, dtype=dtype, notify=print_status)
    text = (
        loaded.groups_text()
        if groups
        else loaded.text(format_, peak, warnings=warnings, calls=calls)
    )
    print_result(text)
    if format_ != TABLE or groups:  # the table says it
        tell_incomplete(loaded, print_status)
    if (end := loaded.end) is None or end.status not in (COMPLETE, INCOMPLETE):
        condition = "To continue it" if end else "If it was cut off, continue it"
        print_status(f"{condition}: commbench run --resume {quote(loaded.path)}")
