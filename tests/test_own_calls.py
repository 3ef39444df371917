"""Calls of a user's own in real runs: their rows, what is recorded, and which are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest
from commands import (
    SHORT_DELAYS,
    Commbench,
    Ended,
    clean_environment,
    run_commbench,
    run_program_as,
    start_command,
)
from fake_device import Fake, run_on_fake

from commbench.analysis.columns import COLUMNS
from commbench.analysis.environment import environment_facts
from commbench.answers.show.curve_set import find_curves
from commbench.answers.show.plots import run_pictures
from commbench.results.journal_reader import read_run
from commbench.runner.run_options import parse_options

CALLS = Path(__file__).with_name("bad_calls.py")
ROOT = CALLS.parents[1]


def named(*names: str) -> str:
    return ",".join(f"{CALLS}:{name}" for name in names)


def measure(folder: Path, names: str, *options: str, **variables: str) -> Ended:
    """A run of calls of bad_calls.py, with spaces between their names."""
    options = ("--call", named(*names.split()), "--no-plots", *options)
    return run_commbench(folder, "run", *options, **variables)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    names = "Direct Divided UpTo4K HalfSum"
    return measure(tmp_path_factory.mktemp("right"), names, "--sizes", "2001,8K", "--iters", "6")


def test_a_call_is_a_row_beside_its_operation(right: Ended) -> None:
    columns = ("operation", "call", "size_bytes", "status", "wrong")
    assert [tuple(row[name] for name in columns) for row in right.good().rows()] == [
        ("all_reduce", "", "2000", "ok", "0"), ("all_reduce", "", "8192", "ok", "0"),
        ("all_reduce", "Direct", "2000", "ok", "0"), ("all_reduce", "Direct", "8192", "ok", "0"),
        ("all_reduce", "Divided", "2000", "ok", "0"), ("all_reduce", "Divided", "8192", "ok", "0"),
        ("all_reduce", "UpTo4K", "2000", "ok", "0"),
        ("all_reduce", "UpTo4K", "8192", "unsupported", ""),
        ("all_to_all", "", "2000", "ok", "0"), ("all_to_all", "", "8192", "ok", "0"),
        ("all_to_all", "half-sum", "2000", "ok", "0"),
        ("all_to_all", "half-sum", "8192", "ok", "0"),
    ]  # fmt: skip
    assert "at most 4 KiB" in right.out


def test_its_time_is_compared_with_the_operations_own(right: Ended) -> None:
    rows = right.rows()
    direct = float(rows[0]["time_us"])
    for row in (rows[2], rows[4], rows[6]):
        assert float(row["form_ratio"]) == pytest.approx(float(row["time_us"]) / direct, rel=1e-5)
    assert rows[0]["form_ratio"] == ""
    assert "over\n" in right.out.replace("  ", "\n") and "all_reduce Divided" in right.out


def test_a_factor_and_sizes_of_its_own_count(right: Ended) -> None:
    own = right.rows()[-1]
    assert float(own["busbw_GBps"]) == pytest.approx(float(own["algbw_GBps"]), rel=1e-5)
    case = read_run(right.folder).measurements[-1].case
    assert case.buffer_bytes(0) == (8192, 4096)
    assert "call" in COLUMNS


def test_a_run_is_read_back_and_compared_without_the_code(right: Ended, tmp_path: Path) -> None:
    run = read_run(right.folder)
    digest = run.header.plan.own_calls[f"{CALLS}:Direct"]["digest"]
    assert re.fullmatch("[0-9a-f]{16}", digest)
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "results.csv").write_text((right.folder / "results.csv").read_text())
    assert "all_reduce Divided" in run_commbench(tmp_path, "show", str(right.folder)).good().out
    compared = run_commbench(tmp_path, "compare", str(right.folder), str(moved))
    assert compared.code in (0, 1), compared.err
    assert "Divided" in compared.out and "half-sum" in compared.out
    own = run.header.plan.own_calls
    changed = {f"{CALLS}:Direct": own[f"{CALLS}:Direct"] | {"digest": "0" * 16}}
    plan = replace(run.header.plan, own_calls=own | changed)
    found = environment_facts(run.header._replace(plan=plan))
    assert found["code of Direct"] == "0" * 16 != environment_facts(run.header)["code of Direct"]


FAULTS = {
    "ReturnsEarly": r"on rank 0 returned before its work was done: its output changed later",
    "WritesBehind": r"on rank 1 wrote 4 bytes beyond its buffers, right behind the end of its "
    "output",
    "WritesBefore": r"on rank 1 wrote 4 bytes beyond its buffers, the first 12 bytes before the "
    "beginning of its output",
    "WritesOnce": r"on rank 1 left \d+ wrong elements, which it did not write",
    "KeepsResult": r"on rank 0 left \d+ wrong elements, which are those of an earlier call",
    "AddsUp": r"on rank 1 left \d+ wrong elements, and its first call was right: it depends on "
    "earlier calls",
    "WrongElement": r"on rank 1 left 1 wrong element; rank 1, element 5: expected \S+, got",
    "half-sum-wrong": r"on rank 1 left \d+ wrong elements",
}
"""What each bad call has done, after its name."""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    names = " ".join(FAULTS).replace("half-sum-wrong", "HalfSumWrong")
    return measure(tmp_path_factory.mktemp("bad"), names, "--sizes", "2K,64K", "--iters", "6")


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_call_is_told_with_the_rank_and_what_it_did(bad: Ended, name: str) -> None:
    assert bad.code == 5
    cases = [line for line in bad.cases() if line["case"]["call"] == name]
    assert len(cases) == 2
    for line in cases:
        assert line["status"] == "wrong"
        assert re.match(f"the call {name} {FAULTS[name]}", line["reason"]), line["reason"]


def test_the_error_names_the_first_wrong_call_and_others_are_right(bad: Ended) -> None:
    error, hint = bad.err.splitlines()[-2:]
    assert re.match(f"error: the call ReturnsEarly {FAULTS['ReturnsEarly']}", error)
    assert error.endswith("(and 15 more cases)") and hint.startswith("hint: correct ReturnsEarly")
    assert {line["status"] for line in bad.cases() if not line["case"]["call"]} == {"ok"}
    assert not re.search(r"takes .* as long as", bad.out)
    assert "\nWrong results, so there is no time:\n" in bad.out and "Not measured" not in bad.out
    # The number has a line of its own where the cells of noisy times leave no room beside the name.
    assert re.search(r"\n  all_reduce WrongElement\s+2\n", bad.out)


def test_a_call_that_is_wrong_at_once_has_no_times(bad: Ended) -> None:
    timed = {bad.cases()[line["case"]]["case"]["call"] for line in bad.journal()
             if line["kind"] == "batch"}  # fmt: skip
    assert not timed & {"ReturnsEarly", "WritesBehind", "WritesBefore", "WrongElement"}


def test_a_wrong_row_has_no_time_in_tables_and_pictures(bad: Ended) -> None:
    rows = [row for row in bad.rows() if row["call"]]
    assert {(row["status"], row["time_us"], row["form_ratio"]) for row in rows} == {
        ("wrong", "", "")
    }
    csv = str(bad.folder / "results.csv")
    assert "AddsUp" in run_commbench(bad.folder.parent, "export", csv).good().out
    curves = find_curves([read_run(bad.folder)]).curves
    assert {row.measurement.status for curve in curves for row in curve.rows} == {"ok"}
    for picture in run_pictures([read_run(bad.folder)]):
        assert any("because results are wrong: " in note for note in picture.notes)


def test_a_call_that_hangs_for_one_size_is_named_with_the_rank(tmp_path: Path) -> None:
    options = ("--sizes", "1K,2K", "--iters", "4", "--timeout", "2")
    ended = measure(tmp_path, "HangsAt2K", *options, **SHORT_DELAYS)
    assert ended.code == 4
    assert "rank 1 on" in ended.err and "bad_calls.py" in ended.err
    assert "checking all_reduce float32 sum in_place HangsAt2K 2 KiB" in ended.err
    assert re.search(r"look at bad_calls.py:\d+ __call__ first", ended.err)
    assert ended.journal()[-1]["error"] == "HangError"
    first = "Find out first why the run hung: the error says where each rank was. If you mend a"
    for said in (ended.err, run_commbench(tmp_path, "show", str(ended.folder)).err):
        assert first in " ".join(said.split()), said


@pytest.mark.parametrize(
    ("name", "error"),
    [("RaisesLater", r"(measuring|checking) .* RaisesLater 2 KiB.*the call RaisesLater raised "
      r"ValueError: no more buffers \(bad_calls.py, line \d+\)"),
     ("SetupRaises", r"trying all_reduce float32 sum in_place SetupRaises.*the call SetupRaises "
      r"raised KeyError: 'topology' \(bad_calls.py, line \d+\)"),
     ("RefusesLate", r"checking .* RefusesLate 2 KiB: the call RefusesLate cannot be made: "
      r"2 KiB at least \(bad_calls.py, line \d+\)")],
)  # fmt: skip
def test_an_exception_on_one_rank_is_named(tmp_path: Path, name: str, error: str) -> None:
    ended = measure(tmp_path, name, "--sizes", "2K", "--iters", "6", **SHORT_DELAYS)
    assert ended.code == 4
    (told,) = (line for line in ended.err.splitlines() if line.startswith("error:"))
    assert re.match(f"error: rank 1 on .*{error}", told), told
    assert "continues the run" not in ended.err
    assert ("Mend the call, and start a new run" in ended.err) == (name != "SetupRaises")
    assert name == "SetupRaises" or ended.journal()[-1]["error"] == "OwnCallError"


def test_a_call_that_one_rank_refuses_is_named(tmp_path: Path) -> None:
    ended = measure(tmp_path, "OnRank0", "--sizes", "2K")
    assert ended.code == 4
    assert "OnRank0 2 KiB failed on rank 1 only: rank 0 only" in ended.err


def test_a_call_that_changes_the_current_stream_is_refused(program: Commbench) -> None:
    calls = named("ChangesStream", "Direct", "WritesBehind", "ReturnsEarly")
    options = ("--sizes", "2K", "--iters", "4", "--warmup", "0")
    ended = run_on_fake(program, Fake(), "--call", calls, *options)
    assert ended.code == 5, ended.err
    reasons = {line["case"]["call"]: line["reason"] for line in ended.cases()}
    stream, direct, behind, early = (
        reasons[name] for name in ("ChangesStream", "Direct", "WritesBehind", "ReturnsEarly")
    )
    assert stream.startswith(
        "the call ChangesStream on rank 1 left another stream of the device as the current one"
    )
    assert direct == ""
    assert "right behind the end of its output" in behind
    assert "did not order it on the current stream" in early


def test_a_graph_and_rotating_buffers_take_own_calls(program: Commbench) -> None:
    ended = run_on_fake(
        program, Fake(), "--call", named("Direct"), "--sizes", "1M", "--launch", "graph",
        "--timing", "both", "--buffers", "rotating", "--iters", "2", "--warmup", "0",
    )  # fmt: skip
    assert [row["status"] for row in ended.good().rows()] == ["ok"] * 4
    assert [row["call"] for row in ended.rows()] == ["", "Direct", "", "Direct"]


def test_groups_take_own_calls(tmp_path: Path) -> None:
    options = ("--mesh", "dp=2,tp=2", "--concurrency", "both", "--sizes", "2001", "--iters", "3")
    rows = measure(tmp_path, "Direct Divided", *options).good().rows()
    found = {(row["status"], row["wrong"], row["size_bytes"]) for row in rows}
    assert found == {("ok", "0", "2000")}


def test_an_overlap_takes_own_calls_with_and_without_a_start(tmp_path: Path) -> None:
    options = ("--overlap", "memory:64K", "--sizes", "2K", "--iters", "3")
    rows = measure(tmp_path, "Direct Divided", *options).good().rows()
    assert [row["status"] for row in rows] == ["ok"] * 9


def test_a_reduce_op_is_handed_to_setup_or_refused(tmp_path: Path) -> None:
    options = ("--reduce-op", "max", "--sizes", "2K", "--iters", "3")
    ended = measure(tmp_path, "Direct Divided", *options).good()
    found = [(row["call"], row["status"]) for row in ended.rows()]
    assert found == [("", "ok"), ("Direct", "unsupported"), ("Divided", "ok")]
    assert "Direct has no max: its setup takes no" in ended.out


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (named("NoOperation"), "has no `operation`", "all_reduce"),
        (named("UnknownOperation"), "'all_redcue'", "did you mean all_reduce?"),
        (named("NoCall"), "has no `__call__", "`setup(self, group"),
        (named("NoReference"), "sizes of its own and no `reference`", "reference(inputs, rank)"),
        (named("BadName"), "has the name 'my call'", "letters, digits"),
        (named("Nothing"), "bad_calls.py has no Nothing", "it has: Direct"),
        ("nowhere.py:Ring", "there is no file nowhere.py", "--call file.py:name"),
        ("rings.d:", "names no call", "file.py:name"),
        ("./rings:Ring", "names no call", "file.py:name"),
        ("no_such_module:Ring", "cannot be imported: ModuleNotFoundError", "import it in Python"),
        ("broken.py:Ring", "cannot be imported: ZeroDivisionError", "import it in Python"),
        ("leaves.py:Ring", "cannot be imported: SystemExit", "import it in Python"),
        ("ring", "unknown call 'ring'", "package.module:name"),
        (f"{named('Direct')},", "has an empty item", "ring.py:RingAllReduce"),
        (f"{named('Direct')},same.py:Direct", "have the same name, Direct", 'name = "..."'),
    ],
)
def test_what_is_no_call_is_refused(tmp_path: Path, given: str, message: str, hint: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "same.py").write_text(CALLS.read_text())
    ended = run_commbench(tmp_path, "run", "--call", given, "--sizes", "1K", "--dry-run")
    assert ended.code in (2, 3)
    assert len(ended.err.splitlines()) == 2, ended.err
    assert message in ended.err.splitlines()[0] and hint in ended.err.splitlines()[1]


@pytest.mark.parametrize(
    ("option", "message"),
    [("--op=broadcast", "is an all_reduce, which is not measured"),
     ("--tensors=4", "takes one tensor")],
)  # fmt: skip
def test_options_without_a_row_for_it_are_refused(
    tmp_path: Path, option: str, message: str
) -> None:
    ended = measure(tmp_path, "Direct", "--dry-run", option)
    assert ended.code == 2 and message in ended.err


def test_the_operation_of_a_call_is_measured_by_default() -> None:
    options = parse_options({"calls": named("WritesOnce", "HalfSum")})
    assert options.op == ("all_gather", "all_to_all")
    assert parse_options({"calls": "torch"}).op == ("all_reduce",)


def test_classes_of_a_program_are_measured_on_launched_ranks(tmp_path: Path) -> None:
    text = PROGRAM.format(path=str(CALLS.parent), root=str(ROOT))
    (tmp_path / "program.py").write_text(text)
    ended = start_command(tmp_path, program=text).finish()
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [" Direct Mine", "0 0 0"]


PROGRAM = """
import sys
sys.path[:0] = [{path!r}, {root!r}]
import commbench
from bad_calls import Direct

