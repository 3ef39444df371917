"""The GPUs of made-up hosts, what is around them and the counters of their faults: of folders, of a
stand-in for NVML, and of the installed package."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import CONSTANTS, FakeNvml, remote
from synthetic_files import lay, put

from commbench.host import gpu_system, gpus
from commbench.host.gpu_system import (
    COUNTERS,
    MOST_RISEN,
    PORT,
    FaultWatch,
    GpuSystem,
    Hca,
    acs_control,
    count_redirecting_bridges,
    describe_gpu_facts,
    explain_counter,
    gpu_facts,
    link_name,
    read_gpu_system,
)
from commbench.host.gpus import (
    Gpu,
    GpuState,
    NvmlGpu,
    add_nvml,
    bind_near,
    find_gpu,
    read_gpus,
    read_place,
)


def test_gpus_are_found_on_the_pci_bus_alone(tmp_path: Path) -> None:
    bus = "sys/bus/pci/devices"
    for address, kind, vendor in (
        ("0000:01:00.0", "0x030200", "0x10de"), ("0000:00:02.0", "0x030000", "0x8086"),
        ("0000:02:00.0", "0x030000", "0x1a03"), ("0000:03:00.0", "0x020000", "0x10de"),
        ("0000:04:00.0", "0x038000", "0x1002"), ("0000:05:00.0", "0x120000", "0x1002"),
    ):  # fmt: skip
        files = {"class": kind, "vendor": vendor, "driver/bind": ""}
        lay(tmp_path, files, f"{bus}/{address}")
    lay(tmp_path, {
        "numa_node": "1", "current_link_width": "8", "max_link_width": "16",
        "current_link_speed": "32.0 GT/s PCIe", "local_cpulist": "2-5",
    }, f"{bus}/0000:01:00.0")  # fmt: skip
    put(tmp_path, "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA H200\n")
    assert read_gpus((0, 1, 2), tmp_path) == (
        Gpu("0000:01:00.0", "NVIDIA H200", 1, 8, 16, "32.0 GT/s PCIe", 1),
        Gpu("0000:04:00.0", "AMD", None, None, None, None, None),
        Gpu("0000:05:00.0", "AMD", None, None, None, None, None),
    )


CORES = sorted(os.sched_getaffinity(0))
ALL_CORES = ",".join(map(str, CORES))


def lay_gpu(host: Path, near: str, online: str = ALL_CORES) -> str:
    device = "sys/bus/pci/devices/0000:01:00.0"
    online_file = "sys/devices/system/cpu/online"
    lay(host, {f"{device}/numa_node": "1", f"{device}/local_cpulist": near, online_file: online})
    return "0000:01:00.0"


def test_the_numa_node_of_a_gpu_and_the_cores_on_it_are_known(tmp_path: Path) -> None:
    assert read_place(lay_gpu(tmp_path, "2-3,8"), tmp_path) == (1, {2, 3, 8})
    assert read_place("0000:99:00.0", tmp_path) == (None, set())
    assert read_place("", tmp_path) == (None, set())
    put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/numa_node", "-1")
    assert read_place("0000:01:00.0", tmp_path)[0] is None


@pytest.mark.parametrize(
    ("near", "online", "bound"),
    [
        (f"{CORES[-1]},4000", ALL_CORES, {CORES[-1]}),
        (f"{CORES[-1]}", f"{ALL_CORES},4000", {*CORES}),  # somebody has bound it already
        ("4000", ALL_CORES, {*CORES}),  # it may run on no core there
        (f"{CORES[-1]}", "", {*CORES}),
    ],
)
def test_a_process_is_bound_near_its_gpu_where_it_can_and_may_be(
    near: str, online: str, bound: set[int], tmp_path: Path
) -> None:
    try:
        bind_near(lay_gpu(tmp_path, near, online), tmp_path)
        assert os.sched_getaffinity(0) == bound
    finally:
        os.sched_setaffinity(0, CORES)


MODULES = (gpus, gpu_system)
ADDRESS, UUID = "0000:1b:00.0", "GPU-6ac5a48e"
H200: dict[str, Any] = {
    "address": ADDRESS, "nvmlDeviceGetUUID": UUID, "nvmlDeviceGetClockInfo": {1: 1980, 2: 3201},
    "nvmlDeviceGetPowerUsage": 412_345, "nvmlDeviceGetTemperature": {0: 47},
    "nvmlDeviceGetCurrentClocksEventReasons": 0x5,
}  # fmt: skip


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(module: Any) -> None:
        gpus._load.cache_clear()
        monkeypatch.setitem(sys.modules, "pynvml", module)

    yield install
    gpus._load.cache_clear()


@pytest.mark.parametrize(
    ("known", "state"),
    [
        # Bit 1, an idle GPU, is no throttling.
        (H200, GpuState(1980, 412.345, 47, ("power cap",))),
        ({"address": ADDRESS}, GpuState()),  # a driver that refuses
        # An older driver.
        ({"address": ADDRESS, "nvmlDeviceGetCurrentClocksThrottleReasons": 0xE8},
         GpuState(throttle_reasons=("hardware slowdown", "temperature", "hardware temperature",
                                    "power brake"))),
    ],
    ids=["known", "refused", "older"],
)  # fmt: skip
def test_the_state_of_a_gpu_is_in_mhz_watts_degrees_and_words(
    use: Any, known: dict[str, Any], state: GpuState
) -> None:
    use(FakeNvml(known))
    gpu = find_gpu(ADDRESS)
    assert gpu and gpu.read_state() == state


def test_a_gpu_is_found_by_its_uuid_as_torch_or_as_nvml_writes_it(use: Any) -> None:
    use(FakeNvml(H200))
    for uuid in (UUID, UUID.removeprefix("GPU-")):
        assert find_gpu("", uuid) and find_gpu("0000:ff:00.0", uuid)
    assert find_gpu("0000:ff:00.0", "GPU-other") is None is find_gpu("")


def test_without_the_package_or_the_driver_there_is_no_gpu(use: Any) -> None:
    use(None)  # importing it raises ImportError
    assert find_gpu(ADDRESS, UUID) is None

    class WithoutDriver(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError("Driver Not Loaded")

    use(WithoutDriver(H200))
    assert find_gpu(ADDRESS, UUID) is None


def test_every_name_that_is_used_is_in_the_package() -> None:
    pynvml = pytest.importorskip("pynvml")
    text = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in MODULES)
    names = set(
        re.findall(r"\b(?:nvmlDevice\w+|nvmlEvent\w+|nvmlSystem\w+|NVML_\w+|NVMLError)\b", text)
    )
    assert len(names) > 20
    assert sorted(name for name in names if not hasattr(pynvml, name)) == []
    assert {name: getattr(pynvml, name) for name in CONSTANTS} == CONSTANTS
    for bit in gpus.THROTTLE_REASONS:
        assert bit & pynvml.nvmlClocksThrottleReasonAll == bit


PORT_1 = "sys/class/infiniband/mlx5_0/ports/1"
DEVICES = "sys/devices"
ROOT = "pci0000:10/0000:10:01.0"
SWITCH = f"{ROOT}/0000:11:00.0"
SECOND = f"{SWITCH}/0000:12:02.0/0000:20:00.0"
PLACES = {
    "0000:13:00.0": f"{SWITCH}/0000:12:00.0", "0000:14:00.0": f"{SWITCH}/0000:12:01.0",
    "0000:22:00.0": f"{SECOND}/0000:21:00.0", "0000:15:00.0": "pci0000:10/0000:10:02.0",
    "0000:30:00.0": "pci0000:30/0000:30:01.0",
    "0000:80:00.0": "pci0000:80/0000:80:01.0",
}  # fmt: skip
"""The bridges above each device: two behind one switch, one behind a second switch below it, one
elsewhere below the same host bridge, and one below each of two other host bridges."""


def lay_device(host: Path, address: str, node: int, **files: str) -> Path:
    """A device of the PCI bus, with the link to it."""
    folder = f"{DEVICES}/{PLACES[address]}/{address}"
    lay(host, {"numa_node": str(node), **files}, folder)
    link = host / "sys/bus/pci/devices" / address
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(host / folder)
    return host / folder


def lay_host(host: Path) -> None:
    """Five GPUs of NVIDIA and an InfiniBand adapter behind the first switch."""
    for number, address in enumerate(PLACES):
        if address == "0000:14:00.0":
            adapter = lay_device(host, address, 0, **{"class": "0x020700", "vendor": "0x15b3"})
            link = {"rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE", "link_layer": "InfiniBand"}
            lay(host, {name: f"{value}\n" for name, value in link.items()}, PORT_1)
            (host / "sys/class/infiniband/mlx5_0/device").symlink_to(adapter)
            continue
        found = {"class": "0x030200", "vendor": "0x10de", "driver/bind": ""}
        lay_device(host, address, int(number > 4), **found)
        put(host, f"proc/driver/nvidia/gpus/{address}/information", "Model: NVIDIA H200\n")


def test_links_have_the_names_of_nvidia_smi_and_hcas_those_that_nccl_takes(tmp_path: Path) -> None:
    assert read_gpu_system((), tmp_path)._replace(memlock_bytes=None) == GpuSystem()
    lay_host(tmp_path)
    system = read_gpu_system(read_gpus((0,), tmp_path), tmp_path)
    hca = Hca("mlx5_0:1", "0000:14:00.0", "400 Gb/sec (4X NDR)", "ACTIVE", "InfiniBand", 0)
    assert system.hcas == (hca,)
    #                  13   15   22   30   80   HCA at 14
    assert system.links == (
        "0000:13:00.0: X PHB PXB NODE SYS PIX", "0000:15:00.0: PHB X PHB NODE SYS PHB",
        "0000:22:00.0: PXB PHB X NODE SYS PXB", "0000:30:00.0: NODE NODE NODE X SYS NODE",
        "0000:80:00.0: SYS SYS SYS SYS X SYS",
    )  # fmt: skip


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
        {"address": addresses[0], "nvmlDeviceGetUUID": "GPU-1",
         "nvmlDeviceGetEnforcedPowerLimit": 500_000,
         "nvmlDeviceGetPowerManagementDefaultLimit": 700_000, "nvmlDeviceGetEccMode": [1, 1],
         "nvmlDeviceGetMigMode": [0, 0], "nvmlDeviceGetPersistenceMode": 0,
         "nvmlDeviceGetTotalEccErrors": {1: 3}, "nvmlDeviceGetClockInfo": {1: 345},
         "nvmlDeviceGetMaxClockInfo": {1: 1980}, "nvmlDeviceGetNvLinkState": {0: 1, 1: 1, 2: 0},
         "nvmlDeviceGetNvLinkRemoteDeviceType": {0: 2, 1: 0},
         "nvmlDeviceGetNvLinkRemotePciInfo": {1: remote("00000000:02:00.0")},
         "nvmlDeviceGetP2PStatus": 5},
        {"address": addresses[1], "nvmlDeviceGetNvLinkState": {0: 0}},
    )  # fmt: skip
    known = {gpu["address"]: NvmlGpu(module, gpu) for gpu in module.gpus}
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
    [("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12", "", False),
     ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  S", "nvidia_peermem", True),
     ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  R", "", True)],
)  # fmt: skip
def test_gpudirect_needs_a_module(
    version: str, module: str, expected: bool, tmp_path: Path
) -> None:
    put(tmp_path, "proc/driver/nvidia/version", version)
    if module:
        put(tmp_path, f"sys/module/{module}/refcnt", "0")
    found = read_gpu_system([bare("0000:01:00.0")], tmp_path)
    assert found.gpudirect is expected
    assert found.driver in ("535.183.01", "570.86.15")
    assert read_gpu_system([], tmp_path).gpudirect is None


def test_a_run_records_what_lasts(tmp_path: Path) -> None:
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
    assert gpu_facts(tmp_path / "elsewhere") == {}


CAPPED = {"name": "NVIDIA H200", "address": "a", "power_cap_w": 700.0, "ecc": True}


@pytest.mark.parametrize(
    ("facts", "described"),
    [
        ({}, {}),
        ({"gpu_driver": "570.86.15", "gpu_links": ["a: X NV18", "b: NV18 X"]},
         {"gpu_driver": "570.86.15", "gpu_links": "NV18 between all"}),
        ({"gpus": [CAPPED, CAPPED | {"address": "b"}]},
         {"gpus": "2 x NVIDIA H200, power cap 700 W, ecc on"}),
        # Damaged.
        ({"gpus": 5}, {}), ({"gpus": ["x"]}, {"gpus": "x"}), ({"gpu_links": {"a": 1}}, {}),
    ],
)  # fmt: skip
def test_equal_gpus_are_shown_together(facts: dict[str, Any], described: dict[str, str]) -> None:
    assert describe_gpu_facts(facts) == described


PORT_2 = "sys/class/infiniband/mlx5_1/ports/2"


def gpu_with(**functions: Any) -> NvmlGpu:
    return NvmlGpu(FakeNvml(), {"address": ADDRESS, **functions})


def test_what_rose_at_a_port_is_known_and_nothing_else(tmp_path: Path) -> None:
    assert FaultWatch(None, "", has_ports=True, host=tmp_path).read_risen() is None
    lay(tmp_path, {
        f"{PORT_1}/counters/symbol_error": "7\n", f"{PORT_1}/hw_counters/out_of_sequence": "3\n",
        f"{PORT_1}/counters/port_rcv_data": "123456789\n",  # traffic
        f"{PORT_2}/counters/link_downed": "1\n",
        f"{PORT_2}/counters/port_rcv_errors": "N/A (no PMA)\n",
    })  # fmt: skip
    watch = FaultWatch(None, "", has_ports=True, host=tmp_path)
    assert watch.read_risen() == {}
    lay(tmp_path, {
        f"{PORT_1}/counters/symbol_error": "19\n",
        f"{PORT_1}/counters/port_rcv_data": "999999999\n",
        f"{PORT_2}/counters/link_downed": "0\n",  # somebody set it back
        f"{PORT_2}/counters/port_rcv_errors": "5\n",  # unknown before
    })  # fmt: skip
    assert watch.read_risen() == {"mlx5_0:1 symbol_error": 12}
    # One rank of a host reads them.
    assert FaultWatch(None, "", has_ports=False, host=tmp_path).read_risen() is None


def test_links_of_a_gpu_and_its_slot_and_memory_are_counted(tmp_path: Path) -> None:
    links = {(0, 0): 5, (0, 2): 0, (17, 0): 1, (17, 2): 8}
    known: dict[str, Any] = {
        "nvmlDeviceGetNvLinkErrorCounter": links,
        "nvmlDeviceGetPcieReplayCounter": 2,
        "nvmlDeviceGetTotalEccErrors": {(1, 0): 0},
    }
    watched = gpu_with(**known)
    watch = FaultWatch(watched, ADDRESS, has_ports=False, host=tmp_path)
    links |= {(0, 0): 9, (17, 2): 10}
    watched._handle["nvmlDeviceGetPcieReplayCounter"] = 3
    known["nvmlDeviceGetTotalEccErrors"][1, 0] = 1
    assert watch.read_risen() == {
        f"{ADDRESS} link 0 nvlink_replay": 4, f"{ADDRESS} link 17 nvlink_crc_flit": 2,
        f"{ADDRESS} pcie_replay": 1, f"{ADDRESS} ecc_uncorrected": 1,
    }  # fmt: skip


def test_faults_that_the_driver_reports_are_counted_by_number(tmp_path: Path) -> None:
    xids: list[int] = []
    watch = FaultWatch(gpu_with(xids=xids), ADDRESS, has_ports=False, host=tmp_path)
    assert watch.read_risen() == {}
    xids += [74, 79, 74]
    risen = watch.read_risen()
    assert risen == {f"{ADDRESS} xid 74": 2, f"{ADDRESS} xid 79": 1}
    assert watch.read_risen() == {}  # each is reported once
    assert FaultWatch(gpu_with(), ADDRESS, has_ports=False, host=tmp_path).read_risen() is None


def test_a_rank_tells_the_counters_that_rose_most(tmp_path: Path) -> None:
    links = {(link, number): 0 for link in range(18) for number in range(4)}
    watched = gpu_with(nvmlDeviceGetNvLinkErrorCounter=links)
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
