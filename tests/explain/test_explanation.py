"""What a replayed step is made of, and what a document says of each kind of row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_replay import synthetic_replay
from synthetic_rows import batches, plan

from commbench.analysis.load import open_run
from commbench.analysis.rows import link_references, make_row, make_rows
from commbench.explain.document import VIEW, fact_text
from commbench.explain.explanation import Explanation, explain_row, explain_run
from commbench.results.schema import Measurement, RunHeader
from commbench.spec.links import parse_peak
from commbench.spec.operations import OPERATIONS, REPLAY

RUNS = Path(__file__).parents[1] / "golden" / "data" / "runs"


def test_a_step_has_its_calls_and_what_they_take_alone_but_no_bandwidth(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run"))
    first, *_, last = explain_run(run, OPERATIONS[REPLAY]).rows
    facts = {fact.name: fact for fact in first.facts}
    assert facts["step"].how == "of the workload resnet"
    assert (first.get("calls of rank 0"), facts["calls of rank 0"].how) == (
        3, "3 all_reduce over world",
    )  # fmt: skip
    assert first.get("their bytes") == 6 << 20
    # 20 us and 1 ns a byte for each of 1, 2 and 3 MiB; the step takes 1 ms.
    assert first.get("one by one") == pytest.approx(6.35e-3, rel=0.02)
    assert first.get("t over the sum") == pytest.approx(0.16, abs=0.005)
    assert first.get("t over its own") is None
    assert last.get("t over its own").value == pytest.approx(2.0, abs=0.1)
    assert not {"busbw", "bound", "peak"} & facts.keys()


def test_a_variant_with_other_calls_has_these(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run", variants=["calls", "bucket:1M"]))
    found = explain_run(run)
    steps = [each for each in found.rows if each.get("step")]
    assert [each.get("calls of rank 0") for each in steps] == [3, 6]
    assert {each.get("their bytes") for each in steps} == {6 << 20}
    said = " ".join(VIEW.write(found).split())
    assert "bucket:1M its neighbouring all_reduces cut into others of 1M" in said


def test_a_form_of_a_call_is_explained_with_its_tensors_and_its_ratio() -> None:
    asked = plan(sizes=(1001,), tensors=("4",), forms=("separate",))
    header = RunHeader(plan=asked, label="made-up", started="", launcher="local")
    flat, separate = link_references(
        [
            make_row(header, Measurement(case=case, status="ok", batches=batches((1e-4 * n,) * 6)))
            for n, case in enumerate(asked.cases(), start=2)
        ]
    )
    found = explain_row(separate)
    assert found.get("count") == "248 float32"
    assert found.get("asked for") == 1001
    assert (found.get("tensors"), found.get("form of the call")) == (4, "separate")
    assert found.get("over a direct call") == pytest.approx(1.5)
    hows = [fact.how for row in (flat, separate) for fact in explain_row(row).facts
            if fact.name == "tensors"]  # fmt: skip
    assert hows == ["as one here", "each with its own memory"]


@pytest.mark.parametrize(
    "name", sorted({path.parent.name for path in RUNS.glob("*/run.jsonl")} - {"damaged"})
)
def test_every_row_of_recorded_runs_has_facts_that_can_be_written(name: str) -> None:
    run = open_run(RUNS / name)
    every = make_rows(run)
    for row in every:
        found = explain_row(row, every, parse_peak("1GB/s"))
        assert all(map(fact_text, found.facts))
        assert found.get("time t") == row.time.estimate if row.time else found.get("not timed")
        assert found.get("busbw") == row.busbw or row.measurement.case.step
        json.loads(VIEW.write(Explanation(run.name, (found,)), "json"))
