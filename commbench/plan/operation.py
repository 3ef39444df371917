"""What an entry of the table of operations says (plan.operations).

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
from typing import Any, NamedTuple, TypeAlias

from commbench.plan.splits import Splits

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
MESSAGE_COUNTS: dict[str, Callable[[int], int]] = {
    "ceil(log2 n)": lambda n: (n - 1).bit_length(),
    "1": lambda n: min(n - 1, 1),
    "n-1": lambda n: n - 1,
    "0": lambda _: 0,
}


class Extent(Enum):
    """How much of the size S the buffer of a rank holds."""

    NOTHING = "none"
    BLOCK = "S/n"
    WHOLE = "S"
    AT_ROOT = "S at root"


class Peer(NamedTuple):
    """The other rank of a pair, as one of its ranks sees it."""

    rank: int
    """The other rank, within the group."""
    is_first: bool
    """Whether this rank is the first of the pair: the one that sends first."""


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
    peer: Peer | None = None
    """The other rank of this rank's pair."""


BlockCounts: TypeAlias = tuple[Sequence[int], Sequence[int]]


class Works(NamedTuple):
    """Several of torch's Works that are waited for together."""

    works: Sequence[Any]
    then: Callable[[], object] | None = None
    """What is left to do when they have ended."""

    def wait(self) -> None:
        """Wait for each, and do what is left."""
        for work in self.works:
            work.wait()
        if self.then:
            self.then()


class Operation(NamedTuple):
    """One collective: sizes, call, expected result and bandwidth convention."""

    name: str
    """torch.distributed's name."""
    summary: str
    torch_call: str
    """The function that is timed: of torch.distributed, torch.ops.symm_mem or the backend."""
    call: Callable[..., Any]
    """`call(torch.distributed, buffers)` runs the operation once and waits for it. With
    `async_op=True` it only starts it, and returns what `wait()` is called on: torch's Work."""
    send: Extent = Extent.WHOLE
    receive: Extent = Extent.WHOLE
    expected: Callable[[BlockPosition], BlockOrigin | None] = lambda _: None
    """The closed form of the result: what a block of the receive buffer must hold. None: its
    content is undefined."""
    busbw_formula: str = ""
    """Bus bandwidth over algorithm bandwidth for n ranks; empty for an operation without data."""
    placements: tuple[str, ...] = (OUT_OF_PLACE,)
    """The placements it has; the first is its own default."""
    blocks: bool = False
    """S is divided into one block per rank."""
    reduces: bool = False
    rooted: bool = False
    min_ranks: int = 1
    is_on_host: bool = False
    """It works on the host: it has no async_op, no other forms, and no graph can capture it."""
    blocks_host: bool = False
    """The host waits in it until the device has done it. So the host's clock times it on a device,
    too, and no graph can capture it."""
    backends: tuple[str, ...] = ()
    """The only backends that have it; empty: all may."""
    is_coalesced: bool = False
    """torch's coalescing manager hands several of them to the backend as one call. Other operations
    are coalesced only by a backend that groups calls itself, such as NCCL."""
    is_batch: bool = False
    """It is a batch of calls already, and batches do not nest."""
    compositions: tuple[tuple[str, ...], ...] = ()
    """Operations that have its result together, one after another, in the same memory."""
    compressions: tuple[str, ...] = ()
    """What its tensor can be compressed as (plan.compression): `parts`, one for each rank, or a
    `matrix`."""
    is_transfers: bool = False
    """Whether a send of each block, and a receive of each, have its result."""
    nccl_function: str = ""
    """NCCL's function; empty where torch builds it from NCCL's sends and receives."""
    nccl_algorithms: tuple[str, ...] = ()
    """NCCL's algorithms for it: the values of NCCL_ALGO, in lower case."""
    nccl_tests: str = ""
    """The program of nccl-tests that measures it; empty where there is none."""
    memory: str = ""
    """The one kind of memory (plan.backends) in which its buffers can be; empty: any."""
    block_multiple: int = 1
    """The block of a rank is a multiple of so many bytes."""
    registers: bool = False
    """It makes and registers memory instead of moving data. It runs on the host, whose clock times
    it, call by call; what a call made is released before the next one."""
    makes_group: bool = False
    """It makes a process group of the ranks. The host's clock times it, call by call."""
    messages: str = "ceil(log2 n)"
    """How many messages must at least follow one another: a key of MESSAGE_COUNTS. ceil(log2 n)
    where data spreads from one rank to all, or back: each message at most doubles the ranks that
    have it (Chan et al. 2007, one port per rank). 0 where they do not wait for one another."""
    p2p_calls: tuple[str, ...] = ()
    """The kinds of call that it can be made of (plan.pairs.P2P_CALLS); the first is its own
    default. Empty for an operation that is one call of torch.distributed."""
    deadlock: str = ""
    """Why it cannot be made of blocking calls; empty where it can."""
    is_paired: bool = False
    """Ranks take part in pairs (plan.pairs), each rank in one at most."""
    has_window: bool = False
    """A call sends a window of messages before it waits."""
    is_one_way: bool = False
    """Of a pair only the first rank sends its data; the other one answers."""
    is_latency: bool = False
    """Its time at a small size is a latency, so that it may have a size of its own."""
    part: str = "call"
    """What t is the time of: a call, or an equal part of it (`parts`)."""
    parts: Callable[[int], int] = lambda _: 1
    """How many such parts a call has, for a window of so many messages."""
    block_counts: Callable[[Splits, int], BlockCounts] | None = None
    """For blocks that differ: the elements of each block that a rank sends, and of each that it
    receives. None where all blocks are equal."""
    equal_only: tuple[str, ...] = ()
    """Backends that have it with equal blocks only."""
    prepare: Callable[[Any, Any], Any] | None = None
    """`prepare(torch.distributed, buffers)` makes a function that does the same as `call`; what
    never changes is made once."""

    @property
    def is_personalized(self) -> bool:
        """Whether every rank sends different data to every other, so that nothing can be merged."""
        return self.blocks and self.send is self.receive is Extent.WHOLE

    @property
    def busbw_factor(self) -> Callable[[int], float] | None:
        """The function of the number of ranks that `busbw_formula` names."""
        return BUSBW_FACTORS.get(self.busbw_formula)

    @property
    def is_timed_by_host(self) -> bool:
        """Whether the host's clock times it, call by call, because it is work of the host."""
        return self.registers or self.makes_group

    @property
    def has_data(self) -> bool:
        """Whether it moves data, and so has sizes and element types."""
        return self.send is not Extent.NOTHING

    @property
    def has_result(self) -> bool:
        """Whether it leaves data that can be checked."""
        return self.receive is not Extent.NOTHING
