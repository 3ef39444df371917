"""Other tools' files through the real entry point: imported, shown, compared, never guessed at."""

import json
import shutil
from pathlib import Path

import pytest
from commands import Commbench

DATA = Path(__file__).parents[1] / "data" / "nccl-tests"
ROWS = {
    "nccl_allreduce": "all_reduce",
    "nccl_allgather": "all_gather",
    "nccl_alltoall": "all_to_all",
}


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


def test_what_a_file_does_not_tell_is_asked_for(commbench: Commbench) -> None:
    log = str(DATA / "nccl_allreduce.log")
    for command in (["import"], ["show"], ["plot"], ["compare", log], ["export"]):
        if command == ["export"]:
            continue
        ended = commbench(*command, log)
        assert ended.code == 2, command
        assert ended.err.endswith("hint: give it: --op NAME, such as --op all_reduce\n"), ended.err


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
    assert (checked.code, "8 rows not measured: results not checked" in checked.out) == (7, True)
    asked = ("--op", "all_reduce", "--min-busbw", rule, "--allow-unchecked")
    assert commbench("check", "new.log", *asked).code in (0, 1)


def times_three(log: str) -> str:
    """A log of nccl-tests in which every call takes three times as long."""
    factors = {4: 3, 5: 1 / 3, 6: 1 / 3, 8: 3, 9: 1 / 3, 10: 1 / 3}

    def slower(line: str) -> str:
        cells = line.split()
        if not cells or not cells[0].isdigit() or len(cells) != 12:
            return line
        return " ".join(
            f"{factors[i] * float(cell):.2f}" if i in factors else cell
            for i, cell in enumerate(cells)
        )

    return "".join(f"{slower(line)}\n" for line in log.splitlines())


def test_a_log_that_is_three_times_slower_is_slower(commbench: Commbench, tmp_path: Path) -> None:
    log = (DATA / "nccl_allreduce.log").read_text()
    (tmp_path / "old.log").write_text(log)
    (tmp_path / "new.log").write_text(times_three(log))
    asked = ("compare", "old.log", "new.log", "--op", "all_reduce", "--fail-if-slower")
    ended = commbench(*asked, "--format", "json")
    assert ended.code == 1, ended.err
    (found,) = json.loads(ended.out)["comparisons"]
    assert found["counts"]["slower"] == len(found["rows"]) - found["counts"]["not compared"] > 30
    assert {row["reason"] for row in found["rows"] if row["verdict"] == "slower"} == {
        "decided by the two times alone, because no interval is known of A and B"
    }


def test_a_file_that_is_none_of_a_known_tool_is_refused(
    commbench: Commbench, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    ended = commbench("import", "notes.txt")
    assert ended.code == 6
    assert ended.err == (
        "error: notes.txt is not the output of a tool that commbench knows\n"
        "hint: it reads nccl-tests (text, JSON), OSU, Intel MPI Benchmarks and PARAM\n"
    )
