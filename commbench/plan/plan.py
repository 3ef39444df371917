"""What to measure: a Plan, validated and immutable, the same on every rank; it lists its Cases.

A Plan holds everything that was requested, with every default filled in, and goes through JSON in
both directions. Its hash is compared over all ranks before anything is measured.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from commbench.errors import UsageError, value_error
from commbench.plan import cases, groups, replay
from commbench.plan.backends import BACKENDS, DEFAULT_MEMORY
from commbench.plan.call_forms import ALL_FORMS, CALL_FORMS, ONE_TENSOR, parse_tensors
from commbench.plan.case import Case
from commbench.plan.cases import EXACT, LIMITS, MOST_CASES, ROUNDING_CHOICES
from commbench.plan.computations import NO_OVERLAP, expand_overlap, overlap_bytes, parse_overlap
from commbench.plan.dimensions import DEFAULT_TIMING, DIMENSIONS, EAGER, HOT
from commbench.plan.dtypes import DATA, NORMAL
from commbench.plan.groups import TOGETHER, GroupSet, Layout
from commbench.plan.operation import NATURAL
from commbench.plan.operations import OPERATIONS, REPLAY
from commbench.plan.own_calls import TORCH, OwnCall
from commbench.plan.pairs import DEFAULT_P2P_CALL, DEFAULT_PAIRS, DEFAULT_WINDOW, parse_pairs
from commbench.plan.splits import UNIFORM, parse_imbalance
from commbench.plan.workload import Workload, workload_values
from commbench.plan.workload_variants import EVERY_VARIANT, parse_variant
from commbench.units import LARGEST_SIZE
from commbench.validation import build, require_known, require_within

CPU_MODES = ("quiet", "plain", "realtime", "batch", "pinned")
"""The first is the default on CPUs; host.cpu says what each means."""
SHUFFLED = "shuffled"
ORDERS = (SHUFFLED, "ascending")
OPTIONS = {dimension.plan_field: dimension.option for dimension in DIMENSIONS} | {
    "iterations": "--iters",
    "budget_s": "--budget",
    "timeout_s": "--timeout",
    "soak_s": "--duration",
    "check_share": "--check-share",
    "nccl_options": "--nccl-option",
    "world_size": "--nproc-per-node times nodes",
}
"""The option of `commbench run` that sets a field, where its name is not the field's."""

USUAL_LAUNCHES = 3
"""Launches of a run that chooses its iterations: what differs between them shows."""
CHECKS, CHECKS_OF_SOAKS = (0.05, 0.5), (0.2, 1.0)
"""Further checks of a case take at most this part of its time, and are made so often after a
batch, if there is time for them."""
_NORMAL_FORMS = {
    "pairs": parse_pairs,
    "imbalance": parse_imbalance,
    "tensors": parse_tensors,
    "overlap": parse_overlap,
    "variants": parse_variant,
}
"""Makes the normal form of a text, in which the plan has it; raises UsageError for a wrong one."""


JOIN_S_PER_RANK = 0.05
"""What each rank may add to the time until all have joined. On 8,000 ranks gloo needed 20 min
(gloo, pull request 407), TCPStore 1 to 19 ms on 96,000 (pytorch/tutorials, pull request 2966)."""


