"""commbench from Python: in scripts with real ranks, and on recorded runs."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import api_keywords
import pytest
from commands import START_TIMEOUT_S, clean_environment, start_command
from synthetic import steady, synthetic_run

import commbench
from commbench.analysis.columns import COLUMNS
from commbench.api.words import worded
from commbench.errors import CommbenchError, RecordsError, UnavailableError, UsageError
from commbench.plan.links import load_gpus
from commbench.results.journal_reader import read_run
from commbench.runner.run_options import RUN_OPTIONS

DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def is_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommbenchError, "worded", worded)


def test_help_of_a_sweep_names_the_options_that_vary() -> None:
    listed = (commbench.sweep.__doc__ or "").partition("`vary` takes ")[2].partition(".")[0]
    varied = [option.name for option in RUN_OPTIONS.values() if option.is_varied]
    assert re.split(r",\s+|\s+and\s+", listed) == varied


def test_help_of_a_run_names_no_option_of_the_command_line() -> None:
    about = inspect.getdoc(commbench.run) or ""
    assert "default None: the direct call; with tensors, all" in about
    assert (
        re.findall(r"(?<![\w`-])--[a-z]+", about.replace("`commbench ops\n    --calls`", "")) == []
    )


def test_an_option_in_quotes_is_an_argument() -> None:
    assert worded("try `--launches 6`; see `commbench links`") == (
        "try `launches=6`; see `commbench links`"
    )


def test_help_of_expect_names_the_accelerators() -> None:
    listed = (commbench.expect.__doc__ or "").partition("`gpu` is ")[2].partition(", or the")[0]
    assert re.split(r",\s+", listed) == [gpu.name for gpu in load_gpus()]


def test_what_is_found_is_pickled(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "run", "mine")
    found = [commbench.load(run), commbench.check(run, max_time="1s"), commbench.list_runs()]
    assert pickle.loads(pickle.dumps(found)) == found
    assert [row.busbw for row in found[0].rows] == [row.busbw for row in commbench.load(run).rows]


SCRIPT = """
import gc, json, os, signal, sys
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
signal.signal(signal.SIGTERM, lambda *_: None)
def state():
    return [dict(os.environ), [signal.getsignal(s) for s in SIGNALS], os.sched_getaffinity(0),
            os.sched_getscheduler(0), gc.isenabled()]
before = state()
import commbench
run = commbench.run(op="all_reduce", sizes="1K,4K", iters=3, nproc_per_node=2, seed=5)
assert state() == before
try:
    commbench.run(op="broadcast", root=1, sizes=8, nproc_per_node=2, backend="none")
except commbench.CommbenchError as error:
    caught = [type(error).__name__, error.run]
assert state() == before
print(json.dumps([run.path, len(run.measurements), run == commbench.load("all_reduce"), caught]))
"""

WITH_TORCH_AND_THREADS = """
import json, threading, time
import torch
torch.set_num_threads(2)
torch.randn(500, 500) @ torch.randn(500, 500)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
import commbench
runs = []
def measure():
    runs.append(commbench.run(op=["barrier"], sizes=[1024], iters=3, nproc_per_node=2))
caller = threading.Thread(target=measure)
caller.start()
caller.join()
print(json.dumps([runs[0].measurements[0].status, torch.get_num_threads(), __name__]))
"""

WRONG = """
import contextlib, io, json
from commbench.plan.operations import OPERATIONS
healthy = OPERATIONS["all_gather"].call
def corrupt(dist, b):
    healthy(dist, b)
    b.receive[0] += 1
OPERATIONS["all_gather"] = OPERATIONS["all_gather"]._replace(call=corrupt)
import commbench
try:
    with contextlib.redirect_stderr(io.StringIO()):
        commbench.run(op="all_gather", sizes="1K", iters=2, nproc_per_node=2)
except commbench.CommbenchError as error:
    print(json.dumps([type(error).__name__, error.run.measurements[0].status]))
