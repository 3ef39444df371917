"""`commbench plot`: curves of one or several runs."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from commbench.cli.options import Dtype, Op, Ranks


def plot(
    runs: list[str] = Argument(
        metavar="RUN...", help="Run folders, run.jsonl, labels, or other tools' files."
    ),
    output: Path | None = Option(
        None,
        "--output",
        "-o",
        metavar="DIR|FILE",
        help="Folder for busbw.png and time.png, or one new file: .png, .svg, .pdf.  "
        "[default: the folder of the first run]",
    ),
    peak: str | None = Option(
        None,
        metavar="SPEED",
        help="Mark a speed: 450GB/s, 400Gbit/s, or a name that `commbench links` lists.  "
        "[default: that of the runs]",
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:
    """Draw bus bandwidth and time against size; several runs share their axes.

    \b
    commbench plot ring tree --output plots          runs under results/, by label
    commbench plot results/ring --output ring.svg --peak 12.5GB/s
    """
    from commbench import api
    from commbench.output.console import print_result, print_status
    from commbench.results.schema import tell_incomplete

    found = [api.load(run, ranks=ranks, op=op, dtype=dtype, notify=print_status) for run in runs]
    for run in found:
        tell_incomplete(run, print_status)
    for file in api.plot(*found, output=output, peak=peak):
        print_result(file)
    print_status(f"plotted: {', '.join(run.name for run in found)}")
