"""Counters of faults: of folders that look like a host's /sys, and of a stand-in for NVML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml
from synthetic_files import put

from commbench.host.fault_counters import (
    COUNTERS,
    MOST_RISEN,
    PORT,
    FaultWatch,
    explain_counter,
    read_port_counters,
)
from commbench.host.nvml import NvmlGpu

ADDRESS = "0000:1b:00.0"
PORT_1 = "sys/class/infiniband/mlx5_0/ports/1"
PORT_2 = "sys/class/infiniband/mlx5_1/ports/2"


def lay_ports(host: Path) -> None:
    for path, content in {
        f"{PORT_1}/counters/symbol_error": "7",
        f"{PORT_1}/counters/port_rcv_data": "123456789",  # traffic
        f"{PORT_1}/hw_counters/out_of_sequence": "3",
        f"{PORT_2}/counters/link_downed": "1",
        f"{PORT_2}/counters/port_rcv_errors": "N/A (no PMA)",
    }.items():
        put(host, path, content + "\n")


def gpu(**functions: Any) -> NvmlGpu:
    return NvmlGpu(FakeNvml(), {"address": ADDRESS, **functions})


def test_counters_of_all_ports_are_read_where_the_kernel_shows_them(tmp_path: Path) -> None:
    lay_ports(tmp_path)
    assert read_port_counters(tmp_path) == {
        "mlx5_0:1 symbol_error": 7, "mlx5_0:1 out_of_sequence": 3, "mlx5_1:2 link_downed": 1,
    }  # fmt: skip


def test_what_rose_at_a_port_is_known_and_nothing_else(tmp_path: Path) -> None:
    lay_ports(tmp_path)
    watch = FaultWatch(None, "", has_ports=True, host=tmp_path)
    assert watch.read_risen() == {}
    put(tmp_path, f"{PORT_1}/counters/symbol_error", "19\n")
    put(tmp_path, f"{PORT_1}/counters/port_rcv_data", "999999999\n")
    put(tmp_path, f"{PORT_2}/counters/link_downed", "0\n")  # somebody set it back
    put(tmp_path, f"{PORT_2}/counters/port_rcv_errors", "5\n")  # unknown before
    assert watch.read_risen() == {"mlx5_0:1 symbol_error": 12}


def test_a_host_without_counters_tells_so_and_one_rank_of_a_host_reads_them(tmp_path: Path) -> None:
    assert FaultWatch(None, "", has_ports=True, host=tmp_path).read_risen() is None
    lay_ports(tmp_path)
    assert FaultWatch(None, "", has_ports=False, host=tmp_path).read_risen() is None


def test_links_of_a_gpu_and_its_slot_and_memory_are_counted(tmp_path: Path) -> None:
    links = {(0, 0): 5, (0, 2): 0, (17, 0): 1, (17, 2): 8}
    known: dict[str, Any] = {
        "nvmlDeviceGetNvLinkErrorCounter": links,
        "nvmlDeviceGetPcieReplayCounter": 2,
        "nvmlDeviceGetTotalEccErrors": {(1, 0): 0},
    }
    watched = gpu(**known)
    watch = FaultWatch(watched, ADDRESS, has_ports=False, host=tmp_path)
    links |= {(0, 0): 9, (17, 2): 10}
    watched._handle["nvmlDeviceGetPcieReplayCounter"] = 3
    known["nvmlDeviceGetTotalEccErrors"][1, 0] = 1
    assert watch.read_risen() == {
        f"{ADDRESS} link 0 nvlink_replay": 4, f"{ADDRESS} link 17 nvlink_crc_flit": 2,
        f"{ADDRESS} pcie_replay": 1, f"{ADDRESS} ecc_uncorrected": 1,
    }  # fmt: skip


def test_faults_that_the_driver_reports_meanwhile_are_counted_by_their_number(
    tmp_path: Path,
) -> None:
    xids: list[int] = []
    watch = FaultWatch(gpu(xids=xids), ADDRESS, has_ports=False, host=tmp_path)
    assert watch.read_risen() == {}
    xids += [74, 79, 74]
    risen = watch.read_risen()
    assert risen == {f"{ADDRESS} xid 74": 2, f"{ADDRESS} xid 79": 1}
    assert watch.read_risen() == {}  # each is reported once
    assert FaultWatch(gpu(), ADDRESS, has_ports=False, host=tmp_path).read_risen() is None


def test_a_rank_tells_the_counters_that_rose_most_so_that_they_fit_a_message(
    tmp_path: Path,
) -> None:
    links = {(link, number): 0 for link in range(18) for number in range(4)}
    watched = gpu(nvmlDeviceGetNvLinkErrorCounter=links)
    watch = FaultWatch(watched, ADDRESS, has_ports=False, host=tmp_path)
    links |= {(link, number): 10 * link + number for link, number in links}
    risen = watch.read_risen()
    assert risen
    assert len(risen) == MOST_RISEN
    assert max(risen.items(), key=lambda rise: rise[1]) == (
        f"{ADDRESS} link 17 nvlink_crc_data",
        173,
    )


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
def test_every_counter_has_a_meaning_of_its_own(counter: Any) -> None:
    assert explain_counter(f"place {counter.name}") == counter.meaning
    assert bool(counter.query) != (counter.source in (PORT, "event"))
    assert explain_counter("place unknown") == ""
