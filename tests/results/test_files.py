"""What is read as a file, and what is not."""

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
from commbench.plan.workload import KIND, workload_values
from commbench.results import files


def test_only_a_regular_file_of_modest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (1 << 20))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(file)
    expected = {
        "file": "", "link": "", "fifo": "it is no regular file",
        "loop": "Too many levels of symbolic links", "absent": "No such file or directory",
        "file/x": "Not a directory", ".": "Is a directory", "x" * 300: "File name too long",
        "a\0b": "embedded null byte",
    }  # fmt: skip
    assert {name: files.why_unreadable(tmp_path / name, 1 << 20) for name in expected} == expected
    assert files.why_unreadable(Path("/dev/zero")) == "it is no regular file"
    file.write_bytes(b"x" * ((1 << 20) + 1))
    assert files.why_unreadable(file, 1 << 20) == "it is larger than 1 MiB"
    assert files.why_unreadable(file) == ""


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "loop", "absent"])
def test_what_is_no_path_is_neither_file_nor_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name
    assert (files.is_file(path), files.is_folder(path)) == (False, False)
    assert files.path_exists(path) == (name == "loop")


def test_a_new_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with files.new_file(tmp_path / "a") as file:
        file.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    with pytest.raises(KeyboardInterrupt), files.new_file(tmp_path / "b"):
        raise KeyboardInterrupt
    assert not (tmp_path / "b").exists()
    with pytest.raises(FileExistsError), files.new_file(tmp_path / "a"):
        pass
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_file_or_folder_in_the_way_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to("absent")
    for folder in ("file", "file/deep/er", "broken/x"):
        with pytest.raises(RecordsError) as refused:
            files.make_folder(tmp_path / folder)
        name = folder.partition("/")[0]
        assert refused.value.message == f"{tmp_path / name} is not a folder"
        with pytest.raises(RecordsError, match="there is no folder"):
            files.write_new(tmp_path / folder / "new", "text")
    with pytest.raises(RecordsError, match=r"there is no folder .*new\n"):
        files.make_folder(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()
    assert files.make_folder(tmp_path / "new") == files.make_folder(tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    assert files.make_folder(Path("results/mine")).is_dir()
    with pytest.raises(RecordsError, match="there is no folder a/b\n"):
        files.make_folder(Path("a/b/c"))
    assert not Path("a").exists()
    for path, message in (("file", "exists"), ("new", "is a folder")):
        with pytest.raises(RecordsError) as refused:
            files.write_new(tmp_path / path, "text")
        assert refused.value.message == f"{tmp_path / path} {message}"


def changed(**values: Any) -> dict[str, Any]:
    return workload_values(WORKLOAD) | values


def with_call(**values: Any) -> dict[str, Any]:
    found = copy.deepcopy(workload_values(WORKLOAD))
    found["steps"][0]["programs"][0]["calls"][0] |= values
    return found


IN_TWO_PROGRAMS = copy.deepcopy(workload_values(WORKLOAD))
IN_TWO_PROGRAMS["steps"][0]["programs"][1]["ranks"] = [1, 2]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    files.write_workload(path, WORKLOAD)
    assert files.is_workload(path) and files.read_workload(path) == WORKLOAD
    assert sum('"operation"' in line for line in path.read_text().splitlines()) == 4
    with pytest.raises(RecordsError, match="exists"):
        files.write_workload(path, WORKLOAD)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, ""),
        (changed(**{KIND: 2}), "version 2; this commbench reads 1"),
        (changed(world_size=0), "world_size"), (changed(world_size=2), "is wrong"),
        (changed(groups=[]), "groups is"), (changed(groups={"world": [[0, 0]]}), "group 'world'"),
        (changed(steps=[{}]), "programs"), (changed(steps=[7]), "step"),
        (changed(unknown=1), "unknown key"), (IN_TWO_PROGRAMS, "in two programs"),
        (with_call(operation="allreduce"), "unknown operation 'allreduce'"),
        (with_call(group="dp"), "unknown group 'dp'"), (with_call(size_bytes=-1), "size_bytes"),
        (with_call(size_bytes=2**70), "size_bytes"), (with_call(time_s=-1.0), "time_s"),
        (with_call(root=4), "root"), (with_call(send_splits=[1]), "splits"),
        (with_call(tensors=0), "tensors"), (with_call(stream="a"), "stream"),
        (with_call(sequence=1), "sequence"), (with_call(dtype="float"), "unknown dtype"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    (path := tmp_path / "step.json").write_text(json.dumps(values))
    with pytest.raises(
        RecordsError, match=rf"it has no calls of a step|a damaged workload: .*{why}"
    ):
        files.read_workload(path)


def test_a_damaged_file_is_refused_or_is_a_workload(tmp_path: Path) -> None:
    text, chance = files.workload_text(WORKLOAD).encode(), random.Random(4)
    refused = 0
    for number in range(200):
        damaged = bytearray(text)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path = tmp_path / f"{number}.json"
        path.write_bytes(damaged)
        try:
            files.read_workload(path)
        except RecordsError:
            refused += 1
    assert refused > 100


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(RecordsError, match=r"it has no calls of a step|a damaged workload"):
        files.read_workload(path)