def longest_join_s(world_size: int) -> float:
    """How long so many ranks may need to join each other, beside --timeout."""
    return JOIN_S_PER_RANK * world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is measured, and how. Raises UsageError for a value that makes no sense."""

    operations: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32",)
    reduce_ops: tuple[str, ...] = ("sum",)
    sizes: tuple[int, ...]
    """Requested sizes in bytes; a case has its size after rounding."""
    root: int = 0
    placement: str = NATURAL
    """`natural` is each operation's own default; `both` measures both where they exist."""
    backend: str
    device: str
    """Device type of torch: `cpu`, `cuda`."""
    world_size: int
    cpu_mode: str = "quiet"
    """A name in CPU_MODES; empty where another tool measured."""
    iterations: int | None = None
    """Timed iterations of every case; None: as many as the precision needs (worker.sampling)."""
    warmup: int | None = None
    """Operations before the first timed one; None: until their times are stable."""
    precision: float = 0.05
    """Sampling stops at this half-width of the 95 % interval of the median, over the median."""
    budget_s: float = 0.2
    """Seconds of measuring, in all launches together, after which the sampling of a case stops in
    any event."""
    timing: str = DEFAULT_TIMING
    """One of TIMING_CHOICES: a mode of TIMING_MODES, or `both`."""
    launch_mode: str = EAGER
    """One of LAUNCH_CHOICES: `eager`, `graph`, or `both`."""
    buffers: str = HOT
    """`hot`, `rotating`, or `both`."""
    tensors: tuple[str, ...] = (ONE_TENSOR,)
    """Into how many tensors S is cut, or how: `16`, `ddp:25M` (plan.call_forms)."""
    forms: tuple[str, ...] = ()
    """Names of CALL_FORMS, or `all`; none: the direct call of one tensor, all forms of several."""
    calls: tuple[str, ...] = ()
    """The specifications of calls of the user's own (plan.own_calls), or `torch`."""
    own_calls: dict[str, Any] = field(default_factory=dict, hash=False)
    """What these calls say about themselves, by specification: the fields of OwnCall."""
    memory: tuple[str, ...] = (DEFAULT_MEMORY,)
    """The kinds of memory of buffers, some of MEMORY_CHOICES (plan.backends). Where one of them
    is registered, registering the largest size is a case of its own."""
    nccl_options: tuple[str, ...] = ()
    """Options of NCCL's communicator, as `NAME=VALUE` (plan.backends)."""
    order: str = SHUFFLED
    """`shuffled`: every case is measured several times, in rounds of random order; `ascending`: one
    case after another."""
    peak: str = ""
    """The speed with which bandwidths are compared, as it was given; empty for none."""
    launches: int = 1
    """In how many parts the run is measured, each in fresh processes."""
    check: bool = True
    numerics: bool = False
    """Whether the results of sums are compared with exact ones; those of compressed forms always
    are."""
    data: str = NORMAL
    """What these are sums of (plan.dtypes)."""
    check_share: float | None = None
    """The part of the time that further checks may take; None: as in CHECKS."""
    soak_s: float | None = None
    """A soak: seconds in which all cases are measured again and again, in cycles."""
    cycles: int | None = None
    """A soak ends after so many cycles, or after `soak_s`, whatever comes first."""
    timeout_s: float = 120.0
    """Seconds that one operation may take, besides three times as long as in its check, before the
    run is given up (worker.watchdog.hangs)."""
    seed: int = 0
    """Seed of the order of cases and of the test data."""
    mesh: str = ""
    """Dimensions of a mesh of all ranks, the outermost first unless `mesh_order` says otherwise."""
    mesh_order: str = ""
    """The order of the mesh's dimensions, the fastest first, or a preset (plan.groups)."""
    over: tuple[str, ...] = ()
    """The dimensions of the mesh whose groups are measured; empty for all of them."""
    groups: str = ""
    """Groups as a list of ranks, or as a rule of nccl-tests."""
    group_size: int | None = None
    """Groups of so many ranks, `group_stride` apart; None where others choose the groups."""
    group_stride: int | None = None
    """None is 1."""
    open_groups: int = 0
    """Process groups of all ranks that are made before anything is measured, and stay unused."""
    concurrency: str = TOGETHER
    """Whether the groups of a dimension call together, each alone, or both are measured."""
    rounding: str = EXACT
    """How the block of a rank is rounded down: `exact`, to elements; `nccl-tests`, to 16 bytes."""
    p2p_call: str = DEFAULT_P2P_CALL
    """The kind of call for point to point: one of P2P_CALLS; `natural`, each operation's own
    default; or `all`."""
    pairs: tuple[str, ...] = DEFAULT_PAIRS
    """Which ranks are pairs (plan.pairs.find_peer)."""
    latency_size: int | None = None
    """The size of operations whose time is a latency (Operation.is_latency), in bytes; None: those
    of `sizes`."""
    window: int = DEFAULT_WINDOW
    """Messages that are sent before the sender waits for a reply."""
    overlap: tuple[str, ...] = (NO_OVERLAP,)
    """The computations beside a communication, as --overlap takes them (plan.computations)."""
    overlap_ratio: float | None = None
    """How long a computation takes, over the communication; None: as long."""
    imbalance: tuple[str, ...] = (UNIFORM,)
    """How the blocks of operations with unequal blocks differ (plan.splits)."""
    matrix: tuple[int, ...] = ()
    """The matrix of the imbalance `file`, row by row."""
    workload: dict[str, Any] = field(default_factory=dict, hash=False)
    """The workload that is replayed, as JSON values (plan.workload); empty for none."""
    variants: tuple[str, ...] = (EVERY_VARIANT,)
    """In which variants the steps of the workload are replayed (plan.workload_variants)."""

    def __post_init__(self) -> None:
        for dimension in (d for d in DIMENSIONS if d.choices):
            chosen = getattr(self, dimension.plan_field)
            names = chosen if isinstance(chosen, tuple) else (chosen,)
            require_known(dimension.word, names, list(dimension.choices))
        require_known("rounding", (self.rounding,), list(ROUNDING_CHOICES))
        if self.cpu_mode:
            require_known("cpu mode", (self.cpu_mode,), list(CPU_MODES))
        require_known("order", (self.order,), list(ORDERS))
        require_known("data", (self.data,), list(DATA))
        for name, parse in _NORMAL_FORMS.items():
            for text in getattr(self, name):
                if text != (normal := parse(text)):
                    trouble = f"{text!r:.60} is not in its normal form"
                    raise value_error(name, trouble, f"write {normal}")
        self._require_forms()
        self._require_calls()
        self._require_numbers_in_range()
        self._require_place()
        if REPLAY in self.operations and not self.workload:
            hint = "write `commbench replay step.json`; `commbench workload` writes such files"
            raise UsageError(f"the operation {REPLAY} needs a workload", hint)
        self._require_few_cases()
        if self.peak:
            from commbench.plan.links import parse_peak

            parse_peak(self.peak)

    def _require_forms(self) -> None:
        """Every form takes one of the splits."""
        if self.forms:
            own, given = [OPERATIONS[name] for name in self.operations], self.forms
            usable = [n for n, f in CALL_FORMS.items() if n in given or any(map(f.suits, own))]
            require_known("form", self.forms, [*usable, ALL_FORMS])
        for name in self.forms:
            if name != ALL_FORMS and not any(CALL_FORMS[name].takes(t) for t in self.tensors):
                number, hint = "several tensors", "write for example --tensors 16"
                if CALL_FORMS[name].one:
                    number, hint = "one tensor", "leave out --tensors, or add 1: --tensors 1,16"
                raise UsageError(f"--form {name} takes {number}", hint)

    def _require_calls(self) -> None:
        """Every own call is known, has a name of its own, and an operation that is measured."""
        names: dict[str, str] = {}
        if set(self.own_calls) != {*self.calls} - {TORCH}:
            raise UsageError("own calls are not described", "use commbench.run(calls=[...])")
        for own in self.own:
            other = names.setdefault(own.name, own.source)
            if other != own.source:
                why = f"--call {own.source} and {other} have the same name, {own.name}"
                raise UsageError(why, 'give one of them another: name = "..." in its class')
            if own.operation not in self.operations:
                why = f"--call {own.source} is an {own.operation}, which is not measured"
                raise UsageError(why, f"leave out --op, or add {own.operation} to it")
        if names and ONE_TENSOR not in self.tensors:
            raise UsageError("--call takes one tensor", "leave out --tensors, or add 1: 1,16")

    @property
    def own(self) -> tuple[OwnCall, ...]:
        """What its own calls say about themselves."""
        return tuple(build(OwnCall, self.own_calls[call]) for call in self.calls if call != TORCH)

    def _require_numbers_in_range(self) -> None:
        if any(OPERATIONS[name].has_data for name in self.operations) and not self.sizes:
            raise UsageError("there are no sizes to measure", "write for example --sizes 1K-1G")
        for name, (low, high) in LIMITS.items():
            require_within(name, getattr(self, name), low, high)
        for size in self.sizes:
            require_within(f"size {size}", size, 1, LARGEST_SIZE)

    def _require_place(self) -> None:
        """The root is a rank, and the backend serves the device."""
        fewest = min(len(group) for found in self.group_sets for group in found.groups)
        if self.root >= fewest and self.root:
            what = "" if self.layout.is_empty else " of the smallest group, within which it counts"
            hint = f"ranks{what}: 0 to {fewest - 1}"
            raise value_error("root", f"{self.root} is not a rank of {fewest}", hint)
        known = BACKENDS.get(self.backend)
        if known and self.device and self.device not in known.devices:
            hint = f"{self.backend} supports: {', '.join(known.devices)}"
            raise UsageError(f"backend {self.backend} does not support device {self.device}", hint)

    def _require_few_cases(self) -> None:
        number = len(self.cases()) if self.workload else cases.count_product(self)
        if number > MOST_CASES:
            raise UsageError(
                f"these options make {number} cases, more than {MOST_CASES}",
                "choose fewer sizes, dtypes or reduce operations, or split them into several runs",
            )

    @lru_cache(maxsize=2)  # noqa: B019 - of the process's plan, and of a temporary one
    def cases(self) -> tuple[Case, ...]:
        """Every case: those of the workload, or else for each operation the product of its values
        in all DIMENSIONS, in their order."""
        return replay.replay_cases(self) if self.workload else cases.product_cases(self)

    @property
    def needs_two_cores(self) -> bool:
        """Whether ranks on CPUs compute and communicate at once, which one core does not allow."""
        return self.device == "cpu" and {*self.overlap} != {NO_OVERLAP}

    @property
    def is_soak(self) -> bool:
        """Whether all cases are measured again and again, in cycles."""
        return self.soak_s is not None or self.cycles is not None

    @property
    def checks(self) -> tuple[float, float]:
        """The part of the time that further checks take at most, and how often they are made after
        a batch."""
        share, chance = CHECKS_OF_SOAKS if self.is_soak else CHECKS
        return (share if self.check_share is None else self.check_share), chance

    @property
    def layout(self) -> Layout:
        """What it says about groups."""
        return Layout(*(getattr(self, name) for name in Layout._fields))

    @property
    def group_sets(self) -> tuple[GroupSet, ...]:
        """The groups that are measured, by dimension."""
        if self.workload:
            return replay.replay_group_sets(self)
        return groups.group_sets(self.layout, self.world_size)

    @lru_cache(maxsize=4)  # noqa: B019 - as cases
    def _groups_by_key(self) -> dict[tuple[str, str], tuple[tuple[int, ...], ...]]:
        return groups.index_groups(self.group_sets)

    @property
    def has_groups(self) -> bool:
        """Whether groups other than all ranks are measured."""
        return bool(self.workload) or not self.layout.is_empty

    def groups_of(self, case: Case) -> tuple[tuple[int, ...], ...]:
        """The groups of ranks that run a case at once: all of several ranks, one, or the world."""
        found = self._groups_by_key()
        # A case of another tool's run, or of an older plan, has groups that the plan does not name.
        return found.get((case.group, case.group_ranks)) or (tuple(range(self.world_size)),)

    def ranks_of(self, case: Case) -> tuple[int, ...]:
        """The ranks that take part in a case, in ascending order."""
        own = self.groups_of(case)
        return own[0] if len(own) == 1 else tuple(sorted({r for group in own for r in group}))

    def needed_bytes(self, case: Case, ranks: Collection[int]) -> int:
        """Bytes of buffers that these ranks need together for a case, and of the tensors of all
        computations, which stay."""
        wanted = frozenset(ranks)
        if case.step:
            return replay.replayed_bytes(self, case, wanted)
        computations = overlap_bytes(*expand_overlap(self.overlap, self.device))
        needed = len(wanted) * (computations - overlap_bytes(case.overlap))
        for group in self.groups_of(case):
            own = case.in_group(len(group))
            needed += sum(own.needed_bytes(at) for at, rank in enumerate(group) if rank in wanted)
        return needed

    def extended(self, launches: int) -> Plan:
        """The plan with so many launches, where these are more."""
        return replace(self, launches=max(self.launches, launches))

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
        import json

        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:16]


def make_replay_plan(workload: Workload, values: dict[str, Any]) -> Plan:
    """The plan that replays a workload; `values` are the other fields of Plan. Operations, element
    types and sizes are those of its calls."""
    own = {name: value for name, value in values.items() if value is not None}
    of_steps = {"operations": (REPLAY,), "sizes": (), "buffers": HOT}
    plan = Plan(**own | of_steps | {"workload": workload_values(workload)})
    return replace(plan, **replay.replay_fields(plan))
