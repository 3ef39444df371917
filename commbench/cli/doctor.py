"""`commbench doctor`: finds what on this host would disturb measurements."""

from __future__ import annotations

import json

from typer import Option


def doctor(
    seconds: float = Option(60.0, metavar="S", help="Seconds for the whole check, about."),
    rounds: int = Option(3, metavar="N", help="How often each cpu mode is tried, in turn."),
    nproc_per_node: int = Option(2, metavar="N", help="Ranks that each launch starts."),
    as_json: bool = Option(False, "--json", help="Print everything as JSON instead, for tickets."),
) -> None:
    """Look for what is in the way of measuring with CPU ranks here, and try what would help.

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
