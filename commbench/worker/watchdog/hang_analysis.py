"""Who keeps all ranks waiting, and the words for it: from what ranks posted of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commbench.errors import RankError
from commbench.spec.case import Case
from commbench.worker.watchdog.heartbeats import Heartbeat
from commbench.worker.watchdog.rank_state import DONE

SLOWEST_BPS = 10e6
"""Bytes per second that any operation is expected to reach."""
STOPPED, STOPPED_ALL = "answers no more", "answer no more"


class HangDiagnosis(NamedTuple):
    """Who keeps everybody waiting, and how that shows."""

    guilty: tuple[int, ...]
    how: str


def allowed_s(timeout_s: float, bytes_: int) -> float:
    """How long a rank may stand still: --timeout, and its bytes at SLOWEST_BPS."""
    return timeout_s + bytes_ / SLOWEST_BPS


def judge(
    first: Mapping[int, Heartbeat], second: Mapping[int, Heartbeat], ranks: int
) -> HangDiagnosis:
    """Who keeps everybody waiting, from what ranks posted and what they posted seconds later.

    In this order: ranks that nobody hears of, those whose watch has stopped too, those that are
    behind all others, and of these the ones that do not wait within torch.
    """
    unheard = tuple(rank for rank in range(ranks) if rank not in second)
    if unheard:
        return HangDiagnosis(unheard, "cannot be heard of")
    waiting = [rank for rank in second if second[rank].position.phase != DONE]
    silent = tuple(rank for rank in waiting if is_silent(rank, first, second))
    if silent:
        return HangDiagnosis(silent, STOPPED if len(silent) == 1 else STOPPED_ALL)
    least = min((second[rank].position.progress for rank in waiting), default=(0, 0, 0))
    behind = tuple(rank for rank in waiting if second[rank].position.progress == least)
    busy = tuple(rank for rank in behind if second[rank].stack and not second[rank].waits)
    if busy and len(busy) < len(waiting):
        place = second[busy[0]].stack[-1].rpartition("/")[2]
        return HangDiagnosis(busy, f"{'is' if len(busy) == 1 else 'are'} at {place}")
    if len(behind) == ranks:
        return HangDiagnosis((), "all ranks wait")
    return HangDiagnosis(behind, "is behind" if len(behind) == 1 else "are behind")


def report(
    verdict: HangDiagnosis, posts: Mapping[int, Heartbeat], cases: Sequence[Case], timeout_s: float
) -> RankError:
    """What to tell of ranks that stand still: who keeps the others waiting, and who is where."""
    guilty, how = verdict
    longest_ms = max((post.position.still_ms for post in posts.values()), default=0)
    words = [f"{_named(guilty, posts)} {how}" if guilty else how]
    places: dict[tuple[bool, str], list[int]] = {}
    for rank, post in sorted(posts.items()):
        places.setdefault((rank not in guilty, post.position.told(cases)), []).append(rank)
    for (innocent, told), ranks in sorted(places.items()):
        moved = f"moved last {longest_ms / 1000:.0f} s ago,"
        seen = how in (STOPPED, STOPPED_ALL) and not innocent  # it may have moved since it said so
        words.append(f"{_named(ranks, posts)} {'was last seen' if seen else moved} {told}")
    stacks = [
        f"rank {rank} on {posts[rank].host} is at:\n  " + "\n  ".join(posts[rank].stack)
        for rank in guilty
        if rank in posts and posts[rank].stack
    ]
    return RankError(
        "; ".join(words),
        f"an operation may take --timeout ({timeout_s:g} s) and its bytes at "
        f"{SLOWEST_BPS / 1e6:g} MB/s; look first at the host and the link of who is named first",
        "\n".join(stacks),
    )


def blame(
    ranks: Sequence[int],
    word: str,
    posts: Mapping[int, Heartbeat],
    cases: Sequence[Case],
    where: str = "",
) -> str:
    """What to tell of ranks that are gone, of which the first had this last `word`, if any."""
    known = posts.get(ranks[0])
    doing = f", last seen {known.position.told(cases)}" if known else ""
    return f"{_named(ranks, posts)}{where} {'failed' if word else 'ended'}{doing}" + (
        f": {word}" if word else ""
    )


def is_silent(rank: int, first: Mapping[int, Heartbeat], second: Mapping[int, Heartbeat]) -> bool:
    """Whether a rank's watch stood still between two readings."""
    return rank in first and first[rank].position.beats == second[rank].position.beats


def _named(ranks: Sequence[int], posts: Mapping[int, Heartbeat]) -> str:
    """`rank 2 on b`, `ranks 0, 1 on a`, `ranks 0-3`."""
    hosts = {posts[rank].host for rank in ranks if rank in posts}
    where = f" on {', '.join(sorted(hosts))}" if 0 < len(hosts) <= 3 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}{where}"


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers, runs of three and more put together: `0-3, 5, 6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
