"""Damaged traces: each ends with an answer, or with an error of two lines."""

from __future__ import annotations

import gzip
import json
import pickle
import time
from pathlib import Path
from random import Random

import pytest
import real_trace
from synthetic_traces import CHAKRA, DUMP, inspected

from commbench.api import workload
from commbench.errors import CommbenchError
from commbench.report.workload_text import trace_json, trace_text, workload_text
from commbench.results.workload_file import read_workload, write_workload

PATIENCE_S = 20
TOKENS = (
    b"null", b"-1", b"0", b"1e999", b"NaN", b"9" * 400, b'"\\u0000"', b"[]", b"{}", b"[[[1]]]",
    b'"\x1b[31m"', b'"[0, 1, 2"', b'""', b"true", b"}", b"]", b",", b'"', b"4611686018427387904",
    b"\xff\xfe", b'"Process Group Name": "9"', b'"x' + b"y" * 3000 + b'"',
)  # fmt: skip


def sound() -> list[tuple[str, bytes]]:
    """A small file of each format, and its name."""

    def of_communication(event: dict[str, object]) -> dict[str, object] | None:
        name = str(event.get("name"))
        is_own = name.startswith(("record_param", "nccl", "Profiler"))
        return event if is_own else None

    kineto = real_trace.changed(of_communication).encode()
    lines = [inspected(0, number, "AllGather", 64) for number in range(9)]
    return [
        ("rank0.json", kineto),
        ("rank0.json.gz", gzip.compress(kineto)),
        ("rank0", pickle.dumps(DUMP, 2)),
        ("recorder_rank0.json", json.dumps(DUMP).encode()),
        ("et_rank0.json", json.dumps(CHAKRA).encode()),
        ("inspector.log", "\n".join(map(json.dumps, lines)).encode()),
    ]


def damage(data: bytes, chance: Random) -> bytes:
    """The file with some bytes or values changed, lines repeated, or its end cut off."""
    damaged = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(damaged) or 1)
        kind = chance.randrange(5)
        if kind == 0:
            damaged[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            colon = damaged.find(b": ", at)
            end = min((e for e in (damaged.find(c, colon) for c in (b",", b"}")) if e > 0),
                      default=at)  # fmt: skip
            if 0 < colon < end:
                damaged[colon + 2 : end] = chance.choice(TOKENS)
        elif kind == 2:
            damaged[at:at] = chance.choice(TOKENS)
        elif kind == 3:
            other = chance.randrange(len(damaged) or 1)
            damaged[at:at] = damaged[other : other + chance.randrange(400)]
        else:
            del damaged[at : at + chance.randrange(1, max(2, len(damaged) // 8))]
    return bytes(
        damaged[: chance.randrange(len(damaged) + 1)] if chance.random() < 0.15 else damaged
    )


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.full)])
def test_a_damaged_trace_gives_an_answer_or_two_lines(count: int, tmp_path: Path) -> None:
    chance, files = Random(count), sound()
    answers = errors = 0
    for number in range(count):
        name, data = files[number % len(files)]
        (folder := tmp_path / str(number)).mkdir()
        path = folder / name
        path.write_bytes(damage(data, chance))
        start = time.monotonic()
        try:
            analysis = workload.analyse(path)
            assert trace_text(analysis)
            json.dumps(trace_json(analysis), allow_nan=False)
            found = workload.load(path)
            assert workload_text(found)
            write_workload(folder / "step.json", found)
            assert read_workload(folder / "step.json") == found
            answers += 1
        except CommbenchError as error:
            assert error.message and error.hint and "\n" not in error.message + error.hint
            assert error.exit_code in (2, 6)
            errors += 1
        assert time.monotonic() - start < PATIENCE_S, path
        path.unlink()
    assert answers > count // 5
    assert errors > count // 20
