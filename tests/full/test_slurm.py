"""commbench under a real srun, on a Slurm of two nodes."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent

import pytest
from broken import SMALL_THEN_LARGE, check_named, check_resumed, cut_off, kill_rank
from commands import START_TIMEOUT_S, Ended, run_commbench
from slurm import Slurm, slurm
from test_preflight import Saboteur, lists

from commbench.runner.jobs import NO_GPUS

pytestmark = pytest.mark.full
PREFLIGHT_LIMIT_S = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(2) as running:
        yield running


def srun(tasks: int, *asked: str, options: Sequence[str] = ()) -> list[str]:
    """A command that runs commbench as the tasks of a step on both nodes."""
    commbench = [sys.executable, "-m", "commbench", "run", *asked]
    return ["srun", "-N2", f"-n{tasks}", *options, *commbench]


@pytest.mark.parametrize(
    ("tasks", "nodes_of_ranks"),
    [(4, ["host0", "host0", "host1", "host1"]), (3, ["host0", "host0", "host1"])],
)
def test_the_tasks_of_srun_are_the_ranks(
    cluster: Slurm, tmp_path: Path, tasks: int, nodes_of_ranks: list[str]
) -> None:
    asked = ["--sizes", "1K,64K", "--iters", "5", "--no-plots", "--output", "run"]
    out = cluster.run(*srun(tasks, *asked), cwd=tmp_path)
    ended = Ended(0, out, "", tmp_path / "run")
    header, *_, end = ended.journal()
    assert (header["launcher"], header["num_nodes"]) == ("srun", 2)
    assert [rank["host"] for rank in header["ranks"]] == nodes_of_ranks
    assert [row["status"] for row in ended.rows()] == ["ok", "ok"]
    assert end["status"] == "complete"
    assert out.count(f"{tasks} gloo ranks on host0, host1") == 1


def test_a_run_under_srun_that_was_cut_off_goes_on_under_srun(
    cluster: Slurm, tmp_path: Path
) -> None:
    command = srun(3, *SMALL_THEN_LARGE, "--output", "run")
    before = cut_off(cluster.start(*command, cwd=tmp_path), tmp_path / "run")
    out = cluster.run(*srun(3, "--resume", "run", "--no-plots"), cwd=tmp_path)
    check_resumed(Ended(0, out, "", tmp_path / "run"), before)


@pytest.mark.parametrize("options", [(), ("--kill-on-bad-exit=1",)], ids=["", "kills"])
@pytest.mark.parametrize(("rank", "host"), [(0, "host0"), (1, "host0"), (3, "host1")])
def test_a_rank_of_srun_that_is_killed_is_named_and_nothing_is_left(
    cluster: Slurm, tmp_path: Path, rank: int, host: str, options: tuple[str, ...]
) -> None:
    command = srun(4, *SMALL_THEN_LARGE, "--output", "run", options=options)
    process = cluster.start(*command, cwd=tmp_path)
    ended, seconds = kill_rank(process, tmp_path / "run", rank)
    check_named(ended, rank, host, seconds)


DOCS = Path(__file__).parents[2] / "docs"


def documented(page: str, begin: str) -> str:
    """The block of code in a page that begins so."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"(?m)^    {re.escape(begin)}.*\n(?:(?: {{4}}.*)?\n)*", text)
    assert found
    return dedent(found[0])


def test_each_node_measures_by_itself_as_documented(cluster: Slurm, tmp_path: Path) -> None:
    line = documented("fleet.md", "srun -N 16").splitlines()[0]
    program = f"{shlex.quote(sys.executable)} -m commbench run --iters 20"
    for old, new in (
        ("-N 16", "-N 2"), (" --gpus-per-task 8", ""), ("commbench run", program),
        ("--op all --sizes 1K-1G", "--sizes 1K,64K"),
    ):  # fmt: skip
        assert old in line
        line = line.replace(old, new)
    (tmp_path / "tonight").mkdir()
    cluster.run(*shlex.split(line), cwd=tmp_path)
    for host in ("host0", "host1"):
        header, *_ = Ended(0, "", "", tmp_path / "tonight" / host).journal()
        assert [rank["host"] for rank in header["ranks"]] == [host, host]
    said = run_commbench(tmp_path, "fleet", "tonight").out
    assert "2 nodes" in said


