"""Each finding on a made-up host that has it, and none on one that is sound."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from synthetic_hosts import USUAL, ceilings, checkup, facts, trials

from commbench.doctor.findings import FINDINGS, make_findings
from commbench.doctor.host_bandwidth import median_range
from commbench.doctor.report import DoctorOptions, OtherLoad
from commbench.errors import Interrupted
from commbench.host.gpu_system import GpuSystem, Hca
from commbench.host.gpus import Gpu

GPU = Gpu("0000:01:00.0", "NVIDIA", 0, 16, 16, "32.0 GT/s PCIe", 4)
AROUND = GpuSystem(
    hcas=(Hca("mlx5_0:1", "0000:02:00.0", "400 Gb/sec (4X NDR)", "ACTIVE", "InfiniBand", 0),),
    gpudirect=True, redirecting_bridges=0, shm_bytes=16 << 30,
)  # fmt: skip
LOUD = {"plain": (100e-6, 104e-6, 108e-6), "quiet": (800e-6, 810e-6, 820e-6)}
NO_GAIN = {"plain": (100e-6, 104e-6, 108e-6), "quiet": (101e-6, 103e-6, 109e-6)}


def asking(ranks: int) -> DoctorOptions:
    return DoctorOptions(ranks=ranks, rounds=3, seconds=60.0)


HOSTS: dict[str, list[dict[str, Any]]] = {
    "busy_cores": [
        {"facts": facts(busy_share=0.5)},
        {"meanwhile": OtherLoad(others_share=0.3, stolen_share=0.0)},
    ],
    "stolen": [
        {"facts": facts(stolen_share=0.2)},
        {"meanwhile": OtherLoad(others_share=0.0, stolen_share=0.1)},
    ],
    "throttled": [{"trials": trials(USUAL, throttled_share=0.2)}],
    "cpu_limit": [{"facts": facts(cpu_limit=1.5)}],
    "few_cores": [
        {"request": asking(5)},
        {"facts": facts(physical_cores=1)},
        {"facts": facts(physical_cores=None, cores=(3,))},
    ],
    "quiet_slower": [{"trials": trials(LOUD)}],
    "quiet_stalls": [{"trials": trials(NO_GAIN, stalled_share=0.2)}],
    "better_mode": [{"trials": trials(USUAL | {"realtime": (10e-6, 11e-6, 12e-6)})}],
    "unsteady": [{"trials": trials(USUAL | {"quiet": (20e-6, 30e-6, 40e-6)})}],
    "clock_source": [{"facts": facts(clock_source="hpet")}],
    "slow_clock": [{"facts": facts(clock_read_s=2e-6)}],
    "slow_governor": [
        {"facts": facts(governors=("performance", "powersave"))},
        {"facts": facts(governors=("conservative",), frequency_driver=None)},
    ],
    "slow_loopback": [
        {"ceilings": ceilings(loopback_bytes_per_s=median_range([1e9]))},
        {"ceilings": ceilings(loopback_bytes_per_s=median_range([1e9]), undisturbed=True)},
    ],
    "narrow_gpu": [{"gpus": (GPU, GPU._replace(link_width=8))}],
    "far_gpu": [{"gpus": (GPU._replace(near_cores=0),)}],
}
HOSTS |= {
    "gpu_persistence": [{"gpus": (GPU._replace(persistence=False),)}],
    "gpu_throttled": [{"gpus": (GPU, GPU._replace(throttle_reasons=("power cap",)))}],
    "low_power_cap": [{"gpus": (GPU._replace(power_cap_w=500.0, default_power_cap_w=700.0),)}],
    "gpu_ecc_errors": [{"gpus": (GPU._replace(ecc_errors=2),)}],
    "nvlink_down": [{"gpus": (GPU._replace(nvlinks=18), GPU._replace(nvlinks=17))}],
    "no_p2p": [{"gpus": (GPU._replace(unreachable=("0000:02:00.0",)), GPU)}],
    "no_gpudirect": [{"gpus": (GPU,), "gpu_system": AROUND._replace(gpudirect=False)}],
    "acs": [{"gpus": (GPU,), "gpu_system": AROUND._replace(redirecting_bridges=4)}],
    "small_shm": [{"gpus": (GPU,), "gpu_system": AROUND._replace(shm_bytes=64 << 20)}],
    "memlock": [{"gpus": (GPU,), "gpu_system": AROUND._replace(memlock_bytes=64 << 10)}],
}
CASES = [(name, host) for name, hosts in HOSTS.items() for host in hosts]


@pytest.mark.parametrize(("name", "host"), CASES)
def test_a_host_that_has_it_is_told_of_it_and_of_nothing_else(
    name: str, host: dict[str, Any]
) -> None:
    found = make_findings(checkup(**host))
    assert [finding.name for finding in found] == [name]
    said = f"{found[0].message}. {found[0].advice}."
    assert "{" not in said and "None" not in said and "()" not in said


def test_every_finding_has_a_host() -> None:
    assert [finding.name for finding in FINDINGS] == list(HOSTS)


@pytest.mark.parametrize(
    "host",
    [
        {},
        {"gpus": (GPU, GPU._replace(link_width=None, most_width=None, near_cores=None))},
        {"gpus": (GPU,), "gpu_system": AROUND},
        {"gpus": (GPU,), "gpu_system": GpuSystem(gpudirect=False, memlock_bytes=1 << 16)},
        {"gpus": (GPU._replace(power_cap_w=700.0, default_power_cap_w=700.0, persistence=True),)},
        {"facts": facts(governors=("powersave",), frequency_driver="intel_pstate")},
        {"facts": facts(clock_source=None, clock_read_s=None, busy_share=None, stolen_share=None)},
        {"facts": facts(cpu_limit=2.0)},
        {"ceilings": None, "trials": (), "meanwhile": None},
        {"facts": None, "ceilings": None, "trials": (), "meanwhile": None},
        {"trials": trials({"quiet": (50e-6, 51e-6, 52e-6)})},
        {"trials": trials(NO_GAIN)},
        {"trials": trials(USUAL | {"realtime": (10e-6, 11e-6, 53e-6)})},
        {"trials": trials({"plain": (100e-6, 104e-6), "quiet": (800e-6, 810e-6)})},
    ],
)
def test_a_sound_or_unknown_host_has_no_problems(host: dict[str, Any]) -> None:
    assert make_findings(checkup(**host)) == ()


def test_a_loopback_that_other_work_may_have_slowed_down_is_not_judged() -> None:
    host = {
        "facts": facts(busy_share=0.5),
        "ceilings": ceilings(loopback_bytes_per_s=median_range([1e9])),
    }
    assert [finding.name for finding in make_findings(checkup(**host))] == ["busy_cores"]


def test_a_check_that_was_stopped_concludes_nothing_from_its_trials() -> None:
    stopped = Interrupted("stopped by SIGINT")
    busy = {"trials": trials(LOUD), "meanwhile": OtherLoad(others_share=0.3, stolen_share=0.2)}
    assert make_findings(checkup(**busy))
    assert make_findings(checkup(**busy, ended=stopped)) == ()
    slow = make_findings(checkup(**busy, facts=facts(clock_source="hpet"), ended=stopped))
    assert [finding.name for finding in slow] == ["clock_source"]


def test_a_finding_says_its_figure_and_what_it_is_about() -> None:
    (found,) = make_findings(checkup(facts=facts(busy_share=0.5, busiest=(("make", 1.5),))))
    assert "50 %" in found.message and "make 1.5" in found.message
    (found,) = make_findings(checkup(trials=trials(USUAL | {"batch": (10e-6, 11e-6, 12e-6)})))
    assert "4.6 times" in found.message and "--cpu-mode batch" in found.advice


def test_every_finding_is_explained() -> None:
    page = Path(__file__).parents[2] / "docs" / "doctor.md"
    names = [finding.name for finding in FINDINGS]
    assert re.findall(r"^\| `(\w+)` +\|.*\| +[\d.]+ ?[%u]?s? *\|$", page.read_text(), re.M) == names
