"""A stand-in for an accelerator: its stream is a thread, its kernels are real operations of gloo.

It has events, a spin, memory of its own and a UUID, and queueing an operation costs the host time,
as on a GPU. It is put into DEVICES before commbench runs; torch.distributed stays as it is.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from ras_server import RasServer

from commbench.host.gpus import GpuState
from commbench.plan.call_forms import CALL_FORMS, DIRECT
from commbench.worker.device import Device

VARIABLE = "COMMBENCH_FAKE_DEVICE"
"""Variable with the fields of a Fake, as JSON."""


class Fake(NamedTuple):
    """What the devices of all ranks are like: first of each local rank, then of all."""

    uuids: tuple[str, ...] = ("GPU-0", "GPU-1")
    parts: tuple[str, ...] = ("", "")
    address: str = ""
    nccl: tuple[int, ...] = ()
    visible: int = 2  # to a rank
    free_bytes: int = 1 << 30
    enqueue_s: float = 100e-6  # of the host, for anything
    first_record_s: float = 0.0
    """How much longer the host needs to record an event for the first time: it is made then."""
    first_call_s: float = 0.0
    """How much longer the first operation of each kind and size takes: it makes connections."""
    before_s: float = 0.0
    """How long the host works in a call that blocks it before it queues anything: it pickles."""
    after_s: float = 0.0
    """How long it works there when the device is done."""
    fill_s: float = 0.0
    """How long it takes to fill a buffer for a check."""
    spins: bool = True
    captures: bool = True
    corrupts_graphs_of: int = 0
    """Graphs of so many calls or more fill their last result with 77; 0: none."""
    failing_ranks: tuple[int, ...] = ()
    """Ranks whose first operation fails, as it does where NCCL cannot make a communicator."""
    failure: str = ""
    fails_at: int = 0
    """The number of the operation of a case that fails so, from 1; 0: that which makes the
    communicator."""
    corrupts_after: int = 0
    """After so many operations the device changes the last element of each result; 0: never."""
    hangs_after: int = 0
    """After so many operations the device of rank 1 stands still; 0: never."""
    clocks_mhz: tuple[int, ...] = ()
    """The clock of each local rank's device: each time it is read, 10 % lower, to half of it."""
    throttle_reasons: tuple[str, ...] = ()  # of rank 1's
    registers: bool = True
    memory_log: str = ""
    """Path of the files, one per rank, that tell what happened to memory but plain memory."""
    register_s: float = 0.0
    """What registering costs the host; on rank 1 twice as much."""
    nccl_log: str = ""
    """What its NCCL writes to the log that it is told to write, in its first operation."""
    nccl_tuning: str = ""
    """The lines from which it writes to the log of the subsystem TUNING, in each call those of its
    sizes. A line that begins with `[windows] ` is for that kind of memory, one with `[coalesced] `
    for that form."""
    ras_report: str = ""
    """What the RAS of its NCCL answers, in rank 1 on NCCL_RAS_ADDR; empty: it has none."""
    resets: bool = True
    """Whether its NCCL can be made to read its variables again."""


class Event:
    """A point in the stream."""

    def __init__(self, stream: Stream, first_record_s: float) -> None:
        self._stream = stream
        self._reached = threading.Event()
        self._first_record_s = first_record_s

    def record(self) -> None:
        time.sleep(self._first_record_s)
        self._first_record_s = 0.0
        reached = self._reached = threading.Event()
        if threading.current_thread() is threading.main_thread():
            self._stream.put(lambda: self._note(reached))
        else:  # in the order of the second stream
            self._note(reached)

    def query(self) -> bool:
        return self._reached.is_set()

    def synchronize(self) -> None:
        self._reached.wait()

    def elapsed_time(self, end: Event) -> float:
        return (end.time_s - self.time_s) * 1e3

    def _note(self, reached: threading.Event) -> None:
        self.time_s = time.perf_counter()
        reached.set()


class Stream:
    """Runs what it is given in order, in a thread of its own."""

    def __init__(self, enqueue_s: float) -> None:
        self._enqueue_s = enqueue_s
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, work: Callable[[], object]) -> None:
        """Queue something, which costs the host time: it sleeps, for the thread needs a core."""
        time.sleep(self._enqueue_s)
        self._queue.put(work)

    def synchronize(self) -> None:
        """Wait until all is done; raise what failed since the last time."""
        done = threading.Event()
        self._queue.put(done.set)
        done.wait()
        if error := self._error:
            self._error = None
            raise error

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            try:
                work()
            except BaseException as error:
                self._error = error


