"""Runs that are really cut off, by real signals, and taken up again: `commbench run --resume`."""

from __future__ import annotations

import json
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from commands import (
    SHORT_DELAYS,
    START_TIMEOUT_S,
    Ended,
    clean_environment,
    journal_lines,
    run_commbench,
    start_command,
)
from synthetic import synthetic_run
from synthetic_journal import sealed

from commbench import __version__
from commbench.answers.compare.turns import find_facts
from commbench.cli.main import app
from commbench.errors import CommbenchError, RecordsError, UsageError
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_progress, read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import RunEnd

ASCENDING = [
    "--sizes", "512K,1M,2M", "--dtype", "float32,int16", "--iters", "100", "--order", "ascending",
]  # fmt: skip
"""Three cases one after another, large enough to be interrupted; three that gloo refuses."""


def cut_off(where: Path, number: int, until: tuple[str, int], *arguments: str) -> bytes:
    """Start a run in `where/run`, and signal its launcher once the journal has so many lines of a
    kind, and then a batch; what the journal holds when all is over."""
    journal = where / "run" / JOURNAL
    process = start_command(where, "run", "--no-plots", *arguments, **SHORT_DELAYS)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _has(journal, *until):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.005)
    ranks = [rank["pid"] for rank in lines_of(journal, "header")[-1]["ranks"]]
    process.send_signal(number)
    process.finish()
    # A killed launcher does not wait for its ranks; they end at once all the same.
    while any(Path(f"/proc/{pid}").exists() for pid in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return journal.read_bytes()


def _has(journal: Path, kind: str, number: int) -> bool:
    if not journal.exists():
        return False
    kinds = [line["kind"] for line in lines_of(journal)]
    last = max((i for i, found in enumerate(kinds) if found == kind), default=-1)
    return kinds.count(kind) >= number and "batch" in kinds[last:]


def lines_of(journal: Path, kind: str = "") -> list[dict[str, Any]]:
    """The complete lines of a journal, or those of a kind."""
    return [line for line in journal_lines(journal) if not kind or line["kind"] == kind]


def finished(journal: Path) -> list[int]:
    return [line["case"]["index"] for line in lines_of(journal, "case")]


def iterations(ended: Ended, launch: int = 0) -> dict[int, int]:
    found: Counter[int] = Counter()
    for line in ended.journal():
        if line["kind"] == "batch" and line.get("launch", 0) == launch:
            found[line["case"]] += len(line["samples_s"])
    return dict(found)


def test_a_run_that_was_killed_and_then_interrupted_goes_on_both_times(tmp_path: Path) -> None:
    journal = tmp_path / "run" / JOURNAL
    killed = cut_off(tmp_path, signal.SIGKILL, ("case", 4), *ASCENDING, "--output", "run")
    first = finished(journal)
    assert 4 <= len(first) < 6
    with journal.open("a") as file:
        file.write('{"kind": "batch", "samples_s": [0.0003')  # as if killed in the middle of it
    interrupted = cut_off(tmp_path, signal.SIGINT, ("header", 2), "--resume", "run/run.jsonl")
    assert interrupted.startswith(killed)
    assert (second := len(finished(journal))) < 6
    run_commbench(tmp_path, "show", "run").good()  # what there is can be read at any time

    ended = resume(tmp_path, *ASCENDING[:4]).good()
    assert journal.read_bytes().startswith(interrupted)
    assert f"resuming run: {second} of 6 cases are complete" in ended.err
    assert "cpu mode quiet (as before)\n" in ended.err
    # Every case is finished once, with the iterations that were asked for, wherever it was cut.
    assert sorted(finished(journal)) == list(range(6))
    assert iterations(ended) == dict.fromkeys(range(3), 100)
    assert {batch.get("launch", 0) for batch in lines_of(journal, "batch")} == {0}
    headers = lines_of(journal, "header")
    assert [header["resumed"] for header in headers] == [False, True, True]
    assert [header["launch"] for header in headers] == [0, 0, 0]
    assert [line["status"] for line in lines_of(journal, "end")] == ["interrupted", "complete"]
    rows = ended.rows()
    assert [row["status"] for row in rows] == ["ok"] * 3 + ["unsupported"] * 3
    assert [row["iterations"] for row in rows[:3]] == ["100"] * 3
    assert "This run was cut off and resumed 2 times." in ended.out
    shown = run_commbench(tmp_path, "show", "run")
    assert shown.out == ended.out
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "busbw.png", "results.csv", "run.jsonl", "time.png"
    ]  # fmt: skip


