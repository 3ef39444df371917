"""The smoke test: every operation on real ranks, and each way in which it can say no."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import Commbench, run_program_as

from commbench.errors import UnavailableError
from commbench.plan.operations import OPERATION_SETS, OPERATIONS
from commbench.runner.smoke import SmokeResult

SMOKED = (*OPERATION_SETS["all"], *OPERATION_SETS["p2p"])

BREAK_ALL_GATHER = """
from commbench.plan import operations
from commbench.plan.operations import OPERATIONS
from commbench.errors import RankError
from commbench.runner.smoke import OperationResult, SmokeResult, plan_smoke
from commbench.runner.smoke import VIEW
operations.OPERATION_SETS |= {"all": ("all_reduce", "all_gather"), "p2p": ("send_recv",)}
healthy = OPERATIONS["all_gather"].call
def corrupt(dist, b):
    healthy(dist, b)
    b.receive[0] += 1
OPERATIONS["all_gather"] = OPERATIONS["all_gather"]._replace(call=corrupt)
"""

LOSE_A_RANK = """
import os
from commbench.plan.operations import OPERATIONS
OPERATIONS["gather"] = OPERATIONS["gather"]._replace(
    call=lambda dist, b: os._exit(7) if b.rank == 1 else dist.barrier()
)
"""


INTERRUPT = """
import os, signal, time
from commbench.plan.operations import OPERATIONS
starter = os.getpid()
def stop(dist, b):
    os.kill(starter, signal.SIGINT)
    time.sleep(60)
OPERATIONS["gather"] = OPERATIONS["gather"]._replace(call=stop)
"""


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(3, marks=pytest.mark.full)])
def test_everything_works_with_gloo(commbench: Commbench, tmp_path: Path, ranks: int) -> None:
    ended = commbench("smoke", "--junit", "report.xml", "--nproc-per-node", str(ranks))
    names = [name for name in SMOKED if OPERATIONS[name].min_ranks <= ranks]
    number = 15 if ranks > 1 else 9
    told = f"checking {number} operations with {ranks} gloo rank{'s' * (ranks > 1)} on cpu\n"
    assert (ended.code, ended.err[: len(told)]) == (0, told)
    verdict = f"PASS: {number} of {number} operations work and give right results \\("
    assert re.search(rf"(?m)^{verdict}", ended.out)
    rows = re.findall(r"(?m)^  (\w+) +ok +(\d+)$", ended.out)
    assert rows == [(name, "9" if OPERATIONS[name].has_data else "1") for name in names]
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == (str(number), "0")
    assert [case.get("name") for case in suite] == names


def test_wrong_results_are_printed_and_reported(tmp_path: Path) -> None:
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    ended = run_program_as(tmp_path, BREAK_ALL_GATHER, "smoke", "--junit", "report.xml", **here)
    assert ended.code == 5
    assert re.search(r"all_gather +FAIL +9 +all_gather float32 out_of_place", ended.out)
    (error,) = (line for line in ended.err.splitlines() if line.startswith("error: "))
    assert re.match(r"error: all_gather float32 .* has \d+ wrong elements?; ", error)
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    (failed,) = [case for case in suite if len(case)]
    assert failed.get("name") == "all_gather"
    assert "expected" in (failed[0].get("message") or "")
    command = ended.out.splitlines()[-1]
    assert command.startswith("::error title=commbench smoke::FAIL: 2 of 3 operations work and ")
    assert "%0Aall_gather: all_gather float32 out_of_place 1000 B: wrong, " in command
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("# 🔴 commbench smoke\n")
    assert "**FAIL: 2 of 3 operations work and " in summary and "| all_reduce | ok | 9 |" in summary


def test_a_rank_that_dies_is_named_and_what_came_before_is_told(tmp_path: Path) -> None:
    ended = run_program_as(tmp_path, LOSE_A_RANK, "smoke", "--junit", "report.xml")
    assert ended.code == 4
    assert "rank 1 on" in ended.err and "exit code 7" in ended.err
    assert "\nFAIL: " in ended.out
    assert re.search(r"gather +not measured +0 +the run ended after 0 of 9 cases", ended.out)
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    (failed,) = suite.findall("testcase/failure/..")
    assert failed.get("name") == "the run" and "rank 1 on" in (failed[0].get("message") or "")
    skipped = {case.get("name") for case in suite.findall("testcase/skipped/..")}
    assert "gather" in skipped <= set(SMOKED)


def test_what_was_not_reached_before_ctrl_c_does_not_fail(tmp_path: Path) -> None:
    ended = run_program_as(tmp_path, INTERRUPT, "smoke", "--junit", "report.xml")
    assert (ended.code, ended.err.splitlines()[-2]) == (130, "error: stopped by SIGINT")
    told = r"(?m)^STOPPED: \d+ of 15 operations work and give right results; the run ended before"
    assert re.search(told, ended.out) and "FAIL" not in ended.out
    assert re.search(r"gather +not measured +0 +the run ended after 0 of 9 cases", ended.out)
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert suite.get("failures") == "1" and suite[-1].get("name") == "the run"


def test_a_result_is_true_only_where_everything_works() -> None:
    errors = None, UnavailableError("gather cannot be run here")
    assert [bool(SmokeResult(2, "gloo", "cpu", (), each, 1.0)) for each in errors] == [True, False]


@pytest.mark.full
def test_every_operation_works_in_the_groups_of_a_mesh(commbench: Commbench) -> None:
    ended = commbench("smoke", "--mesh", "dp=2,tp=2")
    assert ended.code == 0, ended.err
    assert ended.err.startswith("4 gloo ranks on cpu")
    assert "all_to_all" in ended.out
