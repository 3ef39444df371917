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
from commbench.answers.check.expected import parse_hardware
from commbench.errors import CommbenchError, UsageError

LOGS = Path(__file__).parents[2] / "data" / "nccl-tests"
A100 = LOGS / "nccl_allreduce.log"
SOURCE = "https://github.com/stas00/ml-engineering/blob/master/network/README.md"


def check(**options: Any) -> Any:
    return cb.check(A100, op="all_reduce", allow_unchecked=True, **options)


def text_of(gate: Any) -> str:
    return " ".join(VIEW.write(gate).split())


def test_a_run_is_compared_with_others_on_the_hardware_that_it_names() -> None:
    gate = check(expect="run")
    assert (gate.outcome, gate.exit_code) == ("pass", 0)
    expected, possible = gate.results
    passed = {c.case.size_bytes for c in expected.with_outcome("pass")}
    assert passed == {1 << power for power in range(16, 34)}  # curves begin at 64 KiB
    assert {c.reason for c in expected.with_outcome("not measured")} == {
        "nothing comparable was published"
    }
    assert {c.rule.value for c in possible.checks} == {300e9}
    assert expected.rule.title == (
        "bus bandwidth as expected of A100: at most 20 % below the lowest figure of others"
    )


def test_a_run_on_slower_hardware_than_it_should_have_fails() -> None:
    gate = check(expect="h100")
    assert (gate.outcome, gate.exit_code) == ("fail", 1)
    text = text_of(gate)
    assert "512 MiB has a bus bandwidth of 223.7 GB/s" in text
    assert "(rule: bus bandwidth at least 296 GB/s, as expected of H100)" in text
    assert "235 GB/s is low: others measured 367.2 to 480 GB/s" in text
    assert "nccl-tests/issues/212" in text


def test_a_bandwidth_that_no_link_carries_fails() -> None:
    gate = check(expect="l40s")
    expected, possible = gate.results
    assert (expected.outcome, possible.outcome, gate.exit_code) == ("no verdict", "fail", 1)
    (worst,) = [c for c in possible.with_outcome("fail") if c.case.size_bytes == 8 << 30][:1]
    assert worst.rule.value == 31e9
    assert "is impossible: at most 31 GB/s are possible" in text_of(gate)


def test_there_is_no_verdict_where_nothing_is_known() -> None:
    gloo = in_memory("gloo", [steady(1e-4)])
    gate = cb.check(gloo, expect="run")
    assert (gate.outcome, gate.exit_code) == ("no verdict", 7)
    assert "nothing is known of its hardware" in text_of(gate)
    gate = check(expect="mi250x")
    assert (gate.results[0].outcome, gate.exit_code) == ("no verdict", 7)


@pytest.mark.parametrize(("tolerance", "part"), [("0%", 0.0), ("1%", 0.01), (0.5, 0.5)])
def test_the_tolerance_is_how_far_below_others_a_row_may_be(
    tolerance: str | float, part: float
) -> None:
    gate = check(expect="run", tolerance=tolerance)
    limits = {c.rule.value for c in gate.results[0].checks if c.case.size_bytes == 8 << 30}
    assert limits == {234.89e9 * (1 - part)}


def test_every_format_names_the_source() -> None:
    gate = check(expect="run")
    assert SOURCE in text_of(gate)
    assert SOURCE in html.unescape(VIEW.write(gate, "markdown"))
    root = ElementTree.fromstring(gate_junit(gate))
    assert root.get("failures") == "0"
    outputs = [case.text or "" for suite in root[:2] for case in suite.iter("system-out")]
    assert outputs and all(SOURCE in text for text in outputs)
    document = json.loads(VIEW.write(gate, "json"))
    assert (document["outcome"], document["exit_code"]) == ("pass", 0)
    for rule in document["rules"]:
        assert any(SOURCE in note for note in rule["notes"])
        assert all(row["limit"] > 0 for row in rule["rows"] if row["outcome"] == "pass")
    failing = check(expect="h100")
    assert any("nccl-tests/issues/212" in unquote(line) for line in make_annotations(failing))
    failures = ElementTree.fromstring(gate_junit(failing))[0].iter("failure")
    assert all("Source" in failure.get("message", "") for failure in failures)


def test_a_limit_that_the_hardware_makes_impossible_is_called_out() -> None:
    for limit, said in (
        ({"min_busbw": "800GB/s"}, "800 GB/s is impossible: at most 300 GB/s are possible"),
        ({"max_time": "all_reduce:8G:10ms"}, "is impossible: at most 300 GB/s are possible"),
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
    found = parse_hardware(text)
    assert found is not None and found.fabric.gpu is not None
    assert (found.fabric.gpu.name, found.nodes) == (gpu, nodes)
    assert (found.fabric.nics and found.fabric.nics.bytes_per_second) == rate


@pytest.mark.parametrize(
    "text", ["", "foo", "h100:", "h100:efa:efa", "h100:0 nodes", "h100:x nodes", "mi300x:efa"]
)
def test_hardware_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_hardware(text)
    assert refused.value.hint
    assert parse_hardware("run") is None


def test_a_misspelt_accelerator_is_refused_with_the_closest_name() -> None:
    with pytest.raises(UsageError, match="--expect 'h20' is no known accelerator") as refused:
        parse_hardware("h20:8x400G")
    assert refused.value.hint == "did you mean h200? or run, the hardware that the run names"


def test_the_tolerance_alone_is_refused_and_a_csv_names_no_hardware(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tolerance belongs to --expect"):
        check(tolerance="5%")
    run = cb.import_results(A100, op="all_reduce", output=tmp_path / "new")
    table = Path(run.path) / "results.csv"
    with pytest.raises(CommbenchError, match="does not say what hardware") as refused:
        cb.check(table, expect="run")
    assert refused.value.exit_code == 6
    assert cb.check(table, expect="a100", allow_unchecked=True).outcome == "pass"
