"""`commbench model`: cost models of a machine, and what they predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def fit(runs: list[str], output: Path | None, **given: Any) -> None:
    """Fit cost models to measured times, and choose one by the error of times left out.

    Prints, for each operation within a host and across hosts, the model, its parameters with 95 %
    intervals, its error, and the models that the data cannot tell from it.

    \b
    commbench model fit two four six -o machine.json
    commbench model fit published.csv -o h100.json --leave-out ranks=512-
    """
    from commbench import api
    from commbench.models.fit_text import machine_text
    from commbench.output.console import print_result, print_status

    made = api.fit_model(*runs, output=output, **given, notify=print_status)
    print_result(machine_text(made), end="")
    if output is not None:
        print_status(output)
        print_status(output.with_suffix(".png"))


def predict(machine: str, format: str, output: Path | None, **given: Any) -> None:
    """Predict the times of collectives, with intervals, for ranks and sizes that were not measured.

    \b
    commbench model predict machine.json --op all_reduce --ranks 512 \\
        --ranks-per-node 8 --sizes 1M-1G
    commbench model predict machine.json --ranks 8-4096 --format csv -o p.csv
    commbench model predict machine.json --ranks 8-4096 -o predicted.png
    """
    from commbench import api
    from commbench.cli.options import print_or_write
    from commbench.output.console import print_result, print_status, wrap_on_terminal
    from commbench.views.draw import ENDINGS

    found = api.predict(machine, **given)
    if output is not None and output.suffix.lower() in ENDINGS:
        print_result(found.plot(output))
        warnings = found.warnings()
    else:
        print_or_write(found.text(format), output)
        warnings = found.warnings(format)
    for warning in warnings:
        print_status(wrap_on_terminal(f"warning: {warning}"))
