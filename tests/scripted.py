"""A backend whose operations last exactly as long as a script says: ground truth for statistics.

Data really move, over an inner gloo group; each call is then held until its scripted end:

    barrier     all ranks agree on a start; rank r leaves it at start + entry_us(r, i)
    call i      ends on rank r at  max over ranks of leaving + duration(i) + extra_us(r, i)

Calls are numbered from 0 per case, which is an operation, dtype and size. The checked one comes
first, then those that warm up. Before the first call on a batch of a case, the barrier goes by the
case measured before. A call that no barrier precedes begins when it is made.
What the host did to a call, by taking a core away, stands in the truth that each rank leaves.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from commands import Ended, run_program

from commbench.results.journal_reader import read_run
from commbench.results.schema import Measurement

DELAY_US = 1000.0
SLOW_MESSAGE_US = 100_000.0
SHORT_BYTES = 1024
SLOW_FROM_CALL = 50
DRIFT_CALLS = 100
SPELL_CALLS = 25
DISTURBED_NS = 20_000
TOLERATED = 0.25
"""Share of calls that other load may disturb where the shape of a script or its floor counts."""
CALM = 0.05
"""The same where the median of noise does: so many slow calls shift that of 5 % by 0.3 %."""

MOST_DISTORTED = 0.5
"""Sum of the squared logarithms by which calls were longer than scripted, for which a hundred calls
of 1 and 1.5 ms still show two modes. A single call that lasts twice as long adds 0.48."""

Key = tuple[str, str, int]
"""Operation, dtype and size of a case."""

VARIABLE = "COMMBENCH_SCRIPTED"
"""Variable with what `program_text` was given, as JSON."""
TRUTH = "truth-{}-{}.jsonl"
"""The file that a rank leaves in its working folder, beside the run's: launch, rank."""


class Script(NamedTuple):
    """How long calls last, and what each rank adds."""

    shape: Callable[[Random, int], float] = lambda _random, _call: 1.0
    """Duration of a call over the median; the random numbers are the same on all ranks."""
    entry_us: Callable[[int, int], float] = lambda _rank, _call: 0.0
    """By how much a rank leaves the barrier before a call late."""
    extra_us: Callable[[int, int], float] = lambda _rank, _call: 0.0
    """By how much a rank ends a call later than the others."""
    spell: Callable[[Random], float] = lambda _random: 1.0
    """What durations are multiplied by for SPELL_CALLS calls of each case, as by a host whose speed
    switches."""
    message_us: Callable[[int, int], float] = lambda _sender, _receiver: 0.0
    """By how much a message of more than SHORT_BYTES is sent late from one rank to another."""
    background: float | None = None
    """The part of a call that goes on while its rank computes, 0 to 1; the rest is done in wait().
    None: a call has ended when it returns, and only then it moves data."""
    slows_communication: float = 1.0
    """What the duration of a call is multiplied by if its rank computes meanwhile."""
    slows_computation: float = 1.0
    """What the duration of a computation is multiplied by if a call is under way."""


def _lognormal(random: Random, _call: int) -> float:
    return random.lognormvariate(0.0, 0.05)


def _skewed(random: Random, _call: int) -> float:
    """Exponential above a floor of 0.86: median 1, standard deviation 0.2, skewness 2."""
    return 1 + 0.2 * (random.expovariate(1.0) - math.log(2))


def _drifting(random: Random, call: int) -> float:
    return (1 + 0.3 * min(1.0, call / DRIFT_CALLS)) * _lognormal(random, call)


SCRIPTS = {
    "constant": Script(), "noisy": Script(_lognormal), "wide": Script(_skewed),
    "switching": Script(_lognormal, spell=lambda random: random.choice((1.0, 1.3))),
    "bimodal": Script(lambda random, _call: random.choice((1.0, 1.5))),
    "late_rank": Script(entry_us=lambda rank, _call: DELAY_US * (rank == 1)),
    "drifting": Script(_drifting),
    "slow_after_50": Script(
        extra_us=lambda rank, call: DELAY_US * (rank == 1 and call >= SLOW_FROM_CALL)
    ),
    "slow_way": Script(message_us=lambda *pair: SLOW_MESSAGE_US * (pair == (3, 1))),
    "slow_rank": Script(message_us=lambda *pair: SLOW_MESSAGE_US * (2 in pair)),
    "hidden_0": Script(background=0.0),
    "hidden_50": Script(background=0.5), "hidden_100": Script(background=1.0),
    "slows": Script(background=1.0, slows_communication=1.3, slows_computation=1.2),
    "slower_10": Script(lambda random, call: 1.1 * _lognormal(random, call)),
}  # fmt: skip


