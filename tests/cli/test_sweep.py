"""Sweeps on real ranks: rounds in turn, a verdict, and going on after a stop."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from commands import Commbench, Ended, start_command
from synthetic_sweep import synthetic_sweep

PICTURE = "sweep-all-reduce-float32-sum-in-place.png"
SWEEP = [
    "sweep", "--vary", "cpu-mode=quiet,plain", "--op", "all_reduce,barrier", "--sizes", "1K,64K",
    "--iters", "6", "--rounds", "2", "--output", "swept",
]  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    from commands import run_commbench

    where = tmp_path_factory.mktemp("sweep")
    return run_commbench(where, *SWEEP), where


def test_every_setting_is_measured_in_every_round(swept: tuple[Ended, Path]) -> None:
    ended, where = swept
    assert ended.code == 0, ended.err
    runs = {f"{path.parent.name}/{path.name}" for path in (where / "swept").glob("*/round-*")}
    assert runs == {f"cpu-mode={mode}/round-{n}" for mode in ("quiet", "plain") for n in (1, 2)}
    lines = ended.err.splitlines()
    assert lines[0] == "2 settings x 2 rounds = 4 runs; in swept"
    ends = (re.match(r"(\[\d+ %\]) (?:quiet|plain), (round \d of 2): done in [\d.]+ s$", line)
            for line in lines)  # fmt: skip
    assert [match.groups() for match in ends if match] == [
        ("[25 %]", "round 1 of 2"), ("[50 %]", "round 1 of 2"),
        ("[75 %]", "round 2 of 2"), ("[100 %]", "round 2 of 2"),
    ]  # fmt: skip
    assert lines[-1] == "results are in swept"


def test_the_answer_is_a_sentence_for_each_kind_and_a_table(swept: tuple[Ended, Path]) -> None:
    lines = swept[0].out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == (
        "Sweep of cpu-mode (quiet, plain): 2 settings, 2 rounds, 2 gloo ranks on cpu."
    )
    assert [line for line in lines if line.startswith("For ")] != []
    assert any(line.split() == ["size", "quiet", "plain", "quiet", "interval"] for line in lines)


def test_it_is_described_and_drawn(swept: tuple[Ended, Path]) -> None:
    folder = swept[1] / "swept"
    described = json.loads((folder / "sweep.json").read_text())
    assert (described["format"], described["rounds"], len(described["settings"])) == (1, 2, 2)
    assert {path.name for path in folder.glob("*.png")} == {PICTURE}
    rows = (folder / "sweep.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 3
    assert rows[0].startswith("operation,dtype,")
    assert {row.split(",")[-1] for row in rows[1:]} == {"ok"}


def test_a_sweep_goes_on_where_it_stopped(commbench: Commbench, swept: tuple[Ended, Path],
                                          tmp_path: Path) -> None:  # fmt: skip
    shutil.copytree(swept[1] / "swept", tmp_path / "swept")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=plain" / "round-2")
    cut = tmp_path / "swept" / "cpu-mode=quiet" / "round-1" / "run.jsonl"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    ended = commbench("sweep", "--resume", "swept")
    assert ended.code == 0, ended.err
    assert ended.err.startswith(
        "2 settings x 2 rounds = 4 runs, 2 of them measured before; in swept\n"
    )
    shares = [int(share) for share in re.findall(r"^\[(\d+) %\]", ended.err, re.MULTILINE)]
    assert min(shares) >= 50, "progress counts what was measured before"
    assert shares[-1] == 100
    assert (tmp_path / "swept" / "cpu-mode=plain" / "round-2" / "run.jsonl").exists()
    assert (tmp_path / "swept" / "cpu-mode=quiet" / "round-1.2" / "run.jsonl").exists()


def test_show_prints_again_what_a_sweep_found(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", lambda setting, _: (1, 1.3)[setting])
    resumed = commbench("sweep", "--resume", "swept")
    assert resumed.code == 0, resumed.err
    assert "For all_reduce, quiet is the fastest at 1K-1M (plain takes 1.30" in resumed.out
    shown = commbench("show", "swept")
    assert (shown.code, shown.out, shown.err) == (0, resumed.out, "")
    data = [commbench(*words, "--format", "json").out
            for words in (["show", "swept"], ["sweep", "--resume", "swept"])]  # fmt: skip
    assert data[0] == data[1]
    assert len(json.loads(data[0])["rows"]) == 8
    pictures = {PICTURE}
    assert {path.name for path in (tmp_path / "swept").glob("*.png")} == pictures
    commbench("sweep", "--resume", "swept")
    assert {path.name for path in (tmp_path / "swept").glob("*.png")} == pictures


def test_a_sweep_is_found_by_its_label(commbench: Commbench, tmp_path: Path) -> None:
    for day, setting in ((1, "quiet,plain"), (2, "quiet,batch")):
        folder = tmp_path / "results" / f"2026110{day}-120000-sweep-mine"
        synthetic_sweep(folder, vary=[f"cpu-mode={setting}"], sizes=[1 << 10])
    shown = commbench("show", "mine")
    assert shown.out.startswith("Sweep of cpu-mode (quiet, batch)"), "the newest"
    named = commbench("show", "20261101-120000-sweep-mine")
    assert named.out.startswith("Sweep of cpu-mode (quiet, plain)")


def test_a_wider_tolerance_makes_ties(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", lambda setting, _: (1, 1.3)[setting])
    out = commbench("sweep", "--resume", "swept", "--tolerance", "50%").out
    assert "at most 50 % slower" in out
    assert out.count(" = ") == 4


def test_a_setting_that_is_wrong_in_a_later_round_ends_the_sweep_with_5(
    commbench: Commbench, tmp_path: Path
) -> None:
    synthetic_sweep(tmp_path / "swept", statuses={(1, 2): {1 << 14: "wrong"}})
    ended = commbench("sweep", "--resume", "swept")
    assert ended.code == 5
    assert "error: under cpu-mode=plain all_reduce" in ended.err
    row = next(line for line in ended.out.splitlines() if "16 KiB" in line)
    assert row.split()[-1] == "wrong"


def test_show_says_what_a_sweep_lacks(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", missing={(1, 1)})
    shown = commbench("show", "swept")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.endswith(
        "1 of 6 runs are missing. This measures them:\n  commbench sweep --resume swept\n"
    )
    refused = commbench("show", "swept", "--peak", "1GB/s")
    assert refused.code == 2
    assert refused.err.startswith("error: swept is a sweep, and these options are for runs\n")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=plain")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=quiet")
    nothing = commbench("show", "swept")
    assert (nothing.code, nothing.err) == (
        6,
        "error: no round of the sweep swept was completed\n"
        "hint: `commbench sweep --resume swept` continues it\n",
    )


def test_ctrl_c_names_the_line_that_resumes(tmp_path: Path) -> None:
    process = start_command(
        tmp_path, "sweep", "--vary", "cpu-mode=quiet,plain", "--sizes", "1K", "--iters", "1000000",
        "--rounds", "1", "--output", "swept",
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("swept/*/round-1/run.jsonl")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    ended = process.finish()
    assert ended.code == 130, ended.err
    assert ended.err.splitlines()[-2:] == [
        "error: stopped by SIGINT", "hint: `commbench sweep --resume swept` continues it"
    ]  # fmt: skip


def test_a_setting_that_cannot_be_measured_makes_code_1_and_the_others_go_on(
    commbench: Commbench,
) -> None:
    ended = commbench("sweep", "--env", "GLOO_SOCKET_IFNAME=lo,nowhere0", "--sizes", "1K",
                      "--budget", "0.01", "--rounds", "2", "--output", "swept")  # fmt: skip
    assert ended.code == 1, ended.err
    # A round is one launch, also where a run would have three.
    headers = [
        line
        for journal in (ended.folder.parent / "swept").glob("*=lo/round-*/run.jsonl")
        for line in map(json.loads, journal.read_text().splitlines())
        if line["kind"] == "header"
    ]
    assert [line["plan"]["launches"] for line in headers] == [1, 1]
    assert "all_reduce: only lo was measured; there is nothing to compare it with." in ended.out
    failed = " ".join(ended.out.partition("Failed:\n")[2].split())
    assert re.match(
        r"GLOO_SOCKET_IFNAME=nowhere0: rank [01] could not join a gloo group: Unable to find "
        r"address for: nowhere0 \(0 of 2 rounds measured\)",
        failed,
    )
    assert (
        ended.err.count("nowhere0, round 2 of 2: skipped, because this setting failed before") == 1
    )
    assert max(map(len, ended.err.splitlines()[:-1])) <= 80
    assert ended.err.splitlines()[-2:] == [
        "error: 1 of 2 settings failed: GLOO_SOCKET_IFNAME=nowhere0",
        "hint: `commbench sweep --resume swept` fails again unless you change this host or its "
        "software",
    ]
    assert "2 of 4 runs failed. They fail again unless" in commbench("show", "swept").out


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("--env NCCL_ALGO=RING,TREE --sizes 1K", 2,
         "gloo does not read NCCL_ALGO: the settings would not differ"),
        ("--env NCCL_AGLO=RING,TREE --sizes 1K", 2,
         "--env NCCL_AGLO: nothing in torch or its backends is known to read NCCL_AGLO"),
        ("--vary cpu-mode=quiet,plain --output x --label y --launches 2", 2,
         "--launches cannot be used in a sweep"),
        ("--vary cpu-mode=quiet,loud", 2, "unknown cpu mode 'loud'"),
        ("--vary cpu-mode=quiet,plain --nonsense", 2, "there is no option --nonsense"),
        ("--resume nowhere", 6, "there is no sweep 'nowhere'"),
        ("--vary cpu-mode=quiet,plain --rounds 0", 2, "--rounds is 0"),
        ("--vary cpu-mode=quiet,plain --export pdf", 2, "unknown export 'pdf'"),
        ("--vary cpu-mode=quiet,plain --sizes 1K --export nccl-tuner", 3,
         "--export nccl-tuner needs the backend nccl, and this sweep uses gloo"),
        ("--vary timing=isolated,both --sizes 1K", 2, "--vary timing=both makes several cases"),
        ("--resume nowhere --iters 5", 2,
         "--resume continues with the settings that the folder describes"),
    ],
)  # fmt: skip
def test_what_makes_no_sweep_is_two_lines(
    commbench: Commbench, line: str, code: int, error: str
) -> None:
    ended = commbench("sweep", *line.split())
    assert ended.code == code, ended.err
    first, second = ended.err.splitlines()
    assert first.startswith(f"error: {error}")
    assert second.startswith("hint: ")


OTHER_BACKEND = """
import torch.distributed as dist

