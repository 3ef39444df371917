"""The user's own calls on a rank: set up, bound to buffers, and blamed for what they raise."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from commbench.errors import CommbenchError, first_line
from commbench.plan.case import Case
from commbench.plan.own_calls import load, source_file
from commbench.worker.device import Device
from commbench.worker.groups import GroupView
from commbench.worker.watchdog.rank_state import make_failure

USUAL_REDUCE_OP = "sum"
"""The reduce operation of a call whose `setup` takes none."""


class CallError(Exception):
    """What an own call raised, in words with its name."""


@contextmanager
def blaming(case: Case) -> Iterator[None]:
    """Raise what an own call raises as a CallError with its name, unless the cause is elsewhere:
    another rank or the network is gone, or there is no memory."""
    try:
        yield
    except (CommbenchError, CallError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if not case.call or make_failure(error, 0, "").is_secondary:
            raise
        raise CallError(
            f"the call {case.call} raised {type(error).__name__}: {first_line(error)}"
            f"{_where(case, error)}"
        ) from error


def _where(case: Case, error: Exception) -> str:
    """The line of the call's own file in which it happened: ` (ring.py, line 12)`."""
    kind = load(case.own_call)
    file = source_file(kind if isinstance(kind, type) else type(kind))
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


class BoundCall(NamedTuple):
    """An own call with the tensors that it gets."""

    entry: Any
    """The user's object, set up for a case and a group of ranks."""
    run: Callable[[], object]
    """Makes the call."""
    start: Callable[[], Any]
    """Starts it, and returns what `wait()` is called on."""
    guards: tuple[torch.Tensor, ...]
    """The bytes around its buffers, which it must leave alone."""


def set_up(case: Case, view: GroupView, device: Device) -> Any:
    """The user's object for a case in a group. NotImplementedError where it cannot do that."""
    own = load(case.own_call)
    with _refusing(case):
        entry = own() if isinstance(own, type) else copy(own)
        setup = getattr(entry, "setup", None)
        takes = inspect.signature(setup).parameters if setup else {}
        if case.reduce_op not in ("", USUAL_REDUCE_OP) and "reduce_op" not in takes:
            raise NotImplementedError(f"{case.call} has no {case.reduce_op}: setup(reduce_op) does")
        more = {"reduce_op": case.reduce_op, "root": case.root}
        given = view.group, device.torch_device, getattr(torch, case.dtype), case.count
        if setup:
            setup(*given, **{name: value for name, value in more.items() if name in takes})
    return entry


@contextmanager
def _refusing(case: Case) -> Iterator[None]:
    """As `blaming`; but NotImplementedError says that a call cannot do something here."""
    try:
        with blaming(case):
            yield
    except CallError as error:
        if isinstance(error.__cause__, NotImplementedError):
            raise error.__cause__ from None
        raise


def bind(
    entry: Any,
    output: torch.Tensor,
    sent: torch.Tensor,
    device: Device,
    guards: tuple[torch.Tensor, ...],
) -> BoundCall:
    """A call of the user's object on these tensors: of one tensor, where they are the same."""
    is_same = (output.data_ptr(), output.numel()) == (sent.data_ptr(), sent.numel())
    given = (output, output if is_same else sent)
    run = partial(entry, *given)
    own = getattr(entry, "start", None)
    start = partial(own, *given) if own else partial(_start_beside, run, device)
    return BoundCall(entry, run, start, guards)


def release(entry: Any) -> None:
    """Have the user's object give up what it has."""
    if close := getattr(entry, "close", None):
        close()


class _InThread(NamedTuple):
    """A call that another thread makes."""

    future: Future[object]

    def wait(self) -> None:
        self.future.result()

    def get_future(self) -> Future[object]:
        return self.future


class _InStream(NamedTuple):
    """A call in a stream of its own, which ends with an event."""

    module: Any
    end: Any

    def wait(self) -> None:
        self.module.current_stream().wait_event(self.end)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "commbench-own-call")


@cache
def _side_stream(module: Any) -> Any:
    return module.Stream()


def _start_beside(run: Callable[[], object], device: Device) -> _InThread | _InStream:
    """Start a call that has no `start`: on a CPU in a thread, on a device in a stream of its own,
    after what the current stream has."""
    if not device.is_async:
        return _InThread(_thread().submit(run))
    module = torch.get_device_module(device.torch_device.type)
    stream = _side_stream(module)
    stream.wait_stream(module.current_stream())
    with module.stream(stream):
        run()
    return _InStream(module, stream.record_event())
