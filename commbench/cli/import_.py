"""`commbench import`: another tool's results as a run folder."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks


def import_(
    file: Path = Argument(
        metavar="FILE", help="Output of nccl-tests (text, JSON), OSU, IMB or PARAM."
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
    label: str | None = Option(
        None, metavar="NAME", help="Name of the run.  [default: the file's]"
    ),
    output: Path | None = Option(
        None, metavar="DIR", help="Folder of the run, new or empty.  [default: results/TIME-LABEL]"
    ),
) -> None:
    """Make a run folder of another tool's results.

    What the file does not tell is asked for, never guessed. show, plot, compare and check take
    such files as they are, too.

    \b
    commbench import nccl-tests.log --op all_reduce
    commbench import osu_allgather.txt --ranks 16 --label mpi
    """
    from commbench.analysis.csv_file import write_run_folder
    from commbench.importers.hints import ImportHints
    from commbench.importers.registry import import_run
    from commbench.output.console import print_result, print_status
    from commbench.report.run_table import run_text
    from commbench.results.run_folder import create_folder, new_folder
    from commbench.runner.option import require_label

    if label is not None:
        require_label(label)
    run = import_run(file, ImportHints(ranks, op, dtype))
    run = run._replace(header=run.header._replace(label=label or run.header.label))
    folder = create_folder(output or new_folder(label or "imported"))
    write_run_folder(folder, run)
    print_result(run_text(run))
    for note in run.header.environment["notes"]:
        print_status(f"note: {' '.join(note.split())}")
    print_status(f"results are in {folder}")
