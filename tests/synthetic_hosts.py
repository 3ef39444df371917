"""Hosts that do not exist, and what would be found on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from commbench.answers.doctor.checkup import DoctorOptions, DoctorReport, OtherLoad
from commbench.answers.doctor.cpu_modes import SIZES, SizeResult, Trial
from commbench.answers.doctor.measure import HostBandwidth, median_range
from commbench.host.facts import HostFacts

SOUND = HostFacts(
    host="example",
    cores=(0, 1, 2, 3),
    host_cores=8,
    processor="Some CPU",
    machine="x86_64",
    kernel="6.1.0",
    physical_cores=4,
    clock_source="tsc",
    clock_read_s=5e-8,
    governors=("performance",),
    frequency_driver="acpi-cpufreq",
    fifo_permitted=False,
    batch_permitted=True,
    tick_hz=250,
    load=(0.5, 0.25, 0.125),
    busy_share=0.01,
    stolen_share=0.0,
    waiting_share=0.0,
)
USUAL = {"plain": (100e-6, 104e-6, 108e-6) * 2, "quiet": (50e-6, 51e-6, 52e-6) * 2}
"""Six launches of each: as many as a verdict needs."""


def facts(**other: Any) -> HostFacts:
    return SOUND._replace(**other)


def bandwidth(**other: Any) -> HostBandwidth:
    usual = HostBandwidth(
        loopback_bytes_per_s=median_range([4e9, 5e9, 6e9]),
        round_trip_s=median_range([20e-6]),
        copy_one_bytes_per_s=median_range([10e9]),
        copy_all_bytes_per_s=median_range([30e9]),
        cores=4,
        undisturbed=False,
    )
    return usual._replace(**other)


def point(size: int, time_s: float, **other: Any) -> SizeResult:
    usual = SizeResult(
        size_bytes=size,
        iterations=100,
        time_s=time_s,
        busbw_bytes_per_s=size / time_s,
        stalled_share=0.0,
        queued_share=0.1,
        throttled_share=0.0,
        stolen_share=0.0,
    )
    return usual._replace(**other)


def trials(times: Mapping[str, Sequence[float]], **other: Any) -> tuple[Trial, ...]:
    """A launch for each mode and round; every size of it takes the same time."""
    return tuple(
        Trial(number, mode, tuple(point(size, time, **other) for size in SIZES), elapsed_s=1.0)
        for mode, found in times.items()
        for number, time in enumerate(found)
    )


def checkup(**other: Any) -> DoctorReport:
    usual = DoctorReport(
        request=DoctorOptions(ranks=2, rounds=6, seconds=90.0),
        facts=SOUND,
        bandwidth=bandwidth(),
        trials=trials(USUAL),
        meanwhile=OtherLoad(others_share=0.02, stolen_share=0.0),
    )
    return replace(usual, **other)
