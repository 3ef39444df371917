"""`commbench model`: its output, its files, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import planted
import pytest
from commands import Commbench
from synthetic import plan, steady, synthetic_run

from commbench.models.machine_file import write_machine


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    write_machine(planted.machine(), tmp_path / "machine.json")
    return tmp_path / "machine.json"


PREDICT = [
    "model", "predict", "machine.json", "--op", "all_reduce", "--ranks", "512",
    "--ranks-per-node", "8",
]  # fmt: skip


def test_predict_writes_tables_and_pictures(commbench: Commbench, machine: Path) -> None:
    for name, arguments in {
        "p.csv": ["--format", "csv", "--sizes", "1M-1G"], "p.json": ["--format", "json"],
        "p.svg": ["--sizes", "1M-1G"],
        "colls.table": ["--format", "autoparallel", "--sizes", "1M-1G:x32"],
    }.items():  # fmt: skip
        ended = commbench(*PREDICT, *arguments, "-o", name)
        assert (ended.code, ended.out, ended.err) == (0, f"{name}\n", "")
    text = (machine.parent / "p.csv").read_text()
    assert text == commbench(*PREDICT, "--format", "csv", "--sizes", "1M-1G").out
    assert commbench(*PREDICT, "--format", "csv", "-o", "p.csv").code == 6


@pytest.mark.parametrize("name", ["csv", "autoparallel", "inductor", "svg"])
def test_a_form_without_notes_has_its_warnings_on_standard_error(
    commbench: Commbench, machine: Path, name: str
) -> None:
    assert machine.exists()
    form = ("-o", "p.svg") if name == "svg" else ("--format", name)
    ended = commbench(*PREDICT, "--ranks", "4096", "--sizes", "1G,2G", *form)
    assert ended.code == 0
    assert ended.err == (
        "warning: all_reduce across hosts: so far from the measurements the library may use "
        "another algorithm, and other jobs may share the network.\n"
    )
    assert "so far" not in ended.out


@pytest.mark.parametrize("name", ["table", "json"])
def test_a_form_with_notes_has_its_warnings_there(
    commbench: Commbench, machine: Path, name: str
) -> None:
    assert machine.exists()
    ended = commbench(*PREDICT, "--ranks", "4096", "--sizes", "1G", "--format", name)
    assert (ended.code, ended.err) == (0, "")
    assert "Warning: so far from the measurements" in " ".join(ended.out.split())


FIT_REFUSED = {
    "absent": (6, "there is no file, folder or run 'absent'"),
    "a --leave-out nodes=2": (2, "--leave-out 'nodes=2' says neither ranks nor sizes"),
    "a --leave-out ranks=7": (2, "--leave-out: no measurement has ranks of 7"),
    "a --leave-out ranks=2": (2, "--leave-out leaves nothing to fit"),
    "a --ranks-per-node 0": (2, "ranks per node 0 is below 1"),
    "a b": (2, "the runs have different backends: gloo, mpi"),
    "untimed": (3, "untimed: there is no time to fit"),
    "bad.csv": (6, "bad.csv has no column ranks_per_node"),
    "a -o a": (6, "a is a folder"),
}


def test_fit_refuses_with_the_reason(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_run(tmp_path / "a", "a", asked=plan(sizes=(1024,)))
    synthetic_run(tmp_path / "b", "b", asked=plan(sizes=(1024,), backend="mpi"))
    synthetic_run(tmp_path / "untimed", "untimed", lambda _: None)
    (tmp_path / "bad.csv").write_text("operation,world_size,size_bytes,time_us\n")
    for words, (code, message) in FIT_REFUSED.items():
        ended = commbench("model", "fit", *words.split())
        assert (ended.code, ended.out) == (code, ""), (words, ended.err)
        *said, error, _ = ended.err.splitlines()
        assert error.startswith(f"error: {message}"), ended.err
        assert all(" is incomplete: " in line for line in said)


def test_a_predicted_csv_can_be_fitted_and_gives_the_same_model_and_intervals(
    commbench: Commbench, machine: Path
) -> None:
    assert machine.exists()
    ranks = ["--ranks", "16-512", "--ranks-per-node", "8", "--sizes", "1M-1G", "--format", "csv"]
    commbench("model", "predict", "machine.json", *ranks, "-o", "p.csv")
    ended = commbench("model", "fit", "p.csv", "-o", "again.json")
    assert ended.code == 0
    assert "p has predictions, not measurements" in " ".join(ended.out.split())
    assert "all_reduce across hosts: double binary tree" in ended.out
    assert "5.000 us/step" in ended.out
    first, again = (
        list(csv.DictReader(commbench("model", "predict", name, *ranks).out.splitlines()))
        for name in ("machine.json", "again.json")
    )
    repeated = commbench("model", "predict", "again.json", "--ranks", "512")
    assert "Warning: p has predictions, not measurements" in " ".join(repeated.out.split())
    (noted,) = (
        line
        for line in commbench("model", "predict", "again.json", *ranks).err.splitlines()
        if "predictions" in line
    )
    assert noted.startswith("warning: p has predictions, not measurements: a fit to them")
    for old, new in zip(first, again, strict=True):
        assert float(new["time_high_us"]) >= 0.98 * float(old["time_high_us"])
        assert float(new["time_low_us"]) <= 1.02 * float(old["time_low_us"])


def test_fit_fits_only_the_operation_that_is_chosen(commbench: Commbench, tmp_path: Path) -> None:
    asked = plan(operations=("all_reduce", "barrier"))
    synthetic_run(tmp_path / "a", "a", lambda _: steady(1e-3), asked)
    ended = commbench("model", "fit", "a", "--op", "barrier")
    assert (ended.code, ended.err) == (0, "")
    assert "barrier within a host" in ended.out and "all_reduce" not in ended.out
    refused = commbench("model", "fit", "a", "--op", "broadcast")
    assert (refused.code, refused.err) == (
        2,
        "error: no measured time has --op broadcast\nhint: measured: all_reduce, barrier\n",
    )


REFUSED = {
    "--ranks x": (2, "'x' are no numbers of ranks"),
    "--ranks 8-": (2, "'8-' are no numbers of ranks"),
    "--ranks 1": (2, "one rank needs no communication"),
    "--ranks 99999999": (2, "--ranks 99999999 is out of range"),
    "--ranks 64 --ranks-per-node 0": (2, "--ranks-per-node 0 is out of range"),
    "--ranks 64,100": (2, "100 ranks do not fill hosts of 8 ranks"),
    "--ranks 64 --sizes 1KB": (2, "'1KB' could mean"),
    "--ranks 64 --op all_redcue": (2, "unknown operation 'all_redcue'"),
    "--ranks 64 --format xml": (2, "unknown format 'xml'"),
    "--ranks 64 --op all_gather": (3, "planted has no model of all_gather"),
    "--ranks 64 --variant int8": (3, "all_reduce across hosts has no model named 'int8'"),
    "": (2, "--ranks is missing"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_predict_refuses_with_the_reason(commbench: Commbench, machine: Path, words: str) -> None:
    code, message = REFUSED[words]
    ended = commbench("model", "predict", machine.name, *words.split())
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(f"error: {message}")
    assert len(ended.err.splitlines()) == 2


def curve(machine: dict[str, Any]) -> dict[str, Any]:
    """The first model of a machine file."""
    found: dict[str, Any] = machine["fitted"][0]["candidates"][0]["curve"]
    return found


def test_what_is_no_machine_file_is_refused(commbench: Commbench, machine: Path) -> None:
    whole = machine.read_text()
    for content in ("", "{}", "[]", "null", whole[:-9], "{" * 100_000, "\0"):
        machine.write_text(content)
        assert commbench(*PREDICT).code == 6
    assert commbench("model", "predict", ".", "--ranks", "64").code == 6
    assert commbench("model", "predict", "absent", "--ranks", "64").code == 6


@pytest.mark.full
def test_the_prediction_in_the_documentation_is_what_is_printed(
    commbench: Commbench, tmp_path: Path
) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "published.csv").write_text(
        (root / "tests/data/published/h100_nvlstree.csv").read_text()
    )
    fit = commbench("model", "fit", "published.csv", "-o", "h100.json", "--leave-out", "ranks=512-")
    assert fit.code == 0
    command = "model predict h100.json --ranks 512,2048 --sizes 64M-4G:x8"
    printed = commbench(*command.split(), COLUMNS="80").out
    page = (root / "docs" / "models.md").read_text()
    assert f"    commbench {command}\n\n```\n{printed}```\n" in page
