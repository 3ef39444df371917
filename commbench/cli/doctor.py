"""`commbench doctor`: finds out what disturbs measurements on this host."""

from __future__ import annotations

from typer import Option

from commbench.cli.options import AnyFormat, OutputFile


def doctor(
    seconds: float = Option(60.0, metavar="S", help="About how long the whole check takes."),
    rounds: int = Option(3, metavar="N", help="How often each cpu mode is tried."),
    nproc_per_node: int = Option(2, metavar="N", help="Ranks of each launch."),
    verbose: bool = Option(
        False, "--verbose", help="Print every size of each mode, and all facts of the host."
    ),
    format_: AnyFormat = None,
    output: OutputFile = None,
) -> None:
    """Find out what disturbs measurements with CPU ranks on this host, and what would help.

    \b
    commbench doctor
    commbench doctor --seconds 180 --rounds 6 --nproc-per-node 4
    commbench doctor -o doctor.json       everything, for a ticket
    """
    from commbench import api
    from commbench.doctor.document import VIEW
    from commbench.output.console import print_status
    from commbench.results.files import require_new
    from commbench.views.formats import choose_format, show

    VIEW.require(choose_format(format_, output))
    if output:
        require_new(output)  # before the check, so that nothing is lost
    report = api.doctor(
        seconds=seconds, rounds=rounds, nproc_per_node=nproc_per_node, notify=print_status
    )
    show(VIEW, report, format_, output, verbose)
    if report.trouble:
        raise report.trouble
