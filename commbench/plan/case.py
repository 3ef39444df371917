"""A Case: one row of the results that a plan asks for."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

from commbench.plan import call_forms
from commbench.plan.backends import DEFAULT_MEMORY
from commbench.plan.call_forms import CALL_FORMS, DIRECT, ONE_TENSOR, CallForm
from commbench.plan.compression import exchanges
from commbench.plan.computations import COMMUNICATION, COMPUTATION, overlap_bytes
from commbench.plan.dimensions import DIMENSIONS, EAGER, HOT, IN_TITLE
from commbench.plan.dtypes import DTYPES
from commbench.plan.operation import BUSBW_FACTORS, IN_PLACE, BlockCounts, Extent
from commbench.plan.operations import OPERATIONS
from commbench.plan.own_calls import UNKNOWN, OwnCall, own_form
from commbench.plan.splits import Load, find_load, make_splits, why_no_splits
from commbench.units import format_bytes

_KEY = attrgetter(*(dimension.field for dimension in DIMENSIONS))

ROTATED_BYTES = 512 << 20
"""The data of calls that rotate are together at least so large: more than the last cache of any CPU
or GPU of today."""
MOST_PIECES = 32
"""How many pieces of memory calls rotate over at most; nccl-tests makes 25 calls of a size."""
TENSOR_ALIGNMENT = 512
"""Bytes to which each of several tensors is aligned, as torch's allocator of CUDA memory does."""
PAGE = 4096

READY = "ready"
UNSUPPORTED = "unsupported"
SKIPPED = "skipped"
FINISHED = "finished"
"""Status of a case that an interrupted launch had finished before it was resumed."""


NOT_PLANNED = ("status", "reason")
"""Fields that are found out where the case is to run."""

UNEQUAL_TRIAL_COUNT = 64
"""The elements of an unequal block on average in the smallest case of its kind."""


