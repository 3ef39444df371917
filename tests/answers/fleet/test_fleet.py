"""Fleets of made-up runs: nodes, verdicts, lists, inputs."""

from __future__ import annotations

import json
import re
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
from commands import Commbench
from synthetic_fleet import asked_plan, synthetic_fleet, synthetic_node

import commbench as api
from commbench.answers.fleet.document import _least, since_lines
from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS, Group
from commbench.errors import RecordsError, UsageError
from commbench.plan.case import Case

SMALL = 1 << 18


def large(case: Case) -> float:
    return 1.3 if case.size_bytes >= SMALL else 1.0


@pytest.fixture(scope="module")
def tonight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty nodes; node07 takes 1.3 times as long from 256 KiB on."""
    folder = tmp_path_factory.mktemp("fleet") / "tonight"
    synthetic_fleet(folder, 20, {7: large})
    return folder


@pytest.fixture
def copied(tonight: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tonight, tmp_path / "tonight"))


def test_a_slow_node_is_named_with_evidence(tonight: Path) -> None:
    found = api.fleet(tonight)
    assert [*map(len, found.lists.values())] == [1, 0, 0, 19]
    assert (found.outcome, found.exit_code) == (DRAIN, 1)
    worst = found.nodes[0]
    assert (worst.name, worst.where) == ("node07", "all calls 256K-4M")
    assert worst.chance is not None
    assert worst.chance < 1e-6
    assert worst.slowdown
    low, high = worst.slowdown.ends
    assert 1.2 < low < 1.3 < high < 1.4
    assert {each.name for each in worst.evidence} == {
        "all_gather float32 out_of_place 256K-4M", "all_reduce float32 sum in_place 256K-4M",
        "broadcast float32 in_place root 0 256K-4M",
        "reduce_scatter float32 sum out_of_place 256K-4M",
    }  # fmt: skip
    assert "node07 takes 1.30 (1.26 … 1.34) times as long as its peers" in " ".join(
        str(found).split()
    )


def test_the_order_of_runs_does_not_matter(tonight: Path) -> None:
    runs = sorted(tonight.iterdir())
    assert api.fleet(*runs).text("json") == api.fleet(*reversed(runs)).text("json")
    few = runs[5:9]
    assert len({api.fleet(*order).text("json") for order in permutations(few)}) == 1


def test_rows_alone_say_the_same(copied: Path) -> None:
    whole = api.fleet(copied)
    (copied / "run03/run.jsonl").unlink()
    mixed = api.fleet(copied)
    assert [*map(len, mixed.lists.values())] == [1, 0, 0, 19] and "run03" in mixed.names(PASS)
    for journal in copied.glob("*/run.jsonl"):
        journal.unlink()
    rows = api.fleet(copied)
    assert rows.names(DRAIN) == ["run07"]  # a results.csv does not say the host
    assert rows.nodes[0].slowdown == pytest.approx(whole.nodes[0].slowdown, rel=1e-3)


def test_a_name_can_be_given(tonight: Path) -> None:
    runs = [f"n{run.name}={run}" for run in tonight.iterdir()]
    assert api.fleet(*runs).names(DRAIN) == ["nrun07"]
    with pytest.raises(UsageError, match="has several runs"):
        api.fleet(f"one={tonight}")


def test_nodes_without_a_complete_run_are_missing(copied: Path, tmp_path: Path) -> None:
    journal = copied / "run02/run.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:9]))
    (copied / "run04/run.jsonl").write_bytes(b"")
    names = tmp_path / "nodes.txt"
    names.write_text("# tonight\n" + "\n".join(f"node{n:02}" for n in range(22)) + "\n")
    found = api.fleet(copied, nodes=names)
    assert {"node02", "node20", "node21", "run04"} <= {*found.names(MISSING)}
    reasons = {node.name: node.reasons for node in found.nodes}
    assert "has not ended" in reasons["node02"][0]
    assert reasons["node20"] == ("it has no run",)
    assert api.fleet(copied, nodes="node07,node99").unexpected[:2] == ("node00", "node01")


def test_the_newest_run_of_a_node_counts(copied: Path) -> None:
    synthetic_node(
        copied / "another", "node07", seed=8, started="2026-11-22T06:00:00+00:00"
    )  # fmt: skip
    found = api.fleet(copied)
    assert found.outcome == PASS
    assert found.superseded == (str(copied / "run07"),)
    synthetic_node(
        copied / "older", "node07", lambda _: 9.0, seed=8, started="2026-11-20T06:00:00+00:00"
    )
    assert api.fleet(copied).outcome == PASS


def test_other_hardware_is_another_group(copied: Path) -> None:
    for number in range(40, 46):
        synthetic_node(
            copied / f"other{number}", f"node{number}", lambda _: 3.0, seed=number,
            environment={"processor": "Another"},
        )  # fmt: skip
    found = api.fleet(copied)
    assert [group.nodes for group in found.groups] == [6, 20]
    assert found.names(DRAIN) == ["node07"]
    synthetic_node(copied / "large", "node50", asked=asked_plan(world_size=4))
    assert api.fleet(copied).names(AGAIN) == ["node50"]


@pytest.mark.parametrize(
    ("nodes", "again", "code", "text"),
    [
        (slice(5, 6), ["node05"], 7, "too few to judge"),
        (slice(5, 8), ["node05", "node06", "node07"], 7, "too few to judge"),
        (slice(5, 9), ["node07"], 7, "it may be slow, but not beyond doubt"),
        (slice(8, 20), [], 0, "PASS: none of 12 nodes is over 2 % slower"),
    ],
)
def test_small_fleets_have_no_verdict_on_a_node_that_is_far(
    tonight: Path, nodes: slice, again: list[str], code: int, text: str
) -> None:
    found = api.fleet(*sorted(tonight.iterdir())[nodes])
    assert (found.names(AGAIN), found.names(DRAIN), found.exit_code) == (again, [], code)
    assert text in " ".join(found.text().split())


@pytest.mark.parametrize(
    ("status", "verdict", "reason"),
    [("wrong", DRAIN, "wrong results in all_gather 16K"), ("failed", AGAIN, "4 cases failed")],
)
def test_what_went_wrong_is_a_verdict(copied: Path, status: str, verdict: str, reason: str) -> None:
    synthetic_node(copied / "other", "node30", seed=31, statuses={1 << 14: status})
    found = {node.name: node for node in api.fleet(copied).nodes}["node30"]
    assert found.verdict == verdict and found.reasons[0].startswith(reason)


def test_a_folder_takes_lists_and_files(
    commbench: Commbench, tonight: Path, tmp_path: Path
) -> None:
    ended = commbench(
        "fleet", str(tonight), "--nodes", "node01,node77", "-o", "verdict", COLUMNS="80"
    )
    assert ended.code == 1, ended.err
    folder = tmp_path / "verdict"
    assert sorted(file.name for file in folder.iterdir()) == [
        "again.txt", "drain.txt", "fleet.html", "fleet.json", "fleet.png", "junit.xml",
        "missing.txt", "pass.txt",
    ]  # fmt: skip
    lists = {name: (folder / f"{name}.txt").read_text().split() for name in ("drain", "missing")}
    assert lists == {"drain": ["node07"], "missing": ["node77"]}
    assert (folder / "again.txt").read_text() == ""
    assert len((folder / "pass.txt").read_text().split()) == 19
    found = json.loads((folder / "fleet.json").read_text())
    assert (found["outcome"], found["exit_code"], found["drain"]) == ("drain", 1, ["node07"])
    suites = fromstring((folder / "junit.xml").read_bytes())
    assert [suites.get(name) for name in ("tests", "failures", "errors")] == ["21", "1", "1"]
    errors = suites.findall(".//error[@type='missing']/..")
    assert [case.get("name") for case in errors] == ["node77"]
    assert all(len(line) <= 80 for line in ended.out.splitlines())
    again = commbench("fleet", str(tonight), "-o", "verdict")
    assert (again.code, "is not empty" in again.err) == (6, True)


@pytest.mark.parametrize(
    ("runs", "given", "message"),
    [
        (["tonight"], {"false_alarms": "0%"}, "false.alarms"),
        (["tonight"], {"false_alarms": "90%"}, "false.alarms"),
        (["tonight"], {"tolerance": "-1%"}, "below 0 %"),
        (["tonight"], {"nodes": "node[01-20]"}, "is no name of a node"),
        (["tonight"], {"nodes": " , "}, "list of nodes is empty"),
        (["nothing"], {}, "there is no file, folder or run"),
        (["empty"], {}, "folder without a run"),
        ([], {}, "there is no node"),
        ([17], {}, "is no run"),
        (["tonight"], {"db": "nothing"}, "there is no history"),
    ],
)
def test_what_is_no_fleet_is_refused(
    tonight: Path, tmp_path: Path, runs: list[Any], given: dict[str, Any], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    known = {"tonight": tonight, "nothing": tmp_path / "nothing", "empty": tmp_path / "empty"}
    error = RecordsError if {*runs, *given.values()} & {"nothing", "empty"} else UsageError
    with pytest.raises(error, match=message):
        api.fleet(*(known.get(run, run) for run in runs), **given)


# With a history

DAYS, SINCE = 24, 12


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of twenty nodes. node07 has a run of each day, and is slow since a new NCCL; node03
    has a single slow run at the end."""
    folder = tmp_path_factory.mktemp("kept")
    synthetic_fleet(folder / "all", 20, {7: large}, started="2026-11-24T06:00:00+00:00")
    shutil.rmtree(folder / "all/run07")
    for day in range(DAYS):
        synthetic_node(
            folder / f"all/day{day:02}", "node07", large if day >= SINCE else lambda _: 1.0,
            seed=8 if day == DAYS - 1 else 100 + day,
            started=f"2026-11-{day + 1:02}T06:00:00+00:00",
            environment={"nccl": "2.28.9" if day >= SINCE else "2.27.5"},
        )  # fmt: skip
    api.history.add(folder / "all", db=folder / "history.sqlite")
    return folder / "history.sqlite"


