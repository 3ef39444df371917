"""What the README tells people to type is understood, and what it points to exists."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import run_commbench

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# There is nothing to resume here; tests/runner/test_resume.py does that.
RUN_LINES = sorted(
    set(re.findall(r"^ {4}(?:scripts/)?(commbench run (?!--resume).*)$", README, re.M))
)


def test_the_readme_has_commands() -> None:
    assert len(RUN_LINES) >= 4


@pytest.mark.parametrize("line", RUN_LINES)
def test_a_run_of_the_readme_is_understood(line: str, tmp_path: Path) -> None:
    arguments = shlex.split(line.split("   ")[0])[1:]
    ended = run_commbench(tmp_path, *arguments, "--dry-run")
    assert ended.code == 0, ended.err


def test_the_table_of_the_readme_is_what_the_command_prints() -> None:
    command, *block = README.split("```\n$ commbench ")[1].split("```")[0].splitlines()
    printed = run_commbench(ROOT, *command.split(), COLUMNS="80").out
    kept = re.split(r"\n\(.* left out here\)\n", "\n".join(block) + "\n")
    assert len(kept) == 3
    assert all(part.strip("\n") in printed for part in kept)


@pytest.mark.parametrize("folder", ["reference", "gpu-reference/h100-copies"])
def test_the_rows_of_a_reference_are_those_of_its_journal(folder: str) -> None:
    ended = run_commbench(ROOT, "check", f"results/{folder}/results.csv", "--max-time", "1s")
    assert ended.code == 0, ended.err


def anchors(page: Path) -> set[str]:
    """What a link to a heading of this page may name, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(linked), f"{page.name}: {target}#{anchor}"


def test_files_that_the_pages_name_exist() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(r"`(commbench/[\w/.]+|tests/[\w/.]+)`", page.read_text("utf-8")):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_the_diffs_for_contributors_apply() -> None:
    diffs = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    assert len(diffs) == 4
    for diff in diffs:
        command = ["git", "apply", "--check", "-"]
        subprocess.run(command, cwd=ROOT, input=diff, text=True, check=True)


def test_every_column_is_explained() -> None:
    from commbench.analysis.columns import COLUMNS

    text = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.M)
    listed = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(listed) == sorted(COLUMNS)
    first = [*COLUMNS].index("window") + 1
    assert listed[:first] == [*COLUMNS][:first]


def require_thresholds(page: str, pattern: str, expected: dict[str, float]) -> None:
    """The table rows of this page that the pattern finds, as name and words, state each threshold
    once: `any` or `always` is 0, `over 5 %` is 0.05, and `wider than` something is 1."""
    rows = re.findall(pattern, (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M)
    assert sorted(name for name, _ in rows) == sorted(expected)
    limit = re.compile(
        r"\b(any|always)\b|\b(?:wider|shorter|smaller|more ranks) than|\bover ([\d.]+)( %| us)?"
    )
    for name, words in rows:
        found = limit.search(words)
        assert found, f"{name}: {words}"
        is_zero, number, unit = found.groups()
        stated = float(number) * UNITS[unit] if number else float(not is_zero)
        assert stated == pytest.approx(expected[name]), name


UNITS = {None: 1, " %": 0.01, " us": 1e-6}


def test_the_reasons_of_undecided_answers_are_what_commands_say() -> None:
    text = (ROOT / "docs" / "noise.md").read_text(encoding="utf-8")
    reasons = re.findall(r"`([^`]+)`", " ".join(re.findall(r"(?m)^\| (`.*?`) \| ", text)))
    assert len(reasons) > 8
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("commbench/**/*.py"))
    for reason in reasons:
        parts = re.split(r"\bN\b|\b6\b|^beyond|^within", reason)
        assert all(part.strip() in source for part in parts), reason


def test_every_warning_is_explained_once_with_its_threshold() -> None:
    from commbench.analysis.diagnostics import DIAGNOSTICS

    pattern = r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$"
    require_thresholds("warnings.md", pattern, {each.name: each.threshold for each in DIAGNOSTICS})
    by_severity, _ = (ROOT / "docs" / "warnings.md").read_text(encoding="utf-8").split("\n## ", 1)
    cells = re.findall(r"^\|[^|]+\|([^|]+)\|$", by_severity, re.M)
    ordered = re.findall(r"`(\w+)`", " ".join(cells))
    assert sorted(ordered) == sorted(each.name for each in DIAGNOSTICS)


def test_every_problem_of_the_doctor_is_explained_once_with_its_threshold() -> None:
    from commbench.answers.doctor.checkup import FINDINGS

    pattern = r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$"
    require_thresholds("doctor.md", pattern, {name: limit for name, (_, limit) in FINDINGS.items()})


def test_every_operation_is_found_by_the_name_of_its_program_in_nccl_tests() -> None:
    from commbench.plan.operations import OPERATIONS

    text = (ROOT / "docs" / "nccl-tests.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines()]
    for operation in OPERATIONS.values():
        if operation.nccl_tests:
            assert [f"`{operation.nccl_tests}`", f"`{operation.name}`"] in rows
        else:
            assert f"`{operation.name}`" in text