def test_two_versions_are_measured_in_turns_as_documented(cluster: Slurm, tmp_path: Path) -> None:
    script = documented("clusters.md", "#!/bin/bash")
    for old, new in (
        ("--ntasks-per-node=8 --gpus-per-node=8 --exclusive", "--ntasks-per-node=1"),
        ("--backend nccl --op all_reduce --sizes 1K-1G:x4", "--sizes 1K,64K"),
        ("--max-slowdown 10%", "--max-time 60s --undecided pass"),
    ):
        assert old in script
        script = script.replace(old, new)
    (tmp_path / "job.sh").write_text(script)
    program = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m commbench "$@"\n'
    for name in ("old", "new"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "commbench").write_text(program)
        (tmp_path / name / "bin" / "commbench").chmod(0o755)
    number, state = submit(cluster, tmp_path, 3 * START_TIMEOUT_S)
    log = (tmp_path / f"slurm-{number}.out").read_text()
    assert state == "COMPLETED", log
    assert "From launch to launch, the ratio" in log and "PASS" in log
    rows = Ended(0, "", "", tmp_path / f"gate-{number}" / "new").rows()
    assert [row["launches"] for row in rows] == ["6", "6"]


def test_two_settings_are_measured_in_turns_as_documented(cluster: Slurm, tmp_path: Path) -> None:
    text = (DOCS / "clusters.md").read_text(encoding="utf-8")
    text = text[text.index("    #!/bin/bash", text.index("RING or TREE")) :]
    script = dedent(text[: text.index("\n\n")])
    for old, new in (
        ("--ntasks-per-node=8 --gpus-per-node=8 --exclusive", "--ntasks-per-node=1"),
        ("--backend nccl --op all_reduce --sizes 1K-1G:x4", "--sizes 1K,64K"),
        ('exit=1 commbench"', f'exit=1 {shlex.quote(sys.executable)} -m commbench"'),
        ("1 2 3 4 5 6", "1 2 3"),
        ("commbench compare", f"{shlex.quote(sys.executable)} -m commbench compare"),
    ):
        assert old in script
        script = script.replace(old, new)
    (tmp_path / "job.sh").write_text(script + "\n")
    number, state = submit(cluster, tmp_path, 3 * START_TIMEOUT_S)
    log = (tmp_path / f"slurm-{number}.out").read_text()
    assert state == "COMPLETED", log
    assert "From launch to launch, the ratio" in log
    assert "NCCL_ALGO" in log  # in what differs


def print_job(where: Path, *words: str, nodes: int = 2) -> Path:
    """A script of `commbench job slurm` for so many nodes, two ranks each."""
    path = Path(sys.executable).parent
    setup = f"export PATH={shlex.quote(str(path))}:$PATH"
    ended = run_commbench(
        where, "job", "slurm", "--nodes", str(nodes), "--nproc-per-node", "2", "--setup", setup,
        "--output", "job.sh", *words,
    )  # fmt: skip
    note = "" if "--gpus-per-node" in words else f"{NO_GPUS}\n"
    assert (ended.code, ended.err) == (0, note)
    return where / "job.sh"


def submit(cluster: Slurm, where: Path, limit_s: float = START_TIMEOUT_S) -> tuple[str, str]:
    """Submit the script and wait for its end; the job's number and its state then.

    Not `sbatch --wait`, which asks seldom.
    """
    number = cluster.run("sbatch", "--parsable", "job.sh", cwd=where).strip()
    deadline = time.monotonic() + limit_s
    while True:
        shown = cluster.run("scontrol", "show", "job", number)
        state = shown.split("JobState=")[1].split()[0]
        if state not in ("PENDING", "RUNNING", "COMPLETING"):
            return number, state
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)


