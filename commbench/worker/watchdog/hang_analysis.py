"""Which ranks hang or are lost, from two readings of all heartbeats, and the error to report.

Both diagnoses compare the heartbeats `first` with those read some seconds later, `second`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from commbench.errors import RankError
from commbench.spec.case import Case
from commbench.worker.watchdog.error_files import LOST_RANK_HINT
from commbench.worker.watchdog.heartbeats import Heartbeat
from commbench.worker.watchdog.rank_state import DONE

SLOWEST_BPS = 10e6
"""Bytes per second that any operation is expected to reach, before one of the run was timed."""
CHECK_PASSES = 4
"""How often a check goes through the bytes of a case: fill, poison, call, compare."""
SLOWER_THAN_CHECKED = 3.0
"""An operation is expected to take at most so many times as long as when it was checked."""
SLOWER_THAN_BEFORE = 10.0
"""A check is expected to be at most so many times slower, per byte, than the slowest before it."""
MOST_DUMPS = 20
"""Different dumps that are described."""
STOPPED, STOPPED_ALL = "does not answer", "do not answer"

Heartbeats = Mapping[int, Heartbeat]
"""By rank."""


class HangDiagnosis(NamedTuple):
    """Which ranks keep all others waiting."""

    culprits: tuple[int, ...]
    symptom: str
    """How that shows, as the predicate of a sentence about them."""


class LostRanks(NamedTuple):
    """Which ranks have ended, as another rank finds out."""

    message: str
    """Empty where none has."""
    is_reporter: bool
    """Of the ranks that are left, this one reports it."""

    def error(self) -> RankError:
        """What ranks end with that lost others."""
        return RankError(self.message, LOST_RANK_HINT, is_reporter=self.is_reporter)


def longest_check_s(size_bytes: int, slowest_bps: float = 0.0) -> float:
    """How long checking a case may take beside --timeout; `slowest_bps` is the lowest rate that an
    earlier check has seen, in bytes per second, 0 where there was none."""
    return CHECK_PASSES * size_bytes / max(SLOWEST_BPS, slowest_bps / SLOWER_THAN_BEFORE)


def longest_iteration_s(size_bytes: int, calls: int, checked_s: float) -> float:
    """How long an iteration of so many calls may take beside --timeout. `checked_s` is how long the
    call took that was checked, 0 where none was."""
    return calls * (SLOWER_THAN_CHECKED * checked_s or size_bytes / SLOWEST_BPS)


def find_silent(first: Heartbeats, second: Heartbeats) -> list[int]:
    """The ranks whose watchdogs published nothing between two readings."""
    return [
        rank
        for rank, heartbeat in second.items()
        if rank in first and first[rank].state.heartbeats == heartbeat.state.heartbeats
    ]


def diagnose_hang(first: Heartbeats, second: Heartbeats, world_size: int) -> HangDiagnosis:
    """Which ranks keep all others waiting.

    In this order: ranks without a heartbeat, those whose watchdogs have stopped, those that are
    behind all others, and of these the ones that do not wait within torch.
    """
    unreachable = tuple(rank for rank in range(world_size) if rank not in second)
    if unreachable:
        return HangDiagnosis(unreachable, "cannot be reached")
    running = [rank for rank in second if second[rank].state.phase != DONE]
    silent = tuple(rank for rank in find_silent(first, second) if rank in running)
    if silent:
        return HangDiagnosis(silent, STOPPED if len(silent) == 1 else STOPPED_ALL)
    least = min((second[rank].state.progress for rank in running), default=(0, 0, 0))
    behind = tuple(rank for rank in running if second[rank].state.progress == least)
    busy = tuple(rank for rank in behind if second[rank].stack and not second[rank].is_in_torch)
    if busy and len(busy) < len(running):
        call = second[busy[0]].stack[-1].rpartition("/")[2]
        return HangDiagnosis(busy, f"{'is' if len(busy) == 1 else 'are'} at {call}")
    if len(behind) == world_size:
        return HangDiagnosis((), "all ranks wait")
    return HangDiagnosis(behind, "is behind" if len(behind) == 1 else "are behind")


def make_hang_error(
    diagnosis: HangDiagnosis, heartbeats: Heartbeats, cases: Sequence[Case], timeout_s: float
) -> RankError:
    """The error that says which ranks keep the others waiting, and what each rank does."""
    culprits, symptom = diagnosis
    still_s = max((h.state.still_ms for h in heartbeats.values()), default=0) / 1000
    clauses = [f"{_name_ranks(culprits, heartbeats)} {symptom}" if culprits else symptom]
    ranks_by_state: dict[tuple[bool, str], list[int]] = {}
    for rank, heartbeat in sorted(heartbeats.items()):
        key = (rank not in culprits, heartbeat.state.describe(cases))
        ranks_by_state.setdefault(key, []).append(rank)
    for (is_waiting, state), ranks in sorted(ranks_by_state.items()):
        # A culprit that stopped may have moved after its last heartbeat.
        is_old = symptom in (STOPPED, STOPPED_ALL) and not is_waiting
        since = "was last seen" if is_old else f"made progress {still_s:.0f} s ago,"
        clauses.append(f"{_name_ranks(ranks, heartbeats)} {since} {state}")
    stacks = [
        f"rank {rank} on {heartbeats[rank].host} is at:\n  " + "\n  ".join(heartbeats[rank].stack)
        for rank in culprits
        if rank in heartbeats and heartbeats[rank].stack
    ]
    return RankError(
        "; ".join(clauses),
        f"an operation may take --timeout ({timeout_s:g} s) and {SLOWER_THAN_CHECKED:g} times as "
        "long as in its check; check first the host and the link of the rank that is named first",
        "\n".join(stacks),
    )


def describe_dumps(heartbeats: Heartbeats, folder: Path | None) -> str:
    """What torch's flight recorder has recorded of each rank, with a heading; empty where that is
    nothing."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank, heartbeat in sorted(heartbeats.items()):
        if heartbeat.recorded:
            ranks_by_text.setdefault(heartbeat.recorded, []).append(rank)
    lines = [f"  {_name_ranks(r, heartbeats)}: {text}" for text, r in ranks_by_text.items()]
    lines[MOST_DUMPS:] = ["  and others"] if len(lines) > MOST_DUMPS else []
    return "\n".join([f"torch's flight recorder, dumped to {folder}:", *lines]) if lines else ""


