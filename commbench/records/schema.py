"""What a journal holds, as records, and the integer version of its format.

History of SCHEMA:
    1   2026-11-21   first version
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

from commbench.dtypes import DTYPES
from commbench.operations import OPERATIONS
from commbench.plan import Case, Plan
from commbench.typed import brief, build, is_modest
from commbench.units import LARGEST_SIZE

SCHEMA = 1

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older version, the function that turns one of its lines into the next version's."""

OK = "ok"
WRONG = "wrong"
FAILED = "failed"
CUT_OFF = "cut off"
"""Stop reason of a case that was still being measured when its run ended."""

LONGEST_S = 1e7
SHORTEST_S = 1e-15
"""No measurement lasts longer, or shorter without being 0: what says so is damaged, and its
bandwidth would have no end."""
DEEPEST_FACT = 4
LONGEST_FACT = 1 << 17
"""Most characters of a fact of the environment: those of a variable."""


class Rank(NamedTuple):
    """One rank: where it ran."""

    rank: int
    host: str
    pid: int
    device: str
    """Such as `cpu` or `cuda:0 NVIDIA H200`."""
    cores: tuple[int, ...] = ()
    """Cores it was allowed to run on while measuring."""
    cpu_mode: str = ""
    local_rank: int = 0
    """Its number on its host."""
    interface: str = ""
    """The network interface it talks through, as far as can be told; see worker.network."""
    address: str = ""
    """The address of that."""


class Hop(NamedTuple):
    """A transfer from one host's first rank to the next host's, and a byte in answer."""

    sender: int
    receiver: int
    size_bytes: int
    seconds: float


class Header(NamedTuple):
    """What a run was asked to do, and where it ran."""

    plan: Plan
    label: str
    started: str
    """UTC, ISO 8601."""
    launcher: str
    environment: dict[str, Any] = {}  # noqa: RUF012 - never changed
    ranks: tuple[Rank, ...] = ()
    num_nodes: int = 1
    gpu_shared: bool = False
    """Ranks shared a GPU: functional, no measure of performance."""
    schema: int = SCHEMA
    commbench: str = ""
    launch: int = 0
    """Which launch of the run this begins, from 0; each has a header of its own."""
    resumed: bool = False
    """It does not begin that launch, but goes on with it where an earlier header's was cut off."""
    overhead_s: float | None = None
    """What the timed loop itself adds to an iteration: measured with a call that does nothing."""
    resolution_s: float | None = None
    """The step of the clock."""
    hops: tuple[Hop, ...] = ()
    """How fast each host's way to the next is; empty on one host."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the ranks, in order of their first rank."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))


class WrongElement(NamedTuple):
    """The first element of a rank that differs from what it had to be."""

    rank: int
    element: int
    """Element index in the rank's receive buffer."""
    expected: str
    got: str
    """Values as text: no JSON number stands for NaN, or for every int64."""


class Visit(NamedTuple):
    """What one visit to a case gave: a few iterations in a row. A case is visited several times,
    others in between, so that what drifts meanwhile shows in the scatter of its visits."""

    samples_s: tuple[float, ...]
    """Seconds per call of each timed iteration: the slowest rank's."""
    calls: int = 1
    """Calls per iteration: 1 if isolated, several back to back if pipelined."""
    warmup: int = 0
    """Untimed calls before."""
    rank_medians_s: tuple[float, ...] = ()
    """Each rank's own median."""
    rank_behind_s: tuple[float, ...] = ()
    """How far each rank was behind the first one, entering or leaving, whichever was more; median.
    Empty where clocks are not shared."""
    last_in: tuple[int, ...] = ()
    """In how many iterations each rank was the last to enter."""
    entry_skew_s: float | None = None
    """Median over iterations of latest minus earliest entry; None where clocks are not shared."""
    operation_s: float | None = None
    """Per call, median over iterations of the latest exit minus the latest entry: the part of the
    time in which everybody had come."""
    elapsed_s: float = 0.0
    """How long the whole loop took, aligning included."""
    queued_s: float | None = None
    """Time that the threads of the worst rank waited for a processor in that loop."""
    switches: int = 0
    """How often threads of the worst rank were put off a processor against their will."""
    throttled_s: float | None = None
    """Time for which the worst rank's control group had used up its share of the processor."""
    stolen_s: float | None = None
    """Processor time that the hypervisor took from the worst rank's host."""
    launch: int = 0
    """Which launch of the run it belongs to, from 0."""


class Reported(NamedTuple):
    """What another tool reported of a case, where it keeps no samples; seconds."""

    time_s: float
    statistic: str
    """What that time is: `mean over 20 iterations, mean over ranks`."""
    iterations: int = 0
    minimum_s: float | None = None
    mean_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    maximum_s: float | None = None


class Measurement(NamedTuple):
    """What one case gave."""

    case: Case
    status: str
    """`ok`, `wrong`, `unsupported`, `skipped` or `failed`."""
    reason: str = ""
    stop_reason: str = ""
    wrong: int | None = None
    """Wrong elements over all ranks; None when not checked."""
    first_wrong: WrongElement | None = None
    visits: tuple[Visit, ...] = ()
    reported: Reported | None = None

    @property
    def samples_s(self) -> tuple[float, ...]:
        """Seconds per call of every timed iteration, in the order they were taken."""
        return tuple(chain.from_iterable(visit.samples_s for visit in self.visits))


