"""What a journal holds, as records, and the integer version of its format.

History of SCHEMA:
    1   2026-11-21   first version
    2   2026-11-22   `visit` lines are called `batch`, the header's `hops` `link_probes`
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

from commbench.spec.case import SKIPPED, UNSUPPORTED, Case
from commbench.spec.plan import Plan

SCHEMA = 2


def _upgrade_from_1(line: dict[str, Any]) -> dict[str, Any]:
    renamed = {"visits": "batches", "hops": "link_probes"}
    upgraded = {renamed.get(name, name): value for name, value in line.items()}
    return upgraded | {"kind": "batch"} if line.get("kind") == "visit" else upgraded


UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _upgrade_from_1}
"""For each older version, the function that turns one of its lines into the next version's."""

OK = "ok"
WRONG = "wrong"
FAILED = "failed"
COMPLETE = "complete"
"""Status of a run whose cases are all finished."""
CUT_OFF = "cut off"
"""Stop reason of a case that was still being measured when its run ended."""


class RankInfo(NamedTuple):
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


class LinkProbe(NamedTuple):
    """A transfer from one host's first rank to the next host's, and a byte in answer."""

    sender: int
    receiver: int
    size_bytes: int
    seconds: float


class RunHeader(NamedTuple):
    """What a run was asked to do, and where it ran."""

    plan: Plan
    label: str
    started: str
    """UTC, ISO 8601."""
    launcher: str
    environment: dict[str, Any] = {}  # noqa: RUF012 - never changed
    ranks: tuple[RankInfo, ...] = ()
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
    link_probes: tuple[LinkProbe, ...] = ()
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


class Batch(NamedTuple):
    """What one batch of a case gave: a few iterations in a row. A case is measured several times,
    others in between, so that what drifts meanwhile shows in the scatter of its batches."""

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


class ReportedTiming(NamedTuple):
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
    batches: tuple[Batch, ...] = ()
    reported: ReportedTiming | None = None

    @property
    def samples_s(self) -> tuple[float, ...]:
        """Seconds per call of every timed iteration, in the order they were taken."""
        return tuple(chain.from_iterable(batch.samples_s for batch in self.batches))


_SEVERITY = {OK: 0, SKIPPED: 1, UNSUPPORTED: 2, FAILED: 3, WRONG: 4}


def worse_outcome(earlier: Measurement | None, later: Measurement) -> Measurement:
    """The measurement with the worse status of a case's two launches; the later of equal ones."""
    if earlier is None:
        return later
    return max(later, earlier, key=lambda measurement: _SEVERITY.get(measurement.status, 5))


class RunEnd(NamedTuple):
    """How a run ended."""

    status: str
    """`complete`, `interrupted` or `failed`."""
    reason: str = ""
    elapsed_s: float = 0.0
    """From the header; of a launch that did not end well, from the start of its ranks."""


class Run(NamedTuple):
    """One run as read from its journal."""

    path: str
    header: RunHeader
    measurements: tuple[Measurement, ...]
    end: RunEnd | None
    """None: the run is still going, or was cut off."""
    resumed: int = 0
    """How often it was taken up again."""

    @property
    def name(self) -> str:
        """The label, or the folder's name where there is none."""
        return self.header.label or self.path.rstrip("/").rsplit("/", 1)[-1]
