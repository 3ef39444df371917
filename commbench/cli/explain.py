"""`commbench explain`: what a number means, with the formulas behind it."""

from __future__ import annotations

from typer import Argument, Option

from commbench.cli.options import AnyFormat, OutputFile
from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_HELP


def explain(
    what: str = Argument(
        metavar="OP|RUN", help="An operation, or a run: folder, label, or another tool's file."
    ),
    ranks: int | None = Option(None, "--ranks", metavar="N", help="With OP: number of ranks."),
    size: str | None = Option(
        None, metavar="SIZE", help="Size, as printed by run and nccl-tests: 1M, 1G."
    ),
    time: str | None = Option(None, metavar="T", help="With OP: time of one call: 120us, 4.2ms."),
    dtype: str | None = Option(
        None, "--dtype", "-d", metavar="DTYPE", help="With OP: element type.  [default: float32]"
    ),
    timing: str | None = Option(
        None, metavar="HOW", help=f"With OP. {TIMING_HELP}.  [default: {DEFAULT_TIMING}]"
    ),
    nodes: int | None = Option(
        None, "--nodes", metavar="K", help="With OP: number of nodes.  [default: 1]"
    ),
    op: str | None = Option(
        None,
        "--op",
        metavar="OP",
        help="With RUN: only the rows of this operation. Of another tool's "
        "file: the operation that it measured.",
    ),
    peak: str | None = Option(
        None,
        metavar="SPEED",
        help="Compare busbw with a speed in one direction: 450GB/s, 400Gbit/s, 400GB/s/node, or "
        "a link of `commbench links`.",
    ),
    model: str | None = Option(
        None,
        metavar="MACHINE",
        help="Compare with what the machine file of `commbench model fit` predicts.",
    ),
    format_: AnyFormat = None,
    output: OutputFile = None,
) -> None:
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
    from commbench import api
    from commbench.explain.document import VIEW
    from commbench.output.console import print_status
    from commbench.views.formats import choose_format, show

    VIEW.require(choose_format(format_, output))
    found = api.explain(
        what, op=op, size=size, peak=peak, ranks=ranks, time=time, dtype=dtype, timing=timing,
        nodes=nodes, model=model, notify=print_status,
    )  # fmt: skip
    show(VIEW, found, format_, output)
