"""What is read of NVML: of a stand-in for it, and of the package where it is installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import CONSTANTS, FakeNvml

from commbench.host import fault_counters, gpus, nvml
from commbench.host.nvml import GpuState, find_gpu

MODULES = (nvml, gpus, fault_counters)
ADDRESS, UUID = "0000:1b:00.0", "GPU-6ac5a48e"
H200: dict[str, Any] = {
    "address": ADDRESS,
    "nvmlDeviceGetUUID": UUID,
    "nvmlDeviceGetClockInfo": {1: 1980, 2: 3201},
    "nvmlDeviceGetPowerUsage": 412_345,
    "nvmlDeviceGetTemperature": {0: 47},
    "nvmlDeviceGetCurrentClocksEventReasons": 0x5,
}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(module: Any) -> None:
        nvml._load.cache_clear()
        monkeypatch.setitem(sys.modules, "pynvml", module)

    yield install
    nvml._load.cache_clear()


def test_the_state_of_a_gpu_is_in_mhz_watts_degrees_and_words(use: Any) -> None:
    use(FakeNvml(H200))
    gpu = find_gpu(ADDRESS)
    assert gpu
    # Bit 1, an idle GPU, is no throttling.
    assert gpu.read_state() == GpuState(1980, 412.345, 47, ("power cap",))


def test_a_gpu_is_found_by_its_uuid_as_torch_or_as_nvml_writes_it(use: Any) -> None:
    use(FakeNvml(H200))
    for uuid in (UUID, UUID.removeprefix("GPU-")):
        assert find_gpu("", uuid)
        assert find_gpu("0000:ff:00.0", uuid)
    assert find_gpu("0000:ff:00.0", "GPU-other") is None
    assert find_gpu("") is None


def test_what_a_driver_refuses_is_unknown_and_older_drivers_know_reasons_too(use: Any) -> None:
    use(FakeNvml({"address": ADDRESS}))
    silent = find_gpu(ADDRESS)
    assert silent and silent.read_state() == GpuState()
    use(FakeNvml({"address": ADDRESS, "nvmlDeviceGetCurrentClocksThrottleReasons": 0xE8}))
    old = find_gpu(ADDRESS)
    reasons = ("hardware slowdown", "temperature", "hardware temperature", "power brake")
    assert old and old.read_state().throttle_reasons == reasons


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
    for bit in nvml.THROTTLE_REASONS:
        assert bit & pynvml.nvmlClocksThrottleReasonAll == bit
