"""What a document of a check has: its answer, its rows, and JSON with every fact."""

from __future__ import annotations

import json
from typing import Any

from synthetic_hosts import checkup, facts, trials

from commbench.doctor.document import RULE, VIEW, document
from commbench.doctor.findings import make_findings
from commbench.doctor.mode_trials import Trial
from commbench.doctor.report import DoctorReport
from commbench.errors import Interrupted, UnavailableError
from commbench.host.gpu_system import GpuSystem, Hca
from commbench.host.gpus import Gpu
from commbench.views.document import BAD, GOOD, Items, Table

REFUSED = Trial(0, "realtime", trouble=UnavailableError("this user may not use SCHED_FIFO"))
TIMES = {"plain": (8e-3, 9e-3, 10e-3), "quiet": (4e-3, 4e-3, 5e-3), "batch": (7e-3, 8e-3, 9e-3)}


def whole(**other: Any) -> DoctorReport:
    gpu = Gpu("0000:01:00.0", "NVIDIA H200", 0, 16, 16, "32.0 GT/s PCIe", 4, ecc=True)
    hca = Hca("mlx5_0:1", "0000:18:00.0", "400 Gb/sec (4X NDR)", "ACTIVE", "InfiniBand", 0)
    usual: dict[str, Any] = {
        "facts": facts(cpu_limit=2.5, throttled_share=0.25, busy_share=0.3),
        "gpus": (gpu,),
        "gpu_system": GpuSystem("570.86.15", ("0000:01:00.0: X PIX",), (hca,), gpudirect=True),
        "trials": (*trials(TIMES, stalled_share=0.125), REFUSED),
    }
    report = checkup(**usual | other)
    return report._replace(findings=make_findings(report))


def notes(report: DoctorReport) -> str:
    return " ".join(
        text for b in document(report).blocks if isinstance(b, Items) for text in b.texts
    )


def test_problems_are_in_the_answer() -> None:
    found = document(whole())
    assert (found.answer, found.tone) == (["1 problem: busy_cores."], BAD)
    sound = document(checkup())
    assert (sound.answer, sound.tone) == (["No problems found."], GOOD)
    untried = document(checkup(trials=()))
    assert (untried.answer, untried.tone) == (["No problems found, but no CPU mode was tried."], "")


def test_the_tables_have_limits_and_effects() -> None:
    limits, effects = (block for block in document(whole()).blocks if isinstance(block, Table))
    assert [what for what, *_ in limits.rows][-1] == "gloo, quiet, 16 MiB"
    assert [(row.mode, row.verdict) for row in effects.rows] == [
        ("plain", ""), ("plain", ""), ("quiet", "faster"), ("quiet", "faster"),
        ("batch", "undecided"), ("batch", "undecided"),
    ]  # fmt: skip


def test_what_was_refused_or_not_tried_is_said() -> None:
    said = notes(whole())
    assert "realtime is not available here: this user may not use SCHED_FIFO." in said
    assert "Not tried, because the check ended before: pinned." in said
    assert "after 9 of 12 launches. --seconds 70 is" in said


def test_a_check_that_was_stopped_claims_nothing() -> None:
    stopped = whole(ended=Interrupted("stopped by SIGINT"), facts=facts())
    found = document(stopped)
    assert found.answer == [
        "The check was stopped before its end, so the CPU modes are not compared."
    ]
    (_, effects) = (block for block in found.blocks if isinstance(block, Table))
    assert {(row.verdict, row.chance) for row in effects.rows} == {("", None)}
    assert RULE not in notes(stopped) and "launches" not in notes(stopped)
    (clock,) = document(whole(ended=stopped.ended, facts=facts(clock_source="hpet"))).answer
    assert clock.endswith("It found 1 problem: clock_source.")


def test_a_check_that_found_nothing_out_is_a_document_too() -> None:
    nothing = checkup(facts=None, ceilings=None, trials=(), meanwhile=None)
    assert VIEW.write(nothing).startswith("What disturbs")


def test_json_has_every_fact_and_null_for_what_is_not_known() -> None:
    found = json.loads(VIEW.write(whole(ended=Interrupted("stopped by SIGINT")), "json"))
    assert list(found) == [
        "schema", "commbench", "ranks_fit", "request", "facts", "gpus", "gpu_system",
        "ceilings", "trials", "meanwhile", "ended", "findings", "effects", "modes",
    ]  # fmt: skip
    assert found["ended"] == "stopped by SIGINT"
    assert found["request"] == {"ranks": 2, "rounds": 3, "seconds": 60.0, "seed": 0}
    assert (found["facts"]["cache_bytes"], found["ranks_fit"]) == (None, 2)
    loopback = found["ceilings"]["loopback_bytes_per_s"]
    assert loopback == {"value": 5e9, "low": 4e9, "high": 6e9}
    assert found["trials"][-1]["trouble"] == "this user may not use SCHED_FIFO"
