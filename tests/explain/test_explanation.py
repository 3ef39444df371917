"""What a replayed step is made of, and what a document says of each kind of row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_replay import synthetic_replay
from synthetic_rows import batches, plan

from commbench.analysis.load import open_run
from commbench.analysis.rows import link_references, make_row
from commbench.explain.document import VIEW
from commbench.explain.explanation import explain_row, explain_run
from commbench.explain.facts import row_facts
from commbench.results.schema import Measurement, RunHeader
from commbench.spec.operations import OPERATIONS, REPLAY


def test_a_step_has_its_calls_and_what_they_take_alone_but_no_bandwidth(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run"))
    first, *_, last = explain_run(run, OPERATIONS[REPLAY]).rows
    step = first.step
    assert step is not None and last.step is not None
    assert (step.workload, step.rank, step.calls) == ("resnet", 0, {"all_reduce over world": 3})
    assert step.size_bytes == 6 << 20
    # 20 us and 1 ns a byte for each of 1, 2 and 3 MiB.
    assert step.alone_s == pytest.approx(6.35e-3, rel=0.02)
    assert step.over_own is None and last.step.over_own is not None
    assert last.step.over_own.value == pytest.approx(2.0, abs=0.1)
    facts = {name: value for name, value, _ in row_facts(first)}
    assert facts["t over the sum"] == "0.16"
    assert not {"busbw", "bound", "peak"} & facts.keys()


def test_a_variant_with_other_calls_has_these(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run", variants=["calls", "bucket:1M"]))
    found = explain_run(run)
    steps = [each.step for each in found.rows if each.step]
    assert [sum(step.calls.values()) for step in steps] == [3, 6]
    assert {step.size_bytes for step in steps} == {6 << 20}
    said = " ".join(VIEW.write(found).split())
    assert "bucket:1M its neighbouring all_reduces cut into others of 1M" in said
    assert json.loads(VIEW.write(found, "json"))["rows"][-1]["step"]["rank"] == 0


def test_a_form_of_a_call_is_explained_with_its_tensors_and_its_ratio() -> None:
    asked = plan(sizes=(1001,), tensors=("4",), forms=("separate",))
    header = RunHeader(plan=asked, label="made-up", started="", launcher="local")
    flat, separate = link_references(
        [
            make_row(header, Measurement(case=case, status="ok", batches=batches((1e-4 * n,) * 6)))
            for n, case in enumerate(asked.cases(), start=2)
        ]
    )
    facts = {name: (value, how) for name, value, how in row_facts(explain_row(separate))}
    assert facts["count"][0] == "248 float32"
    assert facts["asked for"][0] == "1,001 bytes"
    assert facts["tensors"] == ("4", "each with its own memory")
    assert facts["form of the call"][0] == "separate"
    assert facts["over a direct call"][0] == "1.5"
    assert ("tensors", "4", "as one here") in row_facts(explain_row(flat))