def test_show_and_resume_count_the_launches_of_a_run_alike(tmp_path: Path) -> None:
    options = ("--sizes", "1K,2K", "--iters", "20", "--launches", "2", "--output", "run")
    journal = run_commbench(tmp_path, "run", *options, "--no-plots").good().folder / JOURNAL
    lines = journal.read_text().splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if n and '"kind": "header"' in line)
    journal.write_text("".join(lines[: second + 2]))
    shown = run_commbench(tmp_path, "show", "run").good()
    assert "1 of 2 launches complete" in shown.out
    assert "2 of 2 cases were measured only in part (cut off)" in shown.out
    assert "If it was killed: `commbench run --resume run` continues the run." in shown.err
    told = "1 of 2 launches and 0 of 2 cases of launch 2 are complete, and another 1 in part. "
    ended = resume(tmp_path, "--no-plots").good()
    assert told in ended.err and "only the rest is measured now" in ended.err
    assert "2 of 2 cases were measured; all results are correct." in ended.out


@pytest.mark.full
def test_launches_go_on_in_the_one_that_was_cut_off(tmp_path: Path) -> None:
    journal = tmp_path / "run" / JOURNAL
    arguments = [
        "--op", "all_reduce,barrier", "--sizes", "1K,2K", "--iters", "100", "--launches", "2",
        "--label", "twice", "--output", "run",
    ]  # fmt: skip
    before = cut_off(tmp_path, signal.SIGTERM, ("header", 2), *arguments)
    assert len(lines_of(journal, "header")) == 2
    (tmp_path / "results").mkdir()
    (tmp_path / "run").rename(tmp_path / "results" / "mine")
    (tmp_path / "run").symlink_to("results/mine")
    ended = run_commbench(tmp_path, "run", "--resume", "twi", "--no-plots").good()
    assert "1 of 2 launches and " in ended.err and "of launch 2 are complete" in ended.err
    assert journal.read_bytes().startswith(before)
    headers = lines_of(journal, "header")
    assert [(line["launch"], line["resumed"]) for line in headers] == [
        (0, False), (1, False), (1, True)
    ]  # fmt: skip
    for launch in range(2):
        assert iterations(ended, launch) == dict.fromkeys(range(3), 100)
    assert len(finished(journal)) == 6
    assert [(row["launches"], row["iterations"]) for row in ended.rows()] == [("2", "200")] * 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two cases, one after the other."""
    where = tmp_path_factory.mktemp("whole")
    arguments = ["--sizes", "1K,2K", "--iters", "4", "--order", "ascending", "--no-plots"]
    return run_commbench(where, "run", *arguments).good().folder


@pytest.fixture
def stopped(whole: Path, tmp_path: Path) -> Path:
    """The journal of that run as if its launcher had been killed after the first case."""
    return cut_after_one_case(Path(shutil.copytree(whole, tmp_path / "run")) / JOURNAL)


def cut_after_one_case(journal: Path) -> Path:
    lines = journal.read_text().splitlines(keepends=True)
    whole = [i for i, line in enumerate(lines) if line.startswith('{"kind": "case"')]
    journal.write_text("".join(lines[: whole[0] + 1]))
    return journal


def contents(journal: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in journal.parent.iterdir()}


def resume(where: Path, *arguments: str, **variables: str) -> Ended:
    return run_commbench(where, "run", "--resume", "run", *arguments, **variables)


def test_a_changed_environment_is_refused_by_name_and_nothing_is_touched(stopped: Path) -> None:
    where = stopped.parents[1]
    header, *others = stopped.read_text().splitlines(keepends=True)
    older = json.loads(header)
    older["environment"] |= {"kernel": "2.4.0", "commbench": "0.0.9"}
    stopped.write_text(sealed([json.dumps(older) + "\n", *others]))
    before = contents(stopped)
    ended = resume(where, NCCL_DEBUG="WARN", UCX_TLS="tcp")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.splitlines()[-2:] == [
        f"error: the run cannot be resumed: kernel was 2.4.0 and is {platform.release()}; "
        f"commbench was 0.0.9 and is {__version__}; NCCL_DEBUG was not set and is WARN; UCX_TLS "
        "was not set and is tcp",
        "hint: restore it, or start a new run and use `commbench compare`",
    ]
    assert contents(stopped) == before


@pytest.mark.parametrize("edited", [0, 1])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_run_whose_header_or_batch_was_edited_is_not_resumed(
    stopped: Path, edited: int, is_sealed: bool
) -> None:
    lines = stopped.read_text().splitlines(keepends=True)
    values = json.loads(lines[edited])
    if edited:
        assert values["kind"] == "batch"
        values |= {"digest": "0" * 8} if is_sealed else {"samples_s": [1e-3]}
    else:
        values["plan"]["sizes"] = [2 * size for size in values["plan"]["sizes"]]
    lines[edited] = json.dumps(values) + "\n"
    stopped.write_text(sealed(lines) if is_sealed else "".join(lines))
    before = contents(stopped)
    ended = resume(stopped.parents[1])
    assert (ended.code, ended.out) == (6, "")
    why = "it measured another case than " if is_sealed else "its checksum is not that of this line"
    number = 2 if is_sealed else edited + 1
    assert f"run.jsonl, line {number}, is damaged: {why}" in " ".join(ended.err.split())
    assert contents(stopped) == before


def test_a_journal_that_another_process_writes_is_refused(stopped: Path) -> None:
    before = contents(stopped)
    journal = Journal(stopped.parent)
    ended = resume(stopped.parents[1])
    assert ended.code == 6
    assert ended.err.splitlines()[-2].endswith("run.jsonl is being written by another process")
    assert contents(stopped) == before
    journal.end(RunEnd("failed"))


@pytest.mark.full
def test_the_torchrun_command_goes_on_with_a_run_of_its_own(stopped: Path) -> None:
    header, *others = stopped.read_text().splitlines(keepends=True)
    stopped.write_text("".join([header.replace('"local"', '"torchrun"', 1), *others]))
    resume(stopped.parents[1], "--no-plots", "--launcher", "torchrun").good()
    assert read_progress(stopped).finished == {0, 1}


@pytest.mark.full
def test_a_run_under_torchrun_goes_on_under_torchrun(tmp_path: Path) -> None:
    asked = ["--sizes", "1K,2K", "--iters", "4", "--order", "ascending", "--output", "run"]
    under_torchrun(tmp_path, *asked).good()
    journal = cut_after_one_case(tmp_path / "run" / JOURNAL)
    before = journal.read_bytes()
    ended = under_torchrun(tmp_path, "--resume", "run").good()
    assert ended.err.count("resuming run: 1 of 2 cases are complete") == 1
    assert journal.read_bytes().startswith(before)
    launchers = [(line["launcher"], line["resumed"]) for line in lines_of(journal, "header")]
    assert launchers == [("torchrun", False), ("torchrun", True)]
    assert sorted(finished(journal)) == [0, 1]
    assert iterations(ended) == {0: 4, 1: 4}
    assert "This run was cut off and resumed once." in ended.out
    other = under_torchrun(tmp_path, "--resume", "run", ranks=3)
    assert "run is complete: there is nothing to resume" in other.err


def under_torchrun(where: Path, *arguments: str, ranks: int = 2) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(ranks), "--module", "--", "commbench", "run", "--no-plots", *arguments],
        cwd=where, env=clean_environment(OMP_NUM_THREADS="1"), capture_output=True, text=True,
        timeout=START_TIMEOUT_S,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr, where / "run")


def test_a_whole_run_has_nothing_left(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "run", "mine")
    before = contents(folder / JOURNAL)
    ended = resume(tmp_path, "--seed", "0")
    assert (ended.code, ended.err) == (
        0, "run is complete: there is nothing to resume (--launches adds launches)\n"
        "results are in run\n",
    )  # fmt: skip
    assert ended.out == run_commbench(tmp_path, "show", "run").out
    assert contents(folder / JOURNAL) == before


def test_runs_that_go_on_with_more_launches_are_compared_in_turns(tmp_path: Path) -> None:
    asked = ["--sizes", "1K,64K", "--budget", "0.05", "--no-plots", "--cpu-mode", "plain"]
    for label in ("one", "other"):
        run_commbench(tmp_path, "run", *asked, "--label", label, "--output", label).good()
    before = read_run(tmp_path / "one")
    for label in ("one", "other"):
        ended = run_commbench(tmp_path, "run", "--resume", label, "--launches", "5", "--no-plots")
        assert "3 of 5 launches are complete" in ended.good().err
    one, other = (read_run(tmp_path / label) for label in ("one", "other"))
    assert (one.header.plan.launches, one.launches, len(one.starts)) == (5, 5, 5)
    assert not one.incomplete
    for own, earlier in zip(one.measurements, before.measurements, strict=True):
        assert {batch.launch for batch in own.batches} == {0, 1, 2, 3, 4}
        assert own.batches[: len(earlier.batches)] == earlier.batches
    assert [facts.turns for facts in find_facts(one, other)] == [2, 2]
    assert [facts.turns for facts in find_facts(before, other)] == [1, 1]
    for number in ("3", "4"):
        fewer = run_commbench(tmp_path, "run", "--resume", "one", "--launches", number)
        assert f"--launches contradicts one: {number} here, 5 there" in fewer.err
        assert (
            "hint: give more than 5 to extend this run, leave out --launches to continue"
            in fewer.err
        )


def test_options_that_contradict_the_run_and_what_is_no_run_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic_run(tmp_path / "run", "mine")
    monkeypatch.chdir(tmp_path)
    for words, message, hint in (
        ("run --iters 50", "--iters contradicts run: 50 here, as needed there", "leave "),
        ("run -b 1K -e 2K -f 2", "-b contradicts run: 1K,2K here, 1K,16K,256K,1M there", "leave "),
        ("run --no-check", "--no-check contradicts run: False here, True there", "leave "),
        ("run --nproc-per-node 3", "--nproc-per-node contradicts run: 3 here, 2 there", "leave "),
        ("run --op barrier", "--op contradicts run: barrier here, all_reduce there", "leave "),
        ("run --label other", "--label contradicts run: other here, mine there", "leave "),
        ("run --timeout 7", "--timeout contradicts run: 7 here, ", "leave "),
        ("run --output elsewhere", "--output cannot be used with --resume", "leave "),
        ("run --dry-run", "--dry-run cannot be used with --resume", "leave "),
        ("nowhere", "there is no file, folder or run 'nowhere'", ""),
        ("run/results.csv", "run/results.csv cannot be resumed", "give a run folder"),
    ):
        with pytest.raises(CommbenchError) as refused:
            app(["run", "--resume", *words.split()], standalone_mode=False)
        assert refused.value.message.startswith(message)
        assert refused.value.hint.startswith(hint)
        assert isinstance(refused.value, UsageError if hint == "leave " else RecordsError)
