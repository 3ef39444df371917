"""`commbench check --expect`: a gate whose limits are those of published figures and of links."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from synthetic import in_memory, steady

import commbench as cb
from commbench.answers.check.document import VIEW, gate_junit, make_annotations
from commbench.errors import CommbenchError, UsageError
from commbench.plan.links import parse_hardware

LOGS = Path(__file__).parents[2] / "data" / "nccl-tests"
A100 = LOGS / "nccl_allreduce.log"
SOURCE = "https://github.com/stas00/ml-engineering/blob/master/network/README.md"


def check(log: Path = A100, **options: Any) -> Any:
    return cb.check(log, op="all_reduce", allow_unchecked=True, **options)


def log_of(device: str, folder: Path) -> Path:
    """The log of A100, as if other devices had measured it."""
    log = folder / "other.log"
    log.write_text(A100.read_text().replace("A100-SXM4", device))
    return log


def text_of(gate: Any) -> str:
    return " ".join(VIEW.write(gate).split())


def test_a_run_is_compared_with_others_on_the_hardware_that_it_names() -> None:
    gate = check(expect="run")
    assert (gate.outcome, gate.exit_code) == ("pass", 0)
    expected, possible = gate.results
    passed = {c.case.size_bytes for c in expected.with_outcome("pass")}
    assert passed == {1 << power for power in range(16, 34)}  # curves begin at 64 KiB
    assert {c.reason for c in expected.with_outcome("not measured")} == {
        "no published figures for such calls"
    }
    assert {c.rule.value for c in possible.checks} == {300e9}
    assert expected.rule.title == (
        "bus bandwidth as expected of A100: at most 20 % below the lowest figure of others"
    )


def test_a_run_that_is_slower_than_its_hardware_fails(tmp_path: Path) -> None:
    gate = check(log_of("H100", tmp_path), expect="h100")
    assert (gate.outcome, gate.exit_code) == ("fail", 1)
    text = text_of(gate)
    assert "512 MiB has a bus bandwidth of 224 GB/s" in text
    assert "limit: bus bandwidth at least 296 GB/s, as expected of H100" in text
    assert "235 GB/s is low: 36 % below a ring (367 GB/s)" in text
    assert "nccl-tests/issues/212" in text


def test_a_bandwidth_that_no_link_carries_fails(tmp_path: Path) -> None:
    gate = check(log_of("L40S", tmp_path), expect="l40s")
    expected, possible = gate.results
    assert (expected.outcome, possible.outcome, gate.exit_code) == ("no verdict", "fail", 1)
    (worst,) = [c for c in possible.with_outcome("fail") if c.case.size_bytes == 8 << 30][:1]
    assert worst.rule.value == 31e9
    assert "is impossible: the links allow at most 31 GB/s" in text_of(gate)


def test_there_is_no_verdict_where_nothing_is_known(tmp_path: Path) -> None:
    gloo = in_memory("gloo", [steady(1e-4)])
    for run in (in_memory("waited", [steady(1e-4)], elapsed_s=1.0, queued_s=0.9), gloo):
        gate = cb.check(run, expect="run")
        assert "idle host" not in text_of(gate)
    assert (gate.outcome, gate.exit_code) == ("no verdict", 7)
    assert "cannot be judged: no published figures for gloo on this CPU." in text_of(gate)
    gate = check(log_of("MI250X", tmp_path), expect="mi250x")
    assert (gate.results[0].outcome, gate.exit_code) == ("no verdict", 7)


@pytest.mark.parametrize(("tolerance", "part"), [("0%", 0.0), ("1%", 0.01), (0.5, 0.5)])
def test_the_tolerance_is_how_far_below_others_a_row_may_be(
    tolerance: str | float, part: float
) -> None:
    gate = check(expect="run", tolerance=tolerance)
    limits = {c.rule.value for c in gate.results[0].checks if c.case.size_bytes == 8 << 30}
    assert limits == {234.89e9 * (1 - part)}


def test_the_accelerator_of_the_run_decides() -> None:
    gloo = in_memory("gloo", [steady(1e-4)])
    for run, ran in ((gloo, "CPUs"), (A100, "A100")):
        with pytest.raises(UsageError, match=f" used {ran}, not H100"):
            cb.check(run, expect="h100", op="all_reduce" if run is A100 else None)


def test_every_format_names_the_source(tmp_path: Path) -> None:
    gate = check(expect="run")
    assert SOURCE in text_of(gate)
    assert SOURCE in html.unescape(VIEW.write(gate, "markdown"))
    root = ElementTree.fromstring(gate_junit(gate))
    assert root.get("failures") == "0"
    outputs = [case.text or "" for case in root.iterfind(".//testcase/system-out")]
    assert outputs and all(SOURCE in text for text in outputs)
    document = json.loads(VIEW.write(gate, "json"))
    assert (document["outcome"], document["exit_code"]) == ("pass", 0)
    for rule in document["rules"]:
        assert any(SOURCE in note for note in rule["notes"])
        assert all(row["limit"] > 0 for row in rule["rows"] if row["outcome"] == "pass")
    failing = check(log_of("H100", tmp_path), expect="h100")
    assert any("nccl-tests/issues/212" in unquote(line) for line in make_annotations(failing))
    failures = ElementTree.fromstring(gate_junit(failing))[0].iter("failure")
    assert all("Source" in (failure.text or "") for failure in failures)


def test_a_limit_that_the_hardware_makes_impossible_is_called_out() -> None:
    for limit, said in (
        ({"min_busbw": "800GB/s"}, "800 GB/s is impossible: the links allow at most 300 GB/s"),
        ({"max_time": "all_reduce:8G:10ms"}, "is impossible: the links allow at most 300 GB/s"),
        ({"min_busbw": "all_reduce:8G:290GB/s"}, "290 GB/s is high: "),
    ):
        text = text_of(check(**limit))
        assert "The limit of all_reduce float32" in text and said in text and SOURCE in text
    assert "The limit of" not in text_of(check(min_busbw="all_reduce:8G:230GB/s"))


@pytest.mark.parametrize(
    ("text", "gpu", "nodes", "rate"),
    [
        ("h100", "h100", None, None), ("h100:2 nodes", "h100", 2, None),
        ("h100:efa", "h100", None, 400e9), ("h100:8x400G:4 nodes", "h100", 4, 400e9),
        ("a100 : 1 node : 4xib-hdr", "a100", 1, 100e9),
    ],
)  # fmt: skip
def test_hardware_is_an_accelerator_its_network_and_nodes(
    text: str, gpu: str, nodes: int | None, rate: float | None
) -> None:
    found = parse_hardware(text, "--expect", "run")
    assert found.fabric.gpu is not None
    assert (found.fabric.gpu.name, found.nodes) == (gpu, nodes)
    assert (found.fabric.nics and found.fabric.nics.bytes_per_second) == rate


@pytest.mark.parametrize(
    "text",
    ["", "foo", "h100:", "h100:efa:efa", "h100:0 nodes", "h100:x nodes", "mi300x:efa", "h20:efa"],
)
def test_hardware_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_hardware(text, "--expect", "run")
    assert refused.value.hint
    if text.startswith("h20:"):
        assert refused.value.message == "--expect 'h20' is no known accelerator"
        assert refused.value.hint.startswith("did you mean h200? `commbench expect --help` lists")


def test_the_tolerance_alone_is_refused_and_a_csv_names_no_hardware(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tolerance belongs to --expect"):
        check(tolerance="5%")
    run = cb.import_results(A100, op="all_reduce", output=tmp_path / "new")
    table = Path(run.path) / "results.csv"
    with pytest.raises(CommbenchError, match="does not say what hardware") as refused:
        cb.check(table, expect="run")
    assert refused.value.exit_code == 6
    assert cb.check(table, expect="a100", allow_unchecked=True).outcome == "pass"
