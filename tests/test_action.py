"""action.yml: valid by GitHub's schema, its shell steps run as GitHub's runner runs them, and no
input is ever executed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import yaml
from commands import clean_environment, forked_python
from synthetic import plan, steady, synthetic_run
from synthetic_job import HOSTILE

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
PAGE = (ROOT / "docs" / "github.md").read_text(encoding="utf-8")
RUN = "--op all_reduce --sizes 1K,4K --iters 10"
COMMBENCH = """
from commbench.plan.operations import OPERATION_SETS
OPERATION_SETS.update(all=("all_reduce", "barrier"), p2p=("send_recv",))
from commbench.cli.main import main
main()
"""
"""commbench with few operations, so that a smoke test takes little time."""


def require_valid(path: Path, schema: str) -> None:
    """Check a file against a schema that check-jsonschema has built in."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_action_is_valid_by_the_schema_of_actions() -> None:
    require_valid(ROOT / "action.yml", "vendor.github-actions")


def test_an_invalid_action_is_not_valid_by_that_schema(tmp_path: Path) -> None:
    broken = tmp_path / "action.yml"
    broken.write_text((ROOT / "action.yml").read_text().replace("shell: bash", "shel: bash"))
    with pytest.raises(AssertionError, match="Schema validation errors"):
        require_valid(broken, "vendor.github-actions")


def documented_workflow(event: str) -> str:
    """The workflow in docs/github.md that this event starts."""
    block = re.search(rf"(?m)^    on: {event}\n(?: {{4}}.*\n)+", PAGE)
    assert block
    return "".join(line[4:] for line in block[0].splitlines(keepends=True))


@pytest.mark.parametrize(("event", "longest"), [("workflow_dispatch", 10), ("pull_request", 15)])
def test_the_documented_workflow_is_valid_and_its_inputs_exist(
    tmp_path: Path, event: str, longest: int
) -> None:
    text = documented_workflow(event)
    assert len(text.splitlines()) <= longest
    path = tmp_path / "workflow.yml"
    path.write_text(text)
    require_valid(path, "vendor.github-workflows")
    (job,) = yaml.safe_load(text)["jobs"].values()
    own = ("./", "OWNER/commbench@TAG")
    (step,) = [step for step in job["steps"] if step.get("uses") in own]
    assert set(step["with"]) <= set(ACTION["inputs"])


def test_inputs_reach_the_shell_through_its_environment_only() -> None:
    for step in STEPS:
        assert "${{" not in step.get("run", "")
        for value in step.get("env", {}).values():
            assert re.fullmatch(r"\$\{\{ inputs\.[\w-]+ \}\}", value)


class Finished(NamedTuple):
    """A job that has used the action."""

    codes: dict[str, int]
    """The exit code of each step that ran, by its name or action."""
    out: str
    outputs: dict[str, str]
    summary: str
    folder: Path


def holds(condition: str, inputs: dict[str, str], has_failed: bool) -> bool:
    """The value of an `if`. Without always() a step is left out after one that has failed."""
    known = {f"inputs.{name}": repr(value) for name, value in inputs.items()}
    text = re.sub(r"inputs\.[\w-]+", lambda name: known[name[0]], condition)
    text = text.replace("always()", "True").replace("&&", "and").replace("||", "or")
    if has_failed and "always()" not in condition:
        return False
    return bool(eval(text, {"__builtins__": {}}))


def use_action(folder: Path, *names: str, **given: str) -> Finished:
    """Run the shell steps (those named, or all) in a folder as GitHub's runner does."""
    inputs = {name: each["default"] for name, each in ACTION["inputs"].items()}
    inputs |= {name.replace("_", "-"): value for name, value in given.items()}
    scripts = folder / "runner"
    scripts.mkdir()
    program = scripts / "commbench"
    program.write_text(f"#!/bin/sh\nexec '{forked_python()}' -c '{COMMBENCH}' \"$@\"\n")
    program.chmod(0o755)
    files = {"GITHUB_OUTPUT": scripts / "output", "GITHUB_STEP_SUMMARY": scripts / "summary.md"}
    for path in files.values():
        path.touch()
    environment = clean_environment(
        **{name: str(path) for name, path in files.items()},
        PATH=f"{folder / 'venv' / 'bin'}:{scripts}:{os.environ['PATH']}",
        PIP_REQUIRE_VIRTUALENV="1",
        PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        GITHUB_ACTIONS="true",
        GITHUB_ACTION_PATH=str(ROOT),
    )
    codes: dict[str, int] = {}
    out = ""
    for step in STEPS:
        name = step.get("name") or step["uses"]
        if (names and name not in names) or not holds(
            step.get("if", "True"), inputs, any(codes.values())
        ):
            continue
        codes[name] = 0
        if "run" in step:
            script = scripts / "step.sh"
            script.write_text(step["run"])
            own = {key: inputs[value[11:-3]] for key, value in step.get("env", {}).items()}
            ended = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
                cwd=folder, env=environment | own, capture_output=True, text=True, check=False,
                timeout=300, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            codes[name] = ended.returncode
            out += ended.stdout + ended.stderr
    lines = files["GITHUB_OUTPUT"].read_text().splitlines()
    outputs = dict(line.split("=", 1) for line in lines)
    return Finished(codes, out, outputs, files["GITHUB_STEP_SUMMARY"].read_text(), folder)