class Call(NamedTuple):
    """A call as scripted and as the host let it be: on one rank, or on the slowest."""

    operation: str
    dtype: str
    size_bytes: int
    number: int
    aligned: bool
    """A barrier preceded it, as it does all that is timed and all that warms up."""
    scripted_ns: int
    """From entering to the end, by the script alone."""
    actual_ns: int
    """From entering to the end, as it came."""
    late_ns: int
    """By how much the data came after the scripted end."""

    @property
    def disturbed(self) -> bool:
        """The host took a core away, and the truth is `actual_ns`."""
        return self.actual_ns > self.scripted_ns + DISTURBED_NS


def program_text(script: str, seed: int = 0, median_us: float = 2000.0) -> str:
    """What the `program` fixture runs before commbench, so that `--backend scripted` is known.

    Durations of runs with different seeds are independent.
    """
    told = json.dumps({"script": script, "seed": seed, "median_us": median_us})
    return (
        "import os, sys\n"
        f"os.environ[{VARIABLE!r}] = {told!r}\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import scripted_backend\n"
        "scripted_backend.register()\n"
    )


def know_computation() -> None:
    """Make the scripted computation known to this process, which reads or measures runs with it."""
    from commbench.plan.computations import COMPUTATIONS, ComputationKind

    def make(*_: object) -> tuple[Callable[[], object], str]:
        from scripted_backend import ScriptedUnit

        return ScriptedUnit(), "1 ms"

    COMPUTATIONS["scripted"] = ComputationKind(
        "scripted", parse=str, defaults=lambda _: ("1ms",), bytes_of=lambda _: 0, make=make,
    )  # fmt: skip


def quietest_cpu_mode() -> str:
    """`realtime` where this user may have it: then other load on the host hardly disturbs."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return "quiet"
    os.sched_setscheduler(0, policy, priority)
    return "realtime"


def run_scripted(
    folder: Path, script: str, *arguments: str, seed: int = 0, median_us: float = 1000.0
) -> Ended:
    """A run in a folder by a script, which ends well."""
    return run_program(
        folder, program_text(script, seed, median_us), "--backend", "scripted", "--no-plots",
        "--cpu-mode", quietest_cpu_mode(), *arguments,
    ).good()  # fmt: skip


def timed_calls(ended: Ended) -> list[list[Call]]:
    """For each measured case the truth of each sample, both in the order of the journal.

    If pipelined, it is that of the first call of each iteration. Cases that differ only in their
    reduction, root or placement cannot be told apart.
    """
    folder = ended.folder.parent
    launches: list[dict[Key, Iterator[Call]]] = []
    while files := list(folder.glob(TRUTH.format(len(launches), "*"))):
        launches.append({key: iter(calls) for key, calls in _read(files).items()})
    measurements = [m for m in read_run(ended.folder).measurements if m.batches]
    assert len({_key(m) for m in measurements}) == len(measurements), "cases look the same"
    timed = [_timed(measurement, launches) for measurement in measurements]
    assert not any(next(calls, None) for cases in launches for calls in cases.values())
    return timed


def _timed(measurement: Measurement, launches: list[dict[Key, Iterator[Call]]]) -> list[Call]:
    timed: list[Call] = []
    for batch in measurement.batches:
        calls = launches[batch.launch][_key(measurement)]
        measured = list(islice(calls, batch.warmup + len(batch.samples_s)))
        timed += measured[batch.warmup :]
    assert len(timed) == len(measurement.samples_s)
    return timed


def _key(measurement: Measurement) -> Key:
    case = measurement.case
    return case.operation, case.dtype, case.size_bytes


def _read(files: list[Path]) -> dict[Key, list[Call]]:
    """The aligned calls of each case, each as the slowest rank had it. The checked one is none:
    that of the first case follows the barrier that commbench times by itself."""
    ranks = [[Call(*json.loads(line)) for line in path.read_text().splitlines()] for path in files]
    cases: dict[Key, list[Call]] = {}
    for together in zip(*ranks, strict=True):
        call = _slowest(together)
        if call.aligned and call.number:
            cases.setdefault(call[:3], []).append(call)
    return cases


def skip_if_disturbed(cases: list[list[Call]], tolerated: float = TOLERATED) -> None:
    """Skip the test where the host kept too many calls of a case from their scripted duration."""
    share = max(sum(call.disturbed for call in calls) / len(calls) for calls in cases)
    if share > tolerated:
        pytest.skip(f"other load on this host disturbed {share:.0%} of the calls")


def skip_if_stalled(cases: list[list[Call]]) -> None:
    """Skip the test where a few calls lasted so long that the script's shape no longer shows."""
    most = max(sum(math.log(c.actual_ns / c.scripted_ns) ** 2 for c in calls) for calls in cases)
    if most > MOST_DISTORTED:
        pytest.skip(f"other load on this host stalled calls (distortion {most:.2g})")


def _slowest(call_of_ranks: tuple[Call, ...]) -> Call:
    return call_of_ranks[0]._replace(
        scripted_ns=max(call.scripted_ns for call in call_of_ranks),
        actual_ns=max(call.actual_ns for call in call_of_ranks),
        late_ns=max(call.late_ns for call in call_of_ranks),
    )
