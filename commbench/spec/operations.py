"""The table of collectives. Adding an operation is adding one entry here.

An entry says everything about its operation, and nothing else in the program tests its name.

Sizes follow nccl-tests: the size S of a case is the larger of what a rank sends and receives. An
operation with `blocks` divides S into n blocks, one per rank; the others move S as a whole. A
buffer of a rank has one of four extents:

    NOTHING   no buffer
    BLOCK     one block (S / n)
    WHOLE     S on every rank
    AT_ROOT   S on the root, nothing elsewhere

The functions of an entry take the module `torch.distributed` and the rank's buffers, so that this
file needs no torch. Bus-bandwidth factors: nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from commbench.errors import name_error

IN_PLACE = "in_place"
OUT_OF_PLACE = "out_of_place"
PLACEMENTS = (IN_PLACE, OUT_OF_PLACE)
NATURAL = "natural"
"""Choice of a placement: each operation's own default."""
ALL_PLACEMENTS = "both"
PLACEMENT_CHOICES = (NATURAL, *PLACEMENTS, ALL_PLACEMENTS)


BUSBW_FACTORS: dict[str, Callable[[int], float]] = {
    "1": lambda _: 1.0,
    "(n-1)/n": lambda n: (n - 1) / n,
    "2(n-1)/n": lambda n: 2 * (n - 1) / n,
}


class Extent(Enum):
    """How much of the size S the buffer of a rank holds."""

    NOTHING = "none"
    BLOCK = "S/n"
    WHOLE = "S"
    AT_ROOT = "S at root"


class BlockOrigin(NamedTuple):
    """The origin of an expected block: block `block` of rank `rank`, or of all ranks, reduced."""

    block: int
    rank: int | None = None
    """None: the reduction of that block over all ranks."""


class BlockPosition(NamedTuple):
    """A block of a rank's receive buffer, in a group of `ranks` with the given root."""

    rank: int
    block: int
    ranks: int
    root: int


class Operation(NamedTuple):
    """One collective: sizes, call, expected result and bandwidth convention."""

    name: str
    """torch.distributed's name."""
    summary: str
    torch_call: str
    """The function of torch.distributed that is timed."""
    send: Extent
    receive: Extent
    call: Callable[..., Any]
    """`call(torch.distributed, buffers)` runs the operation once and waits for it. With
    `async_op=True` it only starts it, and returns what `wait()` is called on: torch's Work."""
    expected: Callable[[BlockPosition], BlockOrigin | None]
    """The closed form of the result: what a block of the receive buffer must hold. None: its
    content is undefined."""
    busbw_formula: str
    """Bus bandwidth over algorithm bandwidth for n ranks; empty for an operation without data."""
    placements: tuple[str, ...] = (OUT_OF_PLACE,)
    """The placements it has; the first is its own default."""
    blocks: bool = False
    """S is divided into one block per rank."""
    reduces: bool = False
    rooted: bool = False
    min_ranks: int = 1
    nccl_function: str = ""
    """NCCL's function; empty where torch builds it from NCCL's sends and receives."""
    nccl_algorithms: tuple[str, ...] = ()
    """NCCL's algorithms for it: the values of NCCL_ALGO, in lower case."""
    nccl_tests: str = ""
    """The program of nccl-tests that measures it; empty where there is none."""
    log_depth: bool = True
    """At least ceil(log2 n) messages must follow one another, because data spreads from one rank to
    all, or back, and each message at most doubles the ranks that have it. False: one message is
    enough."""

    @property
    def is_personalized(self) -> bool:
        """Whether every rank sends different data to every other, so that nothing can be merged."""
        return self.blocks and self.send is self.receive is Extent.WHOLE

    def fewest_messages(self, ranks: int) -> int:
        """The fewest messages that follow one another (Chan et al. 2007, one port per rank)."""
        return (ranks - 1).bit_length() if self.log_depth else min(ranks - 1, 1)

    @property
    def busbw_factor(self) -> Callable[[int], float] | None:
        """The function of the number of ranks that `busbw_formula` names."""
        return BUSBW_FACTORS.get(self.busbw_formula)

    @property
    def has_data(self) -> bool:
        """Whether it moves data, and so has sizes and element types."""
        return self.send is not Extent.NOTHING


def _all_gather(dist: Any, b: Any, async_op: bool = False) -> Any:
    # torch 2.13 renamed all_gather_into_tensor; the old name warns there.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(b.receive, b.send, group=b.group, async_op=async_op)


def _reduce_scatter(dist: Any, b: Any, async_op: bool = False) -> Any:
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(b.receive, b.send, op=b.reduce_op, group=b.group, async_op=async_op)


class Works(NamedTuple):
    """Several of torch's Works that are waited for together."""

    works: Sequence[Any]

    def wait(self) -> None:
        """Wait for each."""
        for work in self.works:
            work.wait()


