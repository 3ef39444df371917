"""Files of workloads: written, read, and damaged."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from synthetic_workload import WORKLOAD

from commbench.errors import RecordsError
from commbench.results.workload_file import (
    is_workload,
    read_workload,
    workload_text,
    write_workload,
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    write_workload(path, WORKLOAD)
    assert is_workload(path)
    assert read_workload(path) == WORKLOAD
    with pytest.raises(RecordsError, match="exists"):
        write_workload(path, WORKLOAD)


def test_each_call_is_a_line() -> None:
    lines = workload_text(WORKLOAD).splitlines()
    assert sum('"operation"' in line for line in lines) == 4


def test_a_damaged_file_is_refused_or_is_a_workload(tmp_path: Path) -> None:
    text, chance = workload_text(WORKLOAD).encode(), random.Random(4)
    refused = 0
    for number in range(200):
        damaged = bytearray(text)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path = tmp_path / f"{number}.json"
        path.write_bytes(damaged)
        try:
            read_workload(path)
        except RecordsError:
            refused += 1
    assert refused > 100


def test_a_folder_and_a_fifo_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    for path in (tmp_path, fifo, tmp_path / "missing"):
        assert not is_workload(path)
        with pytest.raises(RecordsError, match="cannot read"):
            read_workload(path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(RecordsError, match="is not a workload"):
        read_workload(path)
