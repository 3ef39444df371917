"""What to measure: a Plan, validated and immutable, the same on every rank; it lists its Cases.

A Plan says everything that was asked for, with every default filled in, and goes through JSON in
both directions. Its hash is compared over all ranks before anything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

from commbench.backends import BACKENDS
from commbench.dtypes import DTYPES, Dtype
from commbench.errors import UsageError, name_error, value_error
from commbench.operations import IN_PLACE, OPERATIONS, OUT_OF_PLACE, Extent, Operation
from commbench.reductions import REDUCTIONS
from commbench.typed import LARGEST_INTEGER, build
from commbench.units import LARGEST_SIZE, format_bytes

NATURAL = "natural"
PLACEMENT_CHOICES = (NATURAL, IN_PLACE, OUT_OF_PLACE, "both")
CPU_MODES = ("quiet", "plain", "realtime", "batch", "pinned")
"""The first is the default on CPUs; worker.quiet says what each means."""
ISOLATED = "isolated"
PIPELINED = "pipelined"
TIMING_CHOICES = (ISOLATED, PIPELINED, "both")
SHUFFLED = "shuffled"
ORDERS = (SHUFFLED, "ascending")
EXACT = "exact"
NCCL_TESTS = "nccl-tests"
ROUNDING_CHOICES = (EXACT, NCCL_TESTS)
NCCL_TESTS_CHUNK = 16
"""Bytes that nccl-tests makes each rank's block a multiple of. Source: its src/*.cu."""

OPTIONS = {
    "operations": "--op",
    "dtypes": "--dtype",
    "reduce_ops": "--reduce-op",
    "iterations": "--iters",
    "budget_s": "--budget",
    "timeout_s": "--timeout",
    "world_size": "--nproc-per-node times nodes",
}
"""The option of `commbench run` that sets a field, where it has not the field's name."""

LONGEST_TIMEOUT_S = 31 * 24 * 3600.0
MOST_CASES = 100_000
MOST_RANKS = 1 << 20
MOST_ITERATIONS = 10_000_000
"""Of one case: every sample is kept, and a visit makes one line of the journal."""

READY = "ready"
UNSUPPORTED = "unsupported"
SKIPPED = "skipped"
FINISHED = "finished"
"""Status of a case that a launch had finished before it was cut off and taken up again."""


class Case(NamedTuple):
    """One row to be: what is measured, at what size, or why it cannot be."""

    index: int  # type: ignore[assignment]  # a tuple's methods of these names are of no use here
    operation: str
    dtype: str
    """Empty for an operation without data."""
    reduce_op: str
    """Empty for an operation that does not reduce."""
    root: int | None
    placement: str
    timing: str
    size_bytes: int
    """nccl-tests' size: the larger of what one rank sends and receives, after rounding down to
    whole elements per block."""
    count: int  # type: ignore[assignment]
    """nccl-tests' count: elements in the tensor, or in one block of an operation with blocks."""
    status: str = READY
    """`ready`, `unsupported`, `skipped` or `finished`."""
    reason: str = ""

    @property
    def block_bytes(self) -> int:
        """Bytes of one block; of the whole tensor where the operation has no blocks."""
        return self.count * DTYPES[self.dtype].size_bytes if self.dtype else 0

    @property
    def kind(self) -> str:
        """What is called, without the size: `all_reduce float32 sum in_place`."""
        root = "" if self.root is None else f"root {self.root}"
        parts = (self.operation, self.dtype, self.reduce_op, self.placement, root)
        return " ".join(part for part in parts if part)

    @property
    def title(self) -> str:
        """What is measured, without the size: its kind, and the timing where calls are queued."""
        return self.kind if self.timing in (ISOLATED, "") else f"{self.kind} {self.timing}"

    @property
    def name(self) -> str:
        """What is measured, with the size: `all_reduce float32 sum in_place 1 MiB`."""
        return f"{self.title} {format_bytes(self.size_bytes)}" if self.dtype else self.title

    def buffer_bytes(self, rank: int) -> tuple[int, int]:
        """Bytes of the send and the receive buffer on `rank`; the smaller lies within the
        larger in place."""
        operation = OPERATIONS[self.operation]
        send, receive = (
            _extent_bytes(extent, self.size_bytes, self.block_bytes, rank == self.root)
            for extent in (operation.send, operation.receive)
        )
        return send, receive

    def needed_bytes(self, rank: int) -> int:
        """Bytes of buffers that `rank` needs for this case."""
        send, receive = self.buffer_bytes(rank)
        return max(send, receive) if self.placement == IN_PLACE else send + receive