def _ring_shift(dist: Any, b: Any, async_op: bool = False) -> Works | None:
    following, previous = (b.global_ranks[(b.rank + step) % b.ranks] for step in (1, -1))
    transfers = [
        dist.P2POp(dist.isend, b.send, following, b.group),
        dist.P2POp(dist.irecv, b.receive, previous, b.group),
    ]
    works = Works(dist.batch_isend_irecv(transfers))
    return works if async_op else works.wait()


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            name="all_reduce", summary="every rank gets the reduction of all tensors",
            torch_call="all_reduce", send=Extent.WHOLE, receive=Extent.WHOLE,
            call=lambda dist, b, async_op=False: dist.all_reduce(
                b.receive, op=b.reduce_op, group=b.group, async_op=async_op),
            expected=lambda _: BlockOrigin(block=0),
            busbw_formula="2(n-1)/n", placements=(IN_PLACE,), reduces=True,
            nccl_function="AllReduce", nccl_tests="all_reduce_perf",
            nccl_algorithms=("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree"),
        ),
        Operation(
            name="all_gather", summary="every rank gets the blocks of all ranks",
            torch_call="all_gather_into_tensor", send=Extent.BLOCK, receive=Extent.WHOLE,
            call=_all_gather, expected=lambda at: BlockOrigin(rank=at.block, block=0),
            busbw_formula="(n-1)/n", placements=(OUT_OF_PLACE, IN_PLACE), blocks=True,
            nccl_function="AllGather", nccl_tests="all_gather_perf",
            nccl_algorithms=("ring", "collnetdirect", "nvls", "pat"),
        ),
        Operation(
            name="reduce_scatter", summary="every rank gets one block of the reduction",
            torch_call="reduce_scatter_tensor", send=Extent.WHOLE, receive=Extent.BLOCK,
            call=_reduce_scatter, expected=lambda at: BlockOrigin(block=at.rank),
            busbw_formula="(n-1)/n", placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, reduces=True,
            nccl_function="ReduceScatter", nccl_tests="reduce_scatter_perf",
            nccl_algorithms=("ring", "collnetdirect", "nvls", "pat"),
        ),
        Operation(
            name="broadcast", summary="every rank gets the root's tensor",
            torch_call="broadcast", send=Extent.WHOLE, receive=Extent.WHOLE,
            call=lambda dist, b, async_op=False: dist.broadcast(
                b.receive, src=b.global_root, group=b.group, async_op=async_op),
            expected=lambda at: BlockOrigin(rank=at.root, block=0),
            busbw_formula="1", placements=(IN_PLACE,), rooted=True,
            nccl_function="Broadcast", nccl_tests="broadcast_perf", nccl_algorithms=("ring",),
        ),
        Operation(
            name="all_to_all", summary="rank i sends its block j to rank j",
            torch_call="all_to_all_single", send=Extent.WHOLE, receive=Extent.WHOLE,
            call=lambda dist, b, async_op=False: dist.all_to_all_single(
                b.receive, b.send, group=b.group, async_op=async_op),
            expected=lambda at: BlockOrigin(rank=at.block, block=at.rank),
            busbw_formula="(n-1)/n", blocks=True,
            nccl_tests="alltoall_perf",
        ),
        Operation(
            name="reduce", summary="the root gets the reduction of all tensors",
            torch_call="reduce", send=Extent.WHOLE, receive=Extent.WHOLE,
            call=lambda dist, b, async_op=False: dist.reduce(
                b.receive, dst=b.global_root, op=b.reduce_op, group=b.group,
                async_op=async_op),
            expected=lambda at: BlockOrigin(block=0) if at.rank == at.root else None,
            busbw_formula="1", placements=(IN_PLACE,), reduces=True, rooted=True,
            nccl_function="Reduce", nccl_tests="reduce_perf", nccl_algorithms=("ring",),
        ),
        Operation(
            name="gather", summary="the root gets the blocks of all ranks",
            torch_call="gather", send=Extent.BLOCK, receive=Extent.AT_ROOT,
            call=lambda dist, b, async_op=False: dist.gather(
                b.send, b.receive_blocks, dst=b.global_root, group=b.group,
                async_op=async_op),
            expected=lambda at: BlockOrigin(rank=at.block, block=0),
            busbw_formula="(n-1)/n", placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, rooted=True,
            nccl_tests="gather_perf",
        ),
        Operation(
            name="scatter", summary="every rank gets one block of the root's tensor",
            torch_call="scatter", send=Extent.AT_ROOT, receive=Extent.BLOCK,
            call=lambda dist, b, async_op=False: dist.scatter(
                b.receive, b.send_blocks, src=b.global_root, group=b.group,
                async_op=async_op),
            expected=lambda at: BlockOrigin(rank=at.root, block=at.rank),
            busbw_formula="(n-1)/n", placements=(OUT_OF_PLACE, IN_PLACE), blocks=True, rooted=True,
            nccl_tests="scatter_perf",
        ),
        Operation(
            name="send_recv", summary="every rank sends to the next one, in a ring",
            torch_call="batch_isend_irecv", send=Extent.WHOLE, receive=Extent.WHOLE,
            call=_ring_shift,
            expected=lambda at: BlockOrigin(rank=(at.rank - 1) % at.ranks, block=0),
            busbw_formula="1", min_ranks=2, log_depth=False, nccl_tests="sendrecv_perf",
        ),
        Operation(
            name="barrier", summary="no rank returns before all have called it",
            torch_call="barrier", send=Extent.NOTHING, receive=Extent.NOTHING,
            call=lambda dist, b, async_op=False: dist.barrier(
                b.group, async_op=async_op, device_ids=b.device_ids),
            expected=lambda _: None,
            busbw_formula="", placements=("",),
        ),
    )
}  # fmt: skip


DEFAULT_OPERATION = next(iter(OPERATIONS))
"""What is measured by default."""


SYNONYMS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all",
    "reducescatter": "reduce_scatter", "bcast": "broadcast", "sendrecv": "send_recv",
    "p2p": "send_recv", "all_to_all_single": "all_to_all",
    "all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
}  # fmt: skip
"""Names in other libraries, for the hint of a message."""


def find_operation(name: str) -> Operation:
    """The operation called `name`; `-` may stand for `_`; UsageError if there is none."""
    known = name.strip().lower().replace("-", "_")
    if known not in OPERATIONS:
        programs = {o.nccl_tests: o.name for o in OPERATIONS.values() if o.nccl_tests}
        raise name_error("operation", name, list(OPERATIONS), programs | SYNONYMS)
    return OPERATIONS[known]
