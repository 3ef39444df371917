"""How NCCL is told to log, and how its log is read while it grows."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from commbench.worker.nccl_log import FILE, NcclLog, find_reset


@pytest.mark.parametrize("where", ["libnccl.so.2", "librccl.so.1", "libtorch_cuda.so", None])
def test_the_reset_is_found_in_the_library_of_either_vendor_and_in_torch(
    where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, name: str | None, mode: int) -> None:
            assert mode & os.RTLD_NOLOAD
            if name not in (where, None):
                raise OSError("not loaded")
            if name == where:
                self.ncclResetDebugInit = lambda: where

    monkeypatch.setattr(ctypes, "CDLL", Library)
    reset = find_reset()
    assert reset is not None
    assert reset() == where


@pytest.mark.parametrize("wanted", [None, "WARN"])
def test_lines_are_read_once_and_variables_are_the_users_again(
    wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    if wanted:
        monkeypatch.setenv("NCCL_DEBUG", wanted)
    path, resets = tmp_path / "nccl.log", []
    log = NcclLog(path, "TUNING", lambda: resets.append(os.environ.get("NCCL_DEBUG")))
    assert [os.environ[n] for n in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", FILE)] == [
        "INFO", "TUNING", str(path),
    ]  # fmt: skip
    assert log.read_more() == []  # NCCL has not made the file yet
    path.write_text("first\nsecond\n")
    assert log.read_more() == ["first", "second"]
    warning = "node1:7:9 [0] init.cc:7 NCCL WARN third"
    with path.open("a") as file:
        file.write(f"{warning}\n")
    assert log.remove() == [warning]
    assert (warning in capsys.readouterr().err) == bool(wanted)
    assert resets == [wanted]
    assert os.environ.get("NCCL_DEBUG") == wanted
    assert FILE not in os.environ
    assert not path.exists()
