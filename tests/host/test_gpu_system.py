"""The host around its GPUs, read from folders that look like one; and what a run records of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_nvml import FakeNvml, remote
from synthetic_files import put

from commbench.host import nvml
from commbench.host.gpu_system import (
    GpuSystem,
    Hca,
    acs_control,
    count_redirecting_bridges,
    describe_gpu_facts,
    gpu_facts,
    link_name,
    read_gpu_system,
    read_hcas,
)
from commbench.host.gpus import Gpu, add_nvml, read_gpus

DEVICES = "sys/devices"
ROOT = "pci0000:10/0000:10:01.0"
SWITCH = f"{ROOT}/0000:11:00.0"
SECOND = f"{SWITCH}/0000:12:02.0/0000:20:00.0"
PLACES = {
    "0000:13:00.0": f"{SWITCH}/0000:12:00.0",
    "0000:14:00.0": f"{SWITCH}/0000:12:01.0",
    "0000:22:00.0": f"{SECOND}/0000:21:00.0",
    "0000:15:00.0": "pci0000:10/0000:10:02.0",
    "0000:30:00.0": "pci0000:30/0000:30:01.0",
    "0000:80:00.0": "pci0000:80/0000:80:01.0",
}
"""The bridges above each device: two behind one switch, one behind a second switch below it, one
elsewhere below the same host bridge, and one below each of two other host bridges."""


def lay_device(host: Path, address: str, node: int, **files: str) -> Path:
    """A device of the PCI bus, with the link to it."""
    folder = f"{DEVICES}/{PLACES[address]}/{address}"
    put(host, f"{folder}/numa_node", str(node))
    for name, content in files.items():
        put(host, f"{folder}/{name}", content)
    link = host / "sys/bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(host / folder)
    return host / folder


def lay_host(host: Path) -> None:
    """Five GPUs of NVIDIA and an InfiniBand adapter behind the first switch."""
    for number, address in enumerate(PLACES):
        if address == "0000:14:00.0":
            adapter = lay_device(host, address, 0, **{"class": "0x020700", "vendor": "0x15b3"})
            port = "sys/class/infiniband/mlx5_0/ports/1"
            put(host, f"{port}/rate", "400 Gb/sec (4X NDR)\n")
            put(host, f"{port}/state", "4: ACTIVE\n")
            put(host, f"{port}/link_layer", "InfiniBand\n")
            (host / "sys/class/infiniband/mlx5_0/device").symlink_to(adapter)
            continue
        found = {"class": "0x030200", "vendor": "0x10de", "driver/bind": ""}
        lay_device(host, address, int(number > 4), **found)
        put(host, f"proc/driver/nvidia/gpus/{address}/information", "Model: NVIDIA H200\n")


def test_hcas_have_a_rate_a_state_and_the_name_that_nccl_takes(tmp_path: Path) -> None:
    lay_host(tmp_path)
    assert read_hcas(tmp_path) == (
        Hca("mlx5_0:1", "0000:14:00.0", "400 Gb/sec (4X NDR)", "ACTIVE", "InfiniBand", 0),
    )


def test_links_have_the_names_of_nvidia_smi(tmp_path: Path) -> None:
    lay_host(tmp_path)
    gpus = read_gpus((0,), tmp_path)
    system = read_gpu_system(gpus, tmp_path)
    #                  13   15   22   30   80   HCA at 14
    assert system.links == (
        "0000:13:00.0: X PHB PXB NODE SYS PIX",
        "0000:15:00.0: PHB X PHB NODE SYS PHB",
        "0000:22:00.0: PXB PHB X NODE SYS PXB",
        "0000:30:00.0: NODE NODE NODE X SYS NODE",
        "0000:80:00.0: SYS SYS SYS SYS X SYS",
    )


def bare(address: str) -> Gpu:
    return Gpu(address, "NVIDIA H200", 0, 16, 16, None, None)


def test_nvlinks_count_directly_and_through_switches() -> None:
    a, b = bare("0000:01:00.0"), bare("0000:02:00.0")
    direct = a._replace(nvlink_peers=(b.address,) * 4), b._replace(nvlink_peers=(a.address,) * 4)
    switched = [gpu._replace(nvlink_peers=("switch",) * 18) for gpu in (a, b)]
    assert link_name(*direct) == "NV4"
    assert link_name(*switched) == "NV18"
    assert link_name(switched[0], b, Path("/nowhere")) == "?"


def test_what_nvml_knows_is_added_to_a_gpu() -> None:
    addresses = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")
    module = FakeNvml(
        {
            "address": addresses[0],
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetEnforcedPowerLimit": 500_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetPersistenceMode": 0,
            "nvmlDeviceGetTotalEccErrors": {1: 3},
            "nvmlDeviceGetClockInfo": {1: 345},
            "nvmlDeviceGetMaxClockInfo": {1: 1980},
            "nvmlDeviceGetNvLinkState": {0: 1, 1: 1, 2: 0},
            "nvmlDeviceGetNvLinkRemoteDeviceType": {0: 2, 1: 0},
            "nvmlDeviceGetNvLinkRemotePciInfo": {1: remote("00000000:02:00.0")},
            "nvmlDeviceGetP2PStatus": 5,
        },
        {"address": addresses[1], "nvmlDeviceGetNvLinkState": {0: 0}},
    )
    known = {gpu["address"]: nvml.NvmlGpu(module, gpu) for gpu in module.gpus}
    first, second, third = add_nvml([bare(address) for address in addresses], known)
    assert first == bare(addresses[0])._replace(
        uuid="GPU-1", power_cap_w=500.0, default_power_cap_w=700.0, ecc=True, ecc_errors=3,
        mig=False, persistence=False, clock_mhz=345, most_clock_mhz=1980, nvlinks=2,
        nvlink_peers=("switch", "0000:02:00.0"), unreachable=("0000:02:00.0",),
    )  # fmt: skip
    assert second == bare(addresses[1])._replace(nvlinks=0)
    assert third == bare(addresses[2])


def config(*capabilities: tuple[int, int]) -> bytes:
    """A configuration space with extended capabilities, each an identity and a control register."""
    space = bytearray(0x100)
    for number, (identity, control) in enumerate(capabilities, start=1):
        following = 0x100 + 8 * number if number < len(capabilities) else 0
        space += (identity | 1 << 16 | following << 20).to_bytes(4, "little")
        space += bytes(2) + control.to_bytes(2, "little")
    return bytes(space)


def test_bridges_that_redirect_are_counted_where_root_can_read_them(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    spaces = (config((1, 0), (13, 0x1D)), config((13, 0x01)), config((1, 0)), bytes(64))
    for number, space in enumerate(spaces):
        put(tmp_path, f"sys/bus/pci/devices/0000:0{number}:00.0/class", "0x060400")
        (bus / f"0000:0{number}:00.0/config").write_bytes(space)
    assert [acs_control(space) for space in spaces] == [0x1D, 0x01, 0, None]
    assert count_redirecting_bridges(tmp_path) == 1
    assert count_redirecting_bridges(tmp_path / "elsewhere") is None
    loop = config((1, 0)) + bytes(8)
    assert acs_control(loop[:0x100] + (1 | 0x100 << 20).to_bytes(4, "little") + bytes(4)) == 0


@pytest.mark.parametrize(
    ("version", "module", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12", "", False),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  S", "nvidia_peermem", True),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  R", "", True),
    ],
)
def test_gpudirect_needs_a_module_or_the_open_driver(
    version: str, module: str, expected: bool, tmp_path: Path
) -> None:
    put(tmp_path, "proc/driver/nvidia/version", version)
    if module:
        put(tmp_path, f"sys/module/{module}/refcnt", "0")
    found = read_gpu_system([bare("0000:01:00.0")], tmp_path)
    assert found.gpudirect is expected
    assert found.driver in ("535.183.01", "570.86.15")
    assert read_gpu_system([], tmp_path).gpudirect is None


def test_a_host_without_gpus_and_hcas_records_nothing(tmp_path: Path) -> None:
    assert gpu_facts(tmp_path) == {}
    assert describe_gpu_facts({}) == {}
    assert read_gpu_system((), tmp_path)._replace(memlock_bytes=None) == GpuSystem()


def test_a_run_records_what_lasts_and_shows_equal_gpus_together(tmp_path: Path) -> None:
    lay_host(tmp_path)
    facts = gpu_facts(tmp_path)
    assert facts["gpus"][0] == {"address": "0000:13:00.0", "name": "NVIDIA H200", "numa_node": 0}
    assert facts["hcas"][0]["rate"] == "400 Gb/sec (4X NDR)"
    assert describe_gpu_facts(facts) == {
        "gpus": "5 x NVIDIA H200",
        "gpu_links": "X PHB PXB NODE SYS PIX; PHB X PHB NODE SYS PHB; PXB PHB X NODE SYS PXB; "
        "NODE NODE NODE X SYS NODE; SYS SYS SYS SYS X SYS",
        "hcas": "mlx5_0:1, rate 400 Gb/sec (4X NDR), state ACTIVE, link layer InfiniBand",
    }
    alike = {"gpu_driver": "570.86.15", "gpu_links": ["a: X NV18", "b: NV18 X"]}
    assert describe_gpu_facts(alike) == {
        "gpu_driver": "570.86.15", "gpu_links": "NV18 between all"
    }  # fmt: skip
    gpu = {"name": "NVIDIA H200", "address": "a", "power_cap_w": 700.0, "ecc": True}
    assert describe_gpu_facts({"gpus": [gpu, gpu | {"address": "b"}]}) == {
        "gpus": "2 x NVIDIA H200, power cap 700 W, ecc on"
    }


@pytest.mark.parametrize("damaged", [{"gpus": 5}, {"gpus": ["x"]}, {"gpu_links": {"a": 1}}])
def test_damaged_facts_can_be_shown(damaged: dict[str, object]) -> None:
    assert describe_gpu_facts(damaged) in ({}, {"gpus": "x"})