def _extent_bytes(extent: Extent, size: int, block: int, is_root: bool) -> int:
    return {
        Extent.NOTHING: 0,
        Extent.BLOCK: block,
        Extent.WHOLE: size,
        Extent.AT_ROOT: size if is_root else 0,
    }[extent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is measured and how; refuses values that make no sense (UsageError)."""

    operations: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32",)
    reduce_ops: tuple[str, ...] = ("sum",)
    sizes: tuple[int, ...]
    """Requested sizes in bytes; a case shows what was really measured."""
    root: int = 0
    placement: str = NATURAL
    """`natural` is each operation's own default; `both` measures both where they exist."""
    backend: str
    device: str
    """Device type of torch: `cpu`, `cuda`."""
    world_size: int
    cpu_mode: str = "quiet"
    iterations: int | None = None
    """Timed iterations of every case; None: until precise enough (see analysis.sampling)."""
    warmup: int | None = None
    """Operations before the first timed one; None: until their times are stable."""
    precision: float = 0.05
    """Half-width of the 95 % interval of the median, over the median, that is narrow enough."""
    budget_s: float = 0.2
    """Seconds of measuring after which a case has to be content with what it has."""
    timing: str = ISOLATED
    """`isolated`: each call alone, ranks aligned first; `pipelined`: back to back; `both`."""
    order: str = SHUFFLED
    """`shuffled`: every case is visited several times, in rounds of random order; `ascending`: one
    case after another."""
    peak: str = ""
    """The speed that bandwidths are held against, as it was given; empty: none."""
    launches: int = 1
    """How often the whole run is repeated in fresh processes."""
    check: bool = True
    timeout_s: float = 120.0
    """How long one operation may take, besides its bytes (worker.watch), before all is given up."""
    seed: int = 0
    """Where the order of cases and the test data begin."""
    rounding: str = EXACT
    """How a block of a rank is rounded down: to whole elements, or also to nccl-tests' 16 bytes."""

    def __post_init__(self) -> None:
        _refuse_unknown("operation", self.operations, list(OPERATIONS))
        _refuse_unknown("dtype", self.dtypes, list(DTYPES))
        _refuse_unknown("reduce op", self.reduce_ops, list(REDUCTIONS))
        _refuse_unknown("placement", (self.placement,), list(PLACEMENT_CHOICES))
        _refuse_unknown("rounding", (self.rounding,), list(ROUNDING_CHOICES))
        _refuse_unknown("cpu mode", (self.cpu_mode,), list(CPU_MODES))
        _refuse_unknown("timing", (self.timing,), list(TIMING_CHOICES))
        _refuse_unknown("order", (self.order,), list(ORDERS))
        if any(OPERATIONS[name].has_data for name in self.operations) and not self.sizes:
            raise UsageError("there are no sizes to measure", "write for example --sizes 1K-1G")
        _refuse_below(1, world_size=self.world_size, launches=self.launches)
        _refuse_below(1, iterations=self.iterations, **{f"size {s}": s for s in self.sizes})
        _refuse_below(0, warmup=self.warmup, root=self.root, seed=self.seed)
        _refuse_above(MOST_RANKS, world_size=self.world_size, launches=self.launches)
        _refuse_above(MOST_ITERATIONS, iterations=self.iterations, warmup=self.warmup)
        _refuse_above(LARGEST_SIZE, **{f"size {s}": s for s in self.sizes if s > LARGEST_SIZE})
        _refuse_above(LARGEST_INTEGER, seed=self.seed)
        self._refuse_extremes()
        if self.peak:
            from commbench.links import parse_peak

            parse_peak(self.peak)
        if self.root >= self.world_size:
            raise value_error(
                "root",
                f"{self.root} is not a rank of {self.world_size}",
                f"ranks go from 0 to {self.world_size - 1}",
            )
        known = BACKENDS.get(self.backend)
        if known and self.device not in known.devices:
            raise UsageError(
                f"backend {self.backend} does not serve device {self.device}",
                f"{self.backend} serves: {', '.join(known.devices)}",
            )

    def _refuse_extremes(self) -> None:
        for name, seconds, advice in (
            ("timeout_s", self.timeout_s, "write --timeout 120"),
            ("budget_s", self.budget_s, "write --budget 0.2"),
        ):
            if not seconds > 0:
                raise value_error(name, f"{seconds:g} s is not above 0", advice)
            if seconds > LONGEST_TIMEOUT_S:
                raise value_error(name, f"{seconds:g} s is longer than a month", advice)
        if not 0 < self.precision < 1:
            raise value_error(
                "precision",
                f"{self.precision:.6g} is not between 0 and 1",
                "write --precision 5%, or 0.05",
            )
        combinations = len(self.dtypes) * len(self.reduce_ops) * len(self.sizes) * 4
        if len(self.operations) * combinations > MOST_CASES:
            raise UsageError(
                f"this asks for more than {MOST_CASES // 4} cases",
                "take fewer sizes, dtypes or reduce ops; several runs can be plotted together",
            )

    def cases(self) -> tuple[Case, ...]:
        """Every case in order: operation, dtype, reduce op, placement, timing, size ascending.

        Sizes that round down to the same bytes become one case.
        """
        return tuple(Case(index=index, **row) for index, row in enumerate(self._rows()))

    def _rows(self) -> Iterator[dict[str, Any]]:
        for operation in (OPERATIONS[name] for name in self.operations):
            dtypes = self.dtypes if operation.has_data else ("",)
            reduce_ops = self.reduce_ops if operation.reduces else ("",)
            for dtype in dtypes:
                for reduce_op in reduce_ops:
                    for placement, timing in product(self._placements(operation), self._timings()):
                        common = {
                            "operation": operation.name,
                            "dtype": dtype,
                            "reduce_op": reduce_op,
                            "root": self.root if operation.rooted else None,
                            "placement": placement,
                            "timing": timing,
                        }
                        refusal = self._refusal(operation, dtype, reduce_op, placement)
                        for size in self._measured_sizes(operation, dtype):
                            yield common | size | (refusal or {}) if refusal else common | size

    def _timings(self) -> tuple[str, ...]:
        return (ISOLATED, PIPELINED) if self.timing == "both" else (self.timing,)

    def _placements(self, operation: Operation) -> tuple[str, ...]:
        if self.placement == NATURAL or not operation.has_data:
            return operation.placements[:1]
        if self.placement == "both":
            return operation.placements
        return (self.placement,)

    def _measured_sizes(self, operation: Operation, dtype: str) -> Iterator[dict[str, Any]]:
        if not operation.has_data:
            yield {"size_bytes": 0, "count": 0}
            return
        element = DTYPES[dtype].size_bytes
        blocks = self.world_size if operation.blocks else 1
        chunk = 1
        least = f"one {dtype}"
        if operation.blocks and self.rounding == NCCL_TESTS:
            chunk = NCCL_TESTS_CHUNK // element
            least = f"{NCCL_TESTS_CHUNK} bytes"
        measured: set[int] = set()
        for requested in self.sizes:
            count = requested // element // blocks // chunk * chunk
            if not count:
                yield {
                    "size_bytes": requested,
                    "count": 0,
                    "status": SKIPPED,
                    "reason": f"less than {least}" + (" per rank" if blocks > 1 else ""),
                }
            elif count not in measured:
                measured.add(count)
                yield {"size_bytes": count * blocks * element, "count": count}

    def _refusal(
        self, operation: Operation, dtype: str, reduce_op: str, placement: str
    ) -> dict[str, str] | None:
        reason = _why_unsupported(
            operation, DTYPES.get(dtype), reduce_op, placement, self.backend, self.world_size
        )
        return {"status": UNSUPPORTED, "reason": reason} if reason else None

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values; from_json reads it back."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Plan:
        """The plan that as_json wrote. Raises UsageError for values that are no plan."""
        try:
            return build(cls, values)
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"this is not a plan: {error}") from None

    @property
    def digest(self) -> str:
        """A hash of everything in the plan; equal on two ranks only if their plans are."""
        import hashlib

        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _why_unsupported(
    operation: Operation,
    dtype: Dtype | None,
    reduce_op: str,
    placement: str,
    backend_name: str,
    ranks: int,
) -> str:
    """Why this combination cannot work, as far as tables tell; empty when it may."""
    if ranks < operation.min_ranks:
        return f"{operation.name} needs at least {operation.min_ranks} ranks"
    if placement not in operation.placements:
        return f"torch.distributed has no {placement} {operation.name}"
    backend = BACKENDS.get(backend_name)
    if dtype and backend and dtype.name in backend.refused_dtypes:
        return f"{backend.name} does not move {dtype.name}"
    if dtype and reduce_op:
        if dtype.kind not in REDUCTIONS[reduce_op].kinds:
            return f"{reduce_op} is not defined for {dtype.name}"
        if backend and reduce_op in backend.refused_reductions:
            return f"{backend.name} has no {reduce_op}"
    return ""


def _refuse_unknown(kind: str, names: tuple[str, ...], known: list[str]) -> None:
    if not names:
        raise UsageError(f"there is no {kind}", f"known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise name_error(kind, str(name), known)


def _refuse_below(limit: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < limit:
            raise value_error(name, f"is {value}", f"it must be at least {limit}")


def _refuse_above(limit: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value > limit:
            raise value_error(name, f"is {value}", f"it must be at most {limit}")
