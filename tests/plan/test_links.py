"""The tables of links, accelerators and published figures, and how people write them."""

from __future__ import annotations

import pytest
from commands import Commbench

from commbench.analysis.figures import peak_fraction
from commbench.answers.show.lists import find_links
from commbench.errors import UsageError
from commbench.plan import links
from commbench.plan.operations import OPERATIONS
from commbench.units import parse_size

PER = {"accelerator", "link", "slot", "port", "node"}


def test_every_link_has_a_name_of_its_own_a_speed_and_a_source() -> None:
    names = [name for link in links.load_links() for name in (link.name, *link.aliases)]
    assert len(names) == len(set(names)) > 30
    assert all(name == name.lower() and " " not in name for name in names)
    for link in links.load_links():
        assert 1e10 < link.bytes_per_second < 2e12, link
        assert link.per in PER, link
        assert link.source.startswith(("https://", "arithmetic: ")), link


def test_a_published_figure_is_of_a_known_link_and_operation() -> None:
    assert len(links.load_published()) > 50
    for figure in links.load_published():
        operation = OPERATIONS[figure.operation]
        assert operation.busbw_factor is not None
        assert links.find_gpu(figure.gpu) is not None, figure
        algbw = figure.busbw_bytes_per_s / operation.busbw_factor(figure.ranks)
        peak = links.find_link(figure.link)
        found = peak_fraction(operation, figure.ranks, figure.nodes, algbw, peak)
        assert found is not None
        assert 0.4 < found.fraction < 1.1, figure
        assert figure.source.startswith("https://"), figure


def test_a_curve_has_ascending_sizes_and_ends_with_its_figure() -> None:
    curves = [figure for figure in links.load_published() if figure.curve]
    assert len(curves) > 8
    for figure in curves:
        sizes = [size for size, _ in figure.curve]
        assert sizes == sorted(set(sizes)), figure
        assert figure.curve[-1] == (parse_size(figure.size), figure.busbw_bytes_per_s), figure


def test_a_threshold_is_of_a_known_accelerator_and_network() -> None:
    assert len(links.load_thresholds()) > 15
    for one in links.load_thresholds():
        assert links.find_gpu(one.gpu) is not None, one
        assert not one.nic or links.find_link(one.nic).per == "node", one
        assert (one.high_bytes_per_s or 1e13) > one.low_bytes_per_s > 1e10, one
        assert one.source.startswith("https://"), one


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("450GB/s", 450e9), ("450 GB/s", 450e9), ("450GBps", 450e9), (" 0.5 TB/s ", 500e9),
        ("800MB/s", 0.8e9), ("50Gbit/s", 6.25e9), ("400Gbps", 50e9), ("400 Gbps", 50e9),
        ("1.6Tbit/s", 200e9), ("100Mbps", 12.5e6), ("400GB/s/node", 400e9),
        ("nvlink4", 450e9), ("NVLink4", 450e9), ("h100", 450e9), ("PCIe4_x16", 31e9),
        ("400gbe", 50e9), ("ib-ndr", 50e9), ("efa-p5", 400e9),
    ],
)  # fmt: skip
def test_a_peak_is_a_speed_with_its_unit_or_the_name_of_a_link(
    text: str, bytes_per_second: float
) -> None:
    assert links.parse_peak(text).bytes_per_second == pytest.approx(bytes_per_second, rel=1e-12)


