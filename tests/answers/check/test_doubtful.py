"""What a check says of runs that lack something, were not checked, or were disturbed: from every
source alike, it does not pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Commbench
from synthetic import header, in_memory, plan, steady, synthetic_run

import commbench as cb
from commbench.analysis.clearer import clearer
from commbench.analysis.csv_file import ResultsCsv
from commbench.analysis.diagnostics import WAITED, waited_hint
from commbench.analysis.load import as_loaded_run
from commbench.analysis.rows import make_rows
from commbench.answers.check.advice import advice
from commbench.answers.check.document import as_json, document
from commbench.answers.check.gate import CHECKED, GateResult, Judge, check
from commbench.answers.check.rules import parse_rule
from commbench.answers.check.sentences import verdict
from commbench.results.journal import Journal
from commbench.results.journal_reader import read_run
from commbench.results.run_folder import create_folder
from commbench.results.schema import Batch, Measurement, Run

FOREIGN = Path(__file__).parents[2] / "data" / "foreign"
SLOWER, LONGEST = parse_rule("max_slowdown", "50%"), parse_rule("max_time", "1s")
SHORTEST = parse_rule("max_time", "1us")
CUT = "FAIL: the run is incomplete, it has faults: "
CUT_TABLE = "the table that ends at line 19 was cut off, or is not complete"


def flat(text: str) -> str:
    return " ".join(text.split())


def cut_off_run(folder: Path, label: str, measured: int = 2, launches: int = 1) -> Path:
    """The folder of a run that was killed when so many of four cases were measured."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    create_folder(folder)
    journal, asked = Journal(folder), plan(launches=launches)
    journal.add(header(asked, label))
    for case in asked.cases()[: measured + 1]:
        journal.batch(case, Batch((1e-4, 1.01e-4)))
        if case.index < measured:
            journal.add(Measurement(case, "ok", stop_reason="fixed", wrong=0))
    journal.close()
    ResultsCsv(folder).add(*make_rows(read_run(folder)))
    return folder


