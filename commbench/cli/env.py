"""`commbench env`: prints the versions, devices, backends and variables of this machine."""

from __future__ import annotations


def env() -> None:
    """Print what this machine offers: torch, backends, devices, host, environment variables.

    \b
    commbench env
    """
    from commbench import api
    from commbench.output.console import print_result
    from commbench.output.table import format_facts

    print_result(format_facts(api.environment()))
