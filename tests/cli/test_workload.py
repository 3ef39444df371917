"""`commbench workload`: show and import, from files and from a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import real_trace
from commands import run_commbench

import commbench
from commbench.spec.workload import Workload


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
    again = run_commbench(tmp_path, "workload", "import", str(folder), "-o", "step.json")
    assert (again.code, again.out) == (6, "")


def test_a_folder_is_shown_as_a_table_and_as_json(folder: Path, tmp_path: Path) -> None:
    ended = run_commbench(tmp_path, "workload", "show", str(folder), COLUMNS="80")
    assert ended.code == 0, ended.err
    assert "torch.profiler, nccl: 2 of 2 ranks; 3 steps of 222.4 ms" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    ended = run_commbench(tmp_path, "workload", "show", str(folder), "--format", "json")
    values = json.loads(ended.out)
    assert values["operations"][0]["operation"] == "all_reduce"
    assert values["operations"][0]["waiting_s"] == 0
    assert values["groups"] == {"world": [[0, 1]]}


def test_wrong_requests_end_with_two_lines(folder: Path, tmp_path: Path) -> None:
    first = str(folder / "rank0.json")
    for words, code in (
        (["show", "absent.json"], 6), (["show", first, first], 2), (["show", "."], 6),
        (["show", first, "--format", "xml"], 2), (["import", first], 2), (["show"], 2),
    ):  # fmt: skip
        ended = run_commbench(tmp_path, "workload", *words)
        assert ended.code == code, words
        assert ended.err.startswith("error: ") and "\nhint: " in ended.err
