"""`commbench show`: the table of a run."""

from __future__ import annotations

from typer import Argument

from commbench.cli.options import Dtype, Format, Op, Peak, Ranks


def show(
    run: str = Argument(
        metavar="RUN",
        help="Run folder, its run.jsonl, label, another tool's file, or folder of a sweep.",
    ),
    format_: Format = "table",
    peak: Peak = None,
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Print the table of a run, finished or not; or what a sweep found.

    \b
    commbench show results/20261121-120000-all_reduce
    commbench show mine --peak nvlink4                   the newest of that label, under results/
    commbench show results/20261121-120000-sweep
    """
    from commbench import api
    from commbench.errors import UsageError
    from commbench.output.console import print_result, print_status
    from commbench.report.formats import TABLE, require_format
    from commbench.results.run_folder import find_sweep
    from commbench.results.schema import COMPLETE

    require_format(format_, peak)
    if folder := find_sweep(run):
        from commbench.cli.sweep import show_sweep

        if format_ != TABLE or any(given is not None for given in (peak, ranks, op, dtype)):
            raise UsageError(
                f"{run} is a sweep, which is shown in one way", "leave out the options"
            )
        show_sweep(folder)
        return
    loaded = api.load(run, ranks=ranks, op=op, dtype=dtype, notify=print_status)
    print_result(loaded.text(format_, peak))
    if (end := loaded.end) is None or end.status != COMPLETE:
        if_cut_off = "" if end else "if it was cut off, "
        print_status(f"{if_cut_off}`commbench run --resume {loaded.path}` goes on with it")
