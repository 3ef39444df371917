"""measure() inside a torchrun job: the default group, a sub-group, a dimension of a DeviceMesh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import clean_environment, free_port, start_command

from commbench.results.journal_reader import read_run

OPERATIONS = ["all_reduce", "broadcast", "gather", "send_recv"]
MEMBERS = {"default": [0, 1, 2, 3], "pair": [1, 3], "again": [1, 3], "outer": [0, 1, 2, 3]}
Said = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("in_process")


@pytest.fixture(scope="module")
def said(folder: Path) -> Said:
    """What each rank of the job says, by name; the variables are those that torchrun sets."""
    job = Path(__file__).with_name("measuring_job.py").read_text()
    variables = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free_port())}  # fmt: skip
    ranks = [
        start_command(
            folder, str(folder), program=job, RANK=str(rank), LOCAL_RANK=str(rank), **variables
        )
        for rank in range(4)
    ]
    for rank in ranks:
        ended = rank.finish()
        assert ended.code == 0, ended.err
    lines = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]
    return [{line["name"]: line for line in of_rank} for of_rank in lines]


@pytest.mark.full
def test_torchrun_starts_the_same_job(tmp_path: Path) -> None:
    job = Path(__file__).with_name("measuring_job.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    subprocess.run([*torchrun, str(job), str(tmp_path)], check=True, env=clean_environment())
    for rank in range(4):
        lines = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert [line["changed"] for line in lines if "changed" in line] == [{}] * (2 + rank % 2 * 2)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_operation_is_right_and_measured_as_often_as_requested(said: Said, name: str) -> None:
    for rank in MEMBERS[name]:
        found = said[rank][name]
        ranks = found["world_size"]
        assert ranks == (4 if name == "default" else 2)
        assert found["ranks"] == list(range(ranks))
        assert (found["launcher"], found["end"]) == ("in process", "complete")
        expected = [[op, "ok", 0, 6, ranks] for op in OPERATIONS for _ in range(2)]
        assert found["rows"] == [*expected, ["barrier", "ok", None, 6, ranks]]


def test_every_rank_of_a_group_gets_the_same_run(said: Said) -> None:
    for name, ranks in (("default", range(4)), ("pair", (1, 3)), ("again", (1, 3))):
        assert len({said[rank][name]["run"] for rank in ranks}) == 1
    # The groups of a dimension measure side by side: ranks 0 and 2, 1 and 3.
    runs = [said[rank]["outer"]["run"] for rank in range(4)]
    assert runs[0] == runs[2] != runs[1] == runs[3]


@pytest.mark.parametrize("name", MEMBERS)
def test_nothing_is_left_behind(said: Said, name: str) -> None:
    assert [said[rank][name]["changed"] for rank in MEMBERS[name]] == [{}] * len(MEMBERS[name])


def test_the_run_is_written_where_that_is_requested(said: Said, folder: Path) -> None:
    run = read_run(folder / "run")
    assert len(run.measurements) == len(said[0]["default"]["rows"])
    assert (folder / "run" / "results.csv").read_text().count("\n") == len(run.measurements) + 1


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [("other plan", "UsageError", 'has a different plan: sizes="1K" instead of sizes="2K"'),
     ("no group", "UsageError", "group cannot be [0, 1]"),
     ("unknown", "UsageError", "unknown operation 'all_reduction'"),
     ("option", "UsageError", "launches cannot be used with commbench.measure"),
     ("folder", "RecordsError", ""),
     ("too large", "UnavailableError", "nothing is left to measure")],
)  # fmt: skip
def test_an_error_is_raised_on_every_rank(said: Said, name: str, error: str, words: str) -> None:
    for of_rank in said:
        assert of_rank[name]["error"] == error
        assert words in of_rank[name]["message"]
        assert "fewer ranks" not in of_rank[name]["message"]  # none of them would fit
        told = "call measure() with the same arguments" in of_rank[name]["message"]
        assert told == (name == "other plan")
        assert name == "too large" or of_rank[name]["message"] == said[0][name]["message"]


def test_ranks_do_not_wait_for_one_that_raised_or_does_not_come(said: Said) -> None:
    first, *others = (of_rank["one raises"] for of_rank in said)
    assert first["error"] == "UsageError"
    for told in others:
        assert told["error"] == "RankError"
        assert "raised UsageError: op: unknown operation 'all_redcue'" in told["message"]
        assert told["seconds"] < 20
    words = "raised UsageError: cpu_mode cannot be used with commbench.measure"
    assert all(words in of_rank["one has another option"]["message"] for of_rank in said[1:])
    for of_rank in said:  # the late one learns that the others have left
        told = of_rank["one is late"]
        assert told["error"] == "RankError"
        assert "rank 0 has not called measure() within 1 s" in told["message"]


def test_a_rank_outside_of_the_group_is_told(said: Said) -> None:
    for rank in (0, 2):
        assert "this rank is not in the process group" in said[rank]["not a member"]["message"]
