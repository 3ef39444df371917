"""How long the calls of a traced step take without computation, by the times of the trace."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.spec.workload import Call, Step, Workload
from commbench.spec.workload_order import Match, match_calls, waits_after


def calls_only_s(workload: Workload, step: Step) -> float | None:
    """Seconds from the first call to the last end where no rank computes; None where the times of
    the calls are not known.

    Each call takes its transfer time, or the whole time where no transfer time is known, from when
    all its ranks have begun it. A rank makes its calls in order and waits where the program does;
    those of one stream follow one another. Raises UsageError for calls that never end.
    """
    programs = {rank: program.calls for program in step.programs for rank in program.ranks}
    ranks = {rank: _Rank(calls) for rank, calls in programs.items()}
    open_matches = match_calls(workload, step)
    if any(_transfer_s(match) is None for match in open_matches):
        return None
    while open_matches:
        for rank in ranks.values():
            rank.advance()
        left = [match for match in open_matches if not _end(match, ranks)]
        if len(left) == len(open_matches):
            return None
        open_matches = left
    return max(
        (end for rank in ranks.values() for end in rank.ends if end is not None), default=0.0
    )


def _transfer_s(match: Match) -> float | None:
    """The shortest time of a call on its ranks."""
    known = [one.call.transfer_s or one.call.time_s for one in match]
    return min((time for time in known if time is not None), default=None)


def _end(match: Match, ranks: dict[int, _Rank]) -> bool:
    """Whether a call can end now; its ranks are told when."""
    begins = [ranks[one.rank].begin_s(one.number) for one in match]
    known = [begin for begin in begins if begin is not None]
    if len(known) < len(begins):
        return False
    for one in match:
        ranks[one.rank].ends[one.number] = max(known) + (_transfer_s(match) or 0.0)
    return True


class _Rank:
    """How far a rank has come."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.ends: list[float | None] = [None] * len(calls)
        self._calls, self._waits = calls, waits_after(calls)
        self._made: list[float] = []
        """When it made each call so far."""
        self._now_s = 0.0
        last: dict[int | str, int] = {}
        self._before: list[int | None] = []
        """Of each call the one before it in its stream; None for the first, and for messages, which
        may be under way together."""
        for index, call in enumerate(calls):
            is_message = call.peer is not None
            self._before.append(None if is_message else last.get(call.stream))
            if not is_message:
                last[call.stream] = index

    def advance(self) -> None:
        """Make the next calls, until one that has to be waited for has not ended."""
        while len(self._made) < len(self._calls):
            if self._made:
                ends = [self.ends[index] for index in self._waits[len(self._made) - 1]]
                known = [end for end in ends if end is not None]
                if len(known) < len(ends):
                    return
                self._now_s = max(self._now_s, *known) if known else self._now_s
            self._made.append(self._now_s)

    def begin_s(self, index: int) -> float | None:
        """When it begins a call: it has made it, and the one before in its stream has ended."""
        if index >= len(self._made):
            return None
        before = self._before[index]
        if before is None:
            return self._made[index]
        end = self.ends[before]
        return None if end is None else max(self._made[index], end)
