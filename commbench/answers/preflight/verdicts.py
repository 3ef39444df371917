"""What attempts say about hosts: which are good, and which are not and why.

An attempt that fails accuses the hosts that its error names, or all of them. An accused host is
retried once, alone or with hosts that have passed. A pure function of the journal's attempts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS

FLAPPING = "flapping"
VERDICTS = (DRAIN, MISSING, FLAPPING, AGAIN, PASS)
"""Failed twice; never answered; failed and then passed; undecided or not reached; good."""


class Attempt(NamedTuple):
    """A run on one or several hosts, or what the runs of a stage together say about a host."""

    stage: str
    hosts: tuple[str, ...]
    passed: bool
    reason: str = ""
    """Why it did not pass."""
    accused: tuple[str, ...] = ()
    """The hosts that may be the cause; empty if it passed."""
    retried: tuple[str, ...] = ()
    """The hosts for whose sake it was made again."""
    is_answered: bool = True
    """Whether any of its hosts printed an error or a journal."""
    is_undecided: bool = False
    """Whether it says neither that the hosts are good nor that they are bad."""
    seconds: float = 0.0
    folder: str = ""
    """Of its journal and logs, within that of the preflight."""


class HostVerdict(NamedTuple):
    """The verdict about a host, and why."""

    name: str
    verdict: str
    stage: str = ""
    """In which it failed; empty for a good one."""
    reason: str = ""


def judge_hosts(hosts: Sequence[str], attempts: Sequence[Attempt]) -> list[HostVerdict]:
    """The verdict about each host, in their order."""
    stages = [*dict.fromkeys(attempt.stage for attempt in attempts)]
    return [_judge(host, stages, attempts) for host in hosts]


def good_hosts(hosts: Sequence[str], attempts: Sequence[Attempt]) -> list[str]:
    """The hosts that nothing speaks against."""
    return [found.name for found in judge_hosts(hosts, attempts) if found.verdict == PASS]


def _judge(host: str, stages: Sequence[str], attempts: Sequence[Attempt]) -> HostVerdict:
    for stage in stages:
        of_stage = [attempt for attempt in attempts if attempt.stage == stage]
        first = [a for a in of_stage if host in a.accused and host not in a.retried]
        if first:
            verdict, reason = _verdict(host, first, of_stage)
            if verdict != PASS:
                return HostVerdict(host, verdict, stage, reason)
    return HostVerdict(host, PASS)


def _verdict(host: str, first: Sequence[Attempt], of_stage: Sequence[Attempt]) -> tuple[str, str]:
    again = [attempt for attempt in of_stage if host in attempt.retried]
    failed = [attempt for attempt in again if not attempt.passed]
    reason = (failed or first)[-1].reason
    if not again:
        return AGAIN, reason
    if failed:
        if all(len(a.hosts) == 1 and not a.is_answered for a in (*first, *again)):
            return MISSING, reason
        is_clear = any(_is_clear(host, attempt) for attempt in failed)
        return (DRAIN, reason) if is_clear else (AGAIN, reason)
    if all(attempt.is_undecided or _is_explained(host, attempt, of_stage) for attempt in first):
        return PASS, ""
    return FLAPPING, f"{first[0].reason}; then it passed"


def _is_clear(host: str, attempt: Attempt) -> bool:
    """Whether a retry that failed is the fault of this host alone."""
    return attempt.accused == (host,) and not attempt.is_undecided


def _is_explained(host: str, attempt: Attempt, of_stage: Collection[Attempt]) -> bool:
    """Whether another host, which failed again, is the cause of a failed attempt."""
    return any(
        _is_clear(other, retry)
        for other in attempt.accused
        if other != host
        for retry in of_stage
        if other in retry.retried and not retry.passed
    )
