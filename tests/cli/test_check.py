"""`commbench check`: outcomes, exit codes, JUnit, and what GitHub Actions is told."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import Commbench
from synthetic import header, plan, steady, synthetic_run

from commbench.results.journal import Journal
from commbench.results.schema import RunEnd
from commbench.spec.case import Case

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20)
FACTORS = dict(zip(SIZES, (1.0, 1.0, 1.3, 1.1), strict=True))

TEXT = """\
check of new against old

FAIL  all_reduce: at most 10 % slower than the baseline (1 failed, 1 undecided, 2 passed)
  row                                 size  measured    95 % interval  outcome
  ──────────────────────────────────────────────────────────────────────────────
  all_reduce float32 sum in_place  256 KiB    x1.300  x1.294 … x1.306  fail
  all_reduce float32 sum in_place    1 MiB    x1.100  x1.095 … x1.105  undecided

pass  all_reduce 1M-: bus bandwidth at least 2.00 GB/s (1 passed)

What differs between baseline (A) and run (B):
         A       B
  ─────────────────────
  torch  2.13.0  2.14.0

Baseline (A) and run (B): A and B are one launch each: another launch may differ by more than these
    intervals say; `commbench run --launches 6` measures that.

Rules: 1 failed, 1 passed.
"""
RULES = ("--max-slowdown", "all_reduce:10%", "--min-busbw", "all_reduce:1M-:2GB/s")


def durations(case: Case) -> list[list[float]]:
    return [list(v) for v in steady(100e-6 * FACTORS[case.size_bytes])]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    synthetic_run(tmp_path / "old", "old", lambda _: steady(100e-6))
    synthetic_run(tmp_path / "new", "new", durations, environment={"torch": "2.14.0"})
    return tmp_path


def test_the_whole_text_and_exit_code_one(commbench: Commbench, runs: Path) -> None:  # noqa: ARG001
    ended = commbench("check", "new", "--against", "old", *RULES)
    assert (ended.code, ended.out, ended.err) == (1, TEXT, "")
    assert max(map(len, ended.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--against old --max-slowdown 40%", 0),
        ("--against old --max-slowdown 20%", 1),
        ("--against old --max-slowdown -16K:0.9%", 0),
        ("--against old --max-slowdown 1M:10%", 0),
        ("--against old --max-slowdown 1M:10% --undecided pass", 0),
        ("--against old --max-slowdown 1M:10% --undecided fail", 1),
        ("--against old", 1),
        ("--against old --max-time 1s", 1),
        ("--max-time 1s", 0),
        ("--max-time 256K:120us", 1),
        ("--max-time 256K:130us", 0),
        ("--max-time 256K:130us --undecided fail", 1),
        ("--min-busbw 1M:9GB/s", 0),
        ("--min-busbw 1M:11GB/s", 1),
        ("--min-busbw broadcast:1GB/s", 2),
        ("--min-busbw broadcast:1GB/s --allow-unmatched", 0),
        ("--min-busbw 1G-:1GB/s", 2),
    ],
)
def test_exit_codes(commbench: Commbench, runs: Path, arguments: str, code: int) -> None:  # noqa: ARG001
    ended = commbench("check", "new", *arguments.split())
    assert ended.code == code, ended.out + ended.err


def test_undecided_rows_are_said_to_pass(commbench: Commbench, runs: Path) -> None:  # noqa: ARG001
    ended = commbench("check", "new", "--against", "old", "--max-slowdown", "1M:10%")
    assert ended.err == "undecided rows pass (--undecided pass)\n"
    assert "undecided  all 1M: at most 10 % slower than the baseline (1 undecided)" in ended.out


REFUSED = {
    "check new": (
        "error: there is no rule\n"
        "hint: --against BASELINE, --min-busbw, --max-time or --rules make one\n"
    ),
    "check new --max-slowdown 10%": (
        "error: 'all: at most 10 % slower than the baseline' needs a baseline\n"
        "hint: name the run to compare with: --against BASELINE\n"
    ),
    "check new --max-time 80": "error: time '80' has no unit\nhint: write 80us, 80ms or 80s\n",
    "check new --max-time 1s --undecided maybe": (
        "error: unknown --undecided 'maybe'\nhint: known: pass, fail\n"
    ),
    "check new --max-time gather:1s": (
        "error: no measured row of new is one of 'gather'\n"
        "hint: mend the rule, or say --allow-unmatched\n"
    ),
    "check new --against big": (
        "error: big and new should not be compared: world_size is 4 and 2\n"
        "hint: measure both alike, or compare all the same with --force\n"
    ),
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_request_is_two_lines_and_exit_code_two(
    commbench: Commbench, runs: Path, line: str
) -> None:
    synthetic_run(runs / "big", "big", lambda _: steady(1e-4), plan(world_size=4))
    ended = commbench(*line.split())
    assert (ended.code, ended.out, ended.err) == (2, "", REFUSED[line])


def test_rules_come_from_a_file_too(commbench: Commbench, runs: Path) -> None:
    (runs / "rules.toml").write_text(
        '[[rule]]\noperation = "all_reduce"\nmax_slowdown = "40%"\n'
        '[[rule]]\noperation = "gather"\nmax_time = "1s"\noptional = true\n'
    )
    ended = commbench("check", "new", "--against", "old", "--rules", "rules.toml")
    assert ended.code == 0, ended.err
    assert "pass  all_reduce: at most 40 % slower than the baseline (4 passed)" in ended.out
    assert "skipped  gather: time at most 1.00 s (no rows)" in ended.out


def test_wrong_results_fail_and_what_was_left_out_is_skipped(
    commbench: Commbench, tmp_path: Path
) -> None:
    statuses = dict(zip(SIZES, ("wrong", "unsupported", "failed", "ok"), strict=True))
    synthetic_run(tmp_path / "new", "new", lambda _: steady(1e-4), statuses=statuses)
    ended = commbench("check", "new", "--max-time", "1s")
    assert ended.code == 1
    assert "FAIL  all: time at most 1.00 s (2 failed, 1 passed, 1 skipped)" in ended.out
    synthetic_run(tmp_path / "old", "old", lambda _: steady(1e-4))
    ended = commbench("check", "new", "--against", "old")
    assert ended.code == 1
    assert "(3 failed, 1 passed)" in ended.out
    assert "unsupported, not so in the baseline" in ended.out


def test_rows_that_one_side_lacks_are_told(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_run(tmp_path / "old", "old", lambda _: steady(1e-4), plan(sizes=(1024, 2048)))
    synthetic_run(tmp_path / "new", "new", lambda _: steady(1e-4), plan(sizes=(2048, 4096)))
    ended = commbench("check", "new", "--against", "old")
    assert ended.code == 0
    assert "(1 undecided, 1 passed, 1 skipped)" in ended.out
    assert "not in the run" in ended.out
    assert commbench("check", "new", "--against", "old", "--undecided", "fail").code == 1


def test_many_rows_that_the_run_lacks_are_one_line(commbench: Commbench, tmp_path: Path) -> None:
    sizes = tuple(1024 << i for i in range(12))
    synthetic_run(tmp_path / "old", "old", lambda _: steady(1e-4), plan(sizes=sizes))
    synthetic_run(tmp_path / "new", "new", lambda _: steady(1e-4), plan(sizes=sizes[:1]))
    ended = commbench("check", "new", "--against", "old")
    assert "(11 undecided, 1 passed)\n  11 rows of the baseline are not in the run\n" in ended.out
    assert ended.out.count("not in the run") == 1


def test_without_an_interval_a_row_is_undecided(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_run(tmp_path / "new", "new", lambda _: [[1e-4]])
    ended = commbench("check", "new", "--max-time", "1s")
    assert (ended.code, "undecided, no interval" in ended.out) == (0, True)


def test_a_run_that_was_cut_off_does_not_pass(commbench: Commbench, tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "new", "new", lambda _: steady(1e-4))
    journal = folder / "run.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))
    ended = commbench("check", "new", "--max-time", "1s", "--junit", "report.xml")
    assert ended.code == 1
    assert "FAIL  the run is not whole: it has not ended" in ended.out
    assert "Rules: 1 passed. The run is not whole." in ended.out
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert root.get("failures") == "1"


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
            "errors": 0,
            "skipped": len(suite.findall("testcase/skipped")),
        }
        assert {name: int(suite.get(name, "-1")) for name in found} == found
        total = {name: total[name] + number for name, number in found.items()}
        for case in suite:
            assert case.tag == "testcase"
            assert case.get("name") and case.get("classname")
            assert float(case.get("time", "-1")) >= 0
            assert len(case) == 1 and case[0].tag in ("failure", "skipped", "system-out")
            assert case[0].tag == "system-out" or case[0].get("message")
    assert {name: int(root.get(name, "-1")) for name in total} == total
    return root


@pytest.mark.parametrize(("undecided", "failures", "skipped"), [("pass", 1, 1), ("fail", 2, 0)])
def test_junit_holds_every_row(
    commbench: Commbench, runs: Path, undecided: str, failures: int, skipped: int
) -> None:
    commbench(
        "check", "new", "--against", "old", *RULES, "--junit", "out/report.xml",
        "--undecided", undecided,
    )  # fmt: skip
    root = check_junit(runs / "out" / "report.xml")
    counts = [root.get(name) for name in ("tests", "failures", "skipped")]
    assert counts == ["5", str(failures), str(skipped)]
    (case,) = root.findall(".//failure[@type='fail']/..")
    assert case.get("name") == "all_reduce float32 sum in_place 256 KiB"
    assert case[0].get("message") == (
        "fail: x1.300 (x1.294 … x1.306); limit: at most 10 % slower than the baseline"
    )
    again = commbench("check", "new", "--max-time", "1s", "--junit", "out/report.xml")
    assert again.code == 6
    assert "error: out/report.xml exists\n" in again.err


def test_github_is_told_by_annotations_and_a_summary(commbench: Commbench, runs: Path) -> None:
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(runs / "summary.md")}
    (runs / "summary.md").write_text("before\n")
    ended = commbench("check", "new", "--against", "old", *RULES, **here)
    assert ended.code == 1
    assert ended.out == TEXT + (
        "::error title=check of new against old::all_reduce: at most 10 %25 slower than the "
        "baseline (1 failed, 1 undecided, 2 passed)"
        "%0Aall_reduce float32 sum in_place 256 KiB x1.300 x1.294 … x1.306 fail"
        "%0Aall_reduce float32 sum in_place 1 MiB x1.100 x1.095 … x1.105 undecided\n"
    )
    assert (runs / "summary.md").read_text() == SUMMARY
    passed = commbench("check", "new", "--max-time", "1s", **here)
    assert passed.out.splitlines()[-1] == "::notice title=check of new::Rules: 1 passed."
    doubtful = commbench("check", "new", "--against", "old", "--max-slowdown", "1M:10%", **here)
    assert doubtful.out.splitlines()[-1].startswith("::warning title=check of new against old::")


SUMMARY = """\
before
### 🔴 fail: check of new against old

