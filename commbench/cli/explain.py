"""`commbench explain`: what a number means, with the formulas it comes from."""

from __future__ import annotations

from typer import Argument, Option

from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_HELP


def explain(
    what: str = Argument(
        metavar="OP|RUN", help="An operation, or a run: folder, run.jsonl or label."
    ),
    ranks: int | None = Option(None, "--ranks", metavar="N", help="OP: how many ranks took part."),
    size: str | None = Option(
        None, metavar="SIZE", help="Size as printed by run and nccl-tests: 1M, 1G."
    ),
    time: str | None = Option(None, metavar="T", help="OP: how long one call took: 120us, 4.2ms."),
    dtype: str | None = Option(
        None, "--dtype", "-d", metavar="DTYPE", help="OP: element type.  [default: float32]"
    ),
    timing: str | None = Option(
        None, metavar="HOW", help=f"OP: {TIMING_HELP}.  [default: {DEFAULT_TIMING}]"
    ),
    nodes: int | None = Option(
        None, "--nodes", metavar="K", help="OP: nodes the ranks were on.  [default: 1]"
    ),
    op: str | None = Option(None, "--op", metavar="OP", help="RUN: this operation's rows only."),
    peak: str | None = Option(
        None,
        metavar="SPEED",
        help="Hold busbw against a speed, one way: 450GB/s, 400Gbit/s, 400GB/s/node, or a "
        "link of `commbench links`.",
    ),
) -> None:
    """Explain a number: what was moved, how each bandwidth follows, what bounds it.

    \b
    commbench explain all_reduce --ranks 8 --size 1G --time 4.2ms --peak nvlink4
    commbench explain all_gather --ranks 32 --nodes 4 --size 1G --time 5ms --peak 400GB/s/node
    commbench explain results/reference
    commbench explain results/reference --op all_reduce --size 1M
    """
    from commbench import api
    from commbench.output.console import print_result, print_status

    text = api.explain(
        what, op=op, size=size, peak=peak, ranks=ranks, time=time, dtype=dtype, timing=timing,
        nodes=nodes, notify=print_status,
    )  # fmt: skip
    print_result(text)