def outcome(earlier: Measurement | None, later: Measurement) -> Measurement:
    """What counts of a case in two launches: the worse outcome, then the later."""
    return later if earlier is None or earlier.status in (OK, later.status) else earlier


class End(NamedTuple):
    """How a run ended."""

    status: str
    """`complete`, `interrupted` or `failed`."""
    reason: str = ""
    elapsed_s: float = 0.0
    """From the header; of a launch that did not end well, from the start of its ranks."""


class Run(NamedTuple):
    """One run as read from its journal."""

    path: str
    header: Header
    measurements: tuple[Measurement, ...]
    end: End | None
    """None: the run is still going, or was cut off."""
    resumed: int = 0
    """How often it was taken up again."""

    @property
    def name(self) -> str:
        """The label, or the folder's name where there is none."""
        return self.header.label or self.path.rstrip("/").rsplit("/", 1)[-1]


def line_of(kind: str, record: Any) -> dict[str, Any]:
    """The JSON object that stands for a record in a journal."""
    return {"kind": kind} | {name: _plain(value) for name, value in record._asdict().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Plan):
        return value.as_json()
    if hasattr(value, "_asdict"):
        return {name: _plain(inner) for name, inner in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value


def header_of(line: dict[str, Any]) -> Header:
    """The header that a journal's first line stands for."""
    values = dict(line)
    values["plan"] = Plan.from_json(values["plan"])
    values["ranks"] = tuple(build(Rank, rank) for rank in values["ranks"])
    values["hops"] = tuple(build(Hop, hop) for hop in values.get("hops", ()))
    header = build(Header, values)
    _refuse_beyond(header, 1, LARGEST_SIZE, "num_nodes")
    _refuse_beyond(header, 0, LARGEST_SIZE, "launch")
    _refuse_durations(header, "overhead_s", "resolution_s")
    for hop in header.hops:
        _refuse_beyond(hop, 0, LARGEST_SIZE, "size_bytes", "sender", "receiver")
        _refuse_durations(hop, "seconds")
    _refuse_odd_facts("environment", header.environment, DEEPEST_FACT)
    return header


def measurement_of(line: dict[str, Any]) -> Measurement:
    """The measurement that a journal's case line stands for; its visits have lines of their own."""
    values = dict(line)
    case = values["case"] = build(Case, values["case"])
    if case.operation not in OPERATIONS:
        raise ValueError(f"operation {brief(case.operation)} is unknown")
    if case.dtype and case.dtype not in DTYPES:
        raise ValueError(f"dtype {brief(case.dtype)} is unknown")
    _refuse_beyond(case, 0, LARGEST_SIZE, "size_bytes", "count", "root")
    if values.get("first_wrong"):
        values["first_wrong"] = build(WrongElement, values["first_wrong"])
    if values.get("reported"):
        told = values["reported"] = build(Reported, values["reported"])
        _refuse_beyond(told, 0, LARGEST_SIZE, "iterations")
        _refuse_durations(told, *(name for name in Reported._fields if name.endswith("_s")))
    measurement = build(Measurement, values)
    _refuse_beyond(measurement, 0, None, "wrong")
    return measurement


def visit_of(line: dict[str, Any]) -> tuple[int, Visit]:
    """The index of the case, and the visit, that a journal's visit line stands for."""
    values = dict(line)
    index = values.pop("case")
    if type(index) is not int:
        raise ValueError(f"case is {brief(index)}, not int")
    visit = build(Visit, values)
    if not visit.samples_s or visit.calls < 1:
        raise ValueError("a visit to a case has at least one iteration, of at least one call")
    _refuse_beyond(visit, 0, None, "warmup", "launch", "last_in", "switches")
    _refuse_durations(visit, *(name for name in Visit._fields if name.endswith("_s")))
    return index, visit


def end_of(line: dict[str, Any]) -> End:
    """The end that a journal's last line stands for."""
    end = build(End, line)
    _refuse_beyond(end, 0, None, "elapsed_s")
    return end


def _refuse_beyond(record: Any, low: float, high: float | None, *names: str) -> None:
    """Raise ValueError where a number, or one of several, lies outside; None is none."""
    for name in names:
        value = getattr(record, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not low <= number <= (number if high is None else high):
                raise ValueError(f"{name} is {brief(number)}")


def _refuse_durations(record: Any, *names: str) -> None:
    """Raise ValueError where seconds cannot be the length of anything."""
    for name in names:
        value = getattr(record, name)
        several = value if isinstance(value, tuple) else () if value is None else (value,)
        if not several:
            continue
        shortest = min(several)
        if shortest < SHORTEST_S:
            shortest = min((s for s in several if s), default=SHORTEST_S)
        if shortest < SHORTEST_S or max(several) > LONGEST_S:
            wrong = shortest if shortest < SHORTEST_S else max(several)
            raise ValueError(f"{name} is {brief(wrong)}")


def _refuse_odd_facts(name: str, value: Any, depth: int) -> None:
    """Raise ValueError for facts that could not be shown or written again."""
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(f"{name} is nested deeper than {DEEPEST_FACT} levels")
        inner = value.items() if isinstance(value, dict) else ((name, item) for item in value)
        for key, item in inner:
            _refuse_odd_facts(str(key)[:40], item, depth - 1)
    elif not (len(value) <= LONGEST_FACT if isinstance(value, str) else is_modest(value)):
        raise ValueError(f"{name} is {brief(value)}")
