"""The command line through its real entry point: whole outputs, exit codes, what gets imported."""

import inspect
import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import Commbench
from synthetic import synthetic_run

from commbench import api
from commbench.analysis.columns import COLUMNS
from commbench.cli import commands
from commbench.cli.commands import COMMANDS, declared_commands, make_function
from commbench.cli.main import app
from commbench.results.schema import SCHEMA

HEAVY = ("torch", "pandas", "matplotlib", "numpy")


LEFT = r"\[\d+ %\] about \d+ s left; measuring [a-z_]+ float32 .* \d+ [KM]iB"


SLOW_CALLS = """
import time
from commbench.plan.operations import OPERATIONS
healthy = OPERATIONS["all_reduce"].call
def slow(dist, b):
    time.sleep(0.02)
    healthy(dist, b)
OPERATIONS["all_reduce"] = OPERATIONS["all_reduce"]._replace(call=slow)
"""


def test_progress_is_a_few_lines_with_the_time_left(program: Commbench) -> None:
    """Sixty calls of 20 ms each: the first line comes after a second."""
    ended = program(SLOW_CALLS, "--sizes", "1K,2K,4K", "--iters", "20", "--no-plots")
    assert ended.code == 0, ended.err
    lines = [line for line in ended.err.splitlines() if line.startswith("[")]
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(LEFT, line) for line in lines), lines


