"""`commbench import`: another tool's results as a run folder."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks


def import_(
    file: Path = Argument(
        metavar="FILE", help="Output of nccl-tests (text or JSON), OSU, IMB or PARAM."
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
    label: str | None = Option(
        None, metavar="NAME", help="Name of the run.  [default: the name of the file]"
    ),
    output: Path | None = Option(
        None, metavar="DIR", help="Folder of the run, new or empty.  [default: results/TIME-LABEL]"
    ),
) -> None:
    """Make a run folder of another tool's results.

    Operation, ranks and element type are never guessed: where the file does not say one, give it as
    an option. show, plot, explain, compare and check also read such files directly.

    \b
    commbench import nccl-tests.log --op all_reduce
    commbench import osu_allgather.txt --ranks 16 --label mpi
    """
    from commbench import api
    from commbench.output.console import print_result, print_status

    run = api.import_results(file, ranks=ranks, op=op, dtype=dtype, label=label, output=output)
    print_result(run.text())
    for note in run.header.environment["notes"]:
        print_status(f"note: {' '.join(note.split())}")
    print_status(f"results are in {run.path}")