class FakeGraph:
    """Calls that were captured."""

    def __init__(self, calls: Sequence[Callable[[], object]]) -> None:
        self.calls = calls


GRAPHS: WeakSet[FakeGraph] = WeakSet()
"""Those of this rank that are neither collected nor released: NCCL does not end before them."""
MEMORIES: dict[int, FakeMemory] = {}
"""What this rank has registered, by its address."""


class FakeMemory:
    """Memory that is registered with the backend, and must be released before that ends."""

    def __init__(self, device: FakeDevice, size: int, groups: Sequence[Any], kind: str) -> None:
        self.kind, self._device, self._groups = kind, device, groups
        self.tensor = torch.empty(size, dtype=torch.uint8)
        device.note("allocated", self)

    def register(self) -> None:
        fake = self._device.fake
        if not fake.registers:
            raise NotImplementedError(f"this backend registers no {self.kind}")
        time.sleep(fake.register_s * (1 + self._device.rank))
        for group in self._groups if self.kind != "pool" else ():  # all ranks have as many bytes
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size())]
            own = torch.tensor([self.tensor.numel()])
            torch.distributed.all_gather(sizes, own, group=group)
            assert len(set(map(int, sizes))) == 1, sizes
        MEMORIES[self.tensor.data_ptr()] = self
        self._device.note("registered", self)

    def release(self) -> None:
        assert torch.distributed.is_initialized()
        MEMORIES.pop(self.tensor.data_ptr(), None)
        self._device.note("released", self)
        del self.tensor