"""


def python(where: Path, *arguments: str, stdin: str = "") -> tuple[Any, str]:
    """What a Python program prints as JSON, and what it writes to standard error."""
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=where, env=clean_environment(), input=stdin,
        capture_output=True, text=True, timeout=START_TIMEOUT_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


def test_a_script_measures_and_stays_as_it_was(tmp_path: Path) -> None:
    ended = start_command(tmp_path, program=SCRIPT).finish()
    assert ended.code == 0, ended.err
    (path, cases, is_loaded, caught), err = json.loads(ended.out), ended.err
    assert (cases, is_loaded) == (2, True)
    assert caught == ["UnavailableError", None]
    assert all(line.startswith("[") and " %] about " in line for line in err.splitlines()), err
    assert {file.name for file in (tmp_path / path).iterdir()} == {"run.jsonl", "results.csv"}
    assert read_run(tmp_path / path).header.plan.seed == 5


def test_ranks_start_from_a_process_with_torch_and_threads(tmp_path: Path) -> None:
    program = WITH_TORCH_AND_THREADS
    ended = start_command(tmp_path, program=program, forks_ranks=True).finish()
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == ["ok", 2, "__main__"]


@pytest.mark.full
@pytest.mark.parametrize("how", ["script", "-c", "stdin"])
def test_so_they_do_whatever_python_is_given(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(WITH_TORCH_AND_THREADS)
    arguments = {"script": ["script.py"], "-c": ["-c", WITH_TORCH_AND_THREADS], "stdin": ["-"]}
    found, _ = python(tmp_path, *arguments[how], stdin=WITH_TORCH_AND_THREADS)
    assert found == ["ok", 2, "__main__"]


def test_wrong_results_are_raised_with_the_run(tmp_path: Path) -> None:
    ended = start_command(tmp_path, program=WRONG).finish()
    assert json.loads(ended.out) == ["WrongResultError", "wrong"], ended.err
    assert "error" not in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operation": "all_reduce"}, "unknown argument 'operation'"),
        ({"op": "all_redcue"}, "op: unknown operation 'all_redcue'"),
        ({"iters": "many"}, "iters cannot be 'many'"),
        ({"budget": 0}, "budget is 0"),
        ({"dry_run": True}, "dry_run is for the command line only"),
        ({"resume": "run", "output": "here"}, "output cannot be used with resume"),
        ({"op": "reduce", "root": 2}, "root=2 is not a rank of 2"),
        ({"label": "a/b"}, "label='a/b' cannot be part of a folder's name"),
        ({"iters": 5, "precision": "2%"}, "precision has no effect with iters"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        commbench.run(**options)
    assert refused.value.message == message
    assert str(refused.value) == f"{message}\nhint: {refused.value.hint}"
    assert "--" not in refused.value.hint


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        ("run('all_reduce')", "run takes 'all_reduce' only with the name of", "op='all_reduce'"),
        ("environment(3)", "environment has no argument for 3", "leave it out"),
        ("compare(run)", "compare needs b", "help(commbench.compare)"),
        ("compare(run, run, a=run)", "compare has two values of a", "leave out one"),
        ("replay({})", "workload cannot be {}", "give a workload, a text or a path"),
        ("workload.save(3, 'x')", "workload cannot be 3", "give a workload"),
        ("workload.ddp('llama-3-8b')", "ddp needs ranks", "help(commbench.workload.ddp)"),
        ("workload.megatron('llama-3-8b', mesh='tp=2', x=3)", "unknown argument 'x'", "sequence"),
        ("workload.analyse()", "no file is given", "traces"),
        ("history.show(3)", "show takes 3 only with the name", "help(commbench.history.show)"),
        ("frame()", "there is no run to show", "name at least one"),
        ("expect('h100').text(3)", "format cannot be 3", "give a text"),
        ("expect('h100').plot(3)", "output cannot be 3", "a path"),
        ("expect('h100').plot()", "there is no picture of this result", "print it"),
        ("load(run).plot(['a'])", "output cannot be ['a']", "a path"),
        ("load(run).text(fmt='x')", "unknown argument 'fmt'", "known: format, peak"),
        ("sweep(vary={'cpu_mode': 'plain'})", "only one setting", "vary={'cpu_mode': ['quiet', "),
        ("sweep(vary={'colour': 'red'})", "unknown option to vary", "cpu_mode"),
        ("run(nproc_per_node=0)", "nproc_per_node is 0", "at least 1"),
        ("run(sizes=[])", "sizes=[] has no size", 'write for example sizes="8,1K,1M-1G"'),
        ("run(precision='x')", "precision='x' is not a percentage", 'write "10%" or 0.1'),
        ("load(run).soak()", "is no soak", '`commbench.soak(duration="1h")` makes one'),
        ("load(run).replay()", "is no replay", "`commbench.replay(...)` makes one"),
        ("load(run).matrices()", "has no pairs", "`commbench.pairs()` measures them"),
        ("Run('h7')", "Run(...) reads no run", "write commbench.load('h7')"),
        ("Run()", "Run(...) reads no run", "write commbench.load('LABEL')"),
        ("load()", "load needs run", "give run (a path, a label or a Run): see help("),
        ("predict('m.json')", "predict needs ranks", "give ranks=...: see help(commbench.predict)"),
        ("check(run, max_slowdown=-1, against=run)", "max_slowdown=-1 is below 0 %", "0.1"),
        ("check(run, max_time='1K:1parsec')", "max_time: time '1parsec' has an unknown", "1ms"),
        ("advise(run, backward='x')", "backward='x' is not a time", "4.2ms"),
        ("fleet(run, false_alarms='x')", "false_alarms='x' is not a percentage", "10%"),
        ("explain(run, peak='x')", "peak: unknown link 'x'", "commbench links"),
        ("run(sizes=[])", "sizes=[] has no size", "8,1K"),
        ("run(op=None)", "op cannot be None", "give a text or a list"),
        ("run(size=1)", "unknown argument 'size'", "did you mean sizes? help(commbench.run) lists"),
        (
            "pairs(nope=1)",
            "unknown argument 'nope'",
            "known: sizes, dtype, timing, launch and others",
        ),
        ("check([commbench.load(run)], max_time='1s')", "is no run", "give a Run"),
        ("check(run, [run])", "are no rules", "give a TOML file"),
        ("check(run, expect='h100')", "used CPUs, not H100", "earlier run: against=RUN"),
        ("check(run, min_busbw='1M-1K:3GB/s')", "min_busbw: the range '1M-1K' is rev", "1K-1M"),
        ("run(sizes='100T', nproc_per_node=2)", "nothing is left", "ask for smaller sizes"),
        ("run(label='history')", "label='history' would mean the history in", "another label"),
        ("run(plots='yes')", "plots cannot be 'yes'", "give True or False"),
        ("check(run, undecided=3)", "unknown undecided='3'", "known: pass, fail"),
        ("run(sizes=1.5)", "sizes=1.5 is not a whole number of bytes", "nearest: 1"),
        ("run(sizes=b'1K')", "sizes cannot be b'1K'", "a text, a whole number or a list"),
        ("sweep(vary={'cpu_mod': 'quiet'})", "vary 'cpu_mod'", "vary={'cpu_mode': [...]}?"),
        ("sweep(vary={'calls': 'a'})", "vary: unknown call 'a'", "package.module:name"),
        ("check(run, max_slowdown=0.1)", "max_slowdown needs a baseline", "against=BASELINE"),
        ("export(run, output='x.zzz')", "'.zzz' is no ending of a format", "or give format"),
        ("predict('published:h100', ranks=['8', None])", "'8,None' are no numbers of", "8,64"),
        (
            "predict('published:h100', ranks=8, sizes=[1.5])",
            "sizes=[1.5] is not a whole number",
            ": 1",
        ),
        ("predict('published:h100', ranks=8, sizes=b'1K')", "sizes cannot be b'1K'", "give a"),
        ("load(run, op='x')", "op: unknown operation 'x'", "known: all_reduce"),
        ("fleet(run, dtype='x')", "dtype says what a file of another tool", "leave dtype out"),
        ("load(5)", "run=5 is no run", "give a Run"),
        ("compare(5, 6)", "a=5 is no run", "give a Run"),
        ("run(sizes=-4)", "sizes: size -4 is below 1", "such as 1K"),
        ("run(budget=float('nan'))", "budget is nan", "must be above 0"),
        ("report()", "a report is about one run", "name at least one run"),
        ("pairs(op='p2p')", "unknown argument 'op'", "help(commbench.pairs) lists all"),
    ],
)
def test_a_wrong_call_is_refused_with_its_argument(
    tmp_path: Path, call: str, message: str, hint: str
) -> None:
    names = {"commbench": commbench, "run": synthetic_run(tmp_path / "run", "mine")}
    with pytest.raises((UsageError, UnavailableError)) as refused:
        eval(f"commbench.{call}", names)
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert len(str(refused.value).splitlines()) == 2
    assert refused.value.args == (refused.value.message,)
    assert repr(refused.value) == f"{type(refused.value).__name__}({refused.value.message!r})"


def test_a_rank_of_torchrun_is_told_to_measure_on_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2" if "WORLD" in name else "1")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(UsageError, match="torchrun started this process as one of 2 ranks"):
        commbench.run(sizes="1K")


def test_the_keywords_are_the_options() -> None:
    run = inspect.signature(commbench.run).parameters
    assert [name for name in RUN_OPTIONS if name not in run] == [
        "nnodes", "node_rank", "master_addr", "master_port", "format", "dry_run", "verbose",
        "minbytes", "maxbytes", "stepfactor", "stepbytes", "check_count", "local_register",
    ]  # fmt: skip
    measure = inspect.signature(commbench.measure).parameters
    assert {"op", "sizes", "iters", "group", "output", "label"} < set(measure)
    assert not {"nproc_per_node", "backend", "cpu_mode", "launches", "resume"} & set(measure)
    assert "notify: Callable[[str], None] = ignore)" in str(inspect.signature(commbench.check))
    assert str(inspect.signature(commbench.expect)).endswith(" -> Answer")


def test_a_recorded_run_is_a_frame_and_plots(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "run", "mine")
    run = commbench.load(folder)
    assert isinstance(run, commbench.Run)
    assert (run.name, run.header.plan.world_size) == ("mine", 2)
    frame = run.frame()
    assert tuple(run.frame(all_columns=True).columns) == tuple(COLUMNS)
    filled = [*frame.columns[frame.columns.get_loc("launch_mode") :]]
    assert {"wrong", "warnings", "buffers"} < {*frame} and not frame[filled].isna().all().any()
    assert len(frame) == len(run.measurements)
    files = run.plot(tmp_path / "plots")
    assert [file.name for file in files] == ["busbw.png", "time.png"]
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in files)


def test_a_run_is_given_by_itself_its_folder_its_journal_or_its_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = synthetic_run(Path("results/20261122-120000-mine"), "mine", launches=12)
    older = synthetic_run(
        Path("results/20261122-110000-mine"), "mine", launches=12, started="2026-01-01T11:00:00"
    )
    run = commbench.load(folder)
    journal = folder / "run.jsonl"
    for given in (run, folder, str(folder), journal, str(journal), folder.name, "mine"):
        assert commbench.load(given) == run
        assert set(commbench.frame(given)["run"]) == {"mine"}
        assert commbench.compare(older, given, tolerance="10%").counts["same"] == 4
        assert commbench.check(given, against=older).outcome == "pass"
        assert commbench.export(given) == (folder / "results.csv").read_text()
        assert commbench.explain(given).name == "mine"
    lines: list[str] = []
    commbench.load("mine", notify=lines.append)
    assert lines == [f"mine: the newest of 2 runs is {folder}"]


def test_several_runs_are_one_frame_and_one_plot(tmp_path: Path) -> None:
    one, two = (synthetic_run(tmp_path / name, name) for name in ("one", "two"))
    log = DATA / "nccl-tests" / "nccl_allreduce.log"
    frame = commbench.frame(one, commbench.load(two), two / "results.csv", all_columns=True)
    assert tuple(frame.columns) == ("run", *COLUMNS)
    assert frame["run"].tolist() == ["one"] * 4 + ["two"] * 8
    files = commbench.plot(one, commbench.load(log, op="all_reduce"), output=tmp_path / "plots")
    assert [file.name for file in files] == ["busbw.png", "time.png"]
    assert [each.name for each in commbench.load(one).plot().pictures] == ["busbw", "time"]
    shown = commbench.plot(one)
    assert shown and repr(shown) == "<2 pictures>" and not [*shown, *Path(one).rglob("*.png")]
    svg = tmp_path / "x.svg"
    assert commbench.plot(one, output=svg, peak="10GB/s").paths == (svg,)
    assert "peak 10 GB/s" in (tmp_path / "x.svg").read_text()
    with pytest.raises(UsageError, match="there is no run to plot"):
        commbench.plot()


def test_the_list_of_runs_is_one_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    synthetic_run(tmp_path / "results" / "run", "mine")
    runs = commbench.list_runs()
    assert [commbench.load(each).name for each in runs] == ["mine"] and len(runs) == 1
    assert runs[0] == runs.runs[0].folder and runs[:2] == [runs[0]]


def test_only_some_rows_of_a_run(tmp_path: Path) -> None:
    run = commbench.load(synthetic_run(tmp_path / "run", "mine"))
    sizes = sorted({row.size_bytes for row in run.rows})
    some = commbench.load(tmp_path / "run", op=run.rows[0].operation, size=sizes[:2])
    assert [row.size_bytes for row in some.rows] == sizes[:2]
    assert "2 of 2 cases were measured" in some.text() and isinstance(some, commbench.Run)
    for wrong, why in (({"op": "barrier"}, "mine has no barrier"), ({"size": 3}, "no row of 3")):
        with pytest.raises(UsageError, match=why):
            commbench.load(run, **wrong)


def test_a_run_prints_as_its_table(tmp_path: Path) -> None:
    run = commbench.load(synthetic_run(tmp_path / "run", "mine"))
    first, second = repr(run).splitlines()
    assert first == "<Run: mine>" and second[:40] in str(run)
    for name in ("overlap", "replay", "mesh"):
        found = commbench.load(RECORDED / "runs" / name)
        view, shown = found._shown()
        told = re.sub(r" \(and \d more\)$", "", repr(found))
        assert told.endswith(worded(view.document(shown).answer[1])), name
    assert re.fullmatch("<Measurement: .*>", repr(run.measurements[0]))
    assert str(run) == run.text()
    assert "10 GB/s" in run.text(peak="10GB/s")
    assert "10 GB/s" not in run.text()
    assert run.text("nccl-tests").startswith("# commbench ")
    with pytest.raises(UsageError, match="unknown format 'tabel'"):
        run.text("tabel")
    with pytest.raises(UsageError, match=r"(?s)unknown argument 'verbos'.*did you mean verbose"):
        run.text(verbos=True)
    with pytest.raises(UsageError, match="unknown argument 'parms'"):
        commbench.advise(run, parms="7B")


def test_a_run_is_exported_as_a_text_and_into_a_new_file(tmp_path: Path) -> None:
    run = commbench.load(synthetic_run(tmp_path / "run", "mine"))
    assert (
        json.loads(run.export("json"))["rows"] == json.loads(commbench.export(run, "json"))["rows"]
    )
    written = tmp_path / "mine.md"
    assert run.export("markdown", written) == written.read_text()
    with pytest.raises(RecordsError, match=r"mine\.md exists"):
        run.export("markdown", written)
    with pytest.raises(UsageError, match="nccl-tests needs the samples of the run"):
        commbench.export(tmp_path / "run" / "results.csv", "nccl-tests")


def test_another_tools_results_become_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = DATA / "nccl-tests" / "nccl_allreduce.log"
    run = commbench.import_results(log, op="all_reduce", label="theirs")
    assert run == commbench.load("theirs")
    assert run.path.startswith("results/") and run.path.endswith("-theirs")
    again = commbench.import_results(log, op="all_reduce", output=tmp_path / "here")
    assert (again.name, again.path) == ("nccl_allreduce", str(tmp_path / "here"))
    assert commbench.compare(run, again).counts["not compared"] == 0


def test_a_results_csv_alone_has_no_samples_to_load(tmp_path: Path) -> None:
    table = synthetic_run(tmp_path / "run", "mine") / "results.csv"
    (table.parent / "run.jsonl").unlink()
    for given in (table, table.parent):
        with pytest.raises(RecordsError, match="has the rows of a run, but not its samples") as no:
            commbench.load(given)
        assert no.value.hint == (
            "give the run folder with its run.jsonl; compare, check and export read results.csv too"
        )
        assert len(commbench.frame(given)) == 4


def test_a_call_of_an_operation_and_this_machine_are_described() -> None:
    found = commbench.explain("all_reduce", ranks=8, size="1G", time="4.2ms", peak="nvlink4")
    assert found.rows[0].row.busbw == pytest.approx(447.39e9, rel=1e-4)
    with pytest.raises(UsageError, match="all_reduce cannot be explained without time"):
        commbench.explain("all_reduce", ranks=8, size="1G")
    assert "gloo" in commbench.environment()["backends"]


def test_static_types_of_keywords_are_those_of_the_options() -> None:
    assert api_keywords.FILE.read_text() == api_keywords.source(), (
        "run `.venv/bin/python tests/api_keywords.py`"
    )


@pytest.mark.full
def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import commbench\n"
        "commbench.run(op=['all_reduce'], sizes=1024, plots=True, output='x')\n"
        "commbench.run(op=3)\n"
        "commbench.measure(group=None, budget=1, launches=2)\n"
        "commbench.sweep(vary={}, label='a', iters='5')\n"
        "commbench.compar('x')\n"
        "commbench.workload.load(3)\n"
        "commbench.history.add('x').runs\n"
        "commbench.workload.load('x').step\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(program)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.partition("program.py:")[2] for line in checked.stdout.splitlines()]
    errors = [line for line in lines if ": error: " in line]
    assert [line.partition(":")[0] for line in errors] == [*"3456789"], checked.stdout
    assert 'Unexpected keyword argument "launches" for "measure"' in errors[1]
    assert '"list[Added]" has no attribute "runs"' in errors[5]


@pytest.mark.usefixtures("launches_alike")
def test_runs_are_compared_and_checked(tmp_path: Path) -> None:
    old = synthetic_run(tmp_path / "old", "old", lambda case: steady(case.size_bytes * 1e-9 + 1e-5))
    new = synthetic_run(tmp_path / "new", "new", lambda case: steady(case.size_bytes * 2e-9 + 2e-5))
    for _ in range(2):  # the folder commbench/compare is imported by now
        comparison = commbench.compare(commbench.load(old), str(new), tolerance=0.1)
    assert comparison.counts["slower"] == len(comparison.rows) == 4
    assert set(comparison.frame()["verdict"]) == {"slower"}
    by_file = commbench.compare(old / "results.csv", new / "results.csv")
    assert by_file.counts == comparison.counts
    checked = commbench.check(new, against=old)
    assert (checked.outcome, len(checked.results[0].checks)) == ("fail", 4)
    assert commbench.check(new, against=old, max_slowdown="150%").outcome == "pass"
    assert commbench.check(new, against=old, max_slowdown=0.95).outcome == "fail"
    assert commbench.check(commbench.load(old), min_busbw="all_reduce:1K-:0.001GB/s").outcome
    (tmp_path / "limits.toml").write_text('[[rule]]\noperation = "all_reduce"\nmax_time = "1s"\n')
    assert commbench.check(old, tmp_path / "limits.toml").outcome == "pass"
    with pytest.raises(UsageError, match="there is no rule"):
        commbench.check(old)
    with pytest.raises(UsageError, match="tolerance='some' is not a percentage"):
        commbench.compare(old, new, tolerance="some")


def test_another_tools_file_is_loaded_and_what_is_no_run_refused(tmp_path: Path) -> None:
    log = DATA / "nccl-tests" / "nccl_allreduce.log"
    assert len(commbench.load(log, op="all_reduce").frame()) > 5
    with pytest.raises(UsageError, match="does not say which operation"):
        commbench.load(log)
    with pytest.raises(RecordsError, match="there is no file, folder or run"):
        commbench.load(tmp_path / "nowhere")


def test_import_commbench_imports_nothing_else(tmp_path: Path) -> None:
    heavy = ("torch", "numpy", "pandas", "matplotlib", "typer", "rich")
    program = (
        "import sys, json, commbench\n"
        "assert 'run' in dir(commbench)\n"
        "early = [m for m in sys.modules if m.startswith('commbench.')]\n"
        "assert issubclass(commbench.errors.UsageError, commbench.CommbenchError)\n"
        "assert commbench.load and commbench.run and commbench.Plan and commbench.CommbenchError\n"
        f"print(json.dumps([early, [m for m in {heavy} if m in sys.modules]]))"
    )
    assert python(tmp_path, "-c", program)[0] == [[], []]
    with pytest.raises(AttributeError, match="no attribute 'lode': did you mean 'load'"):
        commbench.lode  # noqa: B018
    assert issubclass(CommbenchError, Exception)


RECORDED = Path(__file__).parent / "golden" / "data"
RESULTS: dict[str, Callable[[], Any]] = {
    "run": lambda: commbench.load(RECORDED / "runs/two_ranks"),
    "run that died": lambda: commbench.load(RECORDED / "runs/rank_died"),
    "replay": lambda: commbench.load(RECORDED / "runs/replay"),
    "sweep": lambda: commbench.load_sweep(RECORDED / "runs/sweep"),
    "comparison": lambda: commbench.compare(
        RECORDED / "runs/made_up_old", RECORDED / "runs/made_up_new"
    ),
    "check": lambda: commbench.check(RECORDED / "runs/two_ranks", max_time="1s"),
    "advice": lambda: commbench.advise(RECORDED / "runs/buckets_of_sizes"),
    "explanation": lambda: commbench.explain("all_reduce", ranks=8, size="1G", time="4ms"),
    "expectation": lambda: commbench.expect("h100", busbw="400GB/s"),
    "machine": lambda: commbench.fit_model(
        RECORDED / "runs/two_ranks", RECORDED / "runs/four_ranks"
    ),
    "prediction": lambda: commbench.predict(RECORDED / "files/machine.json", ranks=8),
    "workload": lambda: commbench.workload.ddp("resnet-50", ranks=8),
    "traces": lambda: commbench.workload.analyse(RECORDED / "files/trace"),
    "environment": lambda: commbench.environment(),
}  # fmt: skip
EXPORTED = ("autoparallel", "inductor", "nccl-tuner")  # these take certain runs
PICTURED = ("run", "replay", "sweep", "comparison", "check", "machine", "prediction")


@pytest.mark.parametrize("other", ["cut_off", "interrupted", "plain", "soak"])
def test_the_second_line_of_a_comparison_has_its_verdict(other: str) -> None:
    runs = RECORDED / "runs"
    told = repr(commbench.compare(runs / "two_ranks", runs / other, force=True)).splitlines()[1]
    assert re.search("undecided|slower|faster|same", told) or other == "soak"


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_reads_alike(name: str, tmp_path: Path) -> None:
    result = RESULTS[name]()
    title, *answer = repr(result).splitlines()
    assert title.startswith(f"<{type(result).__name__}: ") and len(answer) == 1
    assert {result: name}[RESULTS[name]()] == name
    assert str(result) == result.text()
    with pytest.raises(UsageError) as refused:
        result.text("?")
    formats = refused.value.hint.partition("known: ")[2].split(", ")
    assert all(result.text(each) for each in formats if each not in EXPORTED)
    assert len(result.frame()) >= 1
    assert result._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    if name in PICTURED:
        drawn = result.plot(tmp_path)
        assert all(file.parent == tmp_path for file in drawn)
        assert drawn._repr_html_().count("<img ") == len(drawn.paths) >= 1
    elif not name.startswith("run"):
        with pytest.raises(UnavailableError, match="there is no picture"):
            result.plot()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: commbench.explain("all_reduce", ranks="x", size="1G", time="1ms"), "ranks cannot"),
        (
            lambda: commbench.expect(5),
            "gpu cannot be 5\nhint: give a text; help(commbench.expect) says what it is",
        ),
        (lambda: commbench.run(iters="3"), "whole number; help(commbench.run) says what it is"),
        (lambda: commbench.sweep(env="x"), "env cannot be 'x'"),
        (lambda: commbench.check("run", against="old", force="yes"), "force cannot be 'yes'"),
        (lambda: commbench.workload.load(5), "paths cannot be 5\nhint: give a text or a path"),
        (lambda: commbench.workload.fsdp("llama-3-8b", ranks=0), "ranks is 0"),
        (lambda: commbench.workload.ddp(5, ranks=2), "5 is no model"),
        (lambda: commbench.report(5), "5 has no report"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        call()
    assert message in str(raised.value)


def test_the_package_shows_its_functions_alone() -> None:
    assert set(dir(commbench)) == {*commbench.__all__, "errors", "__version__"}
    called = [getattr(commbench, name) for name in commbench.__all__]
    assert not any(get_type_hints(each) for each in called if inspect.isfunction(each))


EXAMPLES = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


def test_every_example_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks in one program, in their order, with recorded runs; what starts ranks is short."""
    monkeypatch.chdir(tmp_path)
    for number, label in enumerate(("before", "after")):
        folder = Path(f"results/20261121-12000{number}-{label}")
        synthetic_run(folder, label, lambda _: steady(1e-4), launches=12)
    (tmp_path / "limits.toml").write_text('[[rule]]\nmax_time = "1s"\n')
    log = (DATA / "nccl-tests" / "nccl_allreduce.log").read_text()
    (tmp_path / "nccl-tests.log").write_text(log)
    lab = (DATA / "published" / "h100_curves.csv").read_text()
    (tmp_path / "lab.csv").write_text(lab)
    blocks = re.findall(r"\n\n((?: {4}.*\n|\n(?= {4}))+)", EXAMPLES)
    program = "\n".join(map(textwrap.dedent, blocks))
    assert "commbench.sweep(" in program
    (tmp_path / "check_network.py").write_text(
        textwrap.dedent(next(block for block in blocks if "init_process_group" in block))
    )
    program = program.replace((tmp_path / "check_network.py").read_text(), "")
    program = program.replace("rounds=5", "rounds=1, iters=3").replace("1K-16M:x4", "1K,4K")
    program = program.replace('"1", "2", "-"', '"1"')
    ended = start_command(tmp_path, program=program, forks_ranks=True).finish()
    assert ended.code == 0, ended.err
