"""What ranks agree on, share and learn of each other, and what rank 0 gets of the samples of all
ranks, by hand and against the definition; every rank is a thread with a gloo group of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from gloo_ranks import on_ranks
from synthetic_rows import plan

from commbench.analysis.environment import environment_facts
from commbench.errors import UnavailableError, UsageError
from commbench.host.cpu import FIELDS, UNKNOWN
from commbench.host.gpus import GpuState
from commbench.plan.cases import MOST_CASES
from commbench.plan.operations import SINGLE_CALLS
from commbench.plan.plan import Plan
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.schema import Batch
from commbench.worker import introduction
from commbench.worker.communicator import Communicator
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.introduction import describe_differences
from commbench.worker.measure import LocalSamples
from commbench.worker.rank import make_header
from commbench.worker.reduction import reduce_batch, slowest_durations_s


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 13])
def test_ranks_gather_share_and_agree_on_what_each_has(ranks: int) -> None:
    table, large = torch.randint(-(10**18), 10**18, (ranks, 100)), {"numbers": [*range(100_000)]}

    def talk(comm: Communicator) -> tuple[Any, ...]:
        flags = [True, comm.rank == ranks - 1, comm.rank * 2 >= ranks, False]
        return (
            comm.gather(torch.tensor([comm.rank, -comm.rank])).tolist(),
            comm.gather_values({"rank": comm.rank} if comm.rank % 3 else None),
            comm.all_gather(table[comm.rank]).tolist(),
            comm.first_alike([comm.rank % 3, [comm.rank], "same"]).tolist(),
            comm.all_reduce_max(table[comm.rank]).tolist(), comm.first_rank(flags),
            comm.share_value({"from": comm.rank}, ranks - 1),
            comm.share_value(None if comm.rank else large),
        )  # fmt: skip

    gathered, known, *found = zip(*on_ranks(ranks, talk), strict=True)
    assert gathered == ([[rank, -rank] for rank in range(ranks)], *([[]] * (ranks - 1)))
    assert known == ([{"rank": rank} for rank in range(ranks) if rank % 3], *([[]] * (ranks - 1)))
    first_flags = [0, ranks - 1, (ranks + 1) // 2 if ranks > 1 else None, None]
    alike = [[rank % 3 for rank in range(ranks)], [*range(ranks)], [0] * ranks]
    reduced = table.amax(dim=0).tolist(), first_flags, {"from": ranks - 1}, large
    wanted = table.tolist(), alike, *reduced
    assert found == [(value,) * ranks for value in wanted]


def test_an_error_on_rank_0_is_raised_on_every_rank() -> None:
    def ask(comm: Communicator) -> tuple[str, str]:
        def refuse() -> None:
            raise UnavailableError(f"no: {comm.rank}", "change it")

        with pytest.raises(UnavailableError) as caught:
            comm.on_rank_0(refuse)
        return caught.value.message, caught.value.hint

    assert on_ranks(3, ask) == [("no: 0", "change it")] * 3


@pytest.mark.parametrize(
    ("other", "told"),
    [({"sizes": (2048,)}, ["--sizes 2K instead of --sizes 1K"]),
     ({"iterations": 5}, ["--iters 5 instead of no --iters"]),
     ({"check": False}, ["--no-check instead of --check"]),
     ({"cpu_mode": "plain"}, ["--cpu-mode plain instead of --cpu-mode quiet"]),
     ({"operations": ("barrier", "reduce")}, ["--op barrier,reduce instead of --op all_reduce"]),
     ({}, [])],
)  # fmt: skip
def test_options_that_differ_are_told_with_both(other: dict[str, Any], told: list[str]) -> None:
    assert describe_differences(plan().as_json(), plan(**other).as_json()) == told


def refusal(comm: Communicator, own: Plan, folder: Path, journal: str = "new") -> str:
    """What a rank is told that introduces itself with this plan."""
    task = LaunchTask(plan=own, label="", folder=folder, folder_exists=False, journal=journal)
    context = RankContext(
        rank=comm.rank, world_size=comm.ranks, local_rank=comm.rank, local_world_size=comm.ranks,
        launcher="local", init_method="env://",
    )  # fmt: skip
    with pytest.raises((UsageError, UnavailableError)) as caught:
        introduction.introduce(task, context, comm)
    return caught.value.message


def test_the_largest_plans_are_exchanged_and_their_difference_is_short(tmp_path: Path) -> None:
    largest = plan(
        operations=tuple(SINGLE_CALLS), sizes=tuple(range(1, MOST_CASES // 4 // len(SINGLE_CALLS))),
        backend="ü" * 5000,
    )  # fmt: skip
    first, second = on_ranks(
        2, lambda comm: refusal(comm, largest if comm.rank else plan(), tmp_path)
    )
    assert first == second
    assert first.startswith("rank 1 on ")
    assert " has a different plan: " in first
    assert "--backend" in first
    assert len(first) < 2000


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({3: {"sizes": (2048,)}, 2: {"seed": 7}},
         "rank 2 on .* has a different plan: --seed 7 instead of --seed 0"),
        ({4: {"seed": 7}, 3: {"journal": "old"}, 1: {"journal": "older"}},
         "rank 4 on .* has a different plan: --seed 7 instead of --seed 0"),
        ({3: {"journal": "old"}, 1: {"journal": "older"}},
         r"rank 1 on .* has a different journal \(older\) from rank 0 \(new\)"),
    ],
)  # fmt: skip
def test_the_first_rank_that_differs_is_named_on_every_rank(
    others: dict[int, dict[str, Any]], said: str, tmp_path: Path
) -> None:
    def message(comm: Communicator) -> str:
        own = dict(others.get(comm.rank, {}))
        journal = own.pop("journal", "new")
        return refusal(comm, plan(world_size=5, **own), tmp_path / "run", journal)

    (told,) = set(on_ranks(5, message))
    assert re.fullmatch(said, told)
    assert not (tmp_path / "run").exists()


H200 = {"gpus": [{"name": "NVIDIA H200", "address": "0000:1b:00.0", "power_cap_w": 700.0}]}
H100 = {"gpus": [{"name": "NVIDIA H100", "address": "0000:1b:00.0", "power_cap_w": 700.0}]}
FOUND = (H200, H200, H100, {}, H100)
"""On each of five hosts, with a rank each."""


def test_hosts_with_other_gpus_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = threading.local()
    monkeypatch.setattr(introduction.socket, "gethostname", lambda: f"node{here.rank}")
    monkeypatch.setattr(introduction, "gpu_facts", lambda: FOUND[here.rank])
    task = LaunchTask(plan=plan(world_size=5), label="", folder=tmp_path)

    def introduce(comm: Communicator) -> Any:
        here.rank = comm.rank
        context = RankContext(
            rank=comm.rank, world_size=5, local_rank=0, local_world_size=1, launcher="torchrun",
            init_method="env://",
        )  # fmt: skip
        return introduction.introduce(task, context, comm), comm

    (first, comm), *others = on_ranks(5, introduce)
    known = {"node2": {"gpus": "NVIDIA H100, power cap 700 W"}, "node3": {}}
    assert first.differences == {"other_gpus": known}
    assert all(other.first_ranks == first.first_ranks for other, _ in others)
    header = make_header(task, "torchrun", comm, first, dict(H200))
    assert header.num_nodes == 5
    journal = Journal(tmp_path)
    journal.add(header)
    journal.close()
    read = read_run(tmp_path).header
    assert read.environment["other_gpus"] == known
    texts = environment_facts(read)
    assert texts["gpus"] == "NVIDIA H200, power cap 700 W"
    assert texts["gpus of node2"] == "NVIDIA H100, power cap 700 W"


CALM = (0,) * len(FIELDS)
US = 1e-6


def local(
    durations_us: list[float], starts_us: list[float], counters: tuple[int, ...] = CALM
) -> LocalSamples:
    """What one rank measured; its counters in ns."""
    ns = [[round(1000 * value) for value in row] for row in (durations_us, starts_us)]
    return LocalSamples(*map(torch.tensor, (*ns, counters)))


def reduced(*samples: LocalSamples, calls: int = 1, base_ns: int | None = 0) -> Batch:
    """What rank 0 gets of these samples of real gloo ranks."""
    return on_ranks(len(samples), lambda c: reduce_batch(samples[c.rank], c, calls, base_ns))[0]


def us(*values: float) -> Any:
    return pytest.approx(tuple(value * US for value in values), abs=1e-10)


# Three iterations of three ranks, on one clock; a rank's end is its start plus its duration:
#                 enters            leaves             the latest to enter, and to leave
#   rank 0     0   100   200     50   150   260
#   rank 1     5   101   200     52   149   250        20 later: rank 2     60
#   rank 2    20   104   203     60   158   240         4: rank 2          158
#                                                       3: rank 2          260
THREE = (
    local([50, 50, 60], [0, 100, 200]),
    local([47, 48, 50], [5, 101, 200]),
    local([40, 54, 37], [20, 104, 203]),
)


def test_what_rank_0_gets_of_three_ranks() -> None:
    found = reduced(*THREE)
    assert found.samples_s == us(50, 54, 60), "each is the slowest rank's"
    slowest = on_ranks(3, lambda comm: slowest_durations_s(THREE[comm.rank].durations, comm))
    assert slowest[0] == us(50, 54, 60)
    assert found.rank_medians_s == us(50, 48, 40)
    assert found.entry_skew_s == pytest.approx(4 * US), "of 20, 4 and 3 us"
    # It begins when the last has entered and ends when the last has left: 60 - 20, 158 - 104,
    # 260 - 203.
    assert found.operation_s == pytest.approx(54 * US)
    # Entering: 0 0 0, 5 1 0, 20 4 3; leaving: 0 1 20, 2 0 10, 10 9 0; the larger of each pair:
    # 0 1 20, 5 1 10, 20 9 3.
    assert found.rank_behind_s == us(1, 5, 9)
    assert found.last_in == (0, 0, 3)


def test_of_devices_the_slowest_host_the_lowest_clock_and_every_reason_are_kept() -> None:
    queued = ((9_000, 2), (20_000, 0), (15_000, 1))
    hot = GpuState(1980, 650.5, 60, ("temperature",))
    capped = GpuState(1500, None, 71, ("power cap",))
    batch = reduced(
        *(samples._replace(enqueue=torch.tensor(enqueue), state=state)
          for samples, enqueue, state in zip(THREE, queued, (hot, capped, None), strict=True)),
        base_ns=None,
    )  # fmt: skip
    assert (batch.enqueue_s, batch.late_iterations) == (pytest.approx(20 * US), 2)
    assert (batch.clock_mhz, batch.power_w, batch.temperature_c) == (1500, 650.5, 71)
    assert batch.throttle_reasons == ("power cap", "temperature")
    unknown = reduced(*THREE, base_ns=None)
    assert (unknown.clock_mhz, unknown.power_w, unknown.temperature_c) == (None, None, None)
    assert unknown.throttle_reasons == ()


def test_what_no_rank_could_read_is_unknown_and_what_some_could_is_theirs() -> None:
    blind = (1_000, UNKNOWN, 3, UNKNOWN, UNKNOWN)
    batch = reduced(local([9], [0], blind), local([9], [0], blind))
    assert (batch.queued_s, batch.throttled_s, batch.stolen_s) == (None, None, None)
    assert batch.switches == 3
    seeing = (1_000, 0, 3, 0, 4_000)
    batch = reduced(local([9], [0], blind), local([9], [0], seeing))
    assert (batch.queued_s, batch.throttled_s, batch.stolen_s) == (0.0, 0.0, pytest.approx(4e-6))


def gathered_formula(samples: Sequence[LocalSamples], calls: int, on_one_clock: bool) -> Batch:
    """The same figures by their definition, from all samples of all ranks in one place."""
    durations, starts = (torch.stack([found[part] for found in samples]) for part in (0, 1))
    ends = starts + durations
    late, slow = starts - starts.amin(dim=0), ends - ends.amin(dim=0)

    def seconds(values: torch.Tensor, calls: int = 1) -> tuple[float, ...]:
        return tuple(round(ns / calls * 1e-9, 10) for ns in values.double().tolist())

    def medians(rows: torch.Tensor) -> torch.Tensor:
        return rows.double().quantile(0.5, dim=1)

    together = (ends.amax(dim=0) - starts.amax(dim=0)).unsqueeze(0)
    last = torch.bincount(starts.argmax(dim=0), minlength=len(samples))
    skew: dict[str, Any] = {
        "rank_behind_s": seconds(medians(torch.maximum(late, slow))),
        "last_in": tuple(last.tolist()),
        "entry_skew_s": seconds(medians(late.amax(dim=0, keepdim=True)))[0],
        "operation_s": seconds(medians(together), calls)[0],
    }
    fastest = seconds(medians(durations.amin(dim=0, keepdim=True)), calls)[0]
    counters = torch.stack([found.counters for found in samples]).amax(dim=0).tolist()
    return Batch(
        samples_s=seconds(durations.amax(dim=0), calls),
        calls=calls,
        rank_medians_s=seconds(medians(durations), calls),
        **{
            name: value if name == "switches" else None if value == UNKNOWN else value * 1e-9
            for name, value in zip(FIELDS, counters, strict=True)
        },
        **(skew if on_one_clock else {"fastest_rank_s": fastest}),
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("iterations", [1, 2, 7, 300])
def test_reducing_gives_what_gathering_all_samples_gives(ranks: int, iterations: int) -> None:
    chance = torch.Generator().manual_seed(1000 * ranks + iterations)

    def draw(largest: int, number: int = iterations) -> torch.Tensor:
        return torch.randint(0, largest, (number,), generator=chance)

    # A clock since the boot of a host that has been up for 300 days; few values, so that ranks
    # enter at once, and many.
    boot_ns = 300 * 86_400 * 10**9
    for largest in (3, 10**9, 10**13):
        starts = boot_ns + 10**6 + torch.arange(iterations) * largest
        samples = [
            LocalSamples(draw(largest), starts + draw(largest), draw(10**10, len(FIELDS)) - 1)
            for _ in range(ranks)
        ]
        for calls, base_ns in ((1, boot_ns), (20, boot_ns), (3, None)):
            expected = gathered_formula(samples, calls, base_ns is not None)
            assert reduced(*samples, calls=calls, base_ns=base_ns) == expected
