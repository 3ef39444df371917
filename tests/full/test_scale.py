"""Ten thousand ranks: heartbeats of 1,250 hosts in a real TCPStore, and the journal of a run."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from peak import COMMAND, measure_process
from synthetic_pairs import pairs_batch, pairs_plan

from commbench.plan.case import Case
from commbench.plan.plan import Plan
from commbench.results.journal import Journal
from commbench.results.records import LinkProbe, RankInfo
from commbench.results.run_folder import JOURNAL
from commbench.results.samples import RankTimesSum
from commbench.results.schema import Batch, Measurement, RunEnd, RunHeader
from commbench.worker.entrypoint import RankContext
from commbench.worker.watchdog.hangs import diagnose
from commbench.worker.watchdog.heartbeats import (
    LOST,
    HostFolder,
    HostLeader,
    StoreRecords,
)
from commbench.worker.watchdog.rank_state import STATES, Delays, RankState
from commbench.worker.watchdog.shared_folder import connect_store

pytestmark = pytest.mark.full

HOSTS, PER_HOST, CASES = 1250, 8, 40
CONNECTIONS = 8
RANKS = HOSTS * PER_HOST
SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


class CountingStore:
    """A client of the store that notes the second of each operation."""

    def __init__(self, store: Any, seconds: Counter[int]) -> None:
        self._store, self._seconds = store, seconds

    def __getattr__(self, name: str) -> Any:
        self._seconds[int(time.monotonic())] += 1
        return getattr(self._store, name)


class DrivenLeader(HostLeader):
    """The leader of a host whose steps the test makes, all in one thread."""

    seconds: Counter[int]

    def _run(self) -> None:
        pass

    def use(self, store: Any) -> None:
        """Use a connection, which other hosts use too: all steps are made in one thread."""
        self._records = StoreRecords(CountingStore(store, self.seconds), self._folder.path.name)

    def step(self) -> None:
        asked, now = self._folder.asked, time.monotonic()
        self._asked = (self._asked or now) if asked else 0.0
        self._use_store(asked, now, is_last=False)


@pytest.fixture
def memory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm", prefix="scale-") as folder:
        yield Path(folder)


def test_a_lost_host_of_1250_is_named_with_fewer_than_200_operations_a_second(
    memory: Path,
) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    plan = Plan(
        operations=("all_reduce",), sizes=(1024,), backend="gloo", device="cpu", world_size=RANKS
    )  # fmt: skip
    seconds: Counter[int] = Counter()
    DrivenLeader.seconds = seconds
    leaders, states = [], []
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin and server.stdout
        address = f"tcp://127.0.0.1:{server.stdout.readline().strip()}"
        for host in range(HOSTS):
            folder = memory / f"host{host}"
            folder.mkdir()
            ranks = range(host * PER_HOST, (host + 1) * PER_HOST)
            states.append([RankState(pid=os.getpid(), rank=rank) for rank in ranks])
            context = RankContext(
                rank=ranks[0], world_size=RANKS, local_rank=0, local_world_size=PER_HOST,
                launcher="srun", init_method=address,
            )  # fmt: skip
            leader = DrivenLeader(
                HostFolder(folder), context, Delays(store_s=60.0),
                lambda *asked, context=context: diagnose(context, plan, None, *asked),
            )  # fmt: skip
            leaders.append(leader)
        beat_s = leaders[0]._beat_s
        port = int(address.rpartition(":")[2])
        stores = [connect_store(("127.0.0.1", port), 30.0) for _ in range(CONNECTIONS)]
        for host, leader in enumerate(leaders):
            leader.use(stores[host % CONNECTIONS])
        for host, leader in enumerate(leaders):
            leader._next_beat = time.monotonic() + 1 + host * beat_s / HOSTS
        seconds.clear()
        named_s = drive(leaders, states, beat_s)
        server.stdin.close()
    loss = seconds_of_loss[-1]
    steady = [seconds[second] for second in range(loss - 1 - int(beat_s), loss - 1)]
    print(f"{HOSTS} hosts: named after {named_s:.1f} s, {Delays().answer_s(HOSTS):.1f} s by the "
          f"formula; {sum(steady) / len(steady):.0f} operations a second, "
          f"{HOSTS / beat_s:.0f} by the formula; later at most "
          f"{max(n for second, n in seconds.items() if second >= loss)}")  # fmt: skip
    assert sum(steady) / len(steady) < 1.2 * HOSTS / beat_s


seconds_of_loss: list[int] = []


def drive(leaders: list[DrivenLeader], states: list[Any], beat_s: float) -> float:
    """Make steps of all leaders; after some heartbeats host 700 is lost. Returns the seconds until
    it is named."""
    began, looked, lost = time.monotonic() + beat_s, 0.0, 0.0
    while True:
        now = time.monotonic()
        is_look, looked = now - looked >= 1, now if now - looked >= 1 else looked
        for host, leader in enumerate(leaders):
            if lost and host == 700:
                continue
            if is_look:
                beats = [each._replace(heartbeats=int(now)) for each in states[host]]
                numbers = array("q", chain.from_iterable(beats))
                (leader._folder.path / STATES).write_bytes(numbers)
            if now >= leader._next_beat or leader._due or (lost and host == 3):
                leader.step()
        if not lost and now > began + 2 * beat_s:
            lost = time.monotonic()
            seconds_of_loss.append(int(lost) + 1)
            leaders[3]._folder.ask(LOST)
        if lost and (found := leaders[3]._folder.read()):
            assert found.message.startswith("ranks 5600-5607 on "), found.message
            assert found.silent == tuple(range(5600, 5608))
            return time.monotonic() - lost
        assert now < began + 2 * beat_s + 60
        time.sleep(0.005)


def start_journal(folder: Path, plan: Plan, chance: Random, **more: Any) -> Journal:
    """The journal of a run of 10,000 ranks, with its header."""
    infos = tuple(
        RankInfo(
            rank, f"node{rank // PER_HOST:05}", chance.randrange(1 << 22), "cpu",
            (rank % PER_HOST,), "quiet", rank % PER_HOST, "eth0", f"10.0.{rank // 2000}.1",
        )
        for rank in range(RANKS)
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    journal = Journal(folder)
    started = "2026-11-27T00:00:00+00:00"
    journal.add(RunHeader(plan, "many", started, "srun", ranks=infos, num_nodes=HOSTS, **more))
    return journal


def make_journal(folder: Path, launches: int = 3, batches: int = 4) -> Path:
    """The journal of a run of 40 cases."""
    chance = Random(1)
    sizes = tuple(1024 << number for number in range(CASES // 2))
    plan = Plan(operations=("all_reduce", "broadcast"), sizes=sizes, backend="gloo", device="cpu",
                world_size=RANKS, launches=launches)  # fmt: skip
    usual = [chance.lognormvariate(-9, 0.02) for _ in range(RANKS)]
    for launch in range(launches):
        journal = start_journal(folder, plan, chance, launch=launch)
        for case in plan.cases():
            added = RankTimesSum()
            for _ in range(batches):
                noise = chance.lognormvariate(0, 0.02)
                medians = tuple([noise * each for each in usual])
                last = [0] * RANKS
                last[chance.randrange(RANKS)] = 10
                batch = Batch(
                    tuple(max(medians) * chance.lognormvariate(0, 0.05) for _ in range(10)),
                    rank_medians_s=medians, rank_behind_s=medians[::-1], last_in=tuple(last),
                    entry_skew_s=1e-6, operation_s=1e-4, elapsed_s=0.01, launch=launch,
                )  # fmt: skip
                journal.batch(case, added.add(batch, 10))
            journal.add(
                Measurement(case, "ok", stop_reason="fixed", wrong=0,
                            rank_times=added.result(launch))
            )  # fmt: skip
        journal.end(RunEnd("complete"))
    return folder / JOURNAL


def make_measured(folder: Path, plan: Plan, make_batch: Callable[[Case, Random], Batch]) -> None:
    """A complete run with a batch of each case, and links of which 63 are slow."""
    chance = Random(2)
    links = tuple(
        LinkProbe(host * PER_HOST, (host + 1) % HOSTS * PER_HOST, 1 << 22,
                  chance.lognormvariate(-5, 0.05) * (2 if host % 20 == 3 else 1))
        for host in range(HOSTS)
    )  # fmt: skip
    journal = start_journal(folder, plan, chance, link_probes=links)
    for case in plan.cases():
        added = RankTimesSum()
        journal.batch(case, added.add(make_batch(case, chance), 10))
        journal.add(
            Measurement(case, "ok", stop_reason="fixed", wrong=0, rank_times=added.result(0))
        )
    journal.end(RunEnd("complete"))


def test_groups_and_pairs_of_ten_thousand_ranks_are_summarised(tmp_path: Path) -> None:
    grouped = Plan(operations=("all_reduce", "all_gather"), sizes=(1024, 1 << 16, 1 << 20),
                   backend="gloo", device="cpu", world_size=RANKS, mesh="dp=1250,tp=8")  # fmt: skip

    def group_batch(case: Case, chance: Random) -> Batch:
        number = len(grouped.groups_of(case))
        times = [1e-4 * chance.lognormvariate(0, 0.05) for _ in range(number)]
        times[77 % number] *= 2
        ranks = tuple(chance.lognormvariate(-9, 0.05) for _ in range(RANKS))
        samples = tuple(max(times) * chance.lognormvariate(0, 0.05) for _ in range(10))
        return Batch(samples, rank_medians_s=ranks, group_medians_s=tuple(times))

    rounds = tuple(f"round:{number}" for number in range(1, 9))
    paired = pairs_plan(world_size=RANKS, pairs=rounds)

    def speed(first: int, second: int) -> float:
        return 0.5 if 375 in (first // PER_HOST, second // PER_HOST) else 1.0

    make_measured(tmp_path / "grouped", grouped, group_batch)
    make_measured(
        tmp_path / "paired", paired, lambda case, own: pairs_batch(paired, case, 10, speed, own)
    )
    for name, told in (("grouped", "616-623"), ("paired", "host node00375")):
        mib, seconds = measure_process(COMMAND, "report", name, "-o", f"{name}.html", cwd=tmp_path)
        page = (tmp_path / f"{name}.html").read_text()
        print(f"{name}: report {seconds:.1f} s, {mib:.0f} MiB, {len(page) / 1e6:.2f} MB")
        assert told in page.replace("Host", "host")
        assert "how all are distributed" in page
        assert page.count("<tr") < 200
        # Each picture is drawn twice, for wide and for narrow screens.
        assert len(page) < 1.2e6


def test_a_journal_of_ten_thousand_ranks_is_small_and_read_fast(tmp_path: Path) -> None:
    data = make_journal(tmp_path / "run").read_bytes()
    each = len(gzip.compress(data)) / RANKS / CASES
    show_mib, show_s = measure_process(COMMAND, "show", "run", cwd=tmp_path)
    report = ("report", "run", "-o", "report.html")
    report_mib, report_s = measure_process(COMMAND, *report, cwd=tmp_path)
    size = (tmp_path / "report.html").stat().st_size
    print(f"{len(data) / 1e6:.1f} MB, {each:.1f} bytes per rank and case compressed; show "
          f"{show_s:.1f} s, {show_mib:.0f} MiB; report {report_s:.1f} s, {report_mib:.0f} MiB, "
          f"{size / 1e6:.2f} MB")  # fmt: skip
    assert each <= 64
    assert show_mib < 300 and size < 2e6
