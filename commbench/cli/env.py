"""`commbench env`: prints the versions, devices, backends and variables of this machine."""

from __future__ import annotations


def env() -> None:
    """Print what was found: torch, backends, devices, host, and the variables that matter.

    \b
    commbench env
    """
    from commbench.host.environment import device_names, gather_facts
    from commbench.launch.devices import detect_capabilities
    from commbench.output.console import print_result
    from commbench.output.table import format_facts

    devices = detect_capabilities().devices
    gpus = [f"{number} x {kind}" for kind, number in devices.items() if kind != "cpu"]
    gpus += [name for kind in devices if kind != "cpu" for name in device_names(kind)]
    print_result(format_facts(gather_facts() | {"devices": gpus or "no GPU"}))
