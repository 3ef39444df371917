"""The user's own calls on a rank: set up, bound to buffers, and blamed for what they raise; and
what a call does wrong besides its result, seen around each of its calls that is checked.

Every checked call has data of its own, and its output is overwritten before (worker.verify). So a
call that keeps what an earlier one left has wrong elements, and these say which.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from commbench import errors, units
from commbench.plan.case import Case
from commbench.plan.own_calls import load, source_file
from commbench.results.records import WrongElement
from commbench.worker import groups, verify
from commbench.worker.device import Call, Device
from commbench.worker.watchdog.rank_state import CallError, make_failure, wait_until

if TYPE_CHECKING:
    from commbench.worker.buffers import Buffers
    from commbench.worker.communicator import Communicator


@contextmanager
def blaming(case: Case, *refusals: type[Exception]) -> Iterator[None]:
    """Raise what an own call raises as a CallError with its name, unless it is one of the refusals,
    or the cause is elsewhere: another rank or the network is gone, or there is no memory."""
    try:
        yield
    except (errors.CommbenchError, CallError, MemoryError, torch.OutOfMemoryError, *refusals):
        raise
    except (Exception, SystemExit) as error:
        if not case.call or make_failure(error).is_secondary:
            raise
        how = f"raised {type(error).__name__}:"
        how = "cannot be made:" if isinstance(error, NotImplementedError) else how
        how += f" {errors.first_line(error)}"
        raise CallError(f"the call {case.call} {how}{_where(case, error)}") from error


def _where(case: Case, error: BaseException) -> str:
    """The line of the call's own file in which it happened: ` (ring.py, line 12)`."""
    kind = load(case.own_call)
    file = source_file(kind if isinstance(kind, type) else type(kind))
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


class BoundCall(NamedTuple):
    """An own call with the tensors that it gets."""

    entry: Any
    """The user's object, set up for a case and a group of ranks."""
    run: Call
    """Makes the call."""
    start: Callable[[], Any]
    """Starts it, and returns what `wait()` is called on."""
    guards: tuple[torch.Tensor, ...]
    """The bytes around its buffers, which it must leave alone."""


def set_up(case: Case, view: groups.GroupView, device: Device) -> Any:
    """The user's object for a case in a group. NotImplementedError where it cannot do that."""
    own = load(case.own_call)
    with blaming(case, NotImplementedError):
        entry = own() if isinstance(own, type) else copy(own)
        setup = getattr(entry, "setup", None)
        takes = inspect.signature(setup).parameters if setup else {}
        # A call whose `setup` takes no reduce operation adds.
        if case.reduce_op not in ("", "sum") and "reduce_op" not in takes:
            why = f"{case.call} has no {case.reduce_op}: its setup takes no reduce_op"
            raise NotImplementedError(why)
        more = {"reduce_op": case.reduce_op, "root": case.root}
        given = view.group, device.torch_device, getattr(torch, case.dtype), case.count
        if setup:
            setup(*given, **{name: value for name, value in more.items() if name in takes})
    return entry


def bind(
    entry: Any, buffers: Buffers, device: Device, guards: tuple[torch.Tensor, ...]
) -> BoundCall:
    """A call of the user's object on these buffers: of one tensor, where they are the same."""
    output = buffers.receive
    given = (output, output if buffers.has_one_memory else buffers.send)
    run = partial(entry, *given)
    own = getattr(entry, "start", None)
    start = partial(own, *given) if own else partial(_start_beside, run, device)
    return BoundCall(entry, run, start, guards)


_THREAD = ThreadPoolExecutor(1, "commbench-own-call")


@cache
def _side_stream(module: Any) -> Any:
    return module.Stream()


def _start_beside(run: Call, device: Device) -> SimpleNamespace:
    """Start a call that has no `start`: on a CPU in a thread, on a device in a stream of its own,
    after what the current stream has. `wait()` is called on what is returned."""
    if not device.is_async:
        future = _THREAD.submit(run)
        return SimpleNamespace(wait=future.result, get_future=lambda: future)
    module = torch.get_device_module(device.torch_device.type)
    stream = _side_stream(module)
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        run()
    end = stream.record_event()
    return SimpleNamespace(wait=lambda: module.current_stream().wait_event(end))


