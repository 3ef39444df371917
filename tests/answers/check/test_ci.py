"""What `commbench check` writes for continuous integration: JUnit XML, and GitHub's annotations and
summary."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import Commbench
from synthetic import steady, synthetic_run, two_runs

RULES = ("--max-slowdown", "all_reduce:10%", "--min-busbw", "all_reduce:1M-:2GB/s")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return two_runs(tmp_path)


def check_junit(path: Path) -> ElementTree.Element:
    """The document, after checking what the JUnit schema of Jenkins and GitLab demands."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in root:
        assert suite.tag == "testsuite"
        assert suite.get("name")
        found = {
            "tests": len(suite.findall("testcase")),
            "failures": len(suite.findall("testcase/failure")),
            "errors": len(suite.findall("testcase/error")),
            "skipped": len(suite.findall("testcase/skipped")),
        }
        assert {name: int(suite.get(name, "-1")) for name in found} == found
        total = {name: total[name] + number for name, number in found.items()}
        times = sum(float(case.get("time", "0")) for case in suite)
        assert float(suite.get("time", "0")) == pytest.approx(times, abs=1e-3 * len(suite))
        cases, rest = suite.findall("testcase"), [each.tag for each in suite]
        assert rest in (expected := ["testcase"] * len(cases), [*expected, "system-out"])
        for case in cases:
            assert case.get("name") and case.get("classname")
            assert float(case.get("time", "1")) > 0  # none where it is not known
            assert len(case) == 1 and case[0].tag in ("failure", "error", "skipped", "system-out")
            assert case[0].tag == "system-out" or case[0].get("message")
    assert {name: int(root.get(name, "-1")) for name in total} == total
    return root


@pytest.mark.parametrize(("undecided", "failures", "skipped"), [("pass", 1, 0), ("fail", 2, 0)])
def test_junit_holds_every_row(
    commbench: Commbench, runs: Path, undecided: str, failures: int, skipped: int
) -> None:
    commbench(
        "check", "new", "--against", "old", *RULES, "--junit", "report.xml",
        "--undecided", undecided,
    )  # fmt: skip
    root = check_junit(runs / "report.xml")
    counts = [root.get(name) for name in ("tests", "failures", "skipped")]
    assert counts == ["5", str(failures), str(skipped)]
    (case,) = root.findall(".//failure[@type='fail']/..")
    assert case.get("name") == "all_reduce float32 sum in_place 256 KiB"
    assert case[0].get("message") == "failed"
    assert case[0].text.startswith("all_reduce float32 sum in_place 256 KiB takes 1.30 ")
    said, *_, differs, what_to_do = root[0].findtext("system-out").split("\n")
    assert differs == "torch is 2.13.0 in old, 2.14.0 in new."
    assert said.startswith("FAIL: ") and what_to_do.startswith("Both were measured in turns")


@pytest.mark.usefixtures("runs")
def test_a_check_that_passes_needs_no_advice(commbench: Commbench) -> None:
    passed = commbench("check", "new", "--against", "old", "--max-slowdown", "30%")
    assert passed.code == 0 and "1 likely passed" in passed.out
    assert "What to do" not in passed.out


COMMAND = (
    "::error title=commbench check%3A new against old::FAIL: all_reduce: at most 10 %25 slower "
    "than the baseline (1 of 4 rows failed, 2 passed, 1 likely passed)"
    "%0Afailed: all_reduce float32 sum in_place 256 KiB takes 1.30 (1.28 … 1.32) times as long as "
    "in the baseline"
    "%0Alikely passed (within the limit, but not the whole interval): all_reduce float32 "
    "sum in_place 1 MiB takes 1.10 (1.08 … 1.12) times as long as in the baseline\n"
)


def test_github_gets_annotations_and_a_summary(commbench: Commbench, runs: Path) -> None:
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(runs / "summary.md")}
    (runs / "summary.md").write_text("before\n")
    ended = commbench("check", "new", "--against", "old", *RULES, **here)
    assert ended.code == 1
    assert ended.out.endswith("2.14.0\n" + COMMAND)
    first, title, *_ = (summary := (runs / "summary.md").read_text()).splitlines()
    assert (first, title) == ("before", "# 🔴 Check of new against old")
    assert "\n**FAIL: under" in summary and "\n**Worst row: all_reduce" in summary
    passed = commbench("check", "new", "--max-time", "1s", **here)
    assert passed.out.endswith("::notice title=commbench check%3A new::PASS: 4 of 4 rows passed.\n")
    for arguments, level in (
        ("--max-slowdown 1M:10%", "error"),
        ("--max-slowdown 1M:10% --undecided pass", "warning"),
        ("--max-slowdown 256K-1M:30%", "warning"),
    ):
        doubtful = commbench("check", "new", "--against", "old", *arguments.split(), **here)
        assert doubtful.out.splitlines()[-1].startswith(f"::{level} title=commbench check%3A new")


HOSTILE = "x\n::stop-commands::y\n##[error]z|<b>%0A,:\x1b[31m"


def test_text_from_files_commands_nobody(commbench: Commbench, tmp_path: Path) -> None:
    for name, seconds in (("a", 1e-4), ("b", 2e-4)):
        told = {"variables": {"NCCL_X": HOSTILE + name}, "torch": f"{name}\ud800"}
        synthetic_run(tmp_path / name, HOSTILE, lambda _, s=seconds: steady(s), environment=told)
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    ended = commbench("check", "b", "--against", "a", "--junit", "report.xml", **here)
    assert ended.code == 1, ended.err
    commands = [line for line in ended.out.splitlines() if "::" in line]
    title = "commbench check%3A x  %3A%3Astop-commands"
    assert len(commands) == 1
    assert commands[0].startswith(f"::error title={title}".replace("  ", " "))
    assert "##[" not in ended.out.replace(commands[0], "")
    assert "\x1b" not in ended.out
    check_junit(tmp_path / "report.xml")
    summary = (tmp_path / "summary.md").read_text()
    assert "<b>" not in summary
    assert "x|" not in summary


def test_an_unwritable_summary_is_an_error(commbench: Commbench, runs: Path) -> None:
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(runs / "no" / "where")}
    ended = commbench("check", "new", "--max-time", "1s", **here)
    assert ended.code == 6
    assert ended.err.startswith("error: cannot write the step's summary")
