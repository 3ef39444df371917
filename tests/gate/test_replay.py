"""Rules on the steps of a replay, by name and by variant."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_replay import synthetic_replay

from commbench.analysis.load import open_run
from commbench.errors import UsageError
from commbench.gate.ci import gate_junit
from commbench.gate.gate import FAIL, NO_VERDICT, PASS, GateResult, check
from commbench.gate.rules import parse_rule, read_rules, steps_note

pytestmark = pytest.mark.usefixtures("launches_alike")


def checked(tmp_path: Path, *rules: str) -> GateResult:
    """A replay whose step takes 1.3 times as long as before, checked against rules on its time."""
    if not (tmp_path / "old").exists():
        synthetic_replay(tmp_path / "old", "old")
        synthetic_replay(tmp_path / "new", "new", lambda case: 1.3 if case.step else 1.0, seed=1)
    against = any(rule.startswith("max_slowdown") for rule in rules)
    return check(
        open_run(tmp_path / "new"),
        [parse_rule(*rule.split(" ")) for rule in rules],
        open_run(tmp_path / "old") if against else None,
    )


@pytest.mark.parametrize(
    ("rule", "title", "rows", "outcome"),
    [
        ("max_time step=train:3ms", "replay train: time at most 3 ms", 4, PASS),
        ("max_time step=train:1ms", "replay train: time at most 1 ms", 4, FAIL),
        ("max_time step=train:variant=bucket:6M:1ms",
         "replay train bucket 6M: time at most 1 ms", 1, PASS),
        ("max_time variant=calls:1ms", "all steps calls: time at most 1 ms", 1, FAIL),
        ("max_time replay:step=train:variant=all:3ms", "replay: time at most 3 ms", 4, PASS),
        ("max_time 1M-1G:100ms", "all operations 1M-1G: time at most 100 ms", 3, PASS),
        ("max_time step=other:3ms", "replay other: time at most 3 ms", 0, NO_VERDICT),
        ("max_slowdown step=train:10%",
         "replay train: at most 10 % slower than the baseline", 4, FAIL),
        ("max_slowdown all_reduce:10%",
         "all_reduce: at most 10 % slower than the baseline", 3, PASS),
    ],
)  # fmt: skip
def test_a_rule_applies_to_steps_by_name_and_variant(
    tmp_path: Path, rule: str, title: str, rows: int, outcome: str
) -> None:
    (found,) = checked(tmp_path, rule).results
    assert (found.rule.title, len(found.checks), found.outcome) == (title, rows, outcome)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stp=train:3ms", "is not a limit"),
        ("step=:3ms", "is not a limit"),
        ("step=a:step=b:3ms", "is not a limit"),
        ("variant=bukcet:6M:3ms", "unknown variant 'bukcet:6M'"),
    ],
)
def test_what_selects_no_steps_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_rule("max_time", text)


def test_the_steps_that_there_are_are_named() -> None:
    rows = [SimpleNamespace(step=name, variant="calls") for name in ("train", "evaluate", "")]
    rule = parse_rule("max_time", "step=trian:3ms")
    assert steps_note(rule, rows) == " Its steps: train calls, evaluate calls."
    assert steps_note(rule, rows[2:]) == " It replays no step of a workload."
    assert steps_note(parse_rule("max_time", "all_reduce:3ms"), rows) == ""


def test_the_name_of_a_step_alone_hints_at_how_to_select_it() -> None:
    with pytest.raises(UsageError) as found:
        parse_rule("max_time", "ProfilerStep#3:100ms")
    assert found.value.hint.endswith("for the step of a replay write step=NAME")


def test_a_file_selects_steps_too(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text('[[rule]]\nstep = "train"\nvariant = "bucket:6m"\nmax_time = "1ms"\n')
    (rule,) = read_rules(path)
    assert (rule.step, rule.variant) == ("train", "bucket:6M")


def test_steps_have_names_in_junit(tmp_path: Path) -> None:
    found = checked(tmp_path, "max_time 10us")
    junit = gate_junit(found).decode()
    assert 'testcase name="replay train reduce_scatter+all_gather"' in junit
