"""`commbench expect`: is a bandwidth plausible on this hardware?"""

from __future__ import annotations

from typer import Option

from commbench.cli.options import AnyFormat, OutputFile

HARDWARE, GIVEN = "Hardware", "Is this plausible?"


def expect(
    gpu: list[str] = Option(
        [],
        metavar="GPU",
        help="Accelerator, such as h100, or the name of a device.",
        rich_help_panel=HARDWARE,
    ),
    nodes: int = Option(1, metavar="K", help="Number of nodes.", rich_help_panel=HARDWARE),
    gpus_per_node: int | None = Option(
        None,
        metavar="N",
        help="Ranks on each node.  [default: 8; 4 for GB200 and GB300]",
        rich_help_panel=HARDWARE,
    ),
    nic: str | None = Option(
        None,
        metavar="NICS",
        help="Network of each node: 8x400G (Gbit/s), 8xib-ndr, efa, "
        "400GB/s, or a link of `commbench links`.",
        rich_help_panel=HARDWARE,
    ),
    link: str | None = Option(
        None,
        metavar="SPEED",
        help="Speed of an accelerator's links, one way: 450GB/s, or a name."
        "  [default: that of the accelerator]",
        rich_help_panel=HARDWARE,
    ),
    op: str | None = Option(None, "--op", metavar="OP", help="Operation.  [default: all_reduce]"),
    size: str | None = Option(
        None,
        metavar="SIZE",
        help="Size, as printed by run and nccl-tests: 8G.  [default: large]",
    ),
    algorithm: str | None = Option(
        None, metavar="NAME", help="Only figures of this algorithm: ring, tree, nvls, nvlstree."
    ),
    nccl: str | None = Option(
        None, metavar="VERSION", help="Version of NCCL; leaves out figures of newer features."
    ),
    busbw: str | None = Option(
        None, metavar="SPEED", help="Bus bandwidth: 430GB/s.", rich_help_panel=GIVEN
    ),
    algbw: str | None = Option(
        None, metavar="SPEED", help="Algorithm bandwidth: 250GB/s.", rich_help_panel=GIVEN
    ),
    time: str | None = Option(
        None, metavar="T", help="Time of one call, with --size: 4.2ms.", rich_help_panel=GIVEN
    ),
    tolerance: str | None = Option(
        None,
        metavar="PERCENT",
        help="How far below the lowest figure of others a bandwidth is plausible.  [default: 20%]",
    ),
    format_: AnyFormat = None,
    output: OutputFile = None,
) -> None:
    """Say what bandwidth to expect of hardware: what others measured, and what is possible.

    \b
    commbench expect --gpu h100
    commbench expect --gpu h100 --nodes 2 --nic 8x400G --busbw 430GB/s
    commbench expect --gpu b200 --nodes 4 --nic efa --op all_reduce --size 8G
    """
    from commbench import api
    from commbench.expect.document import VIEW
    from commbench.views.formats import choose_format, show

    VIEW.require(choose_format(format_, output))
    found = api.expect(
        " and ".join(gpu) or None, nodes=nodes, gpus_per_node=gpus_per_node, nic=nic, link=link,
        op=op, size=size, algorithm=algorithm, nccl=nccl, tolerance=tolerance, busbw=busbw,
        algbw=algbw, time=time,
    )  # fmt: skip
    show(VIEW, found, format_, output)
