"""`commbench explain`: what a number means, with the formulas it comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_HELP


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="OP|RUN", help="An operation, or a run: folder, run.jsonl or label."
        ),
    ],
    ranks: Annotated[
        int | None, typer.Option("--ranks", metavar="N", help="OP: how many ranks took part.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size as printed by run and nccl-tests: 1M, 1G."),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="T", help="OP: how long one call took: 120us, 4.2ms.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype", "-d", metavar="DTYPE", help="OP: element type.  [default: float32]"
        ),
    ] = None,
    timing: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help=f"OP: {TIMING_HELP}.  [default: {DEFAULT_TIMING}]",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="K", help="OP: nodes the ranks were on.  [default: 1]"),
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="RUN: this operation's rows only.")
    ] = None,
    peak: Annotated[
        str | None,
        typer.Option(
            metavar="SPEED",
            help="Hold busbw against a speed, one way: 450GB/s, 400Gbit/s, 400GB/s/node, or a "
            "link of `commbench links`.",
        ),
    ] = None,
) -> None:
    """Explain a number: what was moved, how each bandwidth follows, what bounds it.

    \b
    commbench explain all_reduce --ranks 8 --size 1G --time 4.2ms --peak nvlink4
    commbench explain all_gather --ranks 32 --nodes 4 --size 1G --time 5ms --peak 400GB/s/node
    commbench explain results/reference
    commbench explain results/reference --op all_reduce --size 1M
    """
    from commbench.explain import query as question
    from commbench.output.console import print_result, print_status

    of_claim = question.QuotedCall(
        ranks=ranks, size=size, time=time, dtype=dtype, timing=timing, nodes=nodes
    )
    print_result(question.answer(what, of_claim, op, peak, print_status))
