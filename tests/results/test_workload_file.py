"""Files of workloads: written, read, wrong and damaged."""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from synthetic_workload import WORKLOAD

from commbench.errors import RecordsError
from commbench.results.workload_file import (
    is_workload,
    read_workload,
    workload_text,
    write_workload,
)
from commbench.spec.workload import KIND, workload_values


def changed(**values: Any) -> dict[str, Any]:
    return workload_values(WORKLOAD) | values


def with_call(**values: Any) -> dict[str, Any]:
    found = copy.deepcopy(workload_values(WORKLOAD))
    found["steps"][0]["programs"][0]["calls"][0] |= values
    return found


def with_ranks(*ranks: int) -> dict[str, Any]:
    found = copy.deepcopy(workload_values(WORKLOAD))
    found["steps"][0]["programs"][1]["ranks"] = [*ranks]
    return found


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


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "no key"),
        (changed(**{KIND: 2}), "version 2; this commbench reads 1"),
        (changed(world_size=0), "world_size"),
        (changed(world_size=2), "is wrong"),
        (changed(groups=[]), "no groups"),
        (changed(groups={"world": [[0, 0]]}), "group 'world'"),
        (changed(steps=[{}]), "programs"),
        (changed(steps=[7]), "step"),
        (changed(unknown=1), "unknown key"),
        (with_ranks(1, 2), "in two programs"),
        (with_call(operation="allreduce"), "unknown operation 'allreduce'"),
        (with_call(group="dp"), "unknown group 'dp'"),
        (with_call(size_bytes=-1), "size_bytes"),
        (with_call(size_bytes=2**70), "size_bytes"),
        (with_call(time_s=-1.0), "time_s"),
        (with_call(root=4), "root"),
        (with_call(send_splits=[1]), "splits"),
        (with_call(tensors=0), "tensors"),
        (with_call(stream="a"), "stream"),
        (with_call(sequence=1), "sequence"),
        (with_call(dtype="float"), "unknown dtype"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    (path := tmp_path / "step.json").write_text(json.dumps(values))
    with pytest.raises(RecordsError, match=f"is not a workload: .*{why}"):
        read_workload(path)


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