class FakeDevice(Device):
    """The device of one rank."""

    torch_device = torch.device("cpu")
    is_async = True
    multiprocessors = 2

    def __init__(self, index: int, fake: Fake | None = None) -> None:
        self.fake = fake or read_fake()
        self.rank = int(os.environ.get("RANK", "0"))
        self._stream = Stream(self.fake.enqueue_s)
        self._side: Stream | None = None
        self.uuid = self.fake.uuids[int(os.environ.get("LOCAL_RANK", "0"))]
        self.part = self.fake.parts[int(os.environ.get("LOCAL_RANK", "0")) % len(self.fake.parts)]
        self.pci_bus_id = self.fake.address
        self.name = f"fake:{index} {self.uuid}"
        self._calls = 0
        self._operations = 0
        self._clock_mhz = 0
        if self.rank == 1 and self.fake.ras_report:
            port = int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])
            RasServer(self.fake.ras_report.encode(), port=port).__enter__()
        self._connected: set[object] = set()

    def synchronize(self) -> None:
        self._stream.synchronize()
        if self._side:
            self._side.synchronize()

    def free_bytes(self) -> int:
        return self.fake.free_bytes

    def held_bytes(self) -> int:
        """A MiB for each process group."""
        return len(torch.distributed.distributed_c10d._world.pg_map) << 20

    def make_event(self) -> Event:
        return Event(self._stream, self.fake.first_record_s)

    def spin(self, seconds: float) -> None:
        if self.fake.spins:
            self._stream.put(lambda: time.sleep(seconds))

    def compute(self, seconds: float) -> None:
        time.sleep(seconds)  # what replays a step runs as a whole in the order of the stream

    def in_stream(self, call: Callable[[], object]) -> Callable[[], object]:
        def queue() -> None:
            self._stream.put(lambda: self._run(call))

        def block() -> None:
            time.sleep(self.fake.before_s)
            queue()
            self.synchronize()
            time.sleep(self.fake.after_s)

        return block if blocks_host(call) else queue

    def current_stream(self) -> str:
        return CURRENT["stream"]

    def restore_stream(self, stream: str) -> None:
        CURRENT["stream"] = stream

    def beside(self, call: Callable[[], object]) -> None:
        """The second stream comes to the call when the first has come so far."""
        self._side = self._side or Stream(0.0)
        self._stream.put(lambda: self._side.put(call))

    def capture(self, calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
        if not self.fake.captures:
            raise NotImplementedError("this device has no graphs")

        graph = FakeGraph(calls)
        GRAPHS.add(graph)

        def replay() -> None:
            for call in graph.calls:
                self._run(call)
            if 0 < self.fake.corrupts_graphs_of <= len(calls):
                calls[-1].args[-1].receive.fill_(77)

        return lambda: self._stream.put(replay)

    def release_graphs(self) -> None:
        while GRAPHS:
            GRAPHS.pop().calls = ()

    def registered_memory(self, size: int, groups: Sequence[Any], symm: bool) -> FakeMemory:
        return FakeMemory(self, size, groups, "windows" if symm else "pool")

    def symm_mem(self, size: int, groups: Sequence[Any]) -> FakeMemory:
        return FakeMemory(self, size, groups, "symm_mem")

    def note(self, what: str, memory: FakeMemory) -> None:
        """Write down what happens to memory, for the test."""
        if path := self.fake.memory_log:
            with Path(f"{path}.{self.rank}").open("a") as file:
                file.write(f"{what} {memory.kind} {memory.tensor.numel()}\n")

    def read_state(self) -> GpuState | None:
        if not self.fake.clocks_mhz:
            return None
        clock = self.fake.clocks_mhz[self.rank]
        self._clock_mhz = max(clock // 2, self._clock_mhz * 9 // 10) if self._clock_mhz else clock
        reasons = self.fake.throttle_reasons if self.rank == 1 else ()
        return GpuState(self._clock_mhz, 100.0 + self.rank, 40 - self.rank, tuple(reasons))

    def _run(self, call: Callable[[], Any]) -> None:
        self._calls += 1
        if self._calls == 1 and "NCCL_DEBUG_FILE" in os.environ:
            path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
            if os.environ["NCCL_DEBUG_SUBSYS"] == "TUNING":
                LOG["path"] = path
            Path(path).write_text("" if "path" in LOG else self.fake.nccl_log)
        if self._calls == 1 and not self.fake.fails_at:
            self._fail()
        is_operation = isinstance(call, partial) and hasattr(call.args[-1], "receive")
        if not is_operation:  # of a case
            is_fill = getattr(call, "__qualname__", "").startswith("verify.")
            time.sleep(self.fake.fill_s * is_fill)
            call()
            return
        operation, buffers = call.func, call.args[-1]
        memory = MEMORIES.get(buffers.receive.untyped_storage().data_ptr())
        if path := LOG.get("path"):
            sizes = [f" {b.send.numel() * b.send.element_size()} Bytes " for b in buffers.tensors]
            form = next((f.name for f in CALL_FORMS.values() if f.run is operation), DIRECT)
            tags = (memory.kind if memory else "plain", form)
            with Path(path).open("a") as file:
                for line in self.fake.nccl_tuning.splitlines(keepends=True):
                    tag, _, text = line.rpartition("] node")
                    if any(size in text for size in sizes) and tag.strip("[") in ("", *tags):
                        file.write(text)
                file.write("a call\n")
        if memory:
            self.note("used", memory)
        self._operations += 1
        if self._operations == self.fake.fails_at:
            self._fail()
        if self.rank == 1 and self._operations == self.fake.hangs_after:
            threading.Event().wait()
        key = (operation, buffers.receive.numel())
        if key not in self._connected:
            self._connected.add(key)
            time.sleep(self.fake.first_call_s)
        call()
        if 0 < self.fake.corrupts_after < self._operations:
            buffers.receive[-1] += 1

    def _fail(self) -> None:
        if self.rank in self.fake.failing_ranks:
            raise torch.distributed.DistBackendError(self.fake.failure)


def blocks_host(call: Any) -> bool:
    """Whether torch waits in an operation until the device has done it."""
    from commbench.plan.operations import OPERATIONS

    made_of = (call.func, *call.args) if isinstance(call, partial) else ()
    return OPERATIONS["barrier"].call in made_of


CURRENT = {"stream": "main"}
"""The name of the current stream: a call may leave another one."""
LOG: dict[str, str] = {}
"""`path`: where its NCCL logs a line for each call, while it does."""


def reset_log() -> None:
    """As ncclResetDebugInit: its NCCL reads its variables again."""
    LOG.clear()
    if path := os.environ.get("NCCL_DEBUG_FILE"):
        assert os.environ["NCCL_DEBUG_SUBSYS"] == "TUNING"
        LOG["path"] = path


def read_fake() -> Fake:
    """What the variable says."""
    return Fake(**json.loads(os.environ[VARIABLE]))


def install_symm_mem() -> None:
    """Give the operations of torch.ops.symm_mem a CPU kernel, which takes registered memory."""
    resolve = torch.distributed.distributed_c10d._resolve_process_group

    def shared(tensor: torch.Tensor) -> torch.Tensor:
        memory = MEMORIES.get(tensor.untyped_storage().data_ptr())
        if memory is None or memory.kind != "symm_mem":
            raise RuntimeError("the tensor must be allocated with symm_mem.empty")
        if tensor.numel() * tensor.element_size() % 4:
            raise RuntimeError("the size must be at least 4-byte aligned")
        return tensor

    def all_reduce(tensor: torch.Tensor, reduce_op: str, name: str) -> torch.Tensor:
        if reduce_op != "sum":
            raise RuntimeError("only sum is supported for now")
        torch.distributed.all_reduce(shared(tensor), group=resolve(name))
        return tensor

    def one_shot(
        tensor: torch.Tensor, reduce_op: str, name: str, out: torch.Tensor
    ) -> torch.Tensor:
        own = shared(tensor).clone()
        out.copy_(all_reduce(tensor, reduce_op, name))
        tensor.copy_(own)
        return out

    def all_gather(tensor: torch.Tensor, name: str, out: torch.Tensor) -> torch.Tensor:
        parts = list(shared(out).chunk(out.numel() // tensor.numel()))
        torch.distributed.all_gather(parts, tensor, group=resolve(name))
        return out

    KERNELS.impl("one_shot_all_reduce_out", one_shot)
    KERNELS.impl("two_shot_all_reduce_", all_reduce)
    KERNELS.impl("multimem_all_reduce_", all_reduce)
    KERNELS.impl("multimem_all_gather_out", all_gather)


KERNELS = torch.library.Library("symm_mem", "IMPL", "CPU")


def install() -> None:
    """Make the device known to commbench, here and in ranks that are forked from here."""
    from commbench.plan.backends import ALLOCATORS, BACKENDS
    from commbench.worker import feasibility, groups
    from commbench.worker.device import DEVICES, DeviceKind

    groups.nccl_version = lambda: tuple(read_fake().nccl)
    groups.find_reset = feasibility.find_reset = lambda: reset_log if read_fake().resets else None
    for name, entry in ALLOCATORS.items():
        if entry.devices:
            ALLOCATORS[name] = entry._replace(devices=(*entry.devices, "fake"))
    gloo = BACKENDS["gloo"]
    BACKENDS["gloo"] = gloo._replace(devices=(*gloo.devices, "fake"), is_nccl=True)

    def number() -> int:
        fake = read_fake()
        # A launcher sees all devices, a rank those that it was given.
        return fake.visible if "LOCAL_RANK" in os.environ else len(set(fake.uuids))

    install_symm_mem()
    DEVICES["fake"] = DeviceKind(number, FakeDevice)


def program_text(fake: Fake) -> str:
    """What the `program` fixture runs before commbench, so that `--device fake` is known."""
    return (
        "import os, sys\n"
        f"os.environ[{VARIABLE!r}] = {json.dumps(fake._asdict())!r}\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from commbench.launch.devices import import_torch\n"
        "import_torch()\n"
        "import fake_device\n"
        "fake_device.install()\n"
    )


def run_on_fake(
    program: Callable[..., Any], fake: Fake, *options: str, change: str = "", is_hot: bool = True,
    **variables: str,
) -> Any:  # fmt: skip
    """How `commbench run` ended on this stand-in, after a change of the program. Calls rotate over
    pieces of memory by default, and each piece is checked: `is_hot` leaves one."""
    hot = ("--buffers", "hot") if is_hot else ()
    log = () if fake.nccl_log or fake.nccl_tuning else ("--no-nccl-log",)
    on_fake = ("--backend", "gloo", "--device", "fake", "--no-plots", *hot, *log)
    return program(program_text(fake) + change, *on_fake, *options, **variables)
