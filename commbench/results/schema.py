"""The records of a journal, the integer version of its format, and the upgrades of older versions.

History of SCHEMA:
    1   2026-11-21   first version
    2   2026-11-22   `visit` lines are called `batch`, the header's `hops` `link_probes`
    3   2026-11-23   lines end with a checksum (results.checksum), batches have their case's digest
    4   2026-11-27   arrays of ranks once per case and launch (rank_times), columns in headers,
                     checks and cycles of soaks
    5   2026-12-01   the end has the class of the error (`error`)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from commbench.host.cpu import describe_cpu_mode
from commbench.output.text import list_some, short_repr
from commbench.plan.case import SKIPPED, UNSUPPORTED, Case
from commbench.plan.plan import Plan
from commbench.results.records import Check, LinkProbe, Numerics, RankInfo, StartUp, WrongElement
from commbench.units import format_count
from commbench.validation import brief

SCHEMA = 5
CHECKED_SINCE, QUICK_SINCE = 3, 4
"""The first schemas whose lines have checksums, and whose batches are those of the newest."""


def upgraded(line: dict[str, Any], version: int) -> dict[str, Any]:
    """A line of that schema in the form of the newest. Lines from schema 2 on have it: what 2 and 3
    have of each rank in a batch is added up as it is read, and ends before 5 have no `error`."""
    if version > 1:
        return line
    if line.get("kind") == "visit":
        return line | {"kind": "batch"}
    renamed = {"visits": "batches", "hops": "link_probes"}
    return {renamed.get(name, name): value for name, value in line.items()}


OK, WRONG, FAILED = "ok", "wrong", "failed"
STATUSES = (OK, SKIPPED, UNSUPPORTED, FAILED, WRONG)
"""Of a case, from the best to the worst."""
COMPLETE = "complete"
"""Status of a run whose cases are all finished."""
PRECISION = "precision"
"""Stop reason of a case whose median was known as precisely as the plan asks for."""
INCOMPLETE = "incomplete"
"""Status of an imported run whose file lacks something, or contradicts itself."""
UNFINISHED = "unfinished"
"""Status of a setting of a sweep of which rounds are missing."""
INTERRUPTED = "interrupted"
CUT_OFF = "cut off"
"""Stop reason of a case that was still being measured when its run ended."""


def contradiction(status: str, wrong: int | None) -> str:
    """Why a case cannot have this outcome; empty where it can."""
    if status not in STATUSES:
        return f"status {brief(status)} is unknown"
    return f"wrong is {wrong}, and the status {OK}" if wrong and status == OK else ""


@short_repr("label", "started", "launcher")
class RunHeader(NamedTuple):
    """What a run was requested to do, and where it ran."""

    plan: Plan
    label: str
    started: str
    """UTC, ISO 8601."""
    launcher: str
    environment: dict[str, Any] = {}  # noqa: RUF012 - never changed
    ranks: tuple[RankInfo, ...] = ()
    num_nodes: int = 1
    gpu_shared: bool = False
    """Whether ranks shared a GPU; then times do not measure performance."""
    schema: int = SCHEMA
    commbench: str = ""
    launch: int = 0
    """The launch of the run that this header begins, from 0; each has a header of its own."""
    resumed: bool = False
    """Whether it continues that launch, which was cut off, instead of beginning it."""
    overhead_s: float | None = None
    """Overhead of the timed loop per iteration, measured with a call that does nothing."""
    aligner_s: float | None = None
    """Median time of the slowest rank in the operation that aligns the ranks, timed as a call."""
    resolution_s: float | None = None
    """The resolution of the clock."""
    link_probes: tuple[LinkProbe, ...] = ()
    """The transfers from each host to the next; empty on one host."""
    start_up: StartUp | None = None
    """How long joining took; None where the program that called had joined the ranks before."""
    soaked_s: float = 0.0
    """Of a soak that is resumed, how many of its seconds had passed before."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the ranks, in order of their first rank; for another tool's file those that
        it names."""
        hosts = [rank.host for rank in self.ranks] or _texts(self.environment.get("hosts"))
        return tuple(dict.fromkeys(hosts))

    @property
    def devices(self) -> tuple[str, ...]:
        """The models of the devices, each once: of GPUs, or of the processor for ranks on the CPU;
        the device type where no model is known. Empty where the device is unknown, too."""
        models = [rank.device.partition(" ")[2] for rank in self.ranks]
        models += _texts(self.environment.get("devices"))
        if self.plan.device == "cpu":
            models.append(str(self.environment.get("processor") or ""))
        return tuple(filter(None, dict.fromkeys(models))) or tuple(filter(None, [self.plan.device]))

    @property
    def launched_nodes(self) -> int:
        """How many nodes the launcher had. Several may be on one host: `num_nodes` counts hosts."""
        firsts = 0 if is_in_process(self) else sum(not rank.local_rank for rank in self.ranks)
        return max(self.num_nodes, firsts)

    def describe_ranks(self) -> str:
        """Who measured: `2 gloo ranks on node1 (Xeon), bound to cores (cpu mode quiet)`."""
        words = format_count(self.plan.world_size, f"{self.plan.backend} rank".strip())
        if self.launched_nodes > self.num_nodes:
            words += f" of {self.launched_nodes} nodes"
        devices = list_some(self.devices, 3)
        mode = self.plan.cpu_mode if self.plan.device == "cpu" else ""
        mode = describe_cpu_mode(mode) if mode else ""
        on = list_some(self.hosts, 3) or "unknown hosts"
        options = "".join(f", {option}" for option in self.plan.nccl_options)
        words += f" on {on} ({devices})" if devices else f" on {on}"
        return f"{words}, {mode}{options}" if mode else f"{words}{options}"


IN_PROCESS = "in process"
"""The launcher of a run that a program measured on its own process group."""
IN_SWEEP = "commbench sweep"
"""The launcher of a run whose launches are the rounds of a sweep."""


def is_in_process(header: RunHeader) -> bool:
    """Whether `commbench.measure` made the run. It takes no option that concerns processes."""
    return header.launcher == IN_PROCESS


def is_imported(header: RunHeader) -> bool:
    """Whether another tool measured the run."""
    return "imported_from" in header.environment


def _texts(values: Any) -> list[str]:
    """The texts of a list in an environment; nothing where it is no list."""
    return [str(value) for value in values] if isinstance(values, list | tuple) else []


class Batch(NamedTuple):
    """A few iterations of a case in a row. A case is measured in several batches, with other cases
    in between, so that a drift of the machine shows as a difference between its batches."""

    samples_s: tuple[float, ...]
    """Seconds per call of each timed iteration: the slowest rank's."""
    calls: int = 1
    """Calls per iteration: 1 if isolated, several back to back if pipelined."""
    warmup: int = 0
    """Untimed calls before the timed ones."""
    rank_medians_s: tuple[float, ...] = ()
    """For each rank the median of its own times. This and the next field of ranks, and `last_in`,
    are of a batch that was just measured: what is recorded, is in Measurement.rank_times."""
    rank_behind_s: tuple[float, ...] = ()
    """For each rank the median of how far it was behind the first rank, when entering or leaving
    the call, whichever was more. Empty where clocks are not shared."""
    group_medians_s: tuple[float, ...] = ()
    """For each of several groups that called together, the median over iterations of its slowest
    rank's time, per call. The fields of ranks have those in a group, in ascending order."""
    group_samples_s: tuple[float, ...] = ()
    """For each of these groups, its slowest rank's time in each timed iteration, per call: one
    group after another. Empty where these would be more than MOST_GROUP_SAMPLES of
    worker.reduction."""
    last_in: tuple[int, ...] = ()
    """For each rank the number of iterations in which it was the last to enter."""
    entry_skew_s: float | None = None
    """Median over iterations of the latest minus the earliest entry; None where clocks are not
    shared."""
    operation_s: float | None = None
    """Median over iterations of the latest exit minus the latest entry, per call: the part of the
    time in which all ranks were in the call."""
    fastest_rank_s: float | None = None
    """Median over iterations of the fastest rank's time per call; None where clocks are shared."""
    enqueue_s: float | None = None
    """Median time that the slowest rank's host needed to queue an iteration on its device; None
    where the host runs the operation itself."""
    late_iterations: int | None = None
    """Iterations in which, on the worst rank, the device came to the start before the host had
    queued the whole iteration, so that the time may contain a time without work."""
    clock_mhz: int | None = None
    """The lowest SM clock of a rank's GPU, when the iterations of the batch had been queued. This
    and the next three are known where nvidia-ml-py is installed."""
    power_w: float | None = None
    """The most power that a rank's GPU took then."""
    temperature_c: int | None = None
    """The highest temperature of a rank's GPU then."""
    throttle_reasons: tuple[str, ...] = ()
    """Why a rank's GPU ran below its usual clock then; see host.gpus.THROTTLE_REASONS."""
    elapsed_s: float = 0.0
    """Duration of the whole loop, with the alignment of the ranks."""
    queued_s: float | None = None
    """Time for which a thread of the worst rank waited in that loop for a CPU that others had."""
    switches: int = 0
    """Involuntary context switches of the threads of the worst rank."""
    throttled_s: float | None = None
    """Time for which the worst rank's control group was throttled."""
    stolen_s: float | None = None
    """CPU time that the hypervisor took from the worst rank's host (steal time)."""
    launch: int = 0
    """The launch of the run that it belongs to, from 0."""
    communication_s: tuple[float, ...] = ()
    """Of an overlap: seconds from the beginning of each timed iteration to the end of its
    communication, of the slowest rank. Empty where the backend does not tell when that was."""
    computation_s: tuple[float, ...] = ()
    """Of an overlap: seconds that the computation of each timed iteration took, of the slowest
    rank."""
    host_round_trip_s: float | None = None
    """Median time of a message from rank 0 to another process of its host and back, just before the
    batch; None where it was not measured then, as the next one (worker.coordinator)."""
    host_copy_s: float | None = None
    """Median time of a copy of 4 MiB in the memory of that host."""
    work: str = ""
    """What an iteration computes: `12 x matmul 128x128x128 float32`."""
    group_bytes: int | None = None
    """Of calls on new process groups, the memory that a group needed on the rank where it needed
    most: of the process on a CPU, of the device on a GPU. None elsewhere, and where unknown."""
    rank_quantiles_s: tuple[float, ...] = ()
    """Least, quartiles and most of the ranks' medians of their own times."""
    cycle: int = 0
    """Of a soak: in which cycle, from 1; 0 elsewhere."""
    start_s: float | None = None
    """Of a soak: when it began, in seconds since the soak began; the time in which the soak was cut
    off does not count (RunHeader.soaked_s)."""

    def __repr__(self) -> str:
        return f"<Batch: launch {self.launch}, {len(self.samples_s)} samples>"


