"""Accelerators and networks by the names that devices and people give them."""

from __future__ import annotations

import pytest

from commbench.errors import UsageError
from commbench.plan.links import (
    Fabric,
    covers_version,
    find_gpu,
    load_gpus,
    load_links,
    make_fabric,
    parse_nics,
)


def test_every_accelerator_has_a_name_of_its_own_and_a_source() -> None:
    names = [gpu.name for gpu in load_gpus()]
    assert len(set(names)) == len(names) > 20
    for gpu in load_gpus():
        assert find_gpu(gpu.name) is gpu
        assert gpu.link in load_links()
        assert gpu.source.startswith("https://"), gpu
        # A device whose name has more words must be found before one with fewer of them.
        assert find_gpu(f"a device {gpu.what}") is gpu, gpu


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"), ("NVIDIA H200", "h200"), ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA H800", "h800"), ("A100-SXM4-40GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie"), ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"), ("NVIDIA B200", "b200"), ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300"), ("NVIDIA L40S", "l40s"), ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"), ("H100", "h100"), ("h100-pcie", "h100-pcie"),
    ],
)  # fmt: skip
def test_a_device_is_known_by_its_name(device: str, name: str) -> None:
    gpu = find_gpu(device)
    assert gpu is not None and gpu.name == name


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA H20", "cpu", "", "Made-up 9000", "H1000", "NVIDIA H100 MIG 1g.10gb", "h100,a100",
        "H100 PCIe and H200",
    ],
)  # fmt: skip
def test_a_device_that_the_table_lacks_is_not_taken_for_another(device: str) -> None:
    assert find_gpu(device) is None


@pytest.mark.parametrize(
    ("text", "bytes_per_second", "number", "link"),
    [
        ("8x400G", 400e9, 8, ""), ("8 x 400 gbe", 400e9, 8, ""), ("4x200Gb", 100e9, 4, ""),
        ("8x400Gbit/s", 400e9, 8, ""), ("8xib-ndr", 400e9, 8, "ib-ndr"), ("efa", 400e9, None,
        "efa-p5"), ("EFA-P4D", 50e9, None, "efa-p4d"), ("dgx-h100-ib", 400e9, None, "dgx-h100-ib"),
        ("100G", 12.5e9, 1, ""), ("400GB/s", 400e9, 1, ""), ("400gbe", 50e9, 1, ""),
    ],
)  # fmt: skip
def test_the_network_of_a_node_is_a_number_of_adapters_or_a_link(
    text: str, bytes_per_second: float, number: int | None, link: str
) -> None:
    nics = parse_nics(text, find_gpu("h100"))
    assert nics.bytes_per_second == pytest.approx(bytes_per_second)
    if link or number != 1:
        assert (nics.link, nics.number) == (link, number)


def test_which_network_of_aws_it_is_depends_on_the_accelerator() -> None:
    for gpu, link in (("a100", "efa-p4d"), ("h200", "efa-p5"), ("b200", "efa-p6-b200")):
        assert parse_nics("efa", find_gpu(gpu)).link == link
    for unknown in (find_gpu("mi300x"), None):
        with pytest.raises(UsageError, match="no EFA is known"):
            parse_nics("efa", unknown)


@pytest.mark.parametrize("text", ["", "8x", "0x400G", "8x0G", "999x400G", "8x400Q", "x400G", "-1"])
def test_a_network_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_nics(text)
    assert refused.value.hint


def test_a_rack_with_one_nvlink_is_one_part() -> None:
    rack, node = make_fabric(find_gpu("gb200")), make_fabric(find_gpu("h100"))
    assert [rack.count_parts(ranks, ranks // 4) for ranks in (4, 72, 76, 144)] == [1, 1, 2, 2]
    assert [node.count_parts(ranks, ranks // 8) for ranks in (8, 16, 64)] == [1, 2, 8]
    assert Fabric().count_parts(16, 2) == 2


def test_bridges_connect_a_few_accelerators_of_a_node() -> None:
    card = make_fabric(find_gpu("a100-pcie"))
    assert [card.bridged(ranks, 1) for ranks in (2, 3, 8)] == [False, True, True]
    assert not make_fabric(find_gpu("a100")).bridged(8, 1)


@pytest.mark.parametrize(
    ("published", "version", "covers"),
    [
        (">=2.18", "2.17.1", False), (">=2.18", "2.18.1", True), (">=2.18", "2.29.7", True),
        ("2.27.7", "2.10.3", True), ("", "2.10.3", True), (">=2.18", "", True), ("", "", True),
    ],
)  # fmt: skip
def test_a_figure_of_a_newer_feature_says_nothing_about_older_versions(
    published: str, version: str, covers: bool
) -> None:
    assert covers_version(published, version) == covers
