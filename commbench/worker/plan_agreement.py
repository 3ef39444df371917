"""Whether all ranks have the same plan, compared by digest; where not, what differs."""

from __future__ import annotations

from typing import Any, NoReturn

from commbench.errors import UnavailableError
from commbench.spec.plan import OPTIONS, Plan
from commbench.units import format_sizes
from commbench.worker.communicator import Communicator

SAME_COMMAND = (
    "start every rank with the same command and the same commbench; the run that --resume names "
    "must be the same on every node"
)
MAX_VALUE = 60
"""Characters of a shortened value."""


def find_other_plan(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The number and host of the first rank with another plan than rank 0; None: all have the same.

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
                f"rank {rank['rank']} on {rank['host']} has a different {key} ({other[key]}) "
                f"from rank 0 ({parts[0][key]})",
                SAME_COMMAND,
            )
    return None


def raise_other_plan(plan: Plan, comm: Communicator, rank: int, host: str) -> NoReturn:
    """Raise UnavailableError on every rank: how the plan of `rank` differs from that of rank 0."""
    first, other = (comm.share_value(plan.as_json(), source) for source in (0, rank))
    found = "; ".join(describe_differences(first, other))
    raise UnavailableError(f"rank {rank} on {host} has a different plan: {found}", SAME_COMMAND)


def describe_differences(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """How another plan, as JSON, differs, by option: `--sizes 2K instead of 1K`."""
    return [
        f"{OPTIONS.get(name, '--' + name.replace('_', '-'))} {_short_text(name, other[name])} "
        f"instead of {_short_text(name, value)}"
        for name, value in first.items()
        if value != other[name]
    ]


def _text(name: str, value: Any) -> str:
    if name == "sizes":
        return format_sizes(tuple(value))
    if value is None:
        return "as needed"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(value) if isinstance(value, list) else str(value)


def _short_text(name: str, value: Any) -> str:
    """A value in ASCII; of a long one its beginning, its end and its length."""
    shown = ascii(_text(name, value))[1:-1]
    if len(shown) <= MAX_VALUE:
        return shown
    half = MAX_VALUE // 2
    return f"{shown[:half]} ... {shown[-half:]} ({len(shown)} characters)"