GUARD = 0xA5
"""The byte around buffers."""
WINDOW_BYTES = 256 << 10
"""Of the beginning and the end of the output that are looked at for changes."""
LEAST_WAIT_S, MOST_WAIT_S = 2e-3, 50e-3
"""How long that takes after the call: twice as long as the call, but within these."""
SPIN_S = 2e-3
"""How long a device is busy before it has the input of a call."""
LATEST_S = 1.0
"""How long a wrong result is looked at: it may become right."""
MOSTLY = 0.5
"""The share of wrong elements that tells what they are."""


class Witness:
    """Sees one checked call of a case on this rank. `earlier` are the offsets of the test data of
    some calls that were checked before."""

    def __init__(self, buffers: Buffers, comm: Communicator, earlier: Sequence[int] = ()) -> None:
        assert buffers.own is not None
        device = self._device = comm.device
        self._buffers, self._rank, self._earlier = buffers, comm.rank, earlier
        self._own = buffers.own
        self._stream = device.current_stream()
        output, size = buffers.receive, buffers.receive.element_size()
        window = max(1, WINDOW_BYTES // size)
        self._windows = (output[:window], output[-window:])
        self._left: list[torch.Tensor] = []
        """What the windows had when the call returned."""
        device.in_stream(lambda: [guard.fill_(GUARD) for guard in self._own.guards])()

    def begins(self) -> None:
        """The call is next, and its input is there. On a device, the input is only right when the
        stream has come so far: a call that does not wait for it finds other data."""
        if not self._device.is_async:
            return
        change = self._device.in_stream(lambda: verify.invert(self._buffers.send))
        change()
        self._device.synchronize()
        self._device.spin(SPIN_S)
        change()

    def returned(self) -> None:
        """The call has returned: note its output at once, in the order of the stream."""
        self._device.in_stream(lambda: self._left.extend(w.clone() for w in self._windows))()

    def judge(self, parts: verify.Parts, seconds: float) -> verify.CheckResult:
        """What checking the result found, and what the call did wrong: it took so long."""
        found = verify.CheckResult("", *self._inspect(parts), seconds)
        what = self._stream_fault() or self._late_fault(found) or self._guard_fault()
        if not what and found.wrong:
            what = self._wrong_fault(found.wrong, parts)
        fault = f"the call {self._buffers.case.call} on rank {self._rank} {what}" if what else ""
        return found._replace(fault=fault)

    def _inspect(self, parts: verify.Parts) -> tuple[int, WrongElement | None]:
        """How many elements are wrong, and the first: by the call's own reference, if it has one,
        otherwise by the operation's."""
        reference = getattr(self._own.entry, "reference", None)
        if reference is None:
            return verify.inspect(parts)
        ((buffers, data),) = parts
        inputs = [_input(data, rank, buffers.send.device) for rank in range(buffers.ranks)]
        if (expected := reference(inputs, buffers.rank)) is None:
            return 0, None
        output, expected = buffers.receive, expected.reshape(-1).to(buffers.receive.device)
        if expected.numel() != output.numel():
            why = f"reference gives {expected.numel()} elements, the output has {output.numel()}"
            raise ValueError(why)
        tolerance = float(getattr(self._own.entry, "tolerance", 0.0))
        wrong = verify.differs(output, expected.to(output.dtype), tolerance).nonzero()
        if not len(wrong):
            return 0, None
        at = int(wrong[0])
        expected_text, got = str(expected[at].item()), str(output[at].item())
        return len(wrong), WrongElement(buffers.rank, at, expected_text, got)

    def _stream_fault(self) -> str:
        if self._device.current_stream() == self._stream:
            return ""
        self._device.restore_stream(self._stream)
        return "left another stream of the device as the current one"

    def _late_fault(self, found: verify.CheckResult) -> str:
        """Whether its output changes after it has returned."""
        wait_s = min(max(2 * found.seconds, LEAST_WAIT_S), MOST_WAIT_S)
        is_late = wait_until(self._has_changed, LATEST_S if found.wrong else wait_s, LEAST_WAIT_S)
        how = " and did not order it on the current stream" if self._device.is_async else ""
        return f"returned before its work was done{how}: its output changed later" * is_late

    def _has_changed(self) -> bool:
        self._device.synchronize()
        pairs = zip(self._windows, self._left, strict=True)
        bits = torch.uint8
        return not all(torch.equal(now.view(bits), left.view(bits)) for now, left in pairs)

    def _guard_fault(self) -> str:
        changed = [guard for guard in self._own.guards if bool((guard != GUARD).any())]
        if not changed:
            return ""
        number = sum(int((guard != GUARD).sum()) for guard in changed)
        at = changed[0].data_ptr() + int((changed[0] != GUARD).nonzero()[0])
        edges = {}
        for name, buffer in (("input", self._buffers.send), ("output", self._buffers.receive)):
            begin, size = buffer.data_ptr(), buffer.numel() * buffer.element_size()
            edges[at - begin - size] = f"behind the end of its {name}"
            edges[begin - at] = f"before the beginning of its {name}"
        distance = min((d for d in edges if d >= 0), default=0)
        distant = f"the first {units.format_count(distance, 'byte')}" if distance else "right"
        wrote = units.format_count(number, "byte")
        return f"wrote {wrote} beyond its buffers, {distant} {edges[distance]}"

    def _wrong_fault(self, number: int, parts: verify.Parts) -> str:
        """What the wrong elements are."""
        few = units.format_count(number, "wrong element")
        if hasattr(self._own.entry, "reference"):
            return f"left {few}"
        for offset in self._earlier:
            earlier = verify.make_data(self._buffers, offset)
            if _share(parts, (row for *_, row, _ in verify.results(earlier))) > MOSTLY:
                return f"left {few}, which are those of an earlier call: it keeps old results"
        if _share(parts, _rows_before(parts)) > MOSTLY:
            return f"left {few}, which it did not write"
        if self._earlier:
            return f"left {few}, and its first call was right: it depends on earlier calls"
        if self._device.is_async:
            return f"left {few}: is its work ordered on the current stream?"
        return f"left {few}"


def _input(data: verify.VerificationData, rank: int, device: torch.device) -> torch.Tensor:
    """What another rank of the group sends."""
    case, own = data.case, data._replace(rank=rank)
    counts, _ = case.block_counts(rank)
    whole = torch.empty(sum(counts), dtype=getattr(torch, case.dtype), device=device)
    for number, part in enumerate(whole.split(list(counts)) if counts else ()):
        verify.fill(part, own.sent(number))
    return whole


def _rows_before(parts: verify.Parts) -> Iterator[torch.Tensor]:
    """What each block of the output had before the call: its input, or the opposite of its
    result."""
    for buffers, data in parts:
        for number, (*_, row, _) in enumerate(verify.results([(buffers, data)])):
            yield data.sent(number) if buffers.has_one_memory else verify.invert(row.clone())


def _share(parts: verify.Parts, rows: Iterable[torch.Tensor]) -> float:
    """The share of wrong elements that are those of other rows, from the first wrong one of each
    block on."""
    wrong = alike = 0
    for (_, block, row, tolerance), other in zip(verify.results(parts), rows, strict=True):
        count, first = verify.compare(block, row, tolerance)
        if count:
            seen = block[first : first + verify.COMPARED]
            places = (torch.arange(first, first + len(seen)) % len(row)).to(row.device)
            is_wrong = verify.differs(seen, row[places], tolerance)
            wrong += int(is_wrong.sum())
            alike += int((is_wrong & ~verify.differs(seen, other[places], 0.0)).sum())
    return alike / wrong if wrong else 0.0
