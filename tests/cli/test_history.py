"""`commbench history` and `commbench run --history`: real ranks, made-up runs, wrong input."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_commbench
from synthetic import noisy, synthetic_run

OLD, NEW = "2.27.5", "2.28.9"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 24 runs, the last 12 of them slower, and two that cannot be added."""
    made = tmp_path_factory.mktemp("history")
    for day in range(1, 25):
        synthetic_run(
            made / "results" / f"202609{day:02}-060000-nightly",
            "nightly",
            lambda case, day=day: noisy(
                case.size_bytes * 1e-9 * (1 + 0.01 * (day % 3)) * (1.4 if day > 12 else 1),
                day,
                batches=4,
            ),
            started=f"2026-09-{day:02}T06:00:00+00:00",
            environment={"nccl": NEW if day > 12 else OLD},
        )
    cut = synthetic_run(made / "results" / "20260925-060000-cut", "cut")
    journal = (cut / "run.jsonl").read_text().splitlines(keepends=True)
    (cut / "run.jsonl").write_text("".join(journal[:-1]))
    damaged = made / "results" / "20260926-060000-damaged"
    damaged.mkdir()
    (damaged / "run.jsonl").write_text("no journal\n")
    ended = run_commbench(made, "history", "add", "results")
    assert ended.code == 0 and ended.out == "24 runs added, with 96 rows\n", ended.err
    assert ended.err.count("added: ") == 24 and ended.err.count("left out: ") == 2
    return made


def test_a_folder_is_taken_in_once(where: Path) -> None:
    again = run_commbench(where, "history", "add", "results")
    assert (again.code, again.out) == (0, "0 runs added, with 0 rows\n")
    assert again.err.count("known: ") == 24


def test_show_says_what_became_slower_and_what_changed_then(where: Path) -> None:
    shown = run_commbench(where, "history", "show", COLUMNS="80")
    assert shown.code == 0, shown.err
    said = " ".join(shown.out.split())
    assert "At 2026-09-13 06:00 (run 13) all_reduce 1K-1M became slower: 1.4" in said
    assert "`commbench history accept 13` makes the later level usual" in said
    assert f"nccl went from {OLD} to {NEW} then." in said
    assert max(map(len, shown.out.splitlines())) <= 80
    one = run_commbench(where, "history", "show", "--size", "1M", "--format", "json")
    assert [row["size_bytes"] for row in json.loads(one.out)["series"]] == [1 << 20]
    drawn = run_commbench(where, "history", "show", "-o", "own.png")
    assert (drawn.code, drawn.out) == (0, "own.png\n"), drawn.err
    assert (where / "own.png").read_bytes().startswith(b"\x89PNG")
    again = run_commbench(where, "history", "show", "-o", "own.png")
    assert again.code == 6 and "own.png" in again.err


def test_a_check_against_the_history_has_an_exit_code(where: Path) -> None:
    slow = synthetic_run(
        where / "slow", "slow", lambda case: noisy(case.size_bytes * 2e-9, 1), started="2026-09-30"
    )
    same = synthetic_run(
        where / "same", "same", lambda case: noisy(case.size_bytes * 1.41e-9, 1),
        started="2026-09-30T06:00:00+00:00", launches=3,
    )  # fmt: skip
    codes = {
        run: run_commbench(where, "check", str(run), "--against", "history").code
        for run in (slow, same)
    }
    assert codes == {slow: 1, same: 1}
    said = run_commbench(where, "check", str(same), "--against", "history").out
    (number,) = re.findall(r"`commbench history\s+accept\s+(\d+)`", said)
    accepted = run_commbench(where, "history", "accept", number, COLUMNS="80")
    assert f"the usual level begins with run {number} (2026-09-13 06:00 UTC)" in " ".join(
        accepted.out.split()
    )
    assert max(map(len, accepted.out.splitlines())) <= 80
    shown = " ".join(run_commbench(where, "history", "show").out.split())
    assert f"Run {number} (2026-09-13 06:00) is accepted: the usual level" in shown
    codes = {
        run: run_commbench(where, "check", str(run), "--against", "history").code
        for run in (slow, same)
    }
    assert codes == {slow: 1, same: 0}
    # With the accepted run its level is gone.
    (where / "forgotten.sqlite").write_bytes((where / "results/history.sqlite").read_bytes())
    db = ("--db", "forgotten.sqlite")
    gone = run_commbench(where, "history", "forget", number, *db)
    assert " ".join(gone.out.split()) == (
        f"1 run of node1 removed: nightly; run {number} was accepted, and its level is gone: usual "
        "is again the shortest time that lasted in the other runs"
    )
    assert run_commbench(where, "check", str(same), "--against", "history", *db).code == 1
    typo = run_commbench(where, "check", "same", "--against", "history", "--node", "nope")
    assert typo.code == 2 and "has no run of 'nope'" in typo.err
    assert "hint: choose one of its nodes: " in typo.err
    none = run_commbench(where, "check", "same", "--against", "history", "--db", "none.sqlite")
    assert none.code == 6 and "error: there is no history none.sqlite\n" in none.err
    none = run_commbench(where / "same", "check", ".", "--against", "history")
    assert none.code == 7 and "NO VERDICT" in none.out


