"""How the ranks of an existing process group meet before they measure: in the store of the job, so
that no rank waits without end for one that does not come."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from commbench.errors import CommbenchError, RankError
from commbench.worker.watchdog.hangs import name_ranks

_END = "end"
"""The key of how the meeting ended, which one rank sets, once: JSON of an empty list where all
have come, else of the message and the hint of an error."""


class Meeting:
    """One call of measure() on the ranks of a group, as one of them sees it."""

    def __init__(self, group: Any) -> None:
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.members = dist.get_process_group_ranks(group or dist.group.WORLD)
        store = _get_default_store()
        # Each rank counts its own calls on these ranks, so that all of them find the same new name.
        name = "commbench/" + hashlib.sha256(repr(self.members).encode()).hexdigest()[:16]
        number = store.add(f"{name}/calls of {self.rank}", 1)
        self.store = dist.PrefixStore(f"{name}/{number}", store)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Tell the ranks that wait what this one raises before it joins them."""
        try:
            yield
        except Exception as error:
            message, hint = error.texts if isinstance(error, CommbenchError) else (str(error), "")
            who = f"rank {self.rank} on {socket.gethostname()} raised {type(error).__name__}"
            self._end(f"{who}: {message}", hint)
            raise

    def join(self, timeout_s: float) -> None:
        """Wait until all ranks are here. RankError where one does not come in time, or raised."""
        self.store.set(str(self.rank), "")
        if self.store.add("arrived", 1) == self.ranks:
            self._end()
        try:
            self.store.wait([_END], timedelta(seconds=timeout_s))
        except RuntimeError:
            late = [rank for rank in range(self.ranks) if not self.store.check([str(rank)])]
            if late:
                have = "has" if len(late) == 1 else "have"
                why = f"{name_ranks(late, {})} {have} not called measure() within {timeout_s:g} s"
                hint = "call measure() on all ranks of the group, or give a longer --timeout"
                self._end(why, hint)
        if error := json.loads(self.store.get(_END)):
            raise RankError(*error)

    def _end(self, *error: str) -> None:
        self.store.compare_set(_END, "", json.dumps(error))
