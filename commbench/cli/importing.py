"""`commbench import`: another tool's results as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commbench.cli.untold import Dtype, Op, Ranks


def importing(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Output of nccl-tests (text, JSON), OSU, IMB or PARAM."
        ),
    ],
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run.  [default: the file's]")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the run, new or empty.  [default: results/TIME-LABEL]"
        ),
    ] = None,
) -> None:
    """Make a run folder of another tool's results.

    What the file does not tell is asked for, never guessed. show, plot, compare and check take
    such files as they are, too.

    \b
    commbench import nccl-tests.log --op all_reduce
    commbench import osu_allgather.txt --ranks 16 --label mpi
    """
    from commbench.analysis.rows import rows_of
    from commbench.cli.ask import refuse_bad_label
    from commbench.cli.session import new_folder
    from commbench.cli.speak import say, tell
    from commbench.records.importers.read import read_foreign
    from commbench.records.importers.run import run_of
    from commbench.records.journal import create_folder, write_run
    from commbench.report.results_csv import ResultsCsv
    from commbench.report.tables import run_text

    if label is not None:
        refuse_bad_label(label)
    foreign = read_foreign(file, ranks=ranks, operation=op, dtype=dtype)
    run = run_of(foreign)
    run = run._replace(header=run.header._replace(label=label or run.header.label))
    folder = create_folder(output or new_folder(label or "imported"))
    write_run(folder, run)
    ResultsCsv(folder).add(*rows_of(run))
    say(run_text(run))
    for note in foreign.notes:
        tell(f"note: {' '.join(note.split())}")
    tell(f"results are in {folder}")
