"""`commbench model`: its output, its files, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import planted
import pytest
from commands import Commbench

from commbench.answers.cost.machine import write_machine


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    write_machine(planted.machine(), tmp_path / "machine.json")
    return tmp_path / "machine.json"


PREDICT = [
    "model", "predict", "machine.json", "--op", "all_reduce", "--ranks", "512",
    "--ranks-per-node", "8",
]  # fmt: skip


@pytest.mark.parametrize("name", ["csv", "autoparallel", "inductor", "svg"])
def test_a_form_without_notes_has_its_warnings_on_standard_error(
    commbench: Commbench, machine: Path, name: str
) -> None:
    assert machine.exists()
    form = ("-o", "p.svg") if name == "svg" else ("--format", name)
    ended = commbench(*PREDICT, "--ranks", "4096", "--sizes", "1G,2G", *form)
    assert ended.code == 0
    assert " ".join(ended.err.split()) == (
        "warning: all_reduce across hosts: some are 8 or more times beyond what was measured: the "
        "algorithm may be another one."
    )
    assert "8 or more times" not in ended.out


@pytest.mark.parametrize("name", ["text", "json", "html"])
def test_a_form_with_notes_has_its_warnings_there(
    commbench: Commbench, machine: Path, name: str
) -> None:
    assert machine.exists()
    ended = commbench(*PREDICT, "--ranks", "4096", "--sizes", "1G", "--format", name)
    assert (ended.code, ended.err) == (0, "")
    assert "8 or more times beyond what was measured" in " ".join(ended.out.split())


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
    assert "latency 70.0 (" in ended.out
    first, again = (
        list(csv.DictReader(commbench("model", "predict", name, *ranks).out.splitlines()))
        for name in ("machine.json", "again.json")
    )
    repeated = commbench("model", "predict", "again.json", "--ranks", "512")
    assert "p has predictions, not measurements" in " ".join(repeated.out.split())
    told = commbench("model", "predict", "again.json", *ranks).err.replace(
        "\nwarning", "\n\nwarning"
    )
    (noted,) = (
        line for each in told.split("\n\n") if "predictions" in (line := " ".join(each.split()))
    )
    assert noted.startswith("warning: p has predictions, not measurements: a fit to them")
    for old, new in zip(first, again, strict=True):
        assert float(new["time_high_us"]) >= 0.98 * float(old["time_high_us"])
        assert float(new["time_low_us"]) <= 1.02 * float(old["time_low_us"])


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
    block = page.split(f"    commbench {command}\n\n```\n")[1].split("```")[0]
    kept = block.split("\n(what the fit says of itself is left out here)\n")
    assert len(kept) == 2 and all(part.strip("\n") in printed for part in kept)
