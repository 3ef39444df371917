"""What is printed of a check, whole outputs compared."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from synthetic_hosts import USUAL, checkup, facts, trials

from commbench.doctor.host_facts import HostFacts
from commbench.doctor.json_output import doctor_json
from commbench.doctor.mode_trials import MODES, Trial
from commbench.doctor.modes_text import describe_modes
from commbench.doctor.text import doctor_text
from commbench.errors import Interrupted, UnavailableError
from commbench.host.gpu_system import GpuSystem, Hca
from commbench.host.gpus import Gpu

REFUSED = Trial(
    0, "realtime", trouble=UnavailableError("this user may not use SCHED_FIFO, which it needs")
)

WHOLE = """\
  host              example
  processor         Some CPU
  kernel            6.1.0 x86_64
  cores             4 of 8 may be used; 2 ranks fit
  CPU limit         2.5 processors; used up in 25 % of the periods so far
  frequency         governor performance; driver acpi-cpufreq
  clock             tsc (also offered: hpet); 50 ns to read from Python; steps of 20 ns seen
  scheduling        SCHED_FIFO is not permitted; SCHED_BATCH is permitted
  time slices       250 ticks a second
  load              0.50 0.25 0.12 over 1, 5, 15 minutes
  right now         time of the cores: 30 % used, 0 % stolen; cores used: make 1.0, cc 0.2
  queue             some task waited for a core in 0 % of the last 10 s
  GPU 0000:01:00.0  NVIDIA H200; 32.0 GT/s PCIe x16 of x16

  limits of this host                     median      least       most
  ────────────────────────────────────────────────────────────────────
  loopback TCP, one way                5.00 GB/s  4.00 GB/s  6.00 GB/s
  loopback TCP, a byte there and back    20.0 us    20.0 us    20.0 us
  memory copied by one core            10.0 GB/s  10.0 GB/s  10.0 GB/s
  memory copied by 4 cores together    30.0 GB/s  30.0 GB/s  30.0 GB/s
Other programs may have slowed these measurements down.
gloo's bus bandwidth reached 4.19 GB/s here (16 MiB, quiet): 84 % of the loopback.

                                           time over
  mode     size     time      of launches      plain    of rounds  stalled
  ────────────────────────────────────────────────────────────────────────
  plain   1 KiB  9.00 ms  8.00 … 10.00 ms                             12 %
  plain  64 KiB  9.00 ms  8.00 … 10.00 ms                             12 %
  plain   1 MiB  9.00 ms  8.00 … 10.00 ms                             12 %
  plain  16 MiB  9.00 ms  8.00 … 10.00 ms                             12 %
  quiet   1 KiB  4.00 ms   4.00 … 5.00 ms       0.50  0.44 … 0.50     12 %
  quiet  64 KiB  4.00 ms   4.00 … 5.00 ms       0.50  0.44 … 0.50     12 %
  quiet   1 MiB  4.00 ms   4.00 … 5.00 ms       0.50  0.44 … 0.50     12 %
  quiet  16 MiB  4.00 ms   4.00 … 5.00 ms       0.50  0.44 … 0.50     12 %
  batch   1 KiB  8.00 ms   7.00 … 9.00 ms       0.89  0.88 … 0.90     12 %
  batch  64 KiB  8.00 ms   7.00 … 9.00 ms       0.89  0.88 … 0.90     12 %
  batch   1 MiB  8.00 ms   7.00 … 9.00 ms       0.89  0.88 … 0.90     12 %
  batch  16 MiB  8.00 ms   7.00 … 9.00 ms       0.89  0.88 … 0.90     12 %
  realtime: not measured: this user may not use SCHED_FIFO, which it needs

plain leaves the scheduling of the ranks as it is. Up to 12 % of its iterations stall.
quiet: up to 1 MiB 2.0 times as fast as plain (2.0 … 2.2); at 16 MiB 2.0 times as fast as plain
  (2.0 … 2.2).
