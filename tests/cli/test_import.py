"""Other tools' files through the real entry point: imported, shown, compared, never guessed at."""

import json
import shutil
from pathlib import Path

import pytest
from commands import Commbench

DATA = Path(__file__).parents[1] / "data" / "nccl-tests"
ROWS = {
    "nccl_allreduce": "all_reduce", "nccl_allgather": "all_gather", "nccl_alltoall": "all_to_all",
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_log_becomes_a_run_with_every_row(commbench: Commbench, name: str) -> None:
    ended = commbench("import", str(DATA / f"{name}.log"), "--op", ROWS[name], "--output", "run")
    assert ended.code == 0, ended.err
    rows = ended.rows()
    printed = [
        line for line in (DATA / f"{name}.log").read_text().splitlines()
        if line.split()[:1] and line.split()[0].isdigit() and int(line.split()[0]) > 0
    ]  # fmt: skip
    assert len(rows) == 2 * len(printed)  # out of place and in place
    assert {row["operation"] for row in rows} == {ROWS[name]}
    assert {(row["world_size"], row["backend"], row["timing"]) for row in rows} == {
        ("8", "nccl", "pipelined")
    }
    shown = commbench("show", "run")
    assert (shown.code, shown.out) == (0, ended.out)
    assert "mean over 20 calls, mean over ranks" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100


def test_files_of_other_tools_compare_and_check_as_they_are(
    commbench: Commbench, tmp_path: Path
) -> None:
    for name in ("old", "new"):
        shutil.copy(DATA / "nccl_allreduce.log", tmp_path / f"{name}.log")
    ended = commbench("compare", "old.log", "new.log", "--op", "all_reduce", "--format", "json")
    assert ended.code == 0, ended.err
    (found,) = json.loads(ended.out)["comparisons"]
    assert found["counts"]["same"] == len(found["rows"]) - found["counts"]["not compared"] > 30
    assert {row["ratio"]["value"] for row in found["rows"]} == {1.0}
    rule = "all_reduce:1G-8G:200GB/s"
    checked = commbench("check", "new.log", "--op", "all_reduce", "--min-busbw", rule)
    assert (checked.code, "8 of 8 rows cannot be judged (results not checked)" in checked.out) == (
        7,
        True,
    )
    asked = ("--op", "all_reduce", "--min-busbw", rule, "--allow-unchecked")
    assert commbench("check", "new.log", *asked).code in (0, 1)
