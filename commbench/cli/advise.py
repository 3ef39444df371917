"""`commbench advise`: which bucket size, form of call or setting is faster, and from which size."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from commbench.cli.old_options import Dtype, Op, Ranks

_STEP, _EXPERTS, _OUTPUT = "The training step", "Experts", "Output"


def advise(
    runs: list[str] = Argument(
        metavar="RUN...", help="Runs and sweeps: labels, folders or journals."
    ),
    params: str | None = Option(
        None, metavar="NUMBER", help="Parameters of the model: 350M, 7B, 7e9.",
        rich_help_panel=_STEP,
    ),
    model_bytes: str | None = Option(
        None, metavar="SIZE", help="Bytes of all gradients, instead of --params.",
        rich_help_panel=_STEP,
    ),
    backward: str | None = Option(
        None, metavar="TIME",
        help="The backward pass without communication: 300ms.  [default: as long as the "
        "communication]",
        rich_help_panel=_STEP,
    ),
    tensors: int | None = Option(
        None, metavar="N",
        help="Gradients of equal size, which become ready one by one.  [default: so many that "
        "each bucket is exactly full]",
        rich_help_panel=_STEP,
    ),
    blocks: int | None = Option(
        None, metavar="N", help="Blocks of the model, such as its layers, for FSDP2.",
        rich_help_panel=_STEP,
    ),
    bucket_cap: str | None = Option(
        None, metavar="SIZE",
        help="The bucket size in use, to compare with.  [default: torch's, 25M after a first of "
        "1M]",
        rich_help_panel=_STEP,
    ),
    topk: int | None = Option(
        None, metavar="K", help="Experts of a token.", rich_help_panel=_EXPERTS
    ),
    experts: int | None = Option(
        None, metavar="N", help="Experts of all ranks together.", rich_help_panel=_EXPERTS
    ),
    hidden: int | None = Option(
        None, metavar="N", help="Numbers of a token.", rich_help_panel=_EXPERTS
    ),
    tokens: int | None = Option(
        None, metavar="N", help="Tokens of a rank.  [default: all that were measured]",
        rich_help_panel=_EXPERTS,
    ),
    tolerance: str = Option(
        "2%", metavar="PART", help="Gains up to this count as none.", rich_help_panel=_OUTPUT
    ),
    format_: str = Option(
        "table", "--format", metavar="FORMAT", help="table, markdown or json.",
        rich_help_panel=_OUTPUT,
    ),
    output: Path | None = Option(
        None, "--output", "-o", metavar="FILE",
        help="Draw the times over the bucket size into a new file: .png, .svg, .pdf.",
        rich_help_panel=_OUTPUT,
    ),
    verbose: bool = Option(
        False, "--verbose", help="Say also what a replay lacks for advice about single calls.",
        rich_help_panel=_OUTPUT,
    ),
    ranks: Ranks = None,
    op: Op = None,
    dtype: Dtype = None,
) -> None:  # fmt: skip
    """Say which bucket size, form of call or setting is faster, by how much, and from which size.

    Several runs on the same ranks are read together, such as runs of two algorithms of NCCL.

    \b
    commbench advise mine --params 350M --backward 120ms
    commbench advise ring tree                   runs of two settings
    commbench advise mine --topk 8 --experts 64 --hidden 4096
    commbench advise mine --params 7B --blocks 32 -o buckets.png
    """
    from commbench import api
    from commbench.advise.text import FORMATS
    from commbench.output.console import print_result, print_status
    from commbench.validation import choose

    write = choose("format", format_, FORMATS)
    found = api.advise(
        *runs, params=params, model_bytes=model_bytes, backward=backward, tensors=tensors,
        blocks=blocks, bucket_cap=bucket_cap, topk=topk, experts=experts, hidden=hidden,
        tokens=tokens, tolerance=tolerance, output=output, ranks=ranks, op=op, dtype=dtype,
        notify=print_status,
    )  # fmt: skip
    print_result(write(found, verbose), end="")
    if output:
        print_status(output)
