"""What is read as a file, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commbench.errors import RecordsError
from commbench.results.files import (
    is_file,
    is_folder,
    make_folder,
    new_file,
    path_exists,
    why_unreadable,
    write_new,
)


def test_only_a_regular_file_of_modest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (1 << 20))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(file)
    assert {
        name: why_unreadable(tmp_path / name, 1 << 20)
        for name in ("file", "link", "fifo", "loop", "absent", "file/x", ".", "x" * 300, "a\0b")
    } == {
        "file": "",
        "link": "",
        "fifo": "it is a FIFO, not a file",
        "loop": "Too many levels of symbolic links",
        "absent": "No such file or directory",
        "file/x": "Not a directory",
        ".": "Is a directory",
        "x" * 300: "File name too long",
        "a\0b": "embedded null byte",
    }
    assert why_unreadable(Path("/dev/zero")) == "it is a device, not a file"
    file.write_bytes(b"x" * ((1 << 20) + 1))
    assert why_unreadable(file, 1 << 20) == "it is larger than 1 MiB"
    assert why_unreadable(file) == ""


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "loop", "absent"])
def test_what_is_no_path_is_neither_file_nor_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name
    assert (is_file(path), is_folder(path)) == (False, False)
    assert path_exists(path) == (name == "loop")


def test_a_new_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as file:
        file.write(b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "b"):
        raise KeyboardInterrupt
    assert not (tmp_path / "b").exists()
    with pytest.raises(FileExistsError), new_file(tmp_path / "a"):
        pass
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_file_or_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to("absent")
    for folder in ("file", "file/deep/er", "broken/x"):
        with pytest.raises(RecordsError) as refused:
            make_folder(tmp_path / folder)
        name = folder.partition("/")[0]
        assert refused.value.message == f"{tmp_path / name} is not a folder"
        with pytest.raises(RecordsError, match="is not a folder"):
            write_new(tmp_path / folder / "new", "text")
    assert make_folder(tmp_path / "new" / "deep") == make_folder(tmp_path / "new" / "deep")
    for path, message in (("file", "exists"), ("new", "is a folder")):
        with pytest.raises(RecordsError) as refused:
            write_new(tmp_path / path, "text")
        assert refused.value.message == f"{tmp_path / path} {message}"
