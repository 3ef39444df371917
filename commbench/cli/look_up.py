"""`commbench ops`, `links`, `expect`, `env` and `doctor`: what is known without a run."""

from __future__ import annotations

from typing import Any

from commbench.cli.command import Show


def ops(show: Show) -> None:
    """Print the operations: the torch call, what it does, its size and its bus bandwidth.

    \b
    commbench ops
    """
    from commbench.report.operations import operation_table

    show(operation_table())


def links(show: Show, name: str | None, published: bool) -> None:
    """Print the speed of links in one direction, with sources. --peak takes their names.

    \b
    commbench links
    commbench links h100
    commbench links --published
    """
    from commbench.links.speeds import find_links

    show(find_links(name, published))


def expect(show: Show, gpu: list[str], **given: Any) -> None:
    """Say what bandwidth to expect of hardware: what others measured, and what is possible.

    \b
    commbench expect --gpu h100
    commbench expect --gpu h100 --nodes 2 --nic 8x400G --busbw 430GB/s
    commbench expect --gpu b200 --nodes 4 --nic efa --op all_reduce --size 8G
    """
    from commbench import api

    show(api.expect(" and ".join(gpu) or None, **given))


def env(show: Show) -> None:
    """Print what this machine offers: torch, backends, devices, host, environment variables.

    \b
    commbench env
    commbench env -o machine.json
    """
    from commbench import api

    show(api.environment())


def doctor(show: Show, **given: Any) -> None:
    """Find out what disturbs measurements with CPU ranks on this host, and what would help.

    \b
    commbench doctor
    commbench doctor --seconds 180 --rounds 6 --nproc-per-node 4
    commbench doctor -o doctor.json       everything, for a ticket
    """
    from commbench import api
    from commbench.output.console import print_status

    report = api.doctor(**given, notify=print_status)
    show(report)
    if report.trouble:
        raise report.trouble
