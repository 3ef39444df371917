"""Sweeps on real ranks: rounds in turn, a verdict, and going on after a stop."""

import json
import shutil
from pathlib import Path

import pytest
from commands import Commbench, Ended
from synthetic import steady, synthetic_run

from commbench.results.run_folder import create_folder
from commbench.sweep.runner import Sweep, write_sweep
from commbench.sweep.settings import Setting

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
    assert lines[0] == "2 settings, 2 rounds; in swept"
    assert [line[:5] for line in lines[1:5]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert lines[-1] == "results are in swept"


def test_the_verdict_names_the_best_for_each_size_and_over_all(swept: tuple[Ended, Path]) -> None:
    out = swept[0].out
    assert max(map(len, out.splitlines())) <= 100
    for head in ("all_reduce float32 sum in_place\n", "barrier\n", "Best by size:", "Over all:"):
        assert head in out
    for mode in ("quiet", "plain"):
        assert f"cpu-mode={mode}" in out


def test_it_is_described_and_drawn(swept: tuple[Ended, Path]) -> None:
    folder = swept[1] / "swept"
    described = json.loads((folder / "sweep.json").read_text())
    assert (described["format"], described["rounds"], len(described["settings"])) == (1, 2, 2)
    assert {"busbw.png", "time.png"} <= {path.name for path in folder.iterdir()}


def test_a_sweep_goes_on_where_it_stopped(commbench: Commbench, swept: tuple[Ended, Path],
                                          tmp_path: Path) -> None:  # fmt: skip
    shutil.copytree(swept[1] / "swept", tmp_path / "swept")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=plain" / "round-2")
    cut = tmp_path / "swept" / "cpu-mode=quiet" / "round-1" / "run.jsonl"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    ended = commbench("sweep", "--resume", "swept")
    assert ended.code == 0, ended.err
    assert ended.err.count("done before") == 2
    assert (tmp_path / "swept" / "cpu-mode=plain" / "round-2" / "run.jsonl").exists()
    assert (tmp_path / "swept" / "cpu-mode=quiet" / "round-1.2" / "run.jsonl").exists()


def a_sweep(folder: Path, *rounds: int, wrong_in: int = 0) -> None:
    """A made-up sweep of two settings; of the second these rounds were completed, and the case of
    16 KiB is wrong in one of them."""
    settings = (Setting((), (("cpu-mode", "quiet"),)), Setting((), (("cpu-mode", "plain"),)))
    create_folder(folder)
    nothing: tuple[()] = ()
    write_sweep(folder, Sweep(settings, (nothing,) * 2, (nothing,) * 2, 2, 0, "", 0.1))
    for setting, done, scale in zip(settings, ((1, 2), rounds), (1e-9, 1.3e-9), strict=True):
        for round_ in done:
            wrong = setting == settings[1] and round_ == wrong_in
            synthetic_run(folder / setting.slug / f"round-{round_}", "r",
                        lambda case, s=scale: steady(case.size_bytes * s + 1e-5),
                        statuses={1 << 14: "wrong"} if wrong else None)  # fmt: skip


def test_show_prints_again_what_a_sweep_found(commbench: Commbench, tmp_path: Path) -> None:
    a_sweep(tmp_path / "swept", 1, 2)
    resumed = commbench("sweep", "--resume", "swept")
    assert resumed.code == 0, resumed.err
    assert "by no more than 10.0 %" in resumed.out
    assert "all_reduce float32 sum in_place 1 KiB: cpu-mode=quiet = cpu-mode=plain" in resumed.out
    shown = commbench("show", "swept")
    assert (shown.code, shown.out, shown.err) == (0, resumed.out, "")
    pictures = {"busbw.png", "time.png"}
    assert {path.name for path in (tmp_path / "swept").glob("*.png")} == pictures
    commbench("sweep", "--resume", "swept")
    assert {path.name for path in (tmp_path / "swept").glob("*.png")} == pictures


def test_a_setting_that_is_wrong_in_a_later_round_ends_the_sweep_with_5(
    commbench: Commbench, tmp_path: Path
) -> None:
    a_sweep(tmp_path / "swept", 1, 2, wrong_in=2)
    ended = commbench("sweep", "--resume", "swept")
    assert ended.code == 5
    assert "error: under cpu-mode=plain all_reduce" in ended.err
    assert "16 KiB" not in ended.out.partition("Best by size:")[0]
    assert "256 KiB" in ended.out


def test_show_says_what_a_sweep_lacks(commbench: Commbench, tmp_path: Path) -> None:
    a_sweep(tmp_path / "swept", 2)
    shown = commbench("show", "swept")
    assert shown.code == 0
    assert shown.err == (
        "1 of 4 rounds are missing; `commbench sweep --resume swept` goes on with it\n"
    )
    refused = commbench("show", "swept", "--peak", "1GB/s")
    assert (refused.code, refused.err) == (
        2, "error: swept is a sweep, which is shown in one way\nhint: leave out the options\n"
    )  # fmt: skip
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=plain")
    shutil.rmtree(tmp_path / "swept" / "cpu-mode=quiet")
    nothing = commbench("show", "swept")
    assert (nothing.code, nothing.err) == (
        6,
        "error: no round of the sweep swept was completed\n"
        "hint: `commbench sweep --resume swept` goes on with it\n",
    )


@pytest.mark.full
def test_a_setting_that_cannot_be_measured_is_told_and_the_others_go_on(
    commbench: Commbench,
) -> None:
    ended = commbench("sweep", "--env", "GLOO_SOCKET_IFNAME=lo,nowhere0", "--sizes", "1K",
                      "--iters", "2", "--rounds", "1", "--output", "swept")  # fmt: skip
    assert ended.code == 0, ended.err
    assert "Not measured, or not in every round:" in ended.out
    assert "GLOO_SOCKET_IFNAME=nowhere0: " in ended.out


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("--env NCCL_ALGO=RING,TREE --sizes 1K", 2,
         "gloo does not read NCCL_ALGO: the settings would not differ"),
        ("--env NCCL_AGLO=RING,TREE --sizes 1K", 2,
         "--env NCCL_AGLO: nothing in torch or its backends is known to read NCCL_AGLO"),
        ("--vary cpu-mode=quiet,plain --output x --label y --launches 2", 2,
         "--launches does not go with a sweep"),
        ("--vary cpu-mode=quiet,loud", 2, "unknown cpu mode 'loud'"),
        ("--vary cpu-mode=quiet,plain --nonsense", 2, "No such option: --nonsense"),
        ("--resume nowhere", 6, "cannot read nowhere/sweep.json: No such file or directory"),
        ("--vary cpu-mode=quiet,plain --rounds 0", 2, "--rounds is 0"),
        ("--vary cpu-mode=quiet,plain --export pdf", 2, "unknown export 'pdf'"),
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
