"""What the documentation tells people to type about comparing and jobs works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import Commbench
from synthetic import plan, steady, synthetic_run
from synthetic_replay import WORKLOAD, synthetic_replay

from commbench.answers.check.rules import read_rules
from commbench.cli.commands import command, given_options
from commbench.runner.run_options import RUN_OPTIONS

STEP = WORKLOAD._replace(steps=(WORKLOAD.steps[0]._replace(name="step"),))
"""A workload whose step has the name of that in the documentation."""
ROOT = Path(__file__).parents[2]
NAMES = ("comparing", "gates", "rules", "github", "clusters", "report")
FILES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in NAMES))
PAGES = [file.read_text(encoding="utf-8") for file in FILES]
DOCUMENTED = re.compile(r"^ {4}(?:- run: )?(commbench (?:compare|check|export|job) .*)$", re.M)
ALL_LINES = {line for page in PAGES for line in DOCUMENTED.findall(page)}
JOBS = sorted(line for line in ALL_LINES if line.startswith("commbench job "))
LINES = sorted(line for line in ALL_LINES - {*JOBS} if "$" not in line)


EVERYWHERE = "".join(p.read_text("utf-8") for p in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
COMMANDS = re.findall(r"^ {4}(?:\S+ )*?(commbench [a-z].*)$", EVERYWHERE.replace("\\\n", " "), re.M)
PARSED = sorted({re.split(r"\s{3,}\S|\s[#|&>;]", line)[0] for line in COMMANDS})


@pytest.mark.parametrize("line", PARSED)
def test_a_documented_command_line_has_a_meaning(line: str) -> None:
    name, *words = shlex.split(line)[1:]
    found = command(name)
    if is_group := hasattr(found, "commands"):
        name, *words = words
        found = found.commands[name]
    context = found.make_context(name, words)
    if not is_group and found.run_options_user:
        given = given_options(context)
        for option in given.keys() & RUN_OPTIONS.keys():
            RUN_OPTIONS[option].parsed(given[option])


def test_there_are_such_lines() -> None:
    assert {line.split()[1] for line in ALL_LINES} == {"compare", "check", "export", "job"}


@pytest.mark.parametrize("line", JOBS)
def test_a_documented_job_is_printed_or_written(
    commbench: Commbench, tmp_path: Path, line: str
) -> None:
    words = shlex.split(line)[1:]
    ended = commbench(*words)
    assert (ended.code, ended.err) == (0, "")
    text = ended.out
    if "--output" in words:
        assert text == words[words.index("--output") + 1] + "\n"
        text = (tmp_path / text.strip()).read_text()
    if words[1] == "slurm":
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("line", LINES)
def test_a_documented_line_works(commbench: Commbench, tmp_path: Path, line: str) -> None:
    asked = plan(operations=("all_reduce", "barrier"))
    for name in ("before", "after", "again", "mine", "baseline", "new", "ring", "tree"):
        synthetic_run(tmp_path / "results" / name, name, lambda _: steady(1e-4, 2), asked, 3)
    for name in (
        "gate/python=old",
        "gate/python=new",
        "versions/python=old",
        "versions/python=new",
    ):
        folder = tmp_path / name / "round-1"
        synthetic_run(folder, name[-3:], lambda _: steady(1e-4, 2), asked, 3)
    for name in ("plain", "quiet"):
        synthetic_replay(tmp_path / "results" / name, name, variants=["calls"], workload=STEP)
    (tmp_path / "limits.toml").write_text(documented_rules())
    ended = commbench(*shlex.split(line)[1:])
    assert ended.code in (0, 1), ended.err
    assert ended.out
    assert "error:" not in ended.err


def documented_rules() -> str:
    """The file of rules in the documentation."""
    block = re.search(r"(?: {4}.*\n|\n)+", EVERYWHERE[EVERYWHERE.index("    [[rule]]") :])
    assert block
    return "\n".join(line[4:] for line in block[0].splitlines())


def test_the_documented_rules_are_rules(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(documented_rules())
    rules = read_rules(path)
    assert [rule.optional for rule in rules] == [False, False, False, True]
    assert [rule.title for rule in rules] == [
        "all operations -64K: at most 40 % slower than the baseline",
        "all operations 128K-: at most 10 % slower than the baseline",
        "all operations 128K-: bus bandwidth at least 0.10 GB/s",
        "barrier: time at most 200 us",
    ]