def test_points_are_exported_and_runs_forgotten(where: Path) -> None:
    ended = run_commbench(where, "history", "export", "--size", "1K", "-o", "points.csv")
    assert ended.code == 0, ended.err
    with (where / "points.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24 and {row["node"] for row in rows} == {"node1"}
    assert float(rows[0]["time_s"]) == pytest.approx(1024e-9, rel=0.2)
    copied = where / "copied.sqlite"
    copied.write_bytes((where / "results" / "history.sqlite").read_bytes())
    db, one = ("--db", "copied.sqlite"), "1 run of node1 removed: nightly\n"
    assert run_commbench(where, "history", "forget", "3", *db).out == one
    others = run_commbench(where, "history", "forget", "--node", "node1", *db).out
    assert others == "23 runs of node1 removed: nightly\n"
    assert run_commbench(where, "history", "list", *db).out.splitlines()[2].startswith("0 runs")


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="drops the capability of root to write any file")
def test_a_file_that_is_read_only_can_be_shown_and_not_written(where: Path) -> None:
    db = where / "copied.sqlite"
    db.write_bytes((where / "results" / "history.sqlite").read_bytes())
    db.chmod(0o444)
    as_others = ["setpriv", "--bounding-set=-dac_override", "--", sys.executable, "-m", "commbench"]
    synthetic_run(where / "new", "new", started="2026-10-01T06:00:00+00:00")
    for words, code in (("show --size 1K", 0), ("add new", 6)):
        command = [*as_others, "history", *words.split(), "--db", str(db)]
        ended = subprocess.run(command, cwd=where, capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr
    assert "readonly" in ended.stderr and "make it writable" in ended.stderr


def test_a_run_adds_itself(tmp_path: Path) -> None:
    options = ("--op", "barrier", "--iters", "20", "--no-plots", "--history", "--db", "h.sqlite")
    for number in (1, 2):
        folder = ("--output", f"run-{number}")
        ended = run_commbench(tmp_path, "run", *options, *folder, forks_ranks=True)
        assert ended.code == 0 and "added in the history h.sqlite: 1 row" in ended.err, ended.err
        listed = run_commbench(tmp_path, "history", "list", "--db", "h.sqlite", "--format", "json")
        assert len(json.loads(listed.out)["runs"]) == number
    (tmp_path / "other").write_text("no database " * 100)
    refused = run_commbench(
        tmp_path, "run", *options[:-1], "other", "--output", "run-3", forks_ranks=True
    )
    assert refused.code == 6 and "not a database" in refused.err


def test_where_no_history_can_be_written_nothing_is_measured(tmp_path: Path) -> None:
    for db, why in (("/proc/x.sqlite", "no file can be made in /proc"), ("no/x.sqlite", "no")):
        for words in ("run --op barrier --no-plots --history", "history add results"):
            ended = run_commbench(tmp_path, *words.split(), "--db", db)
            assert ended.code == 6 and ended.err.startswith("error: "), ended.err
            assert why in ended.err.splitlines()[0] and len(ended.err.splitlines()) == 2
    assert not list(tmp_path.iterdir())