SETUP, UPLOAD = "actions/setup-python@v5", "actions/upload-artifact@v4"
INSTALL = "Install commbench"
SMOKE, MEASURE, CHECK, REPORT = "Does every collective work?", "Measure", "Check", "Report"


def test_a_job_tests_measures_checks_and_reports(tmp_path: Path) -> None:
    done = use_action(tmp_path, install="false", run=RUN, check="--max-time 10s")
    assert done.codes == dict.fromkeys((SETUP, SMOKE, MEASURE, CHECK, REPORT, UPLOAD), 0), done.out
    results = tmp_path / "commbench-results"
    for name in ("smoke.xml", "check.xml"):
        root = ElementTree.parse(results / name).getroot()
        assert (root.get("failures"), root.get("tests") != "0") == ("0", True)
    assert (results / "run" / "run.jsonl").exists()
    assert done.outputs == {"exit-code": "0", "report": "commbench-results/report.html"}
    page = (tmp_path / done.outputs["report"]).read_text()
    assert "PASS: " in page and "<html" in page
    heads = re.findall(r"(?m)^# (.*)$", done.summary)
    assert (heads[0], heads[-1]) == ("🟢 commbench smoke", "🟢 Check of run"), heads
    assert re.search(r"(?m)^\|.* 1 KiB \|", done.summary), done.summary
    assert "::notice title=commbench check" in done.out


def test_a_slower_run_fails_the_job_and_is_reported_all_the_same(tmp_path: Path) -> None:
    synthetic_run(tmp_path / "ci" / "baseline", "baseline", lambda _: steady(1e-4))
    synthetic_run(tmp_path / "out" / "run", "new", lambda _: steady(2e-4))
    given = {"run": "--op all_reduce", "baseline": "ci/baseline", "output": "out"}
    done = use_action(tmp_path, CHECK, REPORT, UPLOAD, **given)
    assert done.codes == {CHECK: 1, REPORT: 0, UPLOAD: 0}, done.out
    assert done.outputs == {"exit-code": "1", "report": "out/report.html"}
    assert "FAIL: " in (tmp_path / "out" / "report.html").read_text()
    assert "::error title=commbench check" in done.out
    junit = ElementTree.parse(tmp_path / "out" / "check.xml").getroot()
    assert junit.get("failures") == junit.get("tests") == "4"  # a case for each row


def test_a_check_without_a_verdict_fails_the_job_unless_that_may_pass(tmp_path: Path) -> None:
    for name, code in (("fail", 7), ("pass", 0)):
        folder = tmp_path / name
        for run, seconds in (("base", 1e-4), ("out/run", 1.15e-4)):
            synthetic_run(folder / run, run, lambda _, each=seconds: steady(each))
        given = {"run": "--op all_reduce", "baseline": "base", "output": "out"}
        done = use_action(folder, CHECK, **given, no_verdict=name)
        assert (done.codes, done.outputs) == ({CHECK: code}, {"exit-code": "7"}), done.out
        assert ("::warning::commbench check has no verdict" in done.out) == (name == "pass")


def test_two_environments_are_measured_in_turns_and_checked(tmp_path: Path) -> None:
    (tmp_path / "ci").mkdir()
    for name in ("old", "ci/new"):
        (tmp_path / name).symlink_to(sys.prefix)
    limits = "--max-slowdown 9900% --undecided pass"
    run = "--sizes 1K --iters 6 --rounds 2"
    given = {"environments": "old,ci/new", "run": run, "check": limits, "output": "out"}
    done = use_action(tmp_path, MEASURE, CHECK, REPORT, **given)
    assert done.codes == {MEASURE: 0, CHECK: 0, REPORT: 0}, done.out
    assert "Check of python=new against python=old" in done.out
    assert "Sweep of python (old, new)" in (tmp_path / "out" / "report.html").read_text()
    assert done.summary.startswith("<details><summary>All rows</summary>\n\n# Sweep of python")


def test_what_cannot_be_measured_ends_the_job(tmp_path: Path) -> None:
    done = use_action(
        tmp_path, install="false", smoke="false", run="--op nonsense", check="--max-time 1s"
    )
    assert done.codes == {SETUP: 0, MEASURE: 2, REPORT: 0, UPLOAD: 0}
    assert "error: --op: unknown operation 'nonsense'" in done.out


@pytest.mark.parametrize("text", HOSTILE)
def test_no_input_is_executed(tmp_path: Path, text: str) -> None:
    recorded = synthetic_run(
        tmp_path / "recorded", "recorded", lambda _: steady(1e-3), plan(sizes=(1024,))
    )
    names = dict.fromkeys(ACTION["inputs"], text)
    given = {name.replace("-", "_"): value for name, value in names.items()}
    done = use_action(tmp_path, SMOKE, **given)
    assert done.codes == {SMOKE: 2}
    shutil.rmtree(tmp_path / "runner")
    (tmp_path / text).mkdir(exist_ok=True)
    shutil.copytree(recorded, tmp_path / text / "run")
    done = use_action(tmp_path, CHECK, REPORT, **given)
    assert done.codes[CHECK] != 0
    assert set(done.outputs) == {"exit-code", "report"}
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.full
def test_the_action_installs_commbench(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # What commbench depends on is there; commbench is built and installed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    programs = tmp_path / "venv" / "bin"
    done = use_action(tmp_path, INSTALL, torch_index="")
    assert done.codes == {INSTALL: 0}, done.out
    assert (site / "commbench" / "__init__.py").exists()
    assert (programs / "commbench").exists()
