"""`commbench model`: cost models of a machine, and what they predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commbench import api
from commbench.cli.commands import Show
from commbench.output.console import print_result, print_status
from commbench.views.formats import choose_format


def fit(show: Show, runs: list[str], output: Path | None, **given: Any) -> None:
    """Fit cost models to measured times, and choose the best one.

    It has the least error at times that were left out of the fit. Prints, for each operation within
    a host and across hosts, the model, its parameters with 95 % intervals, its error, and the
    models that the data cannot tell from it.

    \b
    commbench model fit two four six -o machine.json
    commbench model fit published.csv -o h100.json --leave-out ranks=512-
    """
    show(api.fit_model(*runs, output=output, **given, notify=print_status), output=None)
    if output is not None:
        print_status(output)
        print_status(output.with_suffix(".png"))


def show(show: Show, machine: str) -> None:
    """Show the models of a machine, as text or as a page.

    \b
    commbench model show machine.json
    commbench model show machine.json -o machine.html
    """
    from commbench.answers.cost.machine import read_machine

    show(read_machine(machine))


def predict(
    show: Show, machine: str, format: str | None, output: Path | None, **given: Any
) -> None:
    """Predict times, with intervals, for other ranks and sizes.

    \b
    commbench model predict machine.json --op all_reduce --ranks 512 \\
        --ranks-per-node 8 --sizes 1M-1G
    commbench model predict published:h100 --ranks 8 --sizes 1M-512M
    commbench model predict machine.json --ranks 8-4096 --format csv -o p.csv
    commbench model predict machine.json --ranks 8-4096 -o predicted.png
    """
    from commbench.answers.cost.predict_document import warnings_beside
    from commbench.views.draw import ENDINGS

    found = api.predict(machine, **given)
    if output is not None and output.suffix.lower() in ENDINGS:
        print_result(found.plot(output)[0])
        warnings = warnings_beside(found, "csv")
    else:
        show(found, format_=format, output=output)
        warnings = warnings_beside(found, choose_format(format, output))
    for warning in warnings:
        print_status(f"warning: {warning}")