WRITE = "write {0}GB/s (bytes), {0}Gbit/s (bits), or a name of `commbench links`"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("450", "peak '450' has no unit", WRITE.format(450)),
        ("450Gb", "peak '450Gb' has an unclear unit 'Gb'", WRITE.format(450)),
        ("450Gb/s", "peak '450Gb/s' has an unclear unit 'Gb/s'", WRITE.format(450)),
        ("450gbps", "peak '450gbps' has an unclear unit 'gbps'", WRITE.format(450)),
        ("450GB", "peak '450GB' has an unclear unit 'GB'", WRITE.format(450)),
        (
            "450GiB/s",
            "peak '450GiB/s' has an unclear unit 'GiB/s'",
            "write 483.18GB/s: 1 GiB/s is 1.0737 GB/s",
        ),
        ("450/node", "peak '450/node' has no unit", WRITE.format(450)),
        ("0GB/s", "peak '0GB/s' is not above 0", "write for example 450GB/s"),
        ("nvlnk4", "unknown link 'nvlnk4'", "did you mean nvlink4? `commbench links` lists all"),
        ("-3GB/s", "peak '-3GB/s' is not a bandwidth", "write for example 450GB/s"),
        ("1e3GB/s", "peak '1e3GB/s' is not a bandwidth", "write for example 450GB/s"),
        (
            "",
            "unknown link ''",
            "known: nvlink1, p100, nvlink2, v100 and others; `commbench links` lists all",
        ),
    ],
)
def test_a_peak_that_could_be_read_in_two_ways_is_refused(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        links.parse_peak(text)
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_published_figures_are_held_against_the_bound_of_their_link(commbench: Commbench) -> None:
    ended = commbench("links", "--published", COLUMNS="80")
    assert ended.code == 0
    assert max(map(len, ended.out.partition("\nSources")[0].splitlines())) <= 80
    shares = {one.published[:2]: one.fraction for one in find_links(published=True).published}
    # all_to_all: 224.31 of 300; of 400 per node: 381.8 / (2 x 31/32) x (2 x 3/4) = 295.59.
    assert shares["8 x A100", "all_to_all"] == pytest.approx(224.31 / 300, rel=1e-3)
    assert shares["4 x 8 B200", "all_reduce"] == pytest.approx(0.739, abs=0.002)
    one = find_links("mi300x")
    assert [link.name for link in one.links] == ["xgmi-mi300x"]
    assert {figure.published.link for figure in one.published} == {"xgmi-mi300x"}


def test_every_accelerator_has_a_name_of_its_own_and_a_source() -> None:
    names = [gpu.name for gpu in links.load_gpus()]
    assert len(set(names)) == len(names) > 20
    for gpu in links.load_gpus():
        assert links.find_gpu(gpu.name) is gpu
        assert gpu.link in links.load_links()
        assert gpu.source.startswith("https://"), gpu
        # A device whose name has more words must be found before one with fewer of them.
        assert links.find_gpu(f"a device {gpu.what}") is gpu, gpu


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
    gpu = links.find_gpu(device)
    assert gpu is not None and gpu.name == name


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA H20", "cpu", "", "Made-up 9000", "H1000", "NVIDIA H100 MIG 1g.10gb", "h100,a100",
        "H100 PCIe and H200",
    ],
)  # fmt: skip
def test_a_device_that_the_table_lacks_is_not_taken_for_another(device: str) -> None:
    assert links.find_gpu(device) is None


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
    nics = links.parse_nics(text, links.find_gpu("h100"))
    assert nics.bytes_per_second == pytest.approx(bytes_per_second)
    if link or number != 1:
        assert (nics.link, nics.number) == (link, number)


def test_which_network_of_aws_it_is_depends_on_the_accelerator() -> None:
    for gpu, link in (("a100", "efa-p4d"), ("h200", "efa-p5"), ("b200", "efa-p6-b200")):
        assert links.parse_nics("efa", links.find_gpu(gpu)).link == link
    for unknown in (links.find_gpu("mi300x"), None):
        with pytest.raises(UsageError, match="no EFA is known"):
            links.parse_nics("efa", unknown)


@pytest.mark.parametrize("text", ["", "8x", "0x400G", "8x0G", "999x400G", "8x400Q", "x400G", "-1"])
def test_a_network_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        links.parse_nics(text)
    assert refused.value.hint


def test_a_rack_with_one_nvlink_is_one_part() -> None:
    rack, node = (
        links.make_fabric(links.find_gpu("gb200")),
        links.make_fabric(links.find_gpu("h100")),
    )
    assert [rack.count_parts(ranks, ranks // 4) for ranks in (4, 72, 76, 144)] == [1, 1, 2, 2]
    assert [node.count_parts(ranks, ranks // 8) for ranks in (8, 16, 64)] == [1, 2, 8]
    assert links.Fabric().count_parts(16, 2) == 2


def test_bridges_connect_a_few_accelerators_of_a_node() -> None:
    card = links.make_fabric(links.find_gpu("a100-pcie"))
    assert [card.bridged(ranks, 1) for ranks in (2, 3, 8)] == [False, True, True]
    assert not links.make_fabric(links.find_gpu("a100")).bridged(8, 1)


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
    assert links.covers_version(published, version) == covers
