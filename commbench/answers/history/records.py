"""What a history holds: systems, runs, and the series of their cases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timezone
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.columns import DEFAULTS, KEY
from commbench.analysis.csv_file import make_csv
from commbench.analysis.diagnostics import has_waited
from commbench.analysis.environment import Recorded, fabric_of
from commbench.analysis.load import LoadedRun
from commbench.answers.compare.host import CLOCK, FIGURES
from commbench.errors import UsageError
from commbench.output.text import short_repr
from commbench.plan.case import Case
from commbench.plan.links import Fabric
from commbench.results.files import is_folder
from commbench.results.run_folder import made_at
from commbench.results.schema import CUT_OFF, OK, RunHeader
from commbench.stats import Estimate
from commbench.units import format_count, format_GBps, format_time

LINK = "slowest transfer between hosts"
"""What is measured of the network before a run on several hosts."""
WRITTEN: dict[str, Callable[[float], str]] = {
    **{figure.takes: format_time for figure in FIGURES},
    CLOCK: lambda s: f"{1 / s:.0f} MHz",
    LINK: lambda s: f"{format_GBps(1 / s)} GB/s",
}
"""The figures of hosts beside a run, and how they are written."""


class System(NamedTuple):
    """What measured: runs of one system have common series."""

    node: str
    """The name given to `history add`, or the hosts."""
    hardware: str
    fabric: str
    """What connects the ranks; empty where it is not known."""
    backend: str
    device: str
    ranks: int
    nodes: int
    gpu_shared: bool = False
    cpu_mode: str = ""
    """Empty where it is not known."""

    @property
    def where(self) -> str:
        """The node, and the CPU mode."""
        return ", ".join(filter(None, (self.node, self.cpu_mode)))

    @property
    def name(self) -> str:
        """The system in a few words: `node1, 2 gloo ranks (AMD EPYC; cpu mode quiet)`."""
        where = f" on {self.nodes} hosts" if self.nodes > 1 else ""
        mode = self.cpu_mode and f"cpu mode {self.cpu_mode}"
        shared = "GPU shared" * self.gpu_shared
        more = "; ".join(filter(None, (self.hardware, self.fabric, shared, mode)))
        return f"{self.node}, {self.ranks} {self.backend} ranks{where}" + f" ({more})" * bool(more)


@short_repr("id", "label", "placed", "system.name")
class HistoryRun(NamedTuple):
    """A run of the history, without its rows."""

    id: int
    """Rises in the order of adding."""
    system: System
    label: str
    path: str
    started: str
    """UTC, ISO 8601: when it was measured, by the clock of its host."""
    added: str
    placed: str
    """The time that its place in the order has."""
    link_bytes_per_s: float | None
    """Of the slowest transfer from one host to the next; None on one host."""
    environment_id: int
    """Runs with the same environment have the same."""
    host_s: tuple[tuple[str, float], ...] = ()
    """What the host did beside it, and how long it took: see answers.compare.host.FIGURES."""

    @property
    def beside(self) -> tuple[tuple[str, float], ...]:
        """The figures of its hosts with that of the link: the larger, the slower."""
        link = self.link_bytes_per_s
        return (*self.host_s, *([(LINK, 1 / link)] if link else []))

    @property
    def time(self) -> datetime:
        """`placed` as a time."""
        return datetime.fromisoformat(self.placed)


class Point(NamedTuple):
    """A run in a series."""

    run: HistoryRun
    time: Estimate
    """Seconds: the median time with its interval."""
    queued_share: float | None = None
    """The part of the time that its ranks waited for a core; None where it is not known."""

    @property
    def counts(self) -> bool:
        """Whether it may make a level or a step: its ranks did not wait for a core."""
        return not has_waited(self.queued_share)


class Series(NamedTuple):
    """The times of one case on one system, in order."""

    system: System
    case: Case
    points: tuple[Point, ...]


class Added(NamedTuple):
    """What became of a run that was to be added."""

    run: LoadedRun
    rows: int
    """How many of its rows are in the history."""
    outcome: str
    """ADDED, REPLACED, or KNOWN."""
    waited: int
    """How many of these do not count: see Point.counts."""

    def __repr__(self) -> str:
        return f"<Added: {self.run.name}, {self.outcome}, {format_count(self.rows, 'row')}>"


def find_system(run: LoadedRun, node: str = "") -> System:
    """The system that measured a run; UsageError where its file has no host and `node` is empty."""
    first, header = run.rows[0], run.header
    name = node or ",".join(sorted(header.hosts) if header else ())
    if not name:
        raise UsageError(f"{run.path} does not say on which host it was measured", "add --node")
    hardware = ", ".join(header.devices) if header else ""
    fabric = (fabric_of(header) if header else None) or Fabric()
    links = filter(None, (fabric.link and fabric.link.name, fabric.nics and fabric.nics.name))
    return System(
        name, hardware, " + ".join(links), first.backend, first.device, first.world_size or 0,
        first.num_nodes or 1, bool(first.gpu_shared), first.cpu_mode or "",
    )  # fmt: skip


def other_systems(runs: Iterable[HistoryRun], system: System) -> Iterator[str]:
    """Which other system has most of these runs, in a sentence; nothing where none has any."""
    others = Counter(run.system for run in runs if run.system != system)
    for other, number in others.most_common(1):
        yield (
            f"The history has {format_count(number, 'run')} of {other.name}: they are another "
            "series, with which this run is not compared."
        )


def is_valid(row: Any) -> bool:
    """Whether a row has a time that counts."""
    is_whole = row.status == OK and not row.wrong and row.stop_reason != CUT_OFF
    return is_whole and row.time_s is not None and row.time_s > 0


def case_text(case: Case) -> str:
    """A case as text; dimensions that have their default are left out, so that later versions,
    with more dimensions, have the same."""
    values = {name: getattr(case, name) for name in KEY}
    return json.dumps({n: v for n, v in values.items() if n not in DEFAULTS or v != DEFAULTS[n]})


def case_of(text: str) -> Case:
    """The case that case_text wrote."""
    return Case(index=0, count=0, **json.loads(text))


def system_of(text: str) -> System:
    """The system that was written as its values."""
    return System(*json.loads(text))


def recorded_from(text: str) -> Recorded:
    """What was recorded of an environment, likewise."""
    return Recorded(*json.loads(text))


def slowest_link(header: RunHeader | None) -> float | None:
    """The rate of the slowest of the largest transfers from one host to the next, bytes/s."""
    probes = header.link_probes if header else ()
    largest = max((probe.size_bytes for probe in probes), default=0)
    rates = [p.size_bytes / p.seconds for p in probes if p.size_bytes == largest and p.seconds > 0]
    return min(rates, default=None)


def started_at(run: LoadedRun, added: datetime) -> datetime:
    """When a run was measured: by its header, else when its folder or file was made."""
    try:
        text = run.header.started if run.header else ""
        if not text and is_folder(run.path):
            text = made_at(run.path)
        if text:
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
        return datetime.fromtimestamp(run.path.stat().st_mtime, timezone.utc)
    except (ValueError, OSError):
        return added


def utc_text(time: datetime) -> str:
    """UTC, so that texts have the order of the times."""
    return time.astimezone(timezone.utc).isoformat(timespec="seconds")


_LONGER = {"%H:%M": "%H:%M:%S", "%Y-%m-%d": "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M": "%Y-%m-%d %H:%M:%S"}
"""The format of times that tells apart what another one does not."""


def short_form(times: Collection[datetime], form: str) -> str:
    """The format, or the shortest of the longer ones that writes no two times alike."""
    while form in _LONGER and len({f"{time:{form}}" for time in times}) < len({*times}):
        form = _LONGER[form]
    return form


def digest(value: Any) -> str:
    """A text that identifies a value which JSON can hold."""
    return sha256(json.dumps(value).encode()).hexdigest()


def points_csv(series: Iterable[Series]) -> str:
    """All points of series as CSV, in SI units: a line for each run of each series."""
    rows = (
        (*each.system, run.id, run.label, run.started, run.placed, *attrgetter(*KEY)(each.case),
         *time, queued)
        for each in series
        for run, time, queued in each.points
    )  # fmt: skip
    of_run = ("run", "label", "started", "placed")
    times = ("time_s", "time_ci_low_s", "time_ci_high_s")
    return make_csv([(*System._fields, *of_run, *KEY, *times, "queued_share"), *rows])
