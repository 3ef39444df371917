"""The smoke test: every operation on real ranks, and each way in which it can say no."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import Commbench, run_program_as

from commbench.spec.operations import OPERATIONS

BREAK_ALL_GATHER = """
from commbench.spec.operations import OPERATIONS
healthy = OPERATIONS["all_gather"].call
def corrupt(dist, b):
    healthy(dist, b)
    b.receive[0] += 1
OPERATIONS["all_gather"] = OPERATIONS["all_gather"]._replace(call=corrupt)
"""

LOSE_A_RANK = """
import os
from commbench.spec.operations import OPERATIONS
OPERATIONS["gather"] = OPERATIONS["gather"]._replace(
    call=lambda dist, b: os._exit(7) if b.rank == 1 else dist.barrier()
)
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.full)])
def test_everything_works_with_gloo(commbench: Commbench, tmp_path: Path, ranks: int) -> None:
    ended = commbench("smoke", "--junit", "report.xml", "--nproc-per-node", str(ranks))
    assert (ended.code, ended.err) == (0, "")
    head, *lines, last = ended.out.splitlines()
    assert head == f"{ranks} gloo ranks on cpu (the device that gloo serves)"
    assert lines == [
        f"  {name:<15} ok      {'9 cases' if operation.has_data else '1 case'}"
        for name, operation in OPERATIONS.items()
    ]
    assert re.fullmatch(r"10 of 10 work; \d+\.\d s", last)
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("10", "0")
    assert [case.get("name") for case in suite] == list(OPERATIONS)


def test_wrong_results_are_told_and_reported(tmp_path: Path) -> None:
    ended = run_program_as(tmp_path, BREAK_ALL_GATHER, "smoke", "--junit", "report.xml")
    assert ended.code == 5
    assert "  all_gather      FAILED  all_gather float32 out_of_place 1000 B: wrong" in ended.out
    assert ended.err.startswith("error: 9 cases gave wrong results; first all_gather float32")
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    (failed,) = [case for case in suite if len(case)]
    assert failed.get("name") == "all_gather"
    assert "expected" in (failed[0].get("message") or "")


def test_a_rank_that_dies_is_named_and_what_came_before_is_told(tmp_path: Path) -> None:
    ended = run_program_as(tmp_path, LOSE_A_RANK, "smoke", "--junit", "report.xml")
    assert ended.code == 4
    assert "rank 1 on" in ended.err and "exit code 7" in ended.err
    assert "FAILED  not reached" in ended.out
    assert ElementTree.parse(tmp_path / "report.xml").getroot()[0].get("failures") != "0"


def test_a_report_that_cannot_be_written_is_an_error_before_anything_is_measured(
    commbench: Commbench,
) -> None:
    ended = commbench("smoke", "--junit", "absent/report.xml")
    assert (ended.code, ended.out) == (6, "")
    assert ended.err == (
        "error: cannot write absent/report.xml: No such file or directory\n"
        "hint: name a writable file\n"
    )
