"""Sentences about traces."""

from __future__ import annotations

from commbench.analysis.trace import TraceAnalysis, TraceOverlap
from commbench.analysis.trace_groups import GroupSets
from commbench.report.workload_text import overlap_sentence
from commbench.spec.workload import Workload

ANALYSIS = TraceAnalysis(
    (), 2, (), None, GroupSets({}, {}, ()), (), Workload("w", "", 2, {}, ()), (), None, ()
)


def test_communication_without_computation_beside_it_is_not_hidden() -> None:
    said = overlap_sentence(ANALYSIS, TraceOverlap(2e-3, 2e-3 - 1e-12, 0.0))
    assert said.startswith(
        "Communication takes 2.00 ms of a step: 2.00 ms exposed, and none hidden behind operators."
    )
    said = overlap_sentence(ANALYSIS, TraceOverlap(2e-3, 1e-3, 5e-3))
    assert "1.00 ms exposed, and 1.00 ms (50 %) hidden behind operators." in said
