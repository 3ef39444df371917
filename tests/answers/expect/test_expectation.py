"""Is a bandwidth plausible? Vectors of published figures, and bounds computed by hand."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from commbench.analysis.environment import algorithm_of, fabric_of, peak_remark
from commbench.analysis.rows import ResultRow, make_row
from commbench.answers.expect.bound import Call, find_bound
from commbench.answers.expect.document import bound_text, judgement_text
from commbench.answers.expect.expectation import (
    HIGH,
    IMPOSSIBLE,
    LOW,
    MISTAKES,
    PLAUSIBLE,
    UNKNOWN,
    Expectation,
    choose_row,
    find_demands,
    judge,
    judge_row,
    judge_threshold,
)
from commbench.answers.expect.expectation import find_expectation as expect
from commbench.plan.links import (
    find_gpu,
    load_gpus,
    load_published,
    load_thresholds,
    make_fabric,
    parse_nics,
    parse_peak,
)
from commbench.plan.operations import OPERATIONS
from commbench.plan.plan import Plan
from commbench.results.records import RankInfo
from commbench.results.schema import Batch, Measurement, RunHeader
from commbench.units import parse_size

GB = 1e9


def call(gpu: str, ranks: int = 8, nodes: int = 1, nic: str = "", **more: Any) -> Call:
    model = find_gpu(gpu)
    fabric = make_fabric(model, parse_nics(nic, model) if nic else None)
    return Call(fabric, more.pop("operation", "all_reduce"), ranks, nodes, **more)


@pytest.mark.parametrize(
    ("asked", "busbw", "verdict", "plausible_as"),
    [
        # 480 GB/s with NVLS was the best of 8 x H100, 370 GB/s with a ring.
        (call("h100"), 480, PLAUSIBLE, {}),
        (call("h100"), 370, PLAUSIBLE, {}),
        (call("h200", size_bytes=8 << 30), 473.1, PLAUSIBLE, {}),
        # AWS's health check demands it: 450 x 1.75 = 787.5 is all that the links allow.
        (call("h100"), 800, IMPOSSIBLE, {"Is it the sum of both directions?": 400}),
        (call("h100", 16, 2, "efa"), 800, IMPOSSIBLE, {"Is it the sum of both directions?": 400}),
        (call("b200", 16, 2, "efa"), 900, IMPOSSIBLE, {}),
        (call("a100", 16, 2, "efa"), 300, IMPOSSIBLE, {}),
        (call("h100"), 600, HIGH, {}),
        (call("h100"), 3840, IMPOSSIBLE, {
            "Is it in Gbit/s?": 480, "Is it the sum of all accelerators of a node?": 480}),
        # 47.75 GB/s are 382 Gbit/s; others measured 47.67 GB/s.
        (call("mi300x", 2), 382, IMPOSSIBLE, {"Is it in Gbit/s?": 47.75}),
        (call("h100"), 270, LOW, {"Is it the algorithm bandwidth (--algbw)?": 472.5}),
        (call("a100"), 235.26 / 1.25, PLAUSIBLE, {}),
        (call("a100"), 178, LOW, {"Is it in GiB/s (2^30 bytes per second)?": 191.13}),
        (call("b200", 32, 4, "efa"), 381.8, PLAUSIBLE, {}),
        # busbw x 3/31 is the rate of each accelerator's share of the network.
        (call("b200", 32, 4, "efa"), 381.8 * 3 / 31, LOW, {
            "Is it what one accelerator sends through the network?": 381.8}),
        # NVIDIA/nccl#1221: 430 GB/s on two nodes, 320 on more: the network carries more there.
        (call("h100"), 430, PLAUSIBLE, {}),
        (call("h100", 16, 2, "8x400G"), 430, PLAUSIBLE, {}),
        (call("h100", 32, 4, "8x400G"), 430, HIGH, {}),
        (call("h100", 32, 4, "8x400G"), 320, PLAUSIBLE, {}),
        # Only four nodes were measured: they say the least of two nodes, and not the most.
        (call("b200", 16, 2, "efa"), 600, UNKNOWN, {}),
        (call("b200", 16, 2, "efa"), 381.8, PLAUSIBLE, {}),
        (call("b200", 16, 2, "efa"), 300, LOW, {}),
        # Only two nodes were measured: they say the most of four, and not the least.
        (call("a100", 32, 4, "dgx-a100-ib"), 100, UNKNOWN, {}),
        (call("a100", 32, 4, "dgx-a100-ib"), 220, HIGH, {}),
        (call("h100", 16, 2, "gcp-a3-mega"), 338.8, PLAUSIBLE, {}),
        (call("h100", 16, 2, "gcp-a3-mega"), 380, IMPOSSIBLE, {}),
        (call("gb200", 72, 18), 846.8, PLAUSIBLE, {}),
        (call("l40s"), 45, IMPOSSIBLE, {}),
        (call("l40s"), 25, UNKNOWN, {}),
    ],
)  # fmt: skip
def test_a_bandwidth_is_judged_by_published_figures_and_links(
    asked: Call, busbw: float, verdict: str, plausible_as: dict[str, float]
) -> None:
    found = judge(expect(asked), busbw * GB)
    assert found.verdict == verdict
    named = {what: value / GB for what, value in found.mistakes}
    assert {what: named.get(what) for what in plausible_as} == pytest.approx(plausible_as, rel=1e-3)
    assert bool(found.mistakes) >= bool(plausible_as)
    assert judgement_text(found)
    assert found.source.startswith("https://")


def test_every_published_figure_is_plausible_where_it_was_measured() -> None:
    for one in load_published():
        nic = one.link if one.nodes > 1 else ""
        size = parse_size(one.size) if one.size else None
        asked = call(one.gpu, one.ranks, one.nodes, nic, operation=one.operation, size_bytes=size)
        found = expect(asked)
        assert any(figure.published is one for figure in found.figures), one
        assert judge(found, one.busbw_bytes_per_s).verdict == PLAUSIBLE, one
        for size, busbw in one.curve:
            at_size = expect(asked._replace(size_bytes=size))
            assert judge(at_size, busbw).verdict == PLAUSIBLE, (one, size)


def test_the_thresholds_of_others_that_no_machine_can_reach_are_found() -> None:
    verdicts = {
        (one.who, one.gpu, one.low_bytes_per_s / GB): judge_threshold(one)
        for one in load_thresholds()
    }
    impossible = [name for name, found in verdicts.items() if found.verdict == IMPOSSIBLE]
    assert impossible == [
        ("AWS p4d", "a100", 300.0), ("AWS p5", "h100", 800.0), ("AWS p5en", "h200", 800.0),
        ("AWS p6-b200", "b200", 900.0), ("Alaya NeW", "h100-pcie", 200.0),
        ("Saturn Cloud", "l40s", 40.0),
    ]  # fmt: skip
    assert verdicts["Saturn Cloud", "a100", 250.0].verdict == HIGH
    assert verdicts["Alaya NeW", "h100", 460.0].verdict == PLAUSIBLE
    assert [one.threshold.who for one in find_demands(call("h100"))] == ["Alaya NeW"]
    assert find_demands(call("h100", operation="all_gather")) == ()


@pytest.mark.parametrize(
    ("asked", "busbw"),
    [
        # A ring moves busbw over each link; a switch that reduces saves the factor 2 x 7/8.
        (call("a100"), 300), (call("h100"), 450 * 1.75), (call("h100", algorithm="ring"), 450),
        (call("h100", operation="all_gather"), 450), (call("h100", operation="broadcast"), 450),
        (call("h100", 2), 450), (call("h100", operation="all_to_all"), 450),
        # Each pair of MI300X has a link of 64 GB/s.
        (call("mi300x", 2), 64), (call("mi300x", 4), 192), (call("mi300x", 8), 448),
        # A node sends S x 2(k-1)/k: busbw <= rate x k/(k-1) x (n-1)/n.
        (call("h100", 16, 2, "8x400G"), 400 * 2 * 15 / 16),
        (call("h100", 32, 4, "efa"), 400 * 4 / 3 * 31 / 32),
        # InfiniBand switches can reduce: then a node sends S only.
        (call("h100", 32, 4, "8xib-ndr"), 400 * 2 * 31 / 32),
        (call("h100", 16, 2, "8x400G", algorithm="ring"), 400),
        # A node sends blocks of 1/n of its 8 ranks to 8 others: 8 x 8/16 x S.
        (call("h100", 16, 2, "8x400G", operation="all_to_all"), 400 * 15 / 16 / 4),
        # The slot of each of four pairs that a bridge connects: 2 x 63 x 4/3 x 7/8.
        (call("h100-pcie", 8), 2 * 63 * 4 / 3 * 7 / 8), (call("h100-pcie", 2), 450),
        (call("l40s", 8), 31), (call("gb200", 72, 18), 900 * 2 * 71 / 72),
    ],
)  # fmt: skip
def test_the_bound_of_the_links_is_that_computed_by_hand(asked: Call, busbw: float) -> None:
    bound = find_bound(asked)
    assert bound is not None
    assert bound.busbw_bytes_per_s / GB == pytest.approx(busbw)
    assert f"{bound.speed_bytes_per_s / GB:.3g} GB/s one way per" in bound_text(bound)


def test_what_is_not_known_has_no_bound() -> None:
    assert find_bound(call("h100", 1)) is None
    assert find_bound(call("unheard-of")) is None
    assert find_bound(call("h100", operation="barrier")) is None
    assert find_bound(call("mi300x", 16, 2)) is None  # the network is not known
    assert judge(expect(call("unheard-of")), 1e15).verdict == UNKNOWN


@pytest.mark.parametrize(("ranks", "nodes"), [(16, 2), (2048, 256), (2, 2)])
def test_the_rate_of_a_node_follows_from_the_bus_bandwidth(ranks: int, nodes: int) -> None:
    factor = (nodes - 1) / nodes * ranks / (ranks - 1)
    assert call("h100", ranks, nodes).node_factor == pytest.approx(factor)


def test_a_small_size_is_compared_with_curves_only() -> None:
    found = expect(call("a100", size_bytes=1 << 20))
    assert [busbw for busbw, _ in found.known] == pytest.approx([24.54 * GB])
    ends = found.low_bytes_per_s, found.high_bytes_per_s
    assert ends == pytest.approx((0.8 * 24.54 * GB, 1.1 * 24.54 * GB))
    peaks = expect(call("h100", size_bytes=1 << 20))
    for busbw, verdict in ((100, UNKNOWN), (700, HIGH), (800, IMPOSSIBLE)):
        assert judge(peaks, busbw * GB).verdict == verdict
    # A figure without a curve counts from a quarter of its size on, which is 2 GiB here.
    for size, is_known in ((1 << 29, True), ((1 << 29) - 1, False)):
        assert bool(expect(call("h100", 2, size_bytes=size)).known) == is_known
    between = expect(call("a100", size_bytes=3 << 19)).known
    assert 24.54 * GB < between[0][0] < 39.26 * GB


@pytest.mark.parametrize(
    ("asked", "field", "expected"),
    [
        # The nearest numbers of ranks, or of nodes, count.
        (call("h100", 8), "ranks", {8}), (call("b200", 5), "ranks", {4, 6}),
        (call("h100", 1024, 128, "dgx-h100-ib"), "ranks", {512, 2048}),
        (call("h100", 24, 3, "dgx-h100-ib"), "ranks", {32}),
        # The rate of the network counts, too.
        (call("h100", 16, 2, "efa"), "link", {"hgx-h100-roce"}),
        (call("h100", 16, 2, "8x400G"), "link", {"hgx-h100-roce"}),
        (call("h100", 16, 2, "8x200G"), "link", {"gcp-a3-mega"}),
        (call("h100", 16, 2, "8x100G"), "link", set()),
        (call("h100", 16, 2), "link", {"hgx-h100-roce", "gcp-a3-mega"}),
        (call("gh200", 4, 4), "link", set()),
        (call("h100", 64, 8, "dgx-h100-ib", nccl="2.17.1"), "how", {"ring", ""}),
        (call("h100", 64, 8, "dgx-h100-ib", nccl="2.29.7"), "how", {"NVLSTree"}),
    ],
)  # fmt: skip
def test_figures_of_the_same_fabric_and_version_are_compared(
    asked: Call, field: str, expected: set[Any]
) -> None:
    assert {getattr(figure.published, field) for figure in expect(asked).figures} == expected


def test_the_algorithm_chooses_figures_and_the_tolerance_moves_the_lower_end() -> None:
    ring = expect(call("h100", algorithm="ring"))
    assert (ring.known[0][0], ring.known[-1][0]) == pytest.approx((367.2 * GB, 370 * GB))
    assert judge(ring, 480 * GB).verdict == IMPOSSIBLE
    nvls = expect(call("h100", algorithm="nvls"))
    assert nvls.known[0][0] > 470 * GB
    for below in (0.0, 0.5):
        low = expect(call("a100"), below=below).low_bytes_per_s
        assert low == pytest.approx(234.89 * GB * (1 - below))


@settings(max_examples=60, deadline=None)
@given(
    asked=some.sampled_from(
        [call("h100"), call("a100"), call("b200", 32, 4, "efa"), call("mi300x", 2)]
    ),
    mistake=some.sampled_from(sorted(MISTAKES)),
    part=some.floats(0.001, 0.999),
)
def test_a_mistake_in_a_plausible_bandwidth_is_named(
    asked: Call, mistake: str, part: float
) -> None:
    found = expect(asked)
    low, high = found.low_bytes_per_s, found.high_bytes_per_s
    assert low is not None and high is not None
    true, factor = low + part * (high - low), MISTAKES[mistake](asked)
    judged = judge(found, true / factor)
    if judged.verdict == PLAUSIBLE:
        assert judged.mistakes == ()
    else:
        assert dict(judged.mistakes)[mistake] == pytest.approx(true)


@settings(max_examples=60, deadline=None)
@given(
    gpu=some.sampled_from(["h100", "a100", "b200", "mi300x", "gb200", "l40s", "h100-pcie"]),
    operation=some.sampled_from(sorted(name for name, o in OPERATIONS.items() if o.busbw_factor)),
    per_node=some.integers(1, 16),
    nodes=some.integers(1, 600),
    nic=some.sampled_from(["", "8x400G", "4xib-hdr"]),
    size=some.one_of(some.none(), some.integers(1, 1 << 40)),
)
def test_the_plausible_range_is_in_order_and_possible(
    gpu: str, operation: str, per_node: int, nodes: int, nic: str, size: int | None
) -> None:
    asked = call(gpu, per_node * nodes, nodes, nic, operation=operation, size_bytes=size)
    found: Expectation = expect(asked)
    if found.low_bytes_per_s is not None:
        assert found.high_bytes_per_s is not None or found.call.parts == 2
        assert 0 < found.low_bytes_per_s < (found.high_bytes_per_s or inf)
        assert judge(found, found.low_bytes_per_s).verdict == PLAUSIBLE
    if found.bound:
        most = found.bound.busbw_bytes_per_s
        assert most > 0
        assert judge(found, most * 1.01).verdict == IMPOSSIBLE
        assert found.high_bytes_per_s is None or found.high_bytes_per_s <= most * 1.01


NDR = {"rate": "400 Gb/sec (4X NDR)", "state": "ACTIVE", "link_layer": "InfiniBand"}
GIB = 1 << 30


def header(
    gpu: str = "NVIDIA H100 80GB HBM3", nodes: int = 1, per_node: int = 8, **more: Any
) -> RunHeader:
    """A run of NCCL on nodes of this GPU; on None, of gloo on CPUs."""
    environment, interface = more.pop("environment", {}), more.pop("interface", "")
    asked: dict[str, Any] = {
        "operations": ("all_reduce",), "sizes": (GIB * 8,), "world_size": nodes * per_node,
        "backend": "nccl" if gpu else "gloo", "device": "cuda" if gpu else "cpu",
    }  # fmt: skip
    ranks = tuple(
        RankInfo(
            rank, f"host{rank // per_node}", 1, f"cuda:{rank % per_node} {gpu}" if gpu else "cpu",
            interface=interface,
        )
        for rank in range(nodes * per_node)
    )  # fmt: skip
    wanted = Plan(**asked | more.pop("plan", {}))
    return RunHeader(wanted, "", "", "local", environment, ranks, nodes, **more)


def row(found: RunHeader, busbw: float, index: int = 0) -> ResultRow:
    """The row of a case of the plan that reached this bus bandwidth, in GB/s."""
    case = found.plan.cases()[index]
    seconds = case.size_bytes * (case.busbw_factor or 1.0) / (busbw * 1e9)
    return make_row(found, Measurement(case, "ok", batches=(Batch((seconds,) * 9),)))


@pytest.mark.parametrize(
    ("found", "gpu", "link", "nics"),
    [
        (header(), "h100", "nvlink4", None),
        (header("NVIDIA H20"), None, None, None),
        (header(gpu_shared=True), None, None, None),
        (header(""), None, None, None),
        *(
            (header(environment=environment), "h100", link, None)
            for environment, link in (
                ({"gpu_links": ["a: X NV18", "b: NV18 X"]}, "nvlink4"),
                ({"gpu_links": ["a: X SYS", "b: SYS X"]}, "pcie5-x16"),
                ({"gpu_links": ["a: X ?", "b: ? X"]}, "nvlink4"),
                ({"gpu_links": 7, "hcas": "x"}, "nvlink4"),
                ({"variables": {"NCCL_P2P_DISABLE": "1"}}, "pcie5-x16"),
                ({"hcas": [NDR] * 8}, "nvlink4"),  # on one node
            )
        ),
        *(
            (header(nodes=2, environment={"hcas": hcas}), "h100", "nvlink4", nics)
            for hcas, nics in (
                ([NDR] * 8, 400e9), ([NDR] * 8 + [NDR | {"state": "DOWN"}], 400e9),
                ([NDR] * 8 + [{"rate": "?"}], None), ([NDR | {"link_layer": "Unspecified"}], None),
            )
        ),
        *(
            (header("", 2, 1, interface=own, environment={"interface_speeds": speeds}), None, None,
             nics)
            for own, speeds, nics in (
                ("eth0", {"eth0": "10000 Mbit/s", "eth1": "100 Mbit/s"}, 1.25e9),
                ("eth2", {"eth0": "10000 Mbit/s"}, None), ("eth0", [1], None),
            )
        ),
    ],
)  # fmt: skip
def test_the_header_says_what_connected_the_ranks(
    found: RunHeader, gpu: str | None, link: str | None, nics: float | None
) -> None:
    fabric = fabric_of(found)
    if fabric is None:
        assert (gpu, link, nics) == (None, None, None)
        return
    assert (fabric.gpu and fabric.gpu.name, fabric.link and fabric.link.name) == (gpu, link)
    assert (fabric.nics and fabric.nics.bytes_per_second) == nics


def test_a_row_is_judged_on_the_hardware_of_its_run() -> None:
    for busbw, verdict in ((480, PLAUSIBLE), (60, LOW), (600, HIGH), (800, IMPOSSIBLE)):
        found = judge_row(row(header(), busbw))
        assert found is not None and found.verdict == verdict


def test_a_run_on_cpus_is_only_judged_where_it_exceeds_its_network() -> None:
    speeds = {"interface_speeds": {"eth0": "10000 Mbit/s"}}
    two = header("", 2, 1, interface="eth0", environment=speeds)
    assert choose_row([row(two, 1.1)]) is None
    too_fast = choose_row([row(two, 9.0)])
    assert too_fast is not None
    assert too_fast[1].verdict == IMPOSSIBLE
    assert choose_row([row(header("", 1, 2), 9e9)]) is None


def test_a_row_that_is_impossible_is_chosen_before_the_largest_size() -> None:
    found = header(plan={"sizes": (GIB, 2 * GIB, 4 * GIB)})
    rows = [row(found, 470, 0), row(found, 900, 1), row(found, 480, 2)]
    chosen = choose_row(rows)
    assert chosen is not None and chosen[0] is rows[1]
    chosen = choose_row([rows[0], rows[2]])
    assert chosen is not None and chosen[0] is rows[2]
    assert choose_row([]) is None


def test_calls_that_others_do_not_measure_are_only_called_impossible() -> None:
    found = header(plan={"tensors": ("4",), "forms": ("async",)})
    index = [case.call_form.is_reference for case in found.plan.cases()].index(False)
    for busbw, verdict in ((60, UNKNOWN), (900, IMPOSSIBLE)):
        judged = judge_row(row(found, busbw, index))
        assert judged is not None and judged.verdict == verdict
    assert choose_row([row(found, 60, index)]) is None


def test_the_algorithm_is_that_of_the_log_or_the_only_one_that_a_variable_allows() -> None:
    def asked(value: str) -> str | None:
        return algorithm_of(row(header(environment={"variables": {"NCCL_ALGO": value}}), 370))

    assert [asked(text) for text in ("Ring", "NVLSTree", "ring,tree", "^ring", "")] == [
        "ring", "nvlstree", None, None, None,
    ]  # fmt: skip


NVLINK = "This peak is impossible: the run used NVLink 4: H100, H200, GH200, 450 GB/s one way"


@pytest.mark.parametrize(
    ("peak", "remark"),
    [
        ("450GB/s", ""),
        ("400GB/s", ""),
        ("900GB/s", f"{NVLINK}; the peak is both directions together."),
        ("1TB/s", f"{NVLINK}."),
        ("3600GB/s", f"{NVLINK}; the peak is Gbit/s taken for GB/s."),
        ("800GB/s/node", ""),
    ],
)
def test_a_peak_that_the_links_do_not_have_is_called_out(peak: str, remark: str) -> None:
    assert peak_remark(header(), parse_peak(peak)) == remark
    two = header(nodes=2, environment={"hcas": [NDR] * 8})
    assert peak_remark(two, parse_peak("400GB/s/node")) == ""
    assert "8 x 400 Gbit/s, 400 GB/s" in peak_remark(two, parse_peak("800GB/s/node"))


def test_the_help_names_every_accelerator() -> None:
    from commbench.cli.reading_options import EXPECT

    words = re.findall(r"[\w-]+", EXPECT["gpu"].help)
    assert {gpu.name for gpu in load_gpus()} <= {*words}