# tests/test_fresh_processes.py starts a run and draws a plot from nothing.
@pytest.mark.parametrize("is_fresh", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_run_leaves_journal_csv_and_plots(commbench: Commbench, is_fresh: bool) -> None:
    ended = commbench("run", "--op", "all_reduce,broadcast", "--sizes", "1K,4K", "--label", "mine",
                      "--iters", "5", is_fresh=is_fresh)  # fmt: skip
    assert ended.code == 0, ended.err
    names = {path.name for path in ended.folder.iterdir()}
    assert names == {"run.jsonl", "results.csv", "busbw.png", "time.png"}
    assert all((ended.folder / n).read_bytes()[:4] == b"\x89PNG" for n in ("busbw.png", "time.png"))
    header, *lines, end = ended.journal()
    assert (header["kind"], header["schema"], header["label"]) == ("header", SCHEMA, "mine")
    assert {line["kind"] for line in lines} == {"batch", "case"}
    assert [line["case"]["index"] for line in ended.cases()] == [0, 1, 2, 3]
    assert (end["kind"], end["status"]) == ("end", "complete")
    assert tuple(ended.rows()[0]) == tuple(COLUMNS)
    assert max(map(len, ended.out.splitlines())) <= 100
    first, *told = ended.err.splitlines()
    assert first == "measuring with 2 gloo ranks on cpu, cpu mode quiet (there is no GPU)"
    progress = [line for line in told if line.startswith("[")]
    assert all(re.fullmatch(LEFT, line) for line in progress), progress
    assert told[len(progress) :] == [
        "run/busbw.png: plot of mine", "run/time.png: plot of mine", "results are in run",
    ]  # fmt: skip


def test_the_torchrun_line_of_a_dry_run_keeps_every_option(
    commbench: Commbench,
) -> None:
    """What torchrun itself takes is before `--module`; the options of output are at the end."""
    ended = commbench(
        "run", "--sizes", "1K", "--dry-run", "--nproc-per-node", "3", "--label", "ring", "--format",
        "nccl-tests", "--no-plots", "-v", "--launches", "2", "--output", "here", "--no-check",
        "--budget", "1", "--cpu-mode", "plain",
    )  # fmt: skip
    *_, line = ended.out.partition("\nThe same with torchrun:\n")
    assert max(map(len, line.splitlines())) <= 80
    line = " ".join(line.replace(" \\\n", " ").split())
    assert line.startswith("torchrun --standalone --nproc-per-node=3 --module -- commbench run ")
    assert line.endswith(
        "--no-check --budget=1 --launches=2 --cpu-mode=plain --label=ring "
        "--output=here --format=nccl-tests --no-plots --verbose"
    )


def test_a_dry_run_prints_everything_and_starts_nothing(commbench: Commbench) -> None:
    ended = commbench("run", "--op", "gather,barrier", "--sizes", "10,1000", "--dry-run",
                      "--nproc-per-node", "3", "--budget", "10")  # fmt: skip
    assert ended.code == 0
    assert not ended.folder.exists()
    said = " ".join(ended.out.replace(" \\\n", " ").split())
    for expected in (
        "would measure with 3 gloo ranks on cpu, cpu mode quiet (there is no GPU) "
        "Cases: 3; a rank needs at most 1.3 KiB for buffers. "
        "Timing takes about 20 s, longer where calls take over 1.67 s or the host is busy. "
        "Add 3 starts of all ranks, of seconds each, and the checks. "
        "On this host: 3 ranks, 1.9 KiB for all buffers; ",
        " precision 5 % budget 10 s timing isolated ",
        " gather float32 out_of_place root 0 996 B 83 1.3 KiB barrier Not",
        "gather float32 out_of_place root 0 10 B: skipped: less than one float32 per rank",
        "torchrun --standalone --nproc-per-node=3 --module -- commbench run --op=gather,barrier "
        "--sizes=10,1000 --budget=10 --launches=3 --output=run",
    ):
        assert expected in said


def test_a_dry_run_counts_the_memory_of_processes(commbench: Commbench) -> None:
    arguments = ("run", "--sizes", "1K", "--dry-run", "--nproc-per-node")
    said = [" ".join(commbench(*arguments, ranks).out.split()) for ranks in ("1", "100000")]
    told = "Each rank is a process: 12 MiB or more besides buffers, 1.1 TiB for all."
    assert [told in each for each in said] == [False, True]


def test_the_help_of_every_command_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    whole: Any = typer.main.get_command(app)
    every = {"commbench": whole, **{name: commands.command(name) for name in COMMANDS}}
    for group in [made for made in every.values() if made is not whole]:
        every |= getattr(group, "commands", {})
    assert {"fit", "predict"} <= every.keys()
    for path, made in every.items():
        context = made.make_context(path, [], resilient_parsing=True)
        lines = made.get_help(context).splitlines()
        assert max(map(len, lines)) <= 80, path
        cut = [line for line in lines if line.endswith(("…", "...")) and "Usage: " not in line]
        assert [line for line in cut if "-- " not in line] == [], path


def test_list_shows_the_newest_run_first_and_show_alone_prints_it(
    commbench: Commbench, tmp_path: Path
) -> None:
    assert "no runs" in commbench("list").out
    nothing = commbench("show")
    assert (nothing.code, nothing.err.splitlines()[0]) == (
        6, "error: there is no run in the folder results"
    )  # fmt: skip
    for label, day in (("one", 20), ("two", 22), ("three", 21)):
        started = f"2026-11-{day}T06:00:00+00:00"
        synthetic_run(tmp_path / "results" / f"202611{day}-{label}", label, started=started)
    cut = tmp_path / "results" / "20261120-one" / "run.jsonl"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    imported = synthetic_run(tmp_path / "results" / "imported", "imported", started="")
    made = datetime(2026, 11, 20, 7, tzinfo=timezone.utc).timestamp()
    os.utime(imported / "run.jsonl", (made, made))
    (tmp_path / "results" / "damaged").mkdir()
    (tmp_path / "results" / "damaged" / "run.jsonl").write_text("{")
    listed = commbench("list", TZ="UTC", COLUMNS="80")
    assert [line.split() for line in listed.out.splitlines()[6:]] == [
        ["20261122-two", "two", "all_reduce", "1K-1M", "2", "gloo"],
        ["20261121-three", "three", "all_reduce", "1K-1M", "2", "gloo"],
        ["imported", "imported", "all_reduce", "1K-1M", "2", "gloo"],
        ["20261120-one", "one", "all_reduce", "1K-1M", "2", "gloo", "not", "ended"],
        ["damaged", "damaged", "not", "ended"],
    ]
    newest = commbench("show")
    assert (newest.code, newest.out.splitlines()[0]) == (0, "two")
    assert commbench("report", "--format=markdown").out.startswith("# two")
    long = "nightly-of-the-large-cluster-that-has-8-gpus"
    synthetic_run(tmp_path / "results" / "20261119", long)
    lines = commbench("list", COLUMNS="80").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"  20261119 +nightly-[a-z-]*- +all_reduce", line) for line in lines)
    synthetic_run(tmp_path / "results" / "20261122-060001-log", "log", started="")
    listed = commbench("list", TZ="UTC")
    assert listed.out.splitlines()[6].startswith("  20261122-060001-log ")
    assert commbench("show", TZ="UTC").out.splitlines()[0] == "log"