class RankTimes(NamedTuple):
    """What is recorded of each rank in the batches of a case, in one launch. In the order of ranks;
    empty where it is not known."""

    launch: int
    iterations: int
    """Of these batches."""
    medians_s: Sequence[float]
    """The lower quartile over the batches, weighted by iterations, of the median of its own times:
    what disturbs a batch makes it longer."""
    behind_s: Sequence[float]
    """The mean over iterations of the medians of how far it was behind the first rank."""
    last_in: Sequence[int]
    """The number of iterations in which it was the last to enter."""


class ReportedTiming(NamedTuple):
    """The times that another tool reported for a case without its samples; seconds."""

    time_s: float
    statistic: str
    """What `time_s` is, such as `mean over 20 iterations, mean over ranks`."""
    iterations: int = 0
    minimum_s: float | None = None
    mean_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    maximum_s: float | None = None


class Measurement(NamedTuple):
    """The outcome of one case."""

    case: Case
    status: str
    """`ok`, `wrong`, `unsupported`, `skipped` or `failed`."""
    reason: str = ""
    stop_reason: str = ""
    wrong: int | None = None
    """Number of wrong elements over all ranks; None where it was not checked."""
    first_wrong: WrongElement | None = None
    batches: tuple[Batch, ...] = ()
    reported: ReportedTiming | None = None
    rank_times: tuple[RankTimes, ...] = ()
    """One for each launch that has some."""
    numerics: tuple[Numerics, ...] = ()
    """What each launch found out about its numbers; empty where that was not asked for."""

    def __repr__(self) -> str:
        return f"<Measurement: {self.case.name}: {self.status}, {len(self.samples_s)} samples>"

    @property
    def outcome(self) -> str:
        """Why there is no time, where there is none: `skipped: no memory`."""
        return f"{self.status}: {self.reason or 'it has no samples'}"

    @property
    def elapsed_s(self) -> float:
        """How long its batches took; 0 where that is not known."""
        return sum(batch.elapsed_s for batch in self.batches)

    @property
    def samples_s(self) -> tuple[float, ...]:
        """Seconds per call of every timed iteration, in the order they were taken."""
        return tuple(chain.from_iterable(batch.samples_s for batch in self.batches))


