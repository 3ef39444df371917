"""`commbench doctor`: finds out what disturbs measurements on this host."""

from __future__ import annotations

import json

from typer import Option


def doctor(
    seconds: float = Option(60.0, metavar="S", help="About how long the whole check takes."),
    rounds: int = Option(3, metavar="N", help="How often each cpu mode is tried."),
    nproc_per_node: int = Option(2, metavar="N", help="Ranks of each launch."),
    as_json: bool = Option(False, "--json", help="Print everything as JSON, for a ticket."),
) -> None:
    """Find out what disturbs measurements with CPU ranks on this host, and what would help.

    \b
    commbench doctor
    commbench doctor --seconds 180 --rounds 6 --nproc-per-node 4
    commbench doctor --json > doctor.json
    """
    from commbench import api
    from commbench.doctor.json_output import doctor_json
    from commbench.doctor.text import doctor_text
    from commbench.output.console import print_result, print_status

    report = api.doctor(
        seconds=seconds, rounds=rounds, nproc_per_node=nproc_per_node, notify=print_status
    )
    text = json.dumps(doctor_json(report), indent=1) if as_json else doctor_text(report)
    if text:
        print_result(text)
    if report.trouble:
        raise report.trouble
