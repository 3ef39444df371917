"""Which interface ranks talk through, on this host as it is."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_files import put

from commbench.host.interfaces import NetworkInterface, addresses, read_interface_speeds
from commbench.worker.context import RankContext
from commbench.worker.interfaces import find_interface

LOOPBACK = NetworkInterface("lo", "127.0.0.1")
RANK_CONTEXT = RankContext(
    rank=1, world_size=2, local_rank=0, local_world_size=1, launcher="mpirun",
    init_method="tcp://127.0.0.1:29500",
)  # fmt: skip


def test_every_interface_with_an_address_is_found() -> None:
    found = addresses()
    assert LOOPBACK in found
    assert {way.interface for way in found} <= {name for _, name in socket.if_nameindex()}


def test_only_devices_that_are_up_have_a_speed(tmp_path: Path) -> None:
    for name, speed, is_device in (
        ("eth0", "10000", True), ("eth1", "-1", True), ("veth0", "10000", False), ("eth2", "", True)
    ):  # fmt: skip
        put(tmp_path, f"sys/class/net/{name}/speed", f"{speed}\n")
        if is_device:
            (tmp_path / f"sys/class/net/{name}/device").mkdir()
    assert read_interface_speeds(tmp_path) == {"eth0": "10000 Mbit/s"}
    assert read_interface_speeds(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("backend", "variables", "way"),
    [
        ("gloo", {"GLOO_SOCKET_IFNAME": "lo"}, LOOPBACK),
        ("gloo", {"GLOO_SOCKET_IFNAME": "lo,eth7"}, LOOPBACK),
        ("gloo", {"GLOO_SOCKET_IFNAME": "l"}, NetworkInterface()),
        ("nccl", {"NCCL_SOCKET_IFNAME": "lo"}, LOOPBACK),
        ("nccl", {"NCCL_SOCKET_IFNAME": "nowhere,l"}, LOOPBACK),
        ("nccl", {"NCCL_SOCKET_IFNAME": "=lo"}, LOOPBACK),
        ("nccl", {"NCCL_SOCKET_IFNAME": "=l"}, NetworkInterface()),
        ("nccl", {"GLOO_SOCKET_IFNAME": "nowhere"}, LOOPBACK),
        ("mpi", {"GLOO_SOCKET_IFNAME": "nowhere"}, LOOPBACK),
    ],
)
def test_a_variable_names_the_interface_and_otherwise_the_way_to_rank_0(
    backend: str, variables: dict[str, str], way: NetworkInterface
) -> None:
    assert find_interface(backend, RANK_CONTEXT, variables) == way


def test_an_interface_that_must_not_be_taken_is_not() -> None:
    others = [way for way in addresses() if way.interface != "lo"]
    found = find_interface("nccl", RANK_CONTEXT, {"NCCL_SOCKET_IFNAME": "^lo"})
    assert found == (others[0] if others else NetworkInterface())


def test_gloo_takes_the_address_of_this_hosts_name() -> None:
    found = find_interface("gloo", RANK_CONTEXT, {})
    known = {place[4][0] for place in socket.getaddrinfo(socket.gethostname(), None)}
    assert found.address in known | {"127.0.0.1"}
    assert found in addresses()


def test_torchruns_variable_says_where_rank_0_is() -> None:
    rank_context = replace(RANK_CONTEXT, init_method="env://", launcher="torchrun")
    assert find_interface("nccl", rank_context, {"MASTER_ADDR": "127.0.0.1"}) == LOOPBACK
    assert (
        find_interface("nccl", rank_context, {"MASTER_ADDR": "no.such.host.invalid"})
        == NetworkInterface()
    )


def test_on_one_host_only_a_variable_tells() -> None:
    rank_context = replace(RANK_CONTEXT, local_world_size=2, init_method="file:/dev/shm/ranks")
    assert find_interface("gloo", rank_context, {}) == NetworkInterface()
    assert find_interface("gloo", rank_context, {"GLOO_SOCKET_IFNAME": "lo"}) == LOOPBACK
