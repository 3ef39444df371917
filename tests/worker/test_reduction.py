"""What rank 0 gets of the samples of all ranks, by hand and against the definition; every rank is a
thread with a gloo group of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from gloo_ranks import on_ranks

from commbench.host.cpu_counters import FIELDS, UNKNOWN
from commbench.host.nvml import GpuState
from commbench.results.schema import Batch
from commbench.worker.measure import LocalSamples
from commbench.worker.reduction import reduce_batch, slowest_durations_s

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


def test_who_enters_last_is_counted_by_iteration_and_of_two_at_once_the_first() -> None:
    mixed = reduced(local([9, 9, 9], [0, 10, 21]), local([9, 9, 9], [1, 11, 20]))
    assert mixed.last_in == (1, 2)
    together = reduced(local([9, 9], [5, 50]), local([9, 9], [5, 50]))
    assert together.last_in == (2, 0)


def test_without_a_common_clock_nothing_is_said_of_coming_and_going() -> None:
    batch = reduced(*THREE, base_ns=None)
    assert (batch.entry_skew_s, batch.operation_s) == (None, None)
    assert (batch.rank_behind_s, batch.last_in) == ((), ())
    assert (batch.samples_s, batch.rank_medians_s) == (us(50, 54, 60), us(50, 48, 40))
    # The fastest of each iteration: 40, 48, 37.
    assert batch.fastest_rank_s == pytest.approx(40 * US)
    assert (batch.enqueue_s, batch.late_iterations) == (None, None)


def test_of_a_device_the_slowest_host_and_the_most_late_iterations_are_kept() -> None:
    queued = [
        samples._replace(enqueue=torch.tensor(enqueue))
        for samples, enqueue in zip(THREE, ((9_000, 2), (20_000, 0), (15_000, 1)), strict=True)
    ]
    batch = reduced(*queued, base_ns=None)
    assert (batch.enqueue_s, batch.late_iterations) == (pytest.approx(20 * US), 2)


def test_of_the_ranks_devices_the_lowest_clock_and_every_reason_are_kept() -> None:
    states = (
        GpuState(1980, 650.5, 60, ("temperature",)), GpuState(1500, None, 71, ("power cap",)), None
    )  # fmt: skip
    measured = [s._replace(state=state) for s, state in zip(THREE, states, strict=True)]
    batch = reduced(*measured, base_ns=None)
    assert (batch.clock_mhz, batch.power_w, batch.temperature_c) == (1500, 650.5, 71)
    assert batch.throttle_reasons == ("power cap", "temperature")
    unknown = reduced(*THREE, base_ns=None)
    assert (unknown.clock_mhz, unknown.power_w, unknown.temperature_c) == (None, None, None)
    assert unknown.throttle_reasons == ()


def test_durations_of_a_pipelined_iteration_are_per_call_and_its_skew_is_not() -> None:
    batch = reduced(*THREE, calls=10)
    assert batch.calls == 10
    assert batch.samples_s == us(5, 5.4, 6)
    assert batch.rank_medians_s == us(5, 4.8, 4)
    assert batch.operation_s == pytest.approx(5.4 * US)
    assert batch.entry_skew_s == pytest.approx(4 * US)
    assert batch.rank_behind_s == us(1, 5, 9)


def test_one_rank_alone_waits_for_nobody() -> None:
    batch = reduced(local([50, 52], [0, 100]))
    assert batch == Batch(
        samples_s=us(50, 52), calls=1, warmup=0, rank_medians_s=us(51), rank_behind_s=(0.0,),
        last_in=(2,), entry_skew_s=0.0, operation_s=pytest.approx(51 * US), elapsed_s=0.0,
        queued_s=0.0, switches=0, throttled_s=0.0, stolen_s=0.0, launch=0,
    )  # fmt: skip


def test_of_the_counters_the_worst_is_kept_in_seconds() -> None:
    assert FIELDS == ("elapsed_s", "queued_s", "switches", "throttled_s", "stolen_s")
    batch = reduced(
        local([9], [0], (2_000_000_000, 1_000_000, 7, 0, 10_000_000)),
        local([9], [0], (1_000_000_000, 3_000_000, 2, 5_000, 0)),
    )
    assert (batch.elapsed_s, batch.queued_s, batch.switches) == (2.0, pytest.approx(3e-3), 7)
    assert (batch.throttled_s, batch.stolen_s) == (pytest.approx(5e-6), pytest.approx(0.01))


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