def cut_text(folder: Path) -> Path:
    lines = (FOREIGN / "nccl-tests-tagged.txt").read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if "           8  " in line)
    path = folder / "cut.txt"
    path.write_text("".join(lines[: first + 1]))
    return path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A folder with runs, tables and logs that were cut off in several ways."""
    for name, launches, measured in (("killed", 1, 2), ("launches", 3, 4)):
        folder = cut_off_run(tmp_path / name, name, measured, launches)
        (tmp_path / f"{name}.csv").write_bytes((folder / "results.csv").read_bytes())
    journal = synthetic_run(tmp_path / "endless", "endless", lambda _: steady(1e-4)) / "run.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    text = (FOREIGN / "nccl-tests-1.json").read_text()
    (tmp_path / "cut.json").write_text(text[: int(len(text) * 0.6)])
    cut_text(tmp_path)
    return tmp_path


KILLED = ("FAIL: the run is incomplete, ", "1 of 3 rows failed: cut off. Rows: 1 failed, 2 passed.")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, KILLED) for name in ("killed", "killed/run.jsonl", "killed/results.csv")),
        ("killed.csv", KILLED),
        ("endless/results.csv", ("FAIL: the run is incomplete, it has not ended: it is still "
                                 "running, or was killed",)),
        ("launches.csv", ("4 rows cut off",)),
        ("cut.json", (f"{CUT}the file was cut off: everything after its last complete result is "
                      "missing",)),
        ("cut.txt", (CUT,)),
    ],
)  # fmt: skip
def test_every_file_of_a_run_that_was_cut_off_fails(
    commbench: Commbench, damaged: Path, name: str, words: Sequence[str]
) -> None:
    ended = commbench("check", str(damaged / name), "--max-time", "100s", "--allow-unchecked")
    assert ended.code == 1
    assert all(each in flat(ended.out) for each in words)
    is_others = name in ("cut.json", "cut.txt")
    assert ("Give a complete file: another tool measured this run" in flat(ended.out)) == is_others
    assert ("commbench run --resume" in flat(ended.out)) != is_others


def test_a_table_that_was_cut_off_stays_so_when_it_is_imported(
    commbench: Commbench, tmp_path: Path
) -> None:
    cut_text(tmp_path)
    shown = commbench("show", "cut.txt", COLUMNS="80")
    assert shown.code == 0 and "--resume" not in shown.err
    assert f"This run has faults: {CUT_TABLE}" in flat(shown.out)
    assert max(len(line) for line in shown.out.splitlines() if "http" not in line) <= 80
    imported = commbench("import", "cut.txt", "--output", "new")
    assert CUT_TABLE in flat(imported.out) and f"note: {CUT_TABLE}\n" in imported.err
    for name in ("new", "new/results.csv"):
        assert commbench("check", name, "--max-time", "100s").code == 1
    refused = commbench("run", "--resume", "new")
    assert (refused.code, refused.err.splitlines()[0]) == (
        6, "error: new was imported and cannot be resumed",
    )  # fmt: skip


def test_an_incomplete_baseline_is_named_in_every_format(tmp_path: Path) -> None:
    cut_off_run(tmp_path / "old", "old")
    synthetic_run(tmp_path / "new", "new", lambda _: steady(1e-4))
    text = "it has not ended: it is still running, or was killed"
    for source in ("old", "old/results.csv"):
        gate = cb.check(tmp_path / "new", against=tmp_path / source, max_slowdown="50%")
        assert gate.exit_code == 7
        reasons = {c.reason for c in gate.results[0].with_outcome("not measured")}
        assert reasons == {"cut off in the baseline", "not in the baseline"}
        if source == "old/results.csv":
            text = "it has faults: 1 row cut off"
        assert as_json(gate)["baseline_incomplete"] in text


def with_wrong(label: str, wrong: int | None, seconds: float = 1e-4, **more: object) -> Run:
    run = in_memory(label, [steady(seconds)])
    (found,) = run.measurements
    return run._replace(measurements=(found._replace(wrong=wrong, **more),))  # type: ignore[arg-type]


def reasons(gate: GateResult) -> list[str]:
    return [check.reason for check in gate.results[0].checks]


def test_a_row_with_wrong_elements_fails_whatever_its_status_says() -> None:
    gate = check(with_wrong("new", 7), [LONGEST])
    why = "7 wrong elements, although its status is ok"
    assert (gate.exit_code, reasons(gate)) == (1, [why])
    gate = check(with_wrong("new", 0), [SLOWER], with_wrong("old", 7))
    assert (gate.exit_code, reasons(gate)) == (7, [f"{why} in the baseline"])


def test_a_row_that_nobody_checked_may_fail_but_does_not_pass() -> None:
    unchecked, sound = with_wrong("new", None), with_wrong("old", 0)
    assert check(sound, [LONGEST]).exit_code == 0
    for gate in (check(unchecked, [LONGEST]), check(unchecked, [SLOWER], sound)):
        assert (gate.exit_code, reasons(gate)) == (7, ["results not checked"])
        assert any("--allow-unchecked" in text for text in as_json(gate)["advice"])
    gate = check(sound, [SLOWER], unchecked)
    assert (gate.exit_code, reasons(gate)) == (7, ["results not checked in the baseline"])
    assert check(unchecked, [LONGEST], allow_unchecked=True).exit_code == 0
    assert check(unchecked, [parse_rule("max_time", "1us")]).exit_code == 1


def test_rows_that_cannot_be_judged_are_not_counted_as_judged_together() -> None:
    new = in_memory("new", [steady(1e-4)] * 2)
    first, second = new.measurements
    unchecked = new._replace(measurements=(first, second._replace(wrong=None)))
    # A row that is beyond the limit fails also unchecked.
    for run, rule, rows in ((new, LONGEST, 2), (unchecked, LONGEST, 1), (unchecked, SHORTEST, 2)):
        assert Judge(rule, as_loaded_run(run, CHECKED), None).number == rows


def test_a_verdict_says_that_no_row_passes() -> None:
    old, new = (in_memory(name, [steady(1e-4, 2)] * 2, launches=2) for name in ("old", "new"))
    gate = check(new, [parse_rule("max_slowdown", "0.1%")], old)
    assert gate.exit_code == 7
    assert verdict(gate) == "NO VERDICT: none of 2 rows surely passed."
    assert "needs a row" not in verdict(check(new, [LONGEST], old))


def test_a_barrier_has_no_result_to_check(commbench: Commbench, tmp_path: Path) -> None:
    ended = commbench("run", "--op", "barrier", "--iters", "6", "--no-plots", "--output", "real")
    assert ended.code == 0, ended.err
    assert commbench("check", "real", "--max-time", "100s").code == 0
    assert [m.wrong for m in cb.load(tmp_path / "real").measurements] == [None]


@pytest.mark.parametrize("name", ["imb.txt", "osu.txt"])
def test_what_mpi_benchmarks_checked_is_checked(name: str) -> None:
    gate = cb.check(FOREIGN / name, max_time="100s", ranks=4)
    assert gate.exit_code == 1  # a row of each is left out because of a fault
    (result,) = gate.results
    outcomes = {c.case.has_result: c.outcome for c in result.checks}
    assert outcomes == {True: "not measured", False: "pass"}


def disturbed(label: str, seconds: float, queued_s: float, wide: bool = False) -> Run:
    """A run of one row, whose ranks lacked a core for a part of the time."""
    samples = [seconds * factor for factor in ((0.2, 4.0) if wide else (1.0, 1.01))] * 2
    batch = Batch(tuple(samples), elapsed_s=1.0, queued_s=queued_s)
    run = in_memory(label, [steady(1e-4)])
    (found,) = run.measurements
    return run._replace(measurements=(found._replace(batches=(batch,) * 10),))


QUIET = disturbed("quiet", 1e-4, 0.0)


@pytest.mark.parametrize(
    ("new", "old", "limit", "code", "doubt"),
    [
        (QUIET, disturbed("old", 1e-4, 0.41), "50%", 7, f"{WAITED} in A"),
        (QUIET, disturbed("old", 1e-4, 0.19), "50%", 0, ""),
        (QUIET, disturbed("old", 1e-4, 0.39), "50%", 7, ""),  # 61 us without waiting
        (QUIET, disturbed("old", 1e-4, 0.39), "200%", 0, ""),
        (disturbed("new", 1e-4, 0.6), QUIET, "50%", 7, f"{WAITED} in B"),
        (disturbed("new", 6e-4, 0.6), QUIET, "50%", 7, f"{WAITED} in B"),
        (disturbed("new", 6e-4, 0.39), QUIET, "50%", 1, ""),
        (disturbed("new", 3e-4, 0.39), QUIET, "50%", 7, ""),  # 183 us without waiting
        (disturbed("new", 3e-4, 0.39), disturbed("old", 1e-4, 0.35), "50%", 1, ""),
        (disturbed("new", 3e-4, 0.6), disturbed("old", 1e-4, 0.6), "50%", 7,
         f"{WAITED} in A and B"),
        (QUIET, disturbed("old", 1e-4, 0.6, wide=True), "5%", 7, f"{WAITED} in A"),
        (QUIET, disturbed("old", 1e-4, 0.0, wide=True), "200%", 7, "an interval of more than"),
        (disturbed("new", 1e-4, 0.0, wide=True), QUIET, "200%", 7, "an interval of more than"),
        (disturbed("new", 1e-4, 0.0, wide=True), QUIET, "900%", 0, ""),  # within in any case
        (disturbed("new", 1e-2, 0.0, wide=True), QUIET, "50%", 1, ""),  # beyond in any case
        (disturbed("new", 3e-4, 0.0), disturbed("old", 1e-4, 0.6), "50%", 7, f"{WAITED} in A"),
        (disturbed("new", 1e-4, 0.0, wide=True), None, "1s", 0, ""),  # noise makes slower only
        (disturbed("new", 1e-4, 0.0, wide=True), None, "300us", 7, "an interval of more than"),
        (disturbed("new", 1e-4, 0.0, wide=True), None, "1us", 1, ""),
        (disturbed("new", 3e-4, 0.6), None, "100us", 7, WAITED),
        (disturbed("new", 3e-4, 0.4), None, "100us", 1, ""),
    ],
)  # fmt: skip
def test_no_verdict_on_what_noise_hides(
    new: Run, old: Run | None, limit: str, code: int, doubt: str
) -> None:
    rule = parse_rule("max_slowdown" if old else "max_time", limit)
    gate = check(new, [rule], old)
    (found,) = gate.results[0].checks
    assert (gate.exit_code, found.reason[: len(doubt)]) == (code, doubt)
    if doubt:
        assert found.outcome == "undecided" and found.reason in verdict(gate)
        # What is beyond the limit with its whole interval passes in no case.
        passed = 7 if found.is_beyond else 0
        assert check(new, [rule], old, undecided="pass").exit_code == passed
        assert found.is_beyond == (new.measurements[0].batches[0].samples_s[0] > 2e-4)
        failing = check(new, [rule], old, undecided="fail")
        again = advice(gate)
        assert failing.exit_code == 1 and advice(failing) == [
            text for text in again if "--undecided" not in text
        ]
        assert (again == [waited_hint(r.header for r in (new, old) if r)]) == (
            WAITED in doubt
        ) and "fewer ranks" not in str(again)
        if old and WAITED not in doubt:
            assert again[0].startswith(clearer(new.header))
    if old and WAITED in doubt:
        compared = cb.compare(old, new, tolerance=0.5)
        (row,), (pooled,) = compared.rows, compared.pooled
        assert (row.verdict, row.reason) == (pooled.verdict, doubt) == ("undecided", doubt)
        assert (compared.waited, pooled.reason, compared.is_slower) == (1, WAITED, False)
        assert row.ratio and row.ratio.has_interval


@pytest.mark.parametrize(
    ("queued_old_s", "starts", "code"), [(0.19, "bdfh", 1), (0.21, "bdfh", 7), (0.05, "wxyz", 7)]
)
def test_what_only_one_side_waits_for_in_turns_is_its_own(
    queued_old_s: float, starts: str, code: int
) -> None:
    def side(label: str, seconds: float, queued_s: float, began: str) -> Run:
        samples = [steady(seconds, 24)] * 3
        run = in_memory(label, samples, launches=4, elapsed_s=1.0, queued_s=queued_s)
        return run._replace(starts=tuple(began))

    new, old = side("new", 3e-4, 0.7, starts), side("old", 1e-4, queued_old_s, "aceg")
    gate = check(new, [parse_rule("max_slowdown", "50%")], old)
    assert gate.exit_code == code
    said = " ".join(gate.text().split())
    alone = (
        "new waited for a core 70 % of the time, those of old, in turns with them, 19 %: perhaps"
    )
    assert (alone in said) == (code == 1)
    assert (f"{WAITED} in B" in said) == (code == 7)
    assert ("measure both again" in said) == (code == 1 and starts != "bdfh")


def warned(gate: GateResult) -> list[tuple[str, str]]:
    return [(warning["run"], warning["name"]) for warning in as_json(gate)["warnings"]]


@pytest.mark.parametrize(("starts", "verdict"), [("wxyz", "undecided"), ("bdfh", "slower")])
def test_two_cpu_modes_whose_ranks_waited_have_a_verdict_in_turns(
    starts: str, verdict: str
) -> None:
    def side(label: str, seconds: float, queued_s: float, began: str, mode: str) -> Run:
        samples = [steady(seconds, 24)] * 3
        run = in_memory(label, samples, launches=4, elapsed_s=1.0, queued_s=queued_s)
        asked = replace(run.header.plan, cpu_mode=mode)
        return run._replace(starts=tuple(began), header=run.header._replace(plan=asked))

    old = side("old", 1e-4, 0.45, "aceg", "plain")
    compared = cb.compare(old, side("new", 3e-4, 0.6, starts, "quiet"), force=True)
    assert {row.verdict for row in compared.rows} == {verdict}


def test_the_warnings_of_both_runs_are_told() -> None:
    new, old = disturbed("new", 1e-4, 0.7), disturbed("old", 1e-4, 0.6)
    gate = check(new, [SLOWER], old)
    assert {("new", "queued"), ("old", "queued")} <= {*warned(gate)}
    found = [w["message"] for w in as_json(gate)["warnings"] if w["name"] == "queued"]
    assert ["70 %" in found[0], "60 %" in found[1]] == [True, True]
    assert warned(check(QUIET, [LONGEST])) == []


def test_the_warnings_that_a_csv_names_are_printed(tmp_path: Path) -> None:
    run = disturbed("old", 1e-4, 0.6)
    ResultsCsv(tmp_path).add(*make_rows(run))
    gate = cb.check(QUIET, against=tmp_path / "results.csv", force=True, max_slowdown="50%")
    assert (gate.exit_code, warned(gate)) == (7, [("old", "queued")])


@pytest.mark.parametrize(
    ("ratio", "limit", "said"),
    [
        (1.05, "18%", "More launches decide this limit. Then it passes, if they differ as these do "
         "and B/A stays: continue both, one after the other: `"),
        (1.2, "20%", "6 launches would hardly decide this limit: if they differ as these do, and "
         "B/A stays 1.20, they pass a limit from 32 % on. Or "
         "measure both again in turns, as `commbench sweep` does, or on a quiet host (`commbench "
         "doctor`), or with --cpu-mode realtime (root or CAP_SYS_NICE)."),
        (1.2, "30%", "6 launches would hardly decide this limit: if they differ as these do, and "
         "B/A stays 1.20, they pass a limit from 32 % on. About 9 would: continue both, one after "
         "the other: `"),
    ],
)  # fmt: skip
def test_the_advice_says_first_whether_more_launches_decide(
    ratio: float, limit: str, said: str
) -> None:
    sides = launches_of("new", 1e-4 * ratio), launches_of("old", 1e-4)
    gate = check(sides[0], [parse_rule("max_slowdown", limit)], sides[1])
    assert gate.exit_code == 7
    assert advice(gate)[0].startswith(said), advice(gate)


def test_the_advice_names_the_least_limit_that_the_run_passes() -> None:
    sides = launches_of("new", 1.2e-4), launches_of("old", 1e-4)
    one, other, passing = (
        check(sides[0], [parse_rule("max_slowdown", limit)], sides[1])
        for limit in ("10%", "38%", "39%")
    )
    passes = "As measured, every row passes with a limit of 39 %. "
    passes += "Choose a limit by equal runs, before you measure."
    assert passes in advice(one)
    assert passes in advice(other)
    assert (passing.outcome, passes in advice(passing)) == ("pass", False)


def launches_of(label: str, seconds: float, spread: float = 0.03) -> Run:
    """A run of three launches that differ by so much."""
    batches = [b for part in (1 - spread, 1.0, 1 + spread) for b in steady(seconds * part, 8)]
    run = in_memory(label, [batches], launches=3, elapsed_s=1.0)
    environment = {**run.header.environment, "boot_id": "the same"}
    return run._replace(header=run.header._replace(environment=environment))


def test_a_check_that_passes_says_first_that_launches_differ_by_more_than_its_limit() -> None:
    new, old = launches_of("new", 0.02e-4, 0.3), launches_of("old", 2e-4, 0.3)
    told = [document(check(new, [parse_rule("max_slowdown", limit)], old)).answer
            for limit in ("20%", "90%")]  # fmt: skip
    assert [len(each) for each in told] == [3, 2]
    (again,) = advice(check(new, [parse_rule("max_slowdown", "20%")], old))
    assert again.startswith("Calls were faster than in the baseline by more than the limit.")
    assert told[1][1] == "They did not run in turns: the host may have changed in between."
    assert told[0][2].startswith("Launches of the median row differ (standard deviation): old by")


def test_a_run_that_was_killed_before_it_measured_fails_against_a_baseline(tmp_path: Path) -> None:
    base = synthetic_run(tmp_path / "base", "base")
    killed = synthetic_run(tmp_path / "killed", "killed", lambda _: None)
    journal = killed / "run.jsonl"
    journal.write_text(journal.read_text().splitlines(keepends=True)[0])
    gate = cb.check(killed, against=base, max_slowdown="10%")
    assert (gate.outcome, gate.exit_code, bool(gate)) == ("fail", 1, False)
    assert "commbench run --resume" in gate.text()
