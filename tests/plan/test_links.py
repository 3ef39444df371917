"""The tables of links and published figures, and how a peak is written."""

from __future__ import annotations

import pytest
from commands import Commbench

from commbench.analysis.figures import peak_fraction
from commbench.answers.show.lists import find_links
from commbench.errors import UsageError
from commbench.plan.links import (
    find_gpu,
    find_link,
    load_links,
    load_published,
    load_thresholds,
    make_peak,
    parse_peak,
)
from commbench.plan.operations import OPERATIONS
from commbench.units import parse_size

PER = {"accelerator", "link", "slot", "port", "node"}


def test_every_link_has_a_name_of_its_own_a_speed_and_a_source() -> None:
    names = [name for link in load_links() for name in (link.name, *link.aliases)]
    assert len(names) == len(set(names)) > 30
    assert all(name == name.lower() and " " not in name for name in names)
    for link in load_links():
        assert 1e10 < link.bytes_per_second < 2e12, link
        assert link.per in PER, link
        assert link.source.startswith(("https://", "arithmetic: ")), link


def test_a_published_figure_is_of_a_known_link_and_operation() -> None:
    assert len(load_published()) > 50
    for figure in load_published():
        operation = OPERATIONS[figure.operation]
        assert operation.busbw_factor is not None
        assert find_gpu(figure.gpu) is not None, figure
        algbw = figure.busbw_bytes_per_s / operation.busbw_factor(figure.ranks)
        peak = make_peak(find_link(figure.link))
        found = peak_fraction(operation, figure.ranks, figure.nodes, algbw, peak)
        assert found is not None
        assert 0.4 < found.fraction < 1.1, figure
        assert figure.source.startswith("https://"), figure


def test_a_curve_has_ascending_sizes_and_ends_with_its_figure() -> None:
    curves = [figure for figure in load_published() if figure.curve]
    assert len(curves) > 8
    for figure in curves:
        sizes = [size for size, _ in figure.curve]
        assert sizes == sorted(set(sizes)), figure
        assert figure.curve[-1] == (parse_size(figure.size), figure.busbw_bytes_per_s), figure


def test_a_threshold_is_of_a_known_accelerator_and_network() -> None:
    assert len(load_thresholds()) > 15
    for one in load_thresholds():
        assert find_gpu(one.gpu) is not None, one
        assert not one.nic or find_link(one.nic).per == "node", one
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
    assert parse_peak(text).bytes_per_second == pytest.approx(bytes_per_second, rel=1e-12)


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
        ("nvlnk4", "unknown link 'nvlnk4'", "did you mean nvlink4? `commbench links` lists them"),
        ("-3GB/s", "peak '-3GB/s' is not a bandwidth", "write for example 450GB/s"),
        ("1e3GB/s", "peak '1e3GB/s' is not a bandwidth", "write for example 450GB/s"),
        ("", "unknown link ''", "`commbench links` lists them"),
    ],
)
def test_a_peak_that_could_be_read_in_two_ways_is_refused(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_peak(text)
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
