"""The GPUs of made-up hosts, read from folders that look like theirs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_files import put

from commbench.host.gpus import Gpu, bind_near, read_gpus, read_place


def test_gpus_are_found_on_the_pci_bus_alone(tmp_path: Path) -> None:
    bus = "sys/bus/pci/devices"
    for address, kind, vendor in (
        ("0000:01:00.0", "0x030200", "0x10de"),
        ("0000:00:02.0", "0x030000", "0x8086"),
        ("0000:02:00.0", "0x030000", "0x1a03"),
        ("0000:03:00.0", "0x020000", "0x10de"),
        ("0000:04:00.0", "0x038000", "0x1002"),
        ("0000:05:00.0", "0x120000", "0x1002"),
    ):
        put(tmp_path, f"{bus}/{address}/class", kind)
        put(tmp_path, f"{bus}/{address}/vendor", vendor)
        put(tmp_path, f"{bus}/{address}/driver/bind", "")
    for name, content in (
        ("numa_node", "1"), ("current_link_width", "8"), ("max_link_width", "16"),
        ("current_link_speed", "32.0 GT/s PCIe"), ("local_cpulist", "2-5"),
    ):  # fmt: skip
        put(tmp_path, f"{bus}/0000:01:00.0/{name}", content)
    put(tmp_path, "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA H200\n")
    assert read_gpus((0, 1, 2), tmp_path) == (
        Gpu("0000:01:00.0", "NVIDIA H200", 1, 8, 16, "32.0 GT/s PCIe", 1),
        Gpu("0000:04:00.0", "AMD", None, None, None, None, None),
        Gpu("0000:05:00.0", "AMD", None, None, None, None, None),
    )


CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def own_cores() -> Iterator[set[int]]:
    """The cores of this process, which has them again afterwards."""
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


def lay_gpu(host: Path, near: str, online: str = ",".join(map(str, CORES))) -> str:
    put(host, "sys/bus/pci/devices/0000:01:00.0/numa_node", "1")
    put(host, "sys/bus/pci/devices/0000:01:00.0/local_cpulist", near)
    put(host, "sys/devices/system/cpu/online", online)
    return "0000:01:00.0"


def test_the_numa_node_of_a_gpu_and_the_cores_on_it_are_known(tmp_path: Path) -> None:
    assert read_place(lay_gpu(tmp_path, "2-3,8"), tmp_path) == (1, {2, 3, 8})
    assert read_place("0000:99:00.0", tmp_path) == (None, set())
    assert read_place("", tmp_path) == (None, set())
    put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/numa_node", "-1")
    assert read_place("0000:01:00.0", tmp_path)[0] is None


@pytest.mark.usefixtures("own_cores")
def test_a_process_is_bound_near_its_gpu(tmp_path: Path) -> None:
    bind_near(lay_gpu(tmp_path, f"{CORES[-1]},4000"), tmp_path)
    assert os.sched_getaffinity(0) == {CORES[-1]}


@pytest.mark.parametrize(
    ("near", "online"),
    [
        (f"{CORES[-1]}", ",".join(map(str, [*CORES, 4000]))),  # somebody has bound it already
        ("4000", ",".join(map(str, CORES))),  # it may run on no core there
        (f"{CORES[-1]}", ""),
    ],
)
def test_a_process_that_cannot_or_must_not_be_bound_stays_where_it_is(
    near: str, online: str, tmp_path: Path, own_cores: set[int]
) -> None:
    bind_near(lay_gpu(tmp_path, near, online), tmp_path)
    assert os.sched_getaffinity(0) == own_cores
