"""What a run's header says of its hardware, and what is expected of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commbench.analysis.load import open_run
from commbench.analysis.rows import ResultRow, make_row, make_rows
from commbench.expect.expectation import HIGH, IMPOSSIBLE, LOW, PLAUSIBLE, UNKNOWN
from commbench.expect.rows import (
    algorithm_of,
    choose_row,
    fabric_of,
    judge_row,
    peak_remark,
)
from commbench.importers.hints import ImportHints
from commbench.results.schema import Batch, Measurement, RankInfo, RunHeader
from commbench.spec.links import parse_peak
from commbench.spec.plan import Plan

DATA = Path(__file__).parents[1] / "data"
NDR = {"rate": "400 Gb/sec (4X NDR)", "state": "ACTIVE", "link_layer": "InfiniBand"}
GIB = 1 << 30


def header(
    gpu: str = "NVIDIA H100 80GB HBM3", nodes: int = 1, per_node: int = 8, **more: Any
) -> RunHeader:
    """A run of NCCL on nodes of this GPU; on None, of gloo on CPUs."""
    facts = {name: more.pop(name) for name in list(more) if name in ("interface",)}
    environment = more.pop("environment", {})
    asked: dict[str, Any] = {
        "operations": ("all_reduce",), "sizes": (GIB * 8,), "world_size": nodes * per_node,
        "backend": "nccl" if gpu else "gloo", "device": "cuda" if gpu else "cpu",
    }  # fmt: skip
    ranks = tuple(
        RankInfo(
            rank, f"host{rank // per_node}", 1, f"cuda:{rank % per_node} {gpu}" if gpu else "cpu",
            interface=facts.get("interface", ""),
        )
        for rank in range(nodes * per_node)
    )  # fmt: skip
    return RunHeader(
        Plan(**asked | more.pop("plan", {})), "", "", "local", environment, ranks, nodes, **more
    )


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
        (header(environment={"gpu_links": ["a: X NV18", "b: NV18 X"]}), "h100", "nvlink4", None),
        (header(environment={"gpu_links": ["a: X SYS", "b: SYS X"]}), "h100", "pcie5-x16", None),
        (header(environment={"gpu_links": ["a: X ?", "b: ? X"]}), "h100", "nvlink4", None),
        (header(environment={"gpu_links": 7, "hcas": "x"}), "h100", "nvlink4", None),
        (header(environment={"variables": {"NCCL_P2P_DISABLE": "1"}}), "h100", "pcie5-x16", None),
        (header(nodes=2, environment={"hcas": [NDR] * 8}), "h100", "nvlink4", 400e9),
        (header(nodes=2, environment={"hcas": [NDR] * 8 + [NDR | {"state": "DOWN"}]}), "h100",
         "nvlink4", 400e9),
        (header(nodes=2, environment={"hcas": [NDR] * 8 + [{"rate": "?"}]}), "h100", "nvlink4",
         None),
        (header(nodes=2, environment={"hcas": [NDR | {"link_layer": "Unspecified"}]}), "h100",
         "nvlink4", None),
        (header(nodes=1, environment={"hcas": [NDR] * 8}), "h100", "nvlink4", None),
        (header(gpu_shared=True), None, None, None),
        (header(""), None, None, None),
        (header("", 2, 1, interface="eth0", environment={"interface_speeds": {
            "eth0": "10000 Mbit/s", "eth1": "100 Mbit/s"}}), None, None, 1.25e9),
        (header("", 2, 1, interface="eth2", environment={"interface_speeds": {
            "eth0": "10000 Mbit/s"}}), None, None, None),
        (header("", 2, 1, interface="eth0", environment={"interface_speeds": [1]}), None, None,
         None),
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


@pytest.mark.parametrize(("busbw", "verdict"), [
    (480, PLAUSIBLE), (60, LOW), (600, HIGH), (800, IMPOSSIBLE),
])  # fmt: skip
def test_a_row_is_judged_on_the_hardware_of_its_run(busbw: float, verdict: str) -> None:
    found = judge_row(row(header(), busbw))
    assert found is not None and found.verdict == verdict


def test_the_network_limits_a_run_of_several_nodes() -> None:
    two = header(nodes=2, environment={"hcas": [NDR] * 8})
    for busbw, verdict in ((365, PLAUSIBLE), (740, HIGH), (760, IMPOSSIBLE)):
        found = judge_row(row(two, busbw))
        assert found is not None and found.verdict == verdict


def test_a_run_on_cpus_is_only_judged_where_it_exceeds_its_network() -> None:
    speeds = {"interface_speeds": {"eth0": "10000 Mbit/s"}}
    two = header("", 2, 1, interface="eth0", environment=speeds)
    assert choose_row([row(two, 1.1)]) is None
    too_fast = choose_row([row(two, 9.0)])
    assert too_fast is not None
    assert too_fast.judgement.verdict == IMPOSSIBLE
    assert choose_row([row(header("", 1, 2), 9e9)]) is None


def test_a_row_that_is_impossible_is_chosen_before_the_largest_size() -> None:
    found = header(plan={"sizes": (GIB, 2 * GIB, 4 * GIB)})
    rows = [row(found, 470, 0), row(found, 900, 1), row(found, 480, 2)]
    chosen = choose_row(rows)
    assert chosen is not None and chosen.row is rows[1]
    chosen = choose_row([rows[0], rows[2]])
    assert chosen is not None and chosen.row is rows[2]
    assert choose_row([]) is None


def test_calls_that_others_do_not_measure_are_only_called_impossible() -> None:
    found = header(plan={"tensors": ("4",), "forms": ("async",)})
    forms = [
        index for index, case in enumerate(found.plan.cases())
        if not case.call_form.is_reference
    ]  # fmt: skip
    assert forms
    for busbw, verdict in ((60, UNKNOWN), (900, IMPOSSIBLE)):
        judged = judge_row(row(found, busbw, forms[0]))
        assert judged is not None and judged.verdict == verdict
    assert choose_row([row(found, 60, forms[0])]) is None


def test_the_algorithm_is_that_of_the_log_or_the_only_one_that_a_variable_allows() -> None:
    def asked(value: str) -> str | None:
        return algorithm_of(row(header(environment={"variables": {"NCCL_ALGO": value}}), 370))

    assert [asked(text) for text in ("Ring", "NVLSTree", "ring,tree", "^ring", "")] == [
        "ring", "nvlstree", None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "operation", "busbw"),
    [("allreduce", "all_reduce", 235.03), ("allgather", "all_gather", 230.07),
     ("alltoall", "all_to_all", 226.16)],
)  # fmt: skip
def test_real_output_of_nccl_tests_is_plausible(name: str, operation: str, busbw: float) -> None:
    path = DATA / "nccl-tests" / f"nccl_{name}.log"
    rows = make_rows(open_run(path, ImportHints(operation=operation)))
    chosen = choose_row(rows)
    assert chosen is not None
    assert chosen.row.measurement.case.size_bytes == 8 << 30
    assert chosen.judgement.verdict == PLAUSIBLE
    assert chosen.judgement.busbw_bytes_per_s / 1e9 == pytest.approx(busbw, rel=0.05)
    verdicts = {found.verdict for one in rows if (found := judge_row(one))}
    assert verdicts <= {PLAUSIBLE, UNKNOWN}


@pytest.mark.parametrize(
    ("peak", "remark"),
    [
        ("450GB/s", ""), ("400GB/s", ""),
        ("900GB/s", "This peak is impossible: the run used NVLink 4: H100, H200, GH200, 450 GB/s "
         "one way; the peak is both directions together."),
        ("1TB/s", "This peak is impossible: the run used NVLink 4: H100, H200, GH200, 450 GB/s "
         "one way."),
        ("3600GB/s", "This peak is impossible: the run used NVLink 4: H100, H200, GH200, 450 GB/s "
         "one way; the peak is Gbit/s taken for GB/s."),
        ("800GB/s/node", ""),
    ],
)  # fmt: skip
def test_a_peak_that_the_links_do_not_have_is_called_out(peak: str, remark: str) -> None:
    assert peak_remark(header(), parse_peak(peak)) == remark


def test_a_peak_of_a_node_is_compared_with_its_network() -> None:
    two = header(nodes=2, environment={"hcas": [NDR] * 8})
    assert peak_remark(two, parse_peak("400GB/s/node")) == ""
    assert "8 x 400 Gbit/s, 400 GB/s" in peak_remark(two, parse_peak("800GB/s/node"))
