"""`commbench workload`: show and import, from files and from a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_trace
from commands import run_commbench

import commbench
from commbench.plan.workload import Workload


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of two ranks; rank 1 is rank 0's with another rank."""
    made = tmp_path_factory.mktemp("traces")
    text = real_trace.small_text()
    (made / "rank0.json").write_text(text)
    (made / "rank1.json").write_text(text.replace('"rank": 0,', '"rank": 1,'))
    return made


def test_traces_become_a_workload_that_is_shown(folder: Path, tmp_path: Path) -> None:
    ended = run_commbench(tmp_path, "workload", "import", str(folder), "-o", "step.json")
    assert ended.code == 0, ended.err
    assert "the workload is in step.json" in ended.err
    shown = run_commbench(tmp_path, "workload", "show", "step.json")
    assert shown.code == 0
    assert shown.out == ended.out
    assert "97 MiB" in shown.out
    workload = commbench.workload.load(tmp_path / "step.json")
    assert isinstance(workload, Workload)
    assert workload == commbench.workload.load(folder)
    assert [call.size_bytes for call in workload.steps[0].programs[0].calls][2:] == real_trace.SIZES
    stored = folder / "step.json"
    stored.write_bytes((tmp_path / "step.json").read_bytes())
    assert commbench.workload.load(folder) == workload  # it is no trace of the folder
    stored.unlink()
    again = run_commbench(tmp_path, "workload", "import", str(folder), "-o", "step.json")
    assert (again.code, again.out) == (6, "")


def test_ranks_without_a_common_step_make_no_workload(folder: Path, tmp_path: Path) -> None:
    text = (folder / "rank1.json").read_text()
    (tmp_path / "rank1.json").write_text(text.replace("ProfilerStep#", "ProfilerStep#1"))
    both = [str(folder / "rank0.json"), "rank1.json"]
    shown = run_commbench(tmp_path, "workload", "show", *both)
    assert shown.code == 0
    assert "No collective call is in a whole step" in " ".join(shown.out.split())
    ended = run_commbench(tmp_path, "workload", "import", *both, "-o", "step.json")
    assert (ended.code, (tmp_path / "step.json").exists()) == (6, False)
    assert ended.err.startswith("error: no whole step is in the traces of all ranks\nhint: ")


def test_a_trace_that_is_given_twice_is_refused(folder: Path, tmp_path: Path) -> None:
    twice = [str(folder / "rank0.json")] * 2
    assert run_commbench(tmp_path, "workload", "show", *twice).code == 2


def test_files_that_do_not_belong_together_are_named(folder: Path, tmp_path: Path) -> None:
    first = str(folder / "rank0.json")
    assert run_commbench(tmp_path, "workload", "import", first, "-o", "step.json").code == 0
    (tmp_path / "empty.json").touch()
    (tmp_path / "odd.json").write_text('{"a": 1}')
    larger = (folder / "rank1.json").read_text()
    assert '"world_size": 2' in larger
    (tmp_path / "larger.json").write_text(larger.replace('"world_size": 2', '"world_size": 4'))
    (tmp_path / "lacking.json").write_text(real_trace.changed(
        lambda event: event | {"args": {}}, distributedInfo=None))  # fmt: skip
    for words, error, hint in (
        (["show", "step.json", first], "step.json is a workload, not a trace", "show it alone: "),
        (["show", "empty.json"], "empty.json is not a trace", "give traces of "),
        (["show", first, "odd.json"], "odd.json is not a trace", "give traces of "),
        (["show", first, "larger.json"], "is of a job with 2 ranks, and larger.json of one with 4 "
         "ranks", "give the traces of one job"),
        (["import", "lacking.json", "-o", "new.json"], "no call of known size", "record_shapes"),
    ):  # fmt: skip
        ended = run_commbench(tmp_path, "workload", *words)
        assert ended.code == 6, words
        said = ended.err.splitlines()[-2:]
        assert error in said[0] and hint in said[1], ended.err
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize(
    "words",
    [["ddp", "--mesh", "dp=2"], ["fsdp", "--mesh", "dp_shard=2"], ["megatron", "--mesh", "tp=1"]],
)
def test_each_generator_takes_the_same_options_of_a_model(words: list[str], tmp_path: Path) -> None:
    model = ["--layers", "2", "--hidden", "64", "--heads", "2", "--kv-heads", "1"]
    shown = [
        run_commbench(tmp_path, "workload", *words, *model, "--params", params, COLUMNS="80")
        for params in ("1_000_000", "1e6", "1M")
    ]
    assert [each.code for each in shown] == [0, 0, 0], [each.err for each in shown]
    assert len({each.out for each in shown}) == 1
    assert max(map(len, shown[0].out.splitlines())) <= 80
    named = run_commbench(
        tmp_path, "workload", *words, "--model", "gpt-2-xl", "--heads", "20", "-o", "step.json"
    )
    assert (named.code, (tmp_path / "step.json").exists()) == (0, True), named.err
    both = run_commbench(tmp_path, "workload", *words, "--model", "gpt-2-xl", "--params", "7B")
    assert (both.code, both.err.splitlines()[1]) == (2, "hint: give one of them")
