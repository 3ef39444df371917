"""Whether all ranks are about to do the same: compared by digest, and told by what differs."""

from __future__ import annotations

import hashlib
from typing import Any

from commbench.errors import UnavailableError
from commbench.spec.plan import OPTIONS, Plan
from commbench.units import format_sizes
from commbench.worker.communicator import Communicator

SAME_COMMAND = (
    "start every rank with the same command and the same commbench; what --resume names must be "
    "the same on every node"
)
BRIEF_BYTES = 8192
"""Most bytes of the control message that carries a plan in brief."""
LONGEST = 60
"""Characters of a value in brief."""

Brief = dict[str, list[str]]
"""Of each field of a plan its value, shortened where it is long, and a digest of all of it."""


def other_plan(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first rank whose plan is not that of rank 0, if any.

    Raises UnavailableError where versions or journals differ.
    """
    for key in ("commbench", "plan", "journal"):
        for other in parts:
            if other[key] == parts[0][key]:
                continue
            rank = {"rank": other["rank"]["rank"], "host": other["rank"]["host"]}
            if key == "plan":
                return rank
            raise UnavailableError(
                f"rank {rank['rank']} on {rank['host']} has another {key} ({other[key]}) than "
                f"rank 0 ({parts[0][key]})",
                SAME_COMMAND,
            )
    return None


def refuse_plan(plan: Plan, comm: Communicator, rank: int, host: str) -> None:
    """Raise UnavailableError on every rank: that `rank` has another plan than rank 0, and how."""

    def decide(parts: list[Brief]) -> None:
        told = "; ".join(differences(parts[0], parts[rank]))
        raise UnavailableError(f"rank {rank} on {host} has another plan: {told}", SAME_COMMAND)

    comm.agree(in_brief(plan), decide, BRIEF_BYTES)


def in_brief(plan: Plan) -> Brief:
    """A plan in at most BRIEF_BYTES of JSON, however many sizes it has."""
    return {
        name: [_shortened(_text(name, value)), hashlib.sha256(repr(value).encode()).hexdigest()[:8]]
        for name, value in plan.as_json().items()
    }


def differences(first: Brief, other: Brief) -> list[str]:
    """What differs in another plan, by option: `--sizes 2K instead of 1K`."""
    return [
        f"{OPTIONS.get(name, '--' + name.replace('_', '-'))} {other[name][0]} instead of {mine[0]}"
        for name, mine in first.items()
        if mine != other[name]
    ]


def _text(name: str, value: Any) -> str:
    if name == "sizes":
        return format_sizes(tuple(value))
    if value is None:
        return "as needed"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(value) if isinstance(value, list) else str(value)


def _shortened(text: str) -> str:
    """Its beginning and its end where it is long, and how long it is; of ASCII only."""
    shown = ascii(text)[1:-1]
    if len(shown) <= LONGEST:
        return shown
    half = LONGEST // 2
    return f"{shown[:half]} ... {shown[-half:]} ({len(shown)} characters)"