CLAIM = ["explain", "all_reduce", "--ranks=8", "--size=1G", "--time=4ms", "--peak=nvlink4"]
JOB = ["job", "slurm", "--nodes=2", "--nproc-per-node=8", "--", "--backend=nccl"]


ONLY_READ = [
    ["--help"], ["show", "run"], ["run", "--help"], ["ops"], ["links"], CLAIM, JOB,
    ["compare", "run", "other/results.csv"], ["check", "run", "--against", "other"],
    ["export", "run", "--format", "openmetrics"],
]  # fmt: skip


FITS = ["explain", "run"]
"""Fits a model to the run."""


def test_what_only_reads_imports_nothing_heavy(tmp_path: Path) -> None:
    for name in ("run", "other"):
        synthetic_run(tmp_path / name, name, launches=3)
    program = (
        "import sys, json, commbench.cli.main\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    sys.argv[1:] = line\n"
        "    try: commbench.cli.main.main()\n"
        "    except SystemExit as end: code = end.code\n"
        f"    heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "    print('\\n' + json.dumps([line, code, heavy]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, json.dumps([*ONLY_READ, FITS])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[[")]
    assert told == [*([line, 0, []] for line in ONLY_READ), [FITS, 0, ["numpy"]]], ended.stderr


DECLARED = declared_commands()
FOR_PYTHON_ONLY = {
    "workload ddp": {"broadcast_buffers", "loss"},
    "workload fsdp": {"blocks"},
}
"""Keywords that no option gives, besides `notify`, by the command."""
NAMED_OTHERWISE = {
    "compare": {"a": "first", "b": "others"},
    "workload ddp": {"ranks": "mesh"},
    "workload fsdp": {"ranks": "mesh", "replicas": "mesh", "reshard_after_forward": "reshard"},
}
WITH_OTHERS = (
    "sweep", "job slurm", "job kubernetes", "workload megatron", "report", "preflight",
)  # fmt: skip
"""Commands of several Python functions, or that take other options, too."""


@pytest.mark.parametrize("name", [n for n in DECLARED if DECLARED[n].api and n not in WITH_OTHERS])
def test_every_keyword_of_python_is_an_option(name: str) -> None:
    function = DECLARED[name].api[0].rpartition(".")[2]
    module = getattr(api, name.split()[0]) if name.startswith(("history", "workload")) else api
    keywords = inspect.signature(getattr(module, function)).parameters.keys()
    renamed = NAMED_OTHERWISE.get(name, {})
    options = inspect.signature(make_function(name)).parameters.keys()
    missing = {renamed.get(keyword, keyword) for keyword in keywords} - options - {"notify"}
    assert missing == FOR_PYTHON_ONLY.get(name, set())


def test_an_option_has_the_default_of_its_keyword() -> None:
    options = inspect.signature(make_function("expect")).parameters
    keywords = inspect.signature(api.expect).parameters
    assert {name: options[name].default for name in keywords if name != "gpu"} == {
        name: keyword.default for name, keyword in keywords.items() if name != "gpu"
    }
    assert options["nodes"].annotation.__origin__ is int