class Mine(Direct):
    pass

run = commbench.run(calls=[Direct, Mine], sizes="1K", iters=3)
print(*(m.case.call for m in run.measurements))
print(*(m.wrong for m in run.measurements))
"""


def test_a_job_measures_objects_on_its_own_group(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB.format(path=str(CALLS.parent), root=str(ROOT)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, "job.py"], check=True, env=clean_environment(), cwd=tmp_path)
    assert (tmp_path / "said").read_text() == "[('', 0), ('Direct', 0)] raised ValueError"


JOB = """
import sys
sys.path[:0] = [{path!r}, {root!r}]
import torch.distributed as dist
import commbench
from bad_calls import Direct, RaisesLater

dist.init_process_group("gloo")
run = commbench.measure(calls=[Direct()], sizes="1K", iters=3)
found = [(m.case.call, m.wrong) for m in run.measurements]
try:
    commbench.measure(calls=RaisesLater, sizes="1K", iters=8, warmup=0)
except commbench.CommbenchError as error:
    if dist.get_rank() == 1:
        assert "the call RaisesLater raised ValueError: no more buffers" in str(error), error
        open("said", "w").write(f"{{found}} raised ValueError")
"""


def test_a_run_goes_on_only_with_the_same_code(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CALLS.read_text())
    first = run_commbench(
        tmp_path, "run", "--call", "own.py:Direct", "--sizes", "1K,2K", "--iters", "4",
        "--no-plots",
    ).good()  # fmt: skip
    journal = first.folder / "run.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:3]))
    (tmp_path / "own.py").write_text(CALLS.read_text() + "# changed\n")
    again = run_commbench(tmp_path, "run", "--resume", "run")
    assert again.code == 3 and "the call Direct (own.py:Direct)" in again.err
    assert "its code has changed" in again.err and "continues the run" not in again.err
    (tmp_path / "own.py").write_text(CALLS.read_text())
    assert run_commbench(tmp_path, "run", "--resume", "run").code == 0


def test_ranks_of_torchrun_load_the_call(tmp_path: Path) -> None:
    options = ("--launcher", "torchrun", "--sizes", "1K", "--iters", "3")
    ended = measure(tmp_path, "Direct", *options)
    assert [row["call"] for row in ended.good().rows()] == ["", "Direct"]


def test_a_sweep_varies_calls(tmp_path: Path) -> None:
    ended = run_commbench(
        tmp_path, "sweep", "--vary", f"call=torch,{CALLS}:Direct", "--rounds", "1", "--sizes",
        "1K", "--iters", "4", "--output", "sweep",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    lines = (tmp_path / "sweep" / "sweep.csv").read_text().splitlines()
    header = lines[0].split(",")
    found = [dict(zip(header, line.split(","), strict=True)) for line in lines[1:]]
    assert [row["call"] for row in found] == ["", "Direct"]
    assert [row["setting"] for row in found] == ["call=torch", "call=Direct"]


def test_advice_weighs_an_own_call_against_the_operations(right: Ended, tmp_path: Path) -> None:
    advice = run_commbench(tmp_path, "advise", str(right.folder), COLUMNS="200")
    assert "The operation's call or one of your own" in advice.out
    assert "Divided" in advice.out


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a package that has installed two calls."""
    info = tmp_path / "fastcalls-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fastcalls\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[commbench.calls]\nfast = fastcalls:Direct\nlost = fastcalls:Lost\n"
    )
    (tmp_path / "fastcalls.py").write_text(CALLS.read_text())
    return tmp_path


