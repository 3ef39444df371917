"""The scripted backend: operations over gloo, held until their scripted end. See scripted.py."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import scripted
import torch
import torch.distributed as dist
from scripted import SCRIPTS, SHORT_BYTES, TRUTH, Call, Script

MARGIN_NS = 50_000
"""From the last rank's entering a barrier to all ranks' leaving it."""
SPIN_NS = 5_000_000
"""How long a rank waits for others without letting anything else run."""
AWAKE_NS = 100_000
"""How long before its end a call no longer sleeps. Until then the core is free for other work."""
UNIT_NS = 1_000_000
"""Of the scripted computation."""
RETURN_NS = 2_500
"""By how much longer than a barrier a call takes to come back to its caller through torch."""

OPERATIONS = {
    "allreduce": "all_reduce", "broadcast": "broadcast", "reduce": "reduce",
    "_allgather_base": "all_gather", "all_gather_single": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "reduce_scatter_single": "reduce_scatter",
    "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all",
}  # fmt: skip
"""Methods of a process group that follow the script, under all names torch 2.6 to 2.13 calls."""
UNSCRIPTED = ("gather", "scatter", "send", "recv")
"""Methods that last as long as gloo takes."""


def register() -> None:
    """Make the backend known to torch, and its computation to commbench, here and in ranks that are
    forked from here."""
    dist.Backend.register_backend("scripted", ScriptedGroup, devices=["cpu"])
    scripted.know_computation()


class ScriptedGroup(dist.ProcessGroup):
    """A process group that performs operations over gloo and ends them by a script."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        told = json.loads(os.environ[scripted.VARIABLE])
        self._script: Script = SCRIPTS[told["script"]]
        # Ranks leave a file for each launch of a run, and see those of the launches before.
        launch = len(list(Path.cwd().glob(TRUTH.format("*", rank))))
        self._seed = f"{told['script']} {told['seed']} {launch}"
        self._median_us = told["median_us"]
        self._board = _Board(store, rank, size, timeout)
        self._inner = _gloo_group(dist.PrefixStore("inner", store), rank, size, timeout)
        self._left_ns = 0  # when this rank left the last barrier; 0: something came after it
        self._case = ("", "", 0)
        self._numbers = {self._case: 0}
        self._calls: list[tuple[int, Call]] = []
        self._ends_ns: list[int] = []
        truth = Path.cwd() / TRUTH.format(launch, rank)
        self._finish = weakref.finalize(self, _write, truth, self._calls, self._ends_ns)

    def getBackendName(self) -> str:  # noqa: N802
        return "scripted"

    def shutdown(self) -> None:
        """Leave gloo, and write down the truth; torch 2.6 lets the group be collected instead."""
        self._inner = None
        self._finish()

    # Nothing but returning may follow the end of a call, or of a barrier.

    def barrier(self, opts: Any = None) -> Any:  # noqa: ARG002
        self._left_ns = _wait(self._meet())
        return DONE

    def perform(self, method: str, tensors: tuple[Any, ...]) -> Any:
        """Do what `method` does, and return at the scripted end."""
        if self._script.background is None:
            self._ends_ns.append(_wait(self._move(method, tensors) - RETURN_NS))
            return DONE
        began = time.perf_counter_ns()
        work = ScriptedWork(self._script, began, self._move(method, tensors) - began)
        self._ends_ns.append(work.end_ns())
        return work

    def pass_on(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Have gloo do what `method` does, and send a long message as late as the script says."""
        if method == "send" and max(t.nbytes for t in arguments[0]) > SHORT_BYTES:
            delay_us = self._script.message_us(self._rank, arguments[1])
            _wait(time.perf_counter_ns() + round(1e3 * delay_us))
        return getattr(self._inner, method)(*arguments)

    def _meet(self) -> int:
        """Wait for all ranks; when this one leaves the barrier."""
        start = self._board.latest(time.perf_counter_ns() + MARGIN_NS)
        delay_us = self._script.entry_us(self._rank, self._numbers[self._case])
        return start + round(1e3 * delay_us)

    def _move(self, method: str, tensors: tuple[Any, ...]) -> int:
        """Move the data; when the call ends."""
        aligned, entered = self._left_ns > 0, self._left_ns or time.perf_counter_ns()
        self._left_ns = 0
        last_entered = self._board.latest(entered)
        if self._script.background is None:
            self.pass_on(method, tensors).wait()
        largest = max(_flat(tensors), key=lambda tensor: tensor.nbytes)
        self._case = (OPERATIONS[method], str(largest.dtype)[len("torch.") :], largest.nbytes)
        number = self._numbers.setdefault(self._case, 0)
        duration = self._duration_ns(number)
        scripted = duration + aligned * self._wait_ns(number)
        late = max(0, time.perf_counter_ns() - last_entered - duration)
        self._calls.append((entered, Call(*self._case, number, aligned, scripted, 0, late)))
        self._numbers[self._case] = number + 1
        return last_entered + duration

    def _duration_ns(self, number: int) -> int:
        random = Random(f"{self._seed} {self._case} {number}")
        spell = Random(f"{self._seed} {number // scripted.SPELL_CALLS}")
        common_us = self._median_us * self._script.shape(random, number)
        common_us *= self._script.spell(spell)
        return round(1e3 * (common_us + self._script.extra_us(self._rank, number)))

    def _wait_ns(self, number: int) -> int:
        """How long the script makes this rank wait for the one that enters last."""
        entries = [self._script.entry_us(rank, number) for rank in range(self._size)]
        return round(1e3 * (max(entries) - entries[self._rank]))


for _method in OPERATIONS:
    setattr(ScriptedGroup, _method, lambda group, *given, _m=_method: group.perform(_m, given))
for _method in UNSCRIPTED:
    setattr(ScriptedGroup, _method, lambda group, *given, _m=_method: group.pass_on(_m, given))


class _Done(dist.Work):
    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002
        return True


DONE = _Done()


class ScriptedWork(dist.Work):
    """A call that ends by a script while its rank may compute."""

    under_way: ScriptedWork | None = None
    """The one of this process that nobody has waited for yet."""

    def __init__(self, script: Script, began_ns: int, duration_ns: int) -> None:
        super().__init__()
        assert script.background is not None
        self.script, self._began_ns, self._duration_ns = script, began_ns, duration_ns
        self._background = script.background
        self._future: torch.futures.Future[None] = torch.futures.Future()
        ScriptedWork.under_way = self
        if self._background == 1:
            threading.Thread(target=self._end, daemon=True).start()

    def end_ns(self) -> int:
        """When the part ends that goes on in the background."""
        return self._began_ns + round(self._background * self._duration_ns)

    def compute_meanwhile(self) -> None:
        """Note that the rank computes before it waits."""
        if ScriptedWork.under_way is self:
            self._duration_ns = round(self._duration_ns * self.script.slows_communication)

    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002
        first = ScriptedWork.under_way is self
        ScriptedWork.under_way = None
        if self._background == 1:
            self._future.wait()
        elif first:
            rest = round((1 - self._background) * self._duration_ns)
            _wait(max(self.end_ns(), time.perf_counter_ns()) + rest)
            self._future.set_result(None)
        return True

    def get_future(self) -> torch.futures.Future[None]:
        return self._future

    def _end(self) -> None:
        while time.perf_counter_ns() < self.end_ns():
            _wait(self.end_ns())
        self._future.set_result(None)


class ScriptedUnit:
    """A computation of so many units of a given length."""

    def __init__(self) -> None:
        self._end_ns = 0
        self._beside: ScriptedWork | None = None

    def __call__(self) -> None:
        now, work = time.perf_counter_ns(), ScriptedWork.under_way
        if work and work is not self._beside:
            work.compute_meanwhile()
        self._beside = work
        # A unit that follows another one at once begins when that was to end.
        began = self._end_ns if now < self._end_ns + UNIT_NS // 50 else now
        self._end_ns = began + round(UNIT_NS * (work.script.slows_computation if work else 1.0))
        _wait(self._end_ns)


class _Board:
    """Memory shared by the ranks of a host, where they tell each other times within 1 us."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self._rank, self._size, self._round = rank, size, 0
        self._patience_ns = int(timeout.total_seconds() * 1e9)
        if not rank:
            memory = Path("/dev/shm")
            file, name = tempfile.mkstemp(dir=memory if memory.exists() else None)
            os.ftruncate(file, 3 * 8 * size)
            os.close(file)
            store.set("board", name)
        path = Path(store.get("board").decode())
        with path.open("r+b") as opened:
            self._slots = memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")
        self.latest(1)
        if not rank:
            path.unlink()  # all ranks have it open

    def latest(self, time_ns: int) -> int:
        """The largest of all ranks' times, which are never 0."""
        # No rank is two rounds ahead of another: the row that is cleared has been read by all.
        row, cleared = (self._round + ahead for ahead in (0, 1))
        seen = self._slots[row % 3 * self._size :][: self._size]
        self._slots[cleared % 3 * self._size + self._rank] = 0
        seen[self._rank] = time_ns
        self._round += 1
        began = time.perf_counter_ns()
        while 0 in (times := seen.tolist()):
            waited = time.perf_counter_ns() - began
            if waited > SPIN_NS:
                os.sched_yield()  # what is waited for may need this core
            if waited > self._patience_ns:
                raise RuntimeError("a rank did not come to a scripted operation")
        return max(times)


def _gloo_group(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A process group with gloo alone: it has each operation under all of torch's names."""
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    return group


def _wait(until_ns: int) -> int:
    """Sleep until shortly before then, and hold the core until then; when it was."""
    clock = time.perf_counter_ns
    if (left_ns := until_ns - AWAKE_NS - clock()) > 0:
        time.sleep(1e-9 * left_ns)
    while (now := clock()) < until_ns:
        pass
    return now


def _flat(given: Any) -> Iterator[torch.Tensor]:
    """All tensors among an operation's arguments; what it fills comes first."""
    for item in given:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from _flat(item)


def _write(truth: Path, calls: list[tuple[int, Call]], ends_ns: list[int]) -> None:
    lines = (
        json.dumps(call._replace(actual_ns=end + RETURN_NS - entered))
        for (entered, call), end in zip(calls, ends_ns, strict=False)
    )
    truth.write_text("".join(f"{line}\n" for line in lines))
