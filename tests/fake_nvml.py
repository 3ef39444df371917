"""A stand-in for the module pynvml: GPUs that do not exist, with the functions that are asked.

It refuses what a real driver refuses, by the error of the real module's name.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

CONSTANTS = {
    "NVML_CLOCK_SM": 1, "NVML_TEMPERATURE_GPU": 0, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
    "NVML_VOLATILE_ECC": 0, "NVML_NVLINK_DEVICE_TYPE_SWITCH": 2, "NVML_P2P_STATUS_OK": 0,
    "nvmlEventTypeXidCriticalError": 8,
}  # fmt: skip
"""As in nvml.h; tests/host/test_gpus.py compares them with the package."""


def remote(bus_id: str) -> SimpleNamespace:
    """What nvmlDeviceGetNvLinkRemotePciInfo returns."""
    return SimpleNamespace(busId=bus_id.encode())


class NVMLError(Exception):
    """What every function raises where the driver or the GPU does not have something."""


class FakeNvml(SimpleNamespace):
    """The module: each GPU is a dictionary from a function's name to what it returns."""

    NVMLError = NVMLError

    def __init__(self, *gpus: dict[str, Any], **functions: Any) -> None:
        super().__init__(**CONSTANTS, **functions)
        self.gpus = gpus

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(gpu: Any = None, *arguments: Any) -> Any:
            found = gpu.get(name) if isinstance(gpu, dict) else None
            if isinstance(found, dict):
                found = found.get(arguments, found.get(arguments[0]))
            if found is None:
                raise NVMLError(f"{name}: Not Supported")
            return found

        return answer

    def nvmlEventSetCreate(self) -> Any:  # noqa: N802
        return []

    def nvmlDeviceRegisterEvents(self, gpu: Any, kinds: int, events: Any) -> None:  # noqa: N802
        """`xids` of a GPU are those that come from now on."""
        if kinds != self.nvmlEventTypeXidCriticalError or "xids" not in gpu:
            raise NVMLError("Not Supported")
        events.append(gpu["xids"])

    def nvmlEventSetWait(self, events: Any, timeout_ms: int) -> Any:  # noqa: N802
        if timeout_ms or not events[0]:
            raise NVMLError("Timeout")
        return SimpleNamespace(eventData=events[0].pop(0))

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> Any:  # noqa: N802
        return self._find("address", address)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        return self._find("nvmlDeviceGetUUID", uuid)

    def _find(self, name: str, value: str) -> Any:
        for gpu in self.gpus:
            if gpu.get(name) == value:
                return gpu
        raise NVMLError("Not Found")