def diagnose_lost_ranks(
    first: Heartbeats,
    second: Heartbeats,
    rank: int,
    world_size: int,
    store_host: str,
    cases: Sequence[Case],
) -> LostRanks:
    """Which other ranks have ended, as `rank` sees it: those that published a failure, or else
    those without further heartbeats. `store_host` is that of the store which rank 0 has, if any."""
    if store_host and set(second) <= {rank} and rank:
        message = f"rank 0 on {store_host} ended, or cannot be reached"
        return LostRanks(message, is_reporter=rank == 1)
    lost = [other for other, heartbeat in second.items() if heartbeat.failure]
    if not lost:
        silent = find_silent(first, second)
        lost = [other for other in range(world_size) if other not in second or other in silent]
    lost = [other for other in lost if other != rank]
    if not lost:
        return LostRanks("", is_reporter=True)
    lowest_left = min(other for other in range(world_size) if other not in lost)
    return LostRanks(describe_lost_ranks(lost, second, cases), rank == lowest_left)


def describe_lost_ranks(
    ranks: Sequence[int], heartbeats: Heartbeats, cases: Sequence[Case], where: str = ""
) -> str:
    """The message about ranks that have ended: what the first one did, and its failure, if any."""
    known = heartbeats.get(ranks[0])
    failure = known.failure if known else ""
    doing = f", last seen {known.state.describe(cases)}" if known else ""
    return f"{_name_ranks(ranks, heartbeats)}{where} {'failed' if failure else 'ended'}{doing}" + (
        f": {failure}" if failure else ""
    )


def _name_ranks(ranks: Sequence[int], heartbeats: Heartbeats) -> str:
    """`rank 2 on b`, `ranks 0, 1 on a`, `ranks 0-3`."""
    hosts = {heartbeats[rank].host for rank in ranks if rank in heartbeats}
    where = f" on {', '.join(sorted(hosts))}" if 0 < len(hosts) <= 3 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}{where}"


def format_ranks(ranks: Sequence[int]) -> str:
    """Ascending ranks, three and more consecutive ones as a range: `0-3, 5, 6`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    return ", ".join(
        f"{span[0]}-{span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans
    )