def test_a_history_says_since_when_a_node_is_slow_and_what_changed(
    kept: Path, tonight: Path
) -> None:
    for found in (api.fleet(db=kept), api.fleet(tonight, db=kept)):
        assert [*map(len, found.lists.values())] == [1, 0, 0, 19]
        text = " ".join(found.text().split())
        assert re.search(r"6 more rows: 1\.30 \([^)]*\) times as long as before", text)
        assert "since 2026-11-13 06:00 UTC; nccl went from 2.27.5 to 2.28.9 then" in text
    past = json.loads(found.text("json"))["nodes"][0]["past"]
    assert (past["runs"], past["changes"][0]["changed"][0]["name"]) == (DAYS, "nccl")


def test_the_newest_runs_of_a_history_are_judged_as_their_folders_are(
    kept: Path, tonight: Path
) -> None:
    folders = {node.name: node for node in api.fleet(tonight).nodes}
    for node in api.fleet(db=kept, nodes="node03,node07").nodes:
        assert node.verdict == folders[node.name].verdict
        assert node.chance == pytest.approx(folders[node.name].chance, rel=1e-3)


def test_a_history_without_a_step_says_so(kept: Path, copied: Path) -> None:
    shutil.rmtree(copied / "run03")
    synthetic_node(copied / "slow", "node03", large, seed=4)
    found = {node.name: node for node in api.fleet(copied, db=kept).nodes}
    assert since_lines(found["node03"].past) == ["Its history has 1 run; a step needs 6"]
    synthetic_node(copied / "other", "node55", large, seed=4)
    found = {node.name: node for node in api.fleet(copied, db=kept).nodes}
    assert since_lines(found["node55"].past) == ["Its history has 0 runs; a step needs 6"]


@pytest.mark.parametrize(
    ("nodes", "least", "text"),
    [
        (5, 1100.0, "5 nodes are too few to name a slow one: measure 8 or more."),
        (5, 0.3, "A node that takes 30 % longer in all cases would be named."),
        (40, 20.0, "A node that takes 21 times as long in all cases would be named."),
    ],
)
def test_few_nodes_are_told_that_more_would_name_a_slow_one(
    nodes: int, least: float, text: str
) -> None:
    assert _least([Group({}, nodes, 20, 0.1, least)]).strip() == text