def test_installed_calls_are_listed_and_measured_by_name(installed: Path) -> None:
    program = f"import sys\nsys.path.insert(0, {str(installed)!r})"
    listed = run_program_as(installed, program, "ops", "--calls", COLUMNS="120").good().out
    assert re.search(r"fast +fastcalls:Direct +fastcalls 1.2 +all_reduce", listed)
    assert re.search(r"lost +fastcalls:Lost +fastcalls 1.2 +not usable: the call lost", listed)
    ended = run_program_as(
        installed, program, "run", "--call", "fast", "--sizes", "1K", "--iters", "3", "--no-plots",
        "--output", "run",
    )  # fmt: skip
    assert [row["call"] for row in ended.good().rows()] == ["", "Direct"]


def test_without_installed_calls_it_says_so(commbench: Commbench) -> None:
    assert "No package has installed calls" in commbench("ops", "--calls").good().out


def test_the_example_of_the_page_works_as_it_is_there(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own-calls.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    adapters = [v for v in run_path(str(ROOT / "docs/adapters.py")).values() if isinstance(v, type)]
    assert len(adapters) == 3 and all(hasattr(each, "operation") for each in adapters)
    (tmp_path / "mine.py").write_text(code)
    line = re.search(r"^\$ commbench (run --call mine.py:TwoSteps --sizes \S+)", page, re.M)
    assert line
    ended = run_commbench(tmp_path, *line[1].split(), "--iters", "4", "--no-plots")
    rows = ended.good().rows()
    assert [(row["call"], row["status"], row["wrong"]) for row in rows] == [
        *[("", "ok", "0")] * 3, *[("TwoSteps", "ok", "0")] * 3,
    ]  # fmt: skip
    text = code.replace("sizes=", "iters=4, sizes=")
    assert text != code
    said = start_command(tmp_path, program=f"import sys\nsys.path.append({str(ROOT)!r})\n{text}")
    assert said.finish().good().out.count("TwoSteps") >= 2


WARNS = """
import warnings

import torch.distributed as dist


class Warns:
    operation = "all_reduce"

    def setup(self, group, device, dtype, count):
        self.group = group
        for whose, module in (("of torch", "torch.old"), ("of mine", "mine")):
            warnings.warn_explicit(f"{whose} is old", FutureWarning, "old.py", 1, module=module)

    def __call__(self, output, input):
        dist.all_reduce(output, group=self.group)
"""


def test_what_torch_will_drop_is_said_in_the_first_launch_only(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(WARNS, encoding="utf-8")
    options = ("--call", "warns.py:Warns", "--sizes", "2K", "--iters", "4", "--launches", "2")
    ended = run_commbench(tmp_path, "run", "--no-plots", *options)
    assert ended.code == 0, ended.err
    assert 0 < 2 * ended.err.count("of torch is old") == ended.err.count("of mine is old")
