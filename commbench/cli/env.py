"""`commbench env`: prints the versions, devices, backends and variables of this machine."""

from __future__ import annotations

from commbench.cli.options import AnyFormat, OutputFile


def env(format_: AnyFormat = None, output: OutputFile = None) -> None:
    """Print what this machine offers: torch, backends, devices, host, environment variables.

    \b
    commbench env
    commbench env -o machine.json
    """
    from commbench import api
    from commbench.report.environment import VIEW
    from commbench.views.formats import show

    show(VIEW, api.environment(), format_, output)