class Case(NamedTuple):
    """One call, of one size, that is measured; or the reason why it cannot be.

    Its dimensions (plan.dimensions) tell it from every other case of its plan.
    """

    index: int  # type: ignore[assignment]  # a tuple's methods of these names are of no use here
    """Its number in the plan, from 0."""
    operation: str
    dtype: str
    """Empty for an operation without data."""
    reduce_op: str
    """Empty for an operation that does not reduce."""
    root: int | None
    """None for an operation without a root."""
    placement: str
    """Empty for an operation without data."""
    timing: str
    """The name of a timing mode (plan.dimensions)."""
    size_bytes: int
    """nccl-tests' size: the larger of what one rank sends and receives, after rounding down to
    whole elements per block."""
    count: int  # type: ignore[assignment]
    """nccl-tests' count: elements in the tensor, or in one block of an operation with blocks."""
    status: str = READY
    """`ready`, `unsupported`, `skipped` or `finished`."""
    reason: str = ""
    """Why the case is unsupported or skipped."""
    ranks: int = 0
    """How many ranks take part in its group; 0 where that is not known."""
    launch_mode: str = EAGER
    """`eager` or `graph`: how calls reach a device (plan.dimensions.LAUNCH_MODES)."""
    buffers: str = HOT
    """`hot` or `rotating`: which memory its calls use (plan.dimensions.BUFFER_MODES)."""
    p2p_call: str = ""
    """The kind of call for point to point (plan.pairs.P2P_CALLS); empty for other operations."""
    pairs: str = ""
    """Which ranks are pairs (plan.pairs); empty for an operation without pairs."""
    window: int | None = None
    """Messages of a window; None for an operation without one."""
    imbalance: str = ""
    """How blocks differ (plan.splits); empty for an operation whose blocks are equal."""
    matrix: tuple[int, ...] = ()
    """The matrix of the imbalance `file`, row by row; empty for another."""
    tensors: str = ONE_TENSOR
    """How many tensors S is cut into, or how: `16`, `ddp:25M` (plan.call_forms)."""
    form: str = DIRECT
    """The name of a form of the call (plan.call_forms.CALL_FORMS)."""
    call: str = ""
    """The name of a call of the user's own (plan.own_calls); empty for torch's."""
    own: tuple[str, ...] = ()
    """What that call says about itself: the fields of its OwnCall."""
    memory: str = DEFAULT_MEMORY
    """The kind of memory of its buffers (plan.backends)."""
    overlap: str = ""
    """The computation beside it, with its shape: `matmul:128x128x128` (plan.computations); empty
    for none."""
    part: str = ""
    """What it runs of an overlap (plan.computations.PARTS); empty without one."""
    group: str = ""
    """The dimension whose groups are measured (plan.groups); empty for all ranks as one group.
    Size, count and root are those of each group, and `ranks` that of the largest."""
    concurrency: str = ""
    """`together`: all groups of the dimension call at once; `alone`: one of them; empty for all
    ranks as one group."""
    group_ranks: str = ""
    """The group that calls alone, as `--groups` takes it: `4-7`; otherwise empty."""
    step: str = ""
    """The step of the workload that it replays; empty for a single call. Its size is what a rank
    moves in the step."""
    variant: str = ""
    """How it replays the step (plan.workload_variants); empty for a single call."""

    @property
    def has_bandwidth(self) -> bool:
        """Whether its time is that of moving its bytes: not if it computes."""
        return self.part in ("", COMMUNICATION) and bool(OPERATIONS[self.operation].busbw_formula)

    @property
    def has_result(self) -> bool:
        """Whether it leaves data to check, and it is known how far off they may be."""
        compression = self.call_form.compression
        is_known = compression is None or compression.bound is not None
        return OPERATIONS[self.operation].has_result and is_known and self.part != COMPUTATION

    @property
    def is_plain(self) -> bool:
        """Whether it is a call as others measure it: alone, direct and of all ranks."""
        return not (self.part or self.group) and self.call_form.is_reference

    @property
    def call_form(self) -> CallForm:
        """Its form, or its own call; the direct one for a form that is not known here."""
        known = CALL_FORMS.get(self.form, CALL_FORMS[DIRECT])
        return own_form(self.own_call) if self.call else known

    @property
    def own_call(self) -> OwnCall:
        """What its own call says about itself; empty texts without one."""
        return OwnCall(*self.own) if self.own else UNKNOWN._replace(name=self.call)

    @property
    def blocks(self) -> int:
        """Blocks of the tensor: one per rank where the operation has blocks."""
        return self.ranks if OPERATIONS[self.operation].blocks else 1

    @property
    def elements_at_once(self) -> int:
        """The number of elements of a block is a multiple of this."""
        return max(1, OPERATIONS[self.operation].block_multiple // DTYPES[self.dtype].size_bytes)

    @property
    def granule_bytes(self) -> int:
        """Bytes of one element in every block."""
        return self.blocks * DTYPES[self.dtype].size_bytes if self.dtype else 0

    @property
    def num_tensors(self) -> int:
        """How many tensors S is cut into."""
        return call_forms.count_tensors(self.tensors, self.count, self.granule_bytes)

    @property
    def tensor_cases(self) -> tuple[Case, ...]:
        """A case for each tensor, with its bytes."""
        counts = call_forms.split_count(self.tensors, self.count, self.granule_bytes)
        return tuple(self._of_one_tensor(count) for count in counts)

    @property
    def smallest(self) -> Case:
        """The smallest case of its kind: one element in each block of each tensor, or as many as
        the operation takes at least; in blocks that differ, a few."""
        if not self.dtype:
            return self
        if OPERATIONS[self.operation].block_counts:
            count = min(self.count, UNEQUAL_TRIAL_COUNT)
            return self._replace(count=count, size_bytes=count * self.granule_bytes)
        count = self.num_tensors * self.elements_at_once
        if self.call_form.is_divided and self.blocks == 1:
            count *= self.ranks
        tensors = self.tensors if self.tensors == ONE_TENSOR else str(self.num_tensors)
        return self._replace(tensors=tensors, count=count, size_bytes=count * self.granule_bytes)

    def _of_one_tensor(self, count: int) -> Case:
        size_bytes = count * self.granule_bytes
        return self._replace(tensors=ONE_TENSOR, form=DIRECT, count=count, size_bytes=size_bytes)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block; of the whole tensor where the operation has no blocks."""
        return self.count * DTYPES[self.dtype].size_bytes if self.dtype else 0

    @property
    def pieces(self) -> int:
        """How many disjoint pieces of memory its calls use by turns."""
        if self.buffers == HOT:
            return 1
        return max(1, min(MOST_PIECES, -(-ROTATED_BYTES // max(1, self.size_bytes))))

    @property
    def parts(self) -> int:
        """How many equal parts a call has, each of which takes t: 2 where t is half a round trip,
        the window where it is one message, else 1."""
        return OPERATIONS[self.operation].parts(self.window or 1)

    def block_counts(self, rank: int) -> BlockCounts:
        """The elements of each block that a rank sends, and of each that it receives."""
        operation = OPERATIONS[self.operation]
        if operation.block_counts:
            splits = make_splits(self.imbalance, self.ranks, self.count, self.matrix)
            return operation.block_counts(splits, rank)
        sent, received = (size // max(1, self.block_bytes) for size in self.buffer_bytes(rank))
        return (self.count,) * sent, (self.count,) * received

    @property
    def load(self) -> Load | None:
        """How unequally its ranks are loaded; None for equal blocks and without a size."""
        has_blocks = OPERATIONS[self.operation].block_counts and self.imbalance and self.count
        if not has_blocks or why_no_splits(self.imbalance, self.ranks, self.matrix):
            return None
        return find_load(self)

    @property
    def busbw_factor(self) -> float | None:
        """Bus bandwidth over algorithm bandwidth; None for an operation without bandwidth."""
        operation = OPERATIONS[self.operation]
        if operation.block_counts:
            return self.load and self.load.worst_link
        factor = BUSBW_FACTORS.get(self.own_call.busbw_formula, operation.busbw_factor)
        return factor and factor(self.ranks)

    @property
    def uses_new_group(self) -> bool:
        """Whether each of its calls makes a process group, or has one that was made for it."""
        return OPERATIONS[self.operation].makes_group or self.call_form.calls_before is not None

    def key(self, *without: str) -> tuple[Any, ...]:
        """Its value in every dimension but those named; two cases of a plan differ in some."""
        if not without:
            return tuple(_KEY(self))
        return tuple(getattr(self, d.field) for d in DIMENSIONS if d.field not in without)

    @property
    def differing(self) -> dict[str, Any]:
        """What it asks for, by field, where that is not the default: the same in a later version
        with more fields."""
        values, defaults = self._asdict(), self._field_defaults
        return {
            name: value
            for name, value in values.items()
            if name not in NOT_PLANNED and (name, value) not in defaults.items()
        }

    @property
    def digest(self) -> str:
        """Tells it from other cases in eight characters."""
        return f"{crc32(repr(self.differing).encode()):08x}"

    @property
    def title(self) -> str:
        """What is measured, without the size: `all_gather float32 in_place pipelined`."""
        return self.title_without()

    def title_without(self, *fields: str) -> str:
        """The title without the dimensions named."""
        words = [
            dimension.title(getattr(self, dimension.field))
            for dimension in IN_TITLE
            if dimension.title and dimension.field not in fields
        ]
        return " ".join(filter(None, words))

    @property
    def name(self) -> str:
        """What is measured, with the size: `all_reduce float32 sum in_place 1 MiB`."""
        return f"{self.title} {format_bytes(self.size_bytes)}" if self.dtype else self.title

    def in_group(self, ranks: int) -> Case:
        """The case as a group of so many ranks runs it: with the same size, in larger blocks where
        it has fewer. All its tensors, and all blocks of a form with blocks, stay equal."""
        is_divided = self.call_form.is_divided and self.blocks == 1
        if ranks == self.ranks or not (OPERATIONS[self.operation].blocks or is_divided):
            return self._replace(ranks=ranks)
        step = ranks if is_divided else int(self.tensors) if self.tensors.isdigit() else 1
        count = self.count * self.blocks // (1 if is_divided else ranks) // step * step
        case = self._replace(ranks=ranks, count=count)
        return case._replace(size_bytes=count * case.granule_bytes)

    def buffer_bytes(self, rank: int) -> tuple[int, int]:
        """Bytes of the send and receive buffer of `rank`, numbered within the group; in place, one
        lies within the other."""
        bytes_of = {
            Extent.NOTHING: 0,
            Extent.BLOCK: self.block_bytes,
            Extent.WHOLE: self.size_bytes,
            Extent.AT_ROOT: self.size_bytes if rank == self.root else 0,
        }
        operation = OPERATIONS[self.operation]
        if operation.block_counts:
            element = DTYPES[self.dtype].size_bytes
            sent, received = self.block_counts(rank)
            return sum(sent) * element, sum(received) * element
        send, receive = self.own_call.extents(operation)
        return bytes_of[send], bytes_of[receive]

    def needed_bytes(self, rank: int) -> int:
        """Bytes that `rank`, numbered within the group, needs for this case: of buffers, in all its
        pieces, of compressed data, and of the tensors of the computation beside it."""
        own = self.pieces * self.piece_bytes(rank) + self.space_bytes
        return own + overlap_bytes(self.overlap)

    @property
    def space_bytes(self) -> int:
        """Bytes that a compressed form needs beside the buffers; all its calls share them."""
        how = self.call_form.compression
        return how.of_case(how.space_bytes, self) if how else 0

    @property
    def wire_bytes(self) -> float | None:
        """Bytes that a rank sends in a compressed form, or without one as the bus-bandwidth factor
        says; None for an operation without bandwidth."""
        how, factor = self.call_form.compression, self.busbw_factor
        if how is None:
            return None if factor is None else factor * self.size_bytes
        return exchanges(OPERATIONS[self.operation]) * how.of_case(how.exchange_bytes, self)

    def piece_bytes(self, rank: int) -> int:
        """Bytes of buffers that `rank` needs for one piece: where each tensor has memory of its
        own, it begins at a multiple of TENSOR_ALIGNMENT."""
        form = self.call_form
        if not (form.has_tensors and self.dtype and self.tensors != ONE_TENSOR):
            return sum(self.kept_bytes(rank))
        own = 0
        counts = call_forms.split_count(self.tensors, self.count, self.granule_bytes)
        for count, number in Counter(counts).items():
            kept = self._of_one_tensor(count).kept_bytes(rank)
            own += number * sum(-(-size // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT for size in kept)
        flat = self._of_one_tensor(self.count).piece_bytes(rank) if form.has_flat else 0
        return own + (flat and flat + PAGE)

    def kept_bytes(self, rank: int) -> tuple[int, ...]:
        """The bytes of each buffer of one tensor; in place there is one."""
        send, receive = self.buffer_bytes(rank)
        return (max(send, receive),) if self.placement == IN_PLACE else (send, receive)
