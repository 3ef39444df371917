"""What to measure: a Plan, validated and immutable, the same on every rank; it lists its Cases.

A Plan says everything that was asked for, with every default filled in, and goes through JSON in
both directions. Its hash is compared over all ranks before anything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from commbench.errors import (
    UnavailableError,
    UsageError,
    value_error,
)
from commbench.spec.backends import BACKENDS
from commbench.spec.case import READY, SKIPPED, UNSUPPORTED, Case
from commbench.spec.dtypes import DTYPES, Dtype
from commbench.spec.operations import IN_PLACE, OPERATIONS, OUT_OF_PLACE, Operation
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_CHOICES, expand_timing
from commbench.units import LARGEST_SIZE
from commbench.validation import (
    LARGEST_INTEGER,
    build,
    require_at_least,
    require_at_most,
    require_known,
)

if TYPE_CHECKING:
    pass

NATURAL = "natural"
PLACEMENT_CHOICES = (NATURAL, IN_PLACE, OUT_OF_PLACE, "both")
CPU_MODES = ("quiet", "plain", "realtime", "batch", "pinned")
"""The first is the default on CPUs; worker.quiet says what each means."""
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
"""Of one case: every sample is kept, and a batch makes one line of the journal."""


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
    timing: str = DEFAULT_TIMING
    """One of TIMING_CHOICES: a mode of TIMING_MODES, or `both`."""
    order: str = SHUFFLED
    """`shuffled`: every case is measured several times, in rounds of random order; `ascending`: one
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
        require_known("operation", self.operations, list(OPERATIONS))
        require_known("dtype", self.dtypes, list(DTYPES))
        require_known("reduce op", self.reduce_ops, list(REDUCE_OPS))
        require_known("placement", (self.placement,), list(PLACEMENT_CHOICES))
        require_known("rounding", (self.rounding,), list(ROUNDING_CHOICES))
        require_known("cpu mode", (self.cpu_mode,), list(CPU_MODES))
        require_known("timing", (self.timing,), list(TIMING_CHOICES))
        require_known("order", (self.order,), list(ORDERS))
        if any(OPERATIONS[name].has_data for name in self.operations) and not self.sizes:
            raise UsageError("there are no sizes to measure", "write for example --sizes 1K-1G")
        require_at_least(1, world_size=self.world_size, launches=self.launches)
        require_at_least(1, iterations=self.iterations, **{f"size {s}": s for s in self.sizes})
        require_at_least(0, warmup=self.warmup, root=self.root, seed=self.seed)
        require_at_most(MOST_RANKS, world_size=self.world_size, launches=self.launches)
        require_at_most(MOST_ITERATIONS, iterations=self.iterations, warmup=self.warmup)
        require_at_most(LARGEST_SIZE, **{f"size {s}": s for s in self.sizes if s > LARGEST_SIZE})
        require_at_most(LARGEST_INTEGER, seed=self.seed)
        self._refuse_extremes()
        if self.peak:
            from commbench.spec.links import parse_peak

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
                    for placement, timing in product(
                        self._placements(operation), expand_timing(self.timing)
                    ):
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
        if dtype.kind not in REDUCE_OPS[reduce_op].kinds:
            return f"{reduce_op} is not defined for {dtype.name}"
        if backend and reduce_op in backend.refused_reduce_ops:
            return f"{backend.name} has no {reduce_op}"
    return ""


def require_ready_case(plan: Plan) -> None:
    """Raise UnavailableError when every case is known to be impossible."""
    cases = plan.cases()
    if any(case.status == READY for case in cases):
        return
    reasons = dict.fromkeys(case.reason for case in cases)
    raise UnavailableError(
        f"nothing is left to measure: {'; '.join(list(reasons)[:3])}",
        "`commbench ops` lists operations; another dtype, reduce op, placement or size may do",
    )