realtime is not available here: this user may not use SCHED_FIFO, which it needs.
batch: up to 1 MiB 0.89 times the time of plain (0.88 … 0.90), which may be noise; at 16 MiB 0.89
  times the time of plain (0.88 … 0.90), which may be noise.
Not tried, because the check ended before: pinned.
A mode counts as faster or slower than plain only if each of its launches is faster, or slower, than
  every launch of plain. With 3 launches of each, noise alone does that in 10 % of cases.
The time was up after 9 of 12 launches. --seconds 70 is probably enough for all.

Problems:
  busy_cores: Other programs use 30 % of the cores' time (in cores, at the first look: make 1.0, cc
    0.2). Stop them, or give the ranks cores of their own (taskset, a cpuset, an exclusive node). A
    rank that is bound to one core cannot move away from them.\
"""


def whole() -> Any:
    times = {"plain": (8e-3, 9e-3, 10e-3), "quiet": (4e-3, 4e-3, 5e-3), "batch": (7e-3, 8e-3, 9e-3)}
    return checkup(
        facts=facts(
            cpu_limit=2.5, throttled_share=0.25, busy_share=0.3,
            busiest=(("make", 1.0), ("cc", 0.2)),
        ),
        gpus=(Gpu("0000:01:00.0", "NVIDIA H200", None, 16, 16, "32.0 GT/s PCIe", None),),
        trials=(*trials(times, stalled_share=0.125), REFUSED),
    )  # fmt: skip


def test_everything_that_is_known_is_printed() -> None:
    assert doctor_text(whole()) == WHOLE


def test_gpus_their_links_and_adapters_have_lines_of_their_own() -> None:
    gpu = Gpu(
        "0000:1b:00.0", "NVIDIA H200", 0, 16, 16, "32.0 GT/s PCIe", 4, power_cap_w=700.0, ecc=True,
        mig=False, clock_mhz=345, most_clock_mhz=1980, nvlinks=18,
    )  # fmt: skip
    hca = Hca("mlx5_0:1", "0000:18:00.0", "400 Gb/sec (4X NDR)", "ACTIVE", "InfiniBand", 0)
    system = GpuSystem("570.86.15", ("0000:1b:00.0: X PIX",), (hca,), gpudirect=True)
    text = " ".join(doctor_text(checkup(gpus=(gpu,), gpu_system=system)).split())
    assert (
        "GPU 0000:1b:00.0 NVIDIA H200; NUMA node 0; 32.0 GT/s PCIe x16 of x16; 4 nearby cores may "
        "be used; 345 of 1980 MHz now; power cap 700 W; ECC on; MIG off; 18 NVLinks GPU driver "
        "570.86.15 GPU links 0000:1b:00.0: X PIX HCA mlx5_0:1 InfiniBand; 400 Gb/sec (4X NDR); "
        "active; 0000:18:00.0; NUMA node 0"
    ) in text


def test_a_sound_host_is_told_so() -> None:
    assert doctor_text(checkup()).endswith("\n\nNo problems found.")
    assert doctor_text(checkup(trials=())).endswith(
        "\n\nNo problems found, but no cpu mode was tried."
    )


def test_a_check_that_was_stopped_claims_nothing() -> None:
    stopped = whole()._replace(ended=Interrupted("stopped by SIGINT"), facts=facts())
    text = doctor_text(stopped)
    assert text.endswith(
        "\n\nNot tried, because the check ended before: pinned.\n\n"
        "The check was stopped before its end, so the cpu modes are not compared."
    )
    assert "  quiet  16 MiB " in text
    assert not re.search(r"times as (fast|slow)|times the time|No problems", text)
    slow_clock = doctor_text(stopped._replace(facts=facts(clock_source="hpet")))
    heading, problem = slow_clock.split("\n\n")[-1].split("\n", 1)
    assert heading == (
        "The check was stopped before its end, so the cpu modes are not compared. Problems found "
        "until then:"
    )
    assert problem.startswith("  clock_source: The clock source is hpet, which is not a counter")


def test_what_is_not_known_is_not_printed() -> None:
    nothing = {"facts": None, "ceilings": None, "trials": (), "meanwhile": None}
    assert doctor_text(checkup(**nothing)) == ""
    few = HostFacts(host="example", cores=(0, 1, 2, 3), host_cores=8)
    assert doctor_text(checkup(**nothing | {"facts": few})) == (
        "  host   example\n"
        "  cores  4 of 8 may be used; 4 ranks fit\n"
        "\n"
        "No problems found, but no cpu mode was tried."
    )


@pytest.mark.parametrize("times", [1e-7, 43.21e-6, 999e-6, 0.4321, 12.3])
@pytest.mark.parametrize("ratio", [0.001, 1.0, 789.0])
def test_nothing_is_wider_than_a_hundred_columns(times: float, ratio: float) -> None:
    rounds = (times, 2 * times, 3 * times)
    found = {mode: tuple(ratio * t for t in rounds) for mode in MODES[1:]} | {"plain": rounds}
    names = tuple((f"a-program-of-a-long-name-{n}", 12.5) for n in range(3))
    host = checkup(
        facts=facts(busiest=names, busy_share=1.0),
        trials=trials(found, stalled_share=1.0, queued_share=12.34),
    )
    assert max(map(len, doctor_text(host).splitlines())) <= 100


def test_simultaneous_threads_and_limits_of_clocks_are_told() -> None:
    host = facts(simultaneous_threads=True, physical_cores=2, virtual=True, slice_s=3e-3)
    said = doctor_text(checkup(facts=host)).splitlines()
    for line in (
        "  processor    Some CPU; virtual",
        "  cores        4 of 8 may be used; 2 ranks fit",
        "  threads      SMT is on: these are 2 physical cores",
        "  time slices  250 ticks a second; slices of at least 3.00 ms",
    ):
        assert line in said


def test_with_few_rounds_nothing_is_claimed() -> None:
    said = describe_modes(checkup(trials=trials({"plain": (1e-3,), "quiet": (5e-4,)})))
    assert said[1:4] == [
        "quiet: up to 1 MiB 0.50 times the time of plain, which may be noise; "
        "at 16 MiB 0.50 times the time of plain, which may be noise.",
        "Not tried, because the check ended before: realtime, batch, pinned.",
        "A mode counts as faster or slower than plain only if each of its launches is faster, or "
        "slower, than every launch of plain. That takes 3 launches of each mode; one has 1.",
    ]


def test_stalls_that_a_mode_ends_are_told() -> None:
    stalled = trials({"plain": (1e-3, 1e-3, 1e-3)}, stalled_share=0.4)
    said = describe_modes(checkup(trials=stalled + trials({"quiet": USUAL["quiet"]})))
    assert said[1].endswith("; 0 % of its iterations stall, in plain 40 %.")


def test_as_json_everything_is_plain_and_what_is_not_known_is_left_out() -> None:
    stopped = Interrupted("stopped by SIGINT", "")
    found = doctor_json(whole()._replace(ended=stopped))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == [
        "commbench", "request", "facts", "gpus", "ceilings", "trials", "meanwhile", "ended",
        "ranks_fit", "modes", "sentences", "findings",
    ]  # fmt: skip
    assert found["ended"] == "stopped by SIGINT"
    assert found["request"] == {"ranks": 2, "rounds": 3, "seconds": 60.0, "seed": 0}
    assert "clock_source" in found["facts"] and "cache_bytes" not in found["facts"]
    assert found["ceilings"]["loopback"] == {"median": 5e9, "low": 4e9, "high": 6e9, "number": 3}
    assert found["trials"][-1]["trouble"] == "this user may not use SCHED_FIFO, which it needs"
    assert [finding["name"] for finding in found["findings"]] == ["busy_cores"]