def test_slurm_would_take_a_printed_job(cluster: Slurm, tmp_path: Path) -> None:
    job = print_job(
        tmp_path, "--partition", "all", "--cpus-per-task", "1", "--time", "1-12",
        "--gpus-per-node", "2",
    )  # fmt: skip
    cluster.run("sbatch", "--test-only", str(job), cwd=tmp_path)
    for option in ("--partition=none", "--gpus-per-node=3", "--cpus-per-task=2"):
        with pytest.raises(AssertionError, match="allocation failure"):
            cluster.run("sbatch", "--test-only", option, str(job), cwd=tmp_path)


def test_a_printed_job_measures_and_leaves_its_results(cluster: Slurm, tmp_path: Path) -> None:
    note = "it's $HOME `and` more"
    print_job(
        tmp_path, "--time", "5m", "--gpus-per-node", "2", "--cpus-per-task", "1",
        "--env", f"NCCL_ALGO={note}", "--", "--label", "ring", "--sizes", "1K,64K", "--iters", "5",
    )  # fmt: skip
    number, state = submit(cluster, tmp_path)
    assert state == "COMPLETED"
    ended = Ended(0, "", "", tmp_path / "results" / f"{number}-ring")
    log = (tmp_path / f"commbench-ring-{number}.log").read_text()
    header, *_, end = ended.journal()
    assert (header["launcher"], header["num_nodes"], header["label"]) == ("srun", 2, "ring")
    assert [rank["host"] for rank in header["ranks"]] == ["host0", "host0", "host1", "host1"]
    assert header["environment"]["variables"]["NCCL_ALGO"] == note
    assert [row["status"] for row in ended.rows()] == ["ok", "ok"]
    assert end["status"] == "complete"
    assert log.count("4 gloo ranks on host0, host1") == 1
    assert f"results are in results/{number}-ring" in log


def test_a_printed_job_that_fails_says_why_and_ends_on_every_node(
    cluster: Slurm, tmp_path: Path
) -> None:
    print_job(tmp_path, "--", "--label", "ring", "--sizes", "1K", "--output", "in-use")
    (tmp_path / "in-use").mkdir()
    (tmp_path / "in-use" / "precious").write_text("data")
    number, state = submit(cluster, tmp_path)
    assert state == "FAILED"
    log = (tmp_path / f"commbench-ring-{number}.log").read_text()
    assert "error: in-use exists and is not empty\n" in log
    assert re.search(r"tasks? 0(-1)?: Exited with exit code 6\n", log), log
    assert [path.name for path in (tmp_path / "in-use").iterdir()] == ["precious"]


@pytest.mark.parametrize("bad", ["", "host1"], ids=["sound", "killed"])
def test_a_printed_job_tests_its_nodes_and_runs_on_good_ones(
    cluster: Slurm, tmp_path: Path, bad: str
) -> None:
    """A rank on the bad node is killed in both of its tests; the job then runs on the other."""
    where = tmp_path / "hosts"
    where.mkdir()
    saboteur = Saboteur(where, bad, signal.SIGKILL, size=1, times=2)
    nodes, spare = (1, "1") if bad else (2, "0")
    print_job(
        tmp_path, "--time", "10m", "--preflight", "--spare", spare,
        "--setup", f"export TMPDIR={where}", "--", "--sizes", "1K,64K", "--iters", "5",
        nodes=nodes,
    )  # fmt: skip
    if bad:
        saboteur.start()
    number, state = submit(cluster, tmp_path, PREFLIGHT_LIMIT_S)
    saboteur.ended.set()
    log = (tmp_path / f"commbench-all_reduce-{number}.log").read_text()
    assert state == "COMPLETED", log
    checked = tmp_path / "results" / f"{number}-preflight"
    good = [host for host in ("host0", "host1") if host != bad]
    assert (checked / "pass.txt").read_text().split() == good
    assert lists(checked) == ({"drain": [bad]} if bad else {})
    [folder] = (tmp_path / "results").glob(f"{number}-all_reduce*")
    header, *_ = Ended(0, "", "", folder).journal()
    assert list(dict.fromkeys(rank["host"] for rank in header["ranks"])) == good
