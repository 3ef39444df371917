"""`commbench doctor`: is this host in the way of measuring?"""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer


def doctor(
    seconds: Annotated[
        float, typer.Option(metavar="S", help="Seconds for the whole check, about.")
    ] = 60.0,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="How often each cpu mode is tried, in turn.")
    ] = 3,
    nproc_per_node: Annotated[
        int, typer.Option(metavar="N", help="Ranks that each launch starts.")
    ] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON instead, for tickets.")
    ] = False,
) -> None:
    """Look for what is in the way of measuring with CPU ranks here, and try what would help.

    \b
    commbench doctor
    commbench doctor --seconds 180 --rounds 6 --nproc-per-node 4
    commbench doctor --json > doctor.json
    """
    began = time.monotonic()
    from commbench.cli.session import import_torch
    from commbench.cli.speak import say, tell
    from commbench.doctor.checkup import Request, examine
    from commbench.report.doctor import doctor_text
    from commbench.report.doctor_json import doctor_json

    request = Request(ranks=nproc_per_node, rounds=rounds, seconds=seconds)
    import_torch()
    checkup = examine(request, began, tell)
    text = json.dumps(doctor_json(checkup), indent=1) if as_json else doctor_text(checkup)
    if text:
        say(text)
    if checkup.trouble:
        raise checkup.trouble