Rules: 1 failed, 1 passed.

| outcome | rule |
| :-- | :-- |
| 🔴 fail | all_reduce: at most 10 % slower than the baseline (1 failed, 1 undecided, 2 passed) |
| 🟢 pass | all_reduce 1M-: bus bandwidth at least 2.00 GB/s (1 passed) |

<details><summary>2 rows that failed or are undecided</summary>

| rule | row | size | measured | 95 % interval | outcome |
| :-- | :-- | --: | --: | --: | :-- |
| all_reduce: at most 10 % slower than the baseline | all_reduce float32 sum in_place | 256 KiB \
| x1.300 | x1.294 … x1.306 | fail |
| all_reduce: at most 10 % slower than the baseline | all_reduce float32 sum in_place | 1 MiB \
| x1.100 | x1.095 … x1.105 | undecided |

</details>
"""

HOSTILE = "x\n::stop-commands::y\n##[error]z|<b>%0A,:\x1b[31m"


def test_text_from_files_commands_nobody(commbench: Commbench, tmp_path: Path) -> None:
    for name, seconds in (("a", 1e-4), ("b", 2e-4)):
        told = {"variables": {"NCCL_X": HOSTILE + name}, "torch": f"{name}\ud800"}
        synthetic_run(tmp_path / name, HOSTILE, lambda _, s=seconds: steady(s), environment=told)
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    ended = commbench("check", "b", "--against", "a", "--junit", "report.xml", **here)
    assert ended.code == 1, ended.err
    commands = [line for line in ended.out.splitlines() if "::" in line]
    title = "check of x  %3A%3Astop-commands"
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


def test_a_damaged_run_is_no_failed_gate(commbench: Commbench, runs: Path) -> None:
    (runs / "new" / "run.jsonl").write_text("{}\n")
    assert commbench("check", "new", "--max-time", "1s").code == 6


def test_a_run_without_rows_matches_no_rule(commbench: Commbench, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    journal = Journal(tmp_path / "new")
    journal.header(header(plan(), "new"))
    journal.end(RunEnd("complete"))
    ended = commbench("check", "new", "--max-time", "1s")
    assert ended.code == 2
    assert ended.err.startswith("error: no measured row of new is one of 'all'\n")
