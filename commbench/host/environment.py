"""Facts about the machine, torch, network interfaces and the environment variables that a result
depends on."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import platform
import re
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from commbench import __version__
from commbench.host.gpu_system import gpu_facts
from commbench.host.procfs import HOST, read_number, read_text

# An allow-list, because the environment holds secrets.
VARIABLE_PREFIXES = (
    "NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCH_FR_",
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_MPS_",
    "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_", "RCCL_",
    "OFI_NCCL_", "SHARP_", "UCX_", "UCC_", "FI_", "LD_PRELOAD", "PYTHONPATH",
)  # fmt: skip
NO_SETTINGS = ("NCCL_VERSION",)
"""Variables that no library reads: images of NVIDIA name the NCCL in them."""
DIFFERENT_BY_NATURE = (
    "NCCL_HOSTID", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
"""Variables in which ranks may differ without a mistake."""


def relevant_variables() -> dict[str, str]:
    """The environment variables that communication libraries read, by the allow-list."""
    names = sorted(name for name in os.environ if name.startswith(VARIABLE_PREFIXES))
    return {name: os.environ[name] for name in names if name not in NO_SETTINGS}


def nccl_settings() -> dict[str, str]:
    """The settings in NCCL's own files, which count where the environment has no variable of that
    name: NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf (param.cc of NCCL 2.23-2.28)."""
    own = os.environ.get("NCCL_CONF_FILE")
    paths = [HOST / "etc/nccl.conf", Path(own) if own else Path.home() / ".nccl.conf"]
    lines = [line for path in paths for line in (read_text(path) or "").splitlines()]
    settings = (line.strip().partition("=") for line in lines)
    return {name: value for name, sign, value in settings if sign and name.startswith("NCCL_")}


def boot_id() -> str:
    """Identifies one boot of one host; processes with the same one share a clock."""
    return read_text(HOST / "proc/sys/kernel/random/boot_id") or ""


def host_facts() -> dict[str, Any]:
    """Facts of this host that need no torch: name, cores, processor, kernel, versions."""
    return {
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "governor": read_text(HOST / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "",
        "python": platform.python_version(),
        "commbench": __version__,
    }


def torch_facts() -> dict[str, Any]:
    """Facts of torch and its communication libraries. Imports torch."""
    import torch
    import torch.distributed as dist

    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "backends": [*filter(dist.is_backend_available, ("gloo", "nccl", "xccl", "mpi", "ucc"))],
    }
    if "nccl" in facts["backends"]:
        facts["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return facts


def device_names(kind: str) -> list[str]:
    """Names of the devices of a kind, each once. Initialises them: no rank can be forked after."""
    import torch

    module = torch.get_device_module(kind)
    names = (module.get_device_name(index) for index in range(module.device_count()))
    return list(dict.fromkeys(names))


def gather_facts() -> dict[str, Any]:
    """Everything that is recorded with a run: host, GPUs, torch and variables."""
    facts = {**host_facts(), **gpu_facts(), **torch_facts(), "variables": relevant_variables()}
    more = {"nccl_conf": nccl_settings(), "interface_speeds": read_interface_speeds()}
    return facts | {name: found for name, found in more.items() if found}


def _processor() -> str:
    cpuinfo = read_text(HOST / "proc/cpuinfo") or ""
    found = re.search(r"^(?:model name|Model)[ \t]*:[ \t]*(.*)$", cpuinfo, re.M)
    return found[1].strip() if found else platform.processor() or sys.platform


_SIOCGIFCONF = 0x8912
"""The request to Linux for every IPv4 address of this host: netdevice(7)."""
_MOST, _ENTRY, _NAME, _IPV4_AT = 512, 40, 16, 20
"""Largest number of entries; bytes of an entry and of its name; offset of its address."""
_IPV6 = Path("/proc/net/if_inet6")


def read_interface_speeds(host: Path = HOST) -> dict[str, str]:
    """The speed of each network interface that is a device and is up, such as `10000 Mbit/s`.
    Interfaces of software, such as veth and bridges, name a speed that does not limit them."""
    devices = sorted((host / "sys/class/net").glob("*/device"))
    speeds = {device.parent.name: read_number(device.parent / "speed") for device in devices}
    return {name: f"{speed} Mbit/s" for name, speed in speeds.items() if speed and speed > 0}


class NetworkInterface(NamedTuple):
    """A network interface and its address; empty where they are not known."""

    interface: str = ""
    address: str = ""


def addresses() -> Iterator[NetworkInterface]:
    """Every address of this host with its interface, IPv4 first; empty where they are not known."""
    entries = array.array("B", bytes(_MOST * _ENTRY))
    pointer, length = entries.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("iP", length, pointer)
            filled, _ = struct.unpack("iP", fcntl.ioctl(any_socket, _SIOCGIFCONF, request))
        lines = _IPV6.read_text().splitlines() if _IPV6.exists() else []
    except OSError:
        return
    for start in range(0, filled, _ENTRY):
        entry = entries[start : start + _ENTRY].tobytes()
        name = entry[:_NAME].split(b"\0")[0].decode(errors="replace")
        # An alias such as eth0:1 is an address of eth0.
        address = socket.inet_ntoa(entry[_IPV4_AT : _IPV4_AT + 4])
        yield NetworkInterface(name.split(":")[0], address)
    for line in lines:
        digits, *_, name = line.split()
        yield NetworkInterface(name, str(ipaddress.IPv6Address(int(digits, 16))))