def make(store, rank, size, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout)

dist.Backend.register_backend("other", make, devices=["cpu"])
"""
"""Python runs it when it starts: a backend that is registered with torch."""


@pytest.mark.full
def test_backends_that_torch_has_are_measured_side_by_side(
    commbench: Commbench, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_BACKEND)
    root = Path(__file__).parents[2]
    ended = commbench(
        "sweep", "--vary", "backend=gloo,other", "--sizes", "1K,64K", "--iters", "6", "--rounds",
        "2", "--no-plots", "--output", "swept", is_fresh=True, PYTHONPATH=f"{tmp_path}:{root}",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    runs = {f"{path.parent.name}/{path.name}" for path in tmp_path.glob("swept/*/round-*")}
    assert runs == {f"backend={name}/round-{n}" for name in ("gloo", "other") for n in (1, 2)}
    # Each round has both, so that a drift affects both alike.
    done = re.findall(r"(gloo|other), round (\d) of 2: done", ended.err)
    assert {frozenset(name for name, n in done if n == number) for number in "12"} == {
        frozenset(("gloo", "other"))
    }
    assert ended.out.startswith("Sweep of backend (gloo, other): 2 settings, 2 rounds")
    assert "For all_reduce, " in ended.out


@pytest.mark.parametrize("missing", ["nccl", "ucc", "nothing"])
def test_a_backend_that_torch_lacks_is_refused_before_anything_is_measured(
    commbench: Commbench, tmp_path: Path, missing: str
) -> None:
    import torch.distributed as dist

    if missing != "nothing" and dist.is_backend_available(missing):
        pytest.skip(f"this torch has {missing}")
    ended = commbench("sweep", "--vary", f"backend=gloo,{missing}", "--output", "swept")
    assert ended.code == 3
    assert ended.err.startswith(f"error: this torch has no backend '{missing}'\nhint: it has: gloo")
    assert not (tmp_path / "swept").exists()