def worse_outcome(earlier: Measurement | None, later: Measurement) -> Measurement:
    """The measurement with the worse status of a case's two launches, the later of equal ones; with
    the numerics of both."""
    if earlier is None:
        return later
    worse = max(later, earlier, key=lambda measurement: STATUSES.index(measurement.status))
    return worse._replace(numerics=earlier.numerics + later.numerics)


class RunEnd(NamedTuple):
    """How a run ended."""

    status: str
    """`complete`, `interrupted`, `failed`; `incomplete` for another tool's file, `unfinished` for
    rounds of a sweep."""
    reason: str = ""
    elapsed_s: float = 0.0
    """Time since the header; since the start of its ranks for a launch that failed."""
    risen: dict[str, dict[str, int]] = {}  # noqa: RUF012 - never changed
    """By host, the counters of faults (host.gpu_system) that rose; no host without any."""
    error: str = ""
    """The class of the error that ended it, of commbench.errors; empty for none, and in journals
    before schema 5."""


def add_risen(
    first: dict[str, dict[str, int]], second: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """The counters that rose in either of two launches."""
    hosts = {**first, **second}
    return {h: dict(Counter(first.get(h, {})) + Counter(second.get(h, {}))) for h in hosts}


class Run(NamedTuple):
    """One run, read from its journal."""

    path: str
    header: RunHeader
    measurements: tuple[Measurement, ...]
    end: RunEnd | None
    """None where the run is still going, or was cut off."""
    checked: bool = True
    """Whether all its lines have checksums; those of older schemas have none."""
    launches: int = 0
    """How many launches are complete: they have finished every case. Texts give this number."""
    checks: tuple[Check, ...] = ()
    """Those of a soak, in the order they were made."""
    restarts: tuple[tuple[float, str], ...] = ()
    """RunHeader.soaked_s and RunHeader.started of each time that it was resumed."""
    starts: tuple[str, ...] = ()
    """RunHeader.started of each launch; empty for a run that was not read from a journal."""

    @property
    def incomplete(self) -> str:
        """Why it does not hold all that was planned, in a few words; empty where it does."""
        if why := describe_end(self.end):
            return why
        planned = 0 if is_imported(self.header) else len(self.header.plan.cases())
        if (found := len(self.measurements)) < planned:
            return f"it has {found} of its {format_count(planned, 'case')}"
        if cut := sum(found.stop_reason == CUT_OFF for found in self.measurements):
            return f"{format_count(cut, 'case')} did not finish"
        lost = sum(m.status == OK and not (m.batches or m.reported) for m in self.measurements)
        return f"{format_count(lost, 'case')} of status {OK} without samples" if lost else ""

    @property
    def name(self) -> str:
        """The label, or the folder's name where there is none."""
        return self.header.label or self.path.rstrip("/").rsplit("/", 1)[-1]


def describe_end(end: RunEnd | None) -> str:
    """Why a run that ended so is incomplete, in a clause; empty for a complete one."""
    if end is None:
        return "it has not ended: it is still running, or was killed"
    how = {INTERRUPTED: "was interrupted", INCOMPLETE: "has faults", FAILED: FAILED}
    how[UNFINISHED] = "lacks rounds"
    ended = how.get(end.status, f"ended as {end.status}") + f": {end.reason}" * bool(end.reason)
    return "" if end.status == COMPLETE else f"it {ended}"


def tell_incomplete(run: Any, notify: Callable[[str], None]) -> None:
    """Give `notify` a line where a Run or LoadedRun does not hold all that was planned."""
    if run.incomplete:
        notify(f"{run.path} is incomplete: {run.incomplete}")
