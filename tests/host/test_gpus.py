"""The GPUs of made-up hosts, read from folders that look like theirs."""

from pathlib import Path

from synthetic_files import put

from commbench.host.gpus import Gpu, read_gpus


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
