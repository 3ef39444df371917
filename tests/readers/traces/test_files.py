"""Files of traces, piece by piece: whole, cut off, damaged, hostile, and of 1 GB."""

from __future__ import annotations

import copyreg
import gzip
import io
import json
import os
import pickle
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import real_trace
from damage import damaged
from peak import measure_process
from synthetic_traces import CHAKRA, DUMP, inspected

from commbench.api import workload
from commbench.errors import CommbenchError, RecordsError
from commbench.readers import trace_source as stream
from commbench.readers.plain_pickle import read_plain_pickle
from commbench.readers.trace_formats import read_trace
from commbench.readers.trace_source import Source
from commbench.results.files import read_workload, write_workload
from commbench.workloads.document import VIEW

EVENTS = [
    {"name": f"event {n} é", "ts": n * 1.5,
     "args": {"list": [n, -n, [True, None]], "text": '"}, {'}}
    for n in range(200)
]  # fmt: skip


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(
    path: Path, report: Callable[[float], None] = lambda _: None
) -> tuple[dict[str, Any], list[Any], Source]:
    """The facts of a file, the records of its key `events`, and the source."""
    with Source(path, report) as source:
        items = list(source.records("events", ("before", "after")))
    return source.facts, items, source


@pytest.mark.parametrize("piece", [7, 64, 1 << 20])
def test_a_file_is_read_alike_in_pieces_of_any_size(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PIECE", piece)
    values = {"before": [1.25, "x"], "events": EVENTS, "after": 12345}
    for indent in (None, 2):
        path = write(tmp_path / "a.json", json.dumps(values, indent=indent))
        reported: list[float] = []
        facts, items, source = read(path, reported.append)
        assert facts == {"before": [1.25, "x"], "after": 12345}
        assert items == EVENTS
        assert not source.is_cut and not source.damaged
        assert reported == sorted(reported) and reported[-1] == 1.0


def test_a_compressed_file_is_read_alike_also_in_several_members(tmp_path: Path) -> None:
    text = json.dumps({"events": EVENTS}).encode()
    parts = gzip.compress(text[:500]) + gzip.compress(text[500:])
    marked, empty = gzip.compress("\ufeff".encode() + text), gzip.compress(b"")
    for data in (gzip.compress(text), parts, 20_000 * empty + marked + 3 * empty + b"\0" * 512):
        _, items, source = read(write(tmp_path / "a.gz", data))
        assert items == EVENTS
        assert not source.is_cut


def test_a_cut_file_gives_what_is_complete(tmp_path: Path) -> None:
    text = json.dumps({"events": EVENTS}).encode()
    chance = Random(2)
    for number in range(40):
        at = chance.randrange(20, len(text) - 2)
        for suffix, data in (("json", text[:at]), ("gz", gzip.compress(text)[: at // 12])):
            _, items, source = read(write(tmp_path / f"{number}.{suffix}", data))
            assert source.is_cut
            assert items == EVENTS[: len(items)]
        complete = text[:at].count(b"}}")
        assert complete - 1 <= len(read(tmp_path / f"{number}.json")[1]) <= complete


def test_damaged_events_are_left_out_and_counted(tmp_path: Path) -> None:
    texts = [json.dumps(event) for event in EVENTS]
    texts[10] = texts[10].replace(":", ";", 1)
    texts[20] = texts[20].replace("[", "(", 1)
    _, items, source = read(write(tmp_path / "a.json", f'{{"events": [{",".join(texts)}]}}'))
    assert source.damaged == 2
    assert items == [event for n, event in enumerate(EVENTS) if n not in (10, 20)]


def test_numbers_that_json_has_not_and_control_characters_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '{"events": [{"a": NaN, "b": Infinity, "c": "x\ty"}]}')
    assert read(path)[1][0]["c"] == "x\ty"


@pytest.mark.parametrize(
    ("limits", "data", "why"),
    [({"ALWAYS_EXPANDED": 1 << 22},
      gzip.compress(b'{"events": [') + 8 * gzip.compress(b" " * (1 << 20)),
      "expands to more than 200 times its size"),
     ({"LARGEST_VALUE": 10_000, "PIECE": 1000}, json.dumps({"events": ["x" * 50_000]}),
      "a value of more than"),
     ({}, '{"events": [' + "[" * 100_000, "nested too deeply")],
)  # fmt: skip
def test_what_is_too_large_or_too_deep_is_refused(
    limits: dict[str, int], data: str | bytes, why: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, limit in limits.items():
        monkeypatch.setattr(stream, name, limit)
    with pytest.raises(RecordsError, match=why):
        read(write(tmp_path / "a", data))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    for path in (fifo, tmp_path, tmp_path / "absent", Path("/dev/zero")):
        with pytest.raises(RecordsError, match="cannot read"):
            read_trace(path)


PLAIN = {
    "text": "é" * 300, "none": None, "flags": [True, False], "tuple": (1, (2, 3), ()),
    "numbers": [0, -1, 255, 65536, 2**31, 2**70, 1.5, -1e300], "bytes": b"abc", "empty": [{}, []],
    "set": {1, 2}, 7: "seven",
}  # fmt: skip
RAN: list[object] = []


def hostile(*args: object) -> str:
    RAN.append(args)
    return "ran"


class Reduced:
    def __reduce__(self) -> tuple[Any, ...]:
        return hostile, ("reduce",)


class Built:
    def __getstate__(self) -> dict[str, int]:
        return {"a": 1}

    def __setstate__(self, state: object) -> None:
        RAN.append(state)


class WithPersistentIds(pickle.Pickler):
    def persistent_id(self, thing: object) -> Any:
        return "an id" if thing == "persistent" else None


def persistent(protocol: int) -> bytes:
    file = io.BytesIO()
    WithPersistentIds(file, protocol).dump(["persistent"])
    return file.getvalue()


def extension(code: bytes) -> bytes:
    copyreg.add_extension(__name__, "hostile", 0xF1)
    copyreg._extension_cache[0xF1] = hostile  # type: ignore[attr-defined]  # as if it was used
    return b"\x80\x02" + code + b"(X\x01\x00\x00\x00atR."


MODULE = __name__.encode()
HOSTILE: dict[str, Callable[[], bytes]] = {
    **{f"REDUCE, protocol {n}": lambda n=n: pickle.dumps(Reduced(), n) for n in range(6)},  # type: ignore[misc]
    **{f"BUILD, protocol {n}": lambda n=n: pickle.dumps(Built(), n) for n in range(6)},  # type: ignore[misc]
    "GLOBAL": lambda: b"\x80\x02c" + MODULE + b"\nhostile\n(X\x01\x00\x00\x00atR.",
    "STACK_GLOBAL": lambda: (
        b"\x80\x04\x8c" + bytes([len(MODULE)]) + MODULE + b"\x8c\x07hostile\x93(\x8c\x01atR."
    ),
    "INST": lambda: b"(X\x01\x00\x00\x00ai" + MODULE + b"\nhostile\n.",
    "OBJ": lambda: b"(c" + MODULE + b"\nhostile\nX\x01\x00\x00\x00ao.",
    "NEWOBJ": lambda: b"\x80\x02c" + MODULE + b"\nReduced\n)\x81.",
    "NEWOBJ_EX": lambda: b"\x80\x04c" + MODULE + b"\nReduced\n)}\x92.",
    "os.system": lambda: b"cos\nsystem\n(S'touch hostile'\ntR.",
    "PERSID": lambda: persistent(0),
    "BINPERSID": lambda: persistent(2),
    "EXT1": lambda: extension(b"\x82\xf1"),
    "EXT2": lambda: extension(b"\x83\xf1\x00"),
    "EXT4": lambda: extension(b"\x84\xf1\x00\x00\x00"),
    "NEXT_BUFFER": lambda: b"\x80\x05\x97.",
}
"""Each way in which a pickle makes Python's unpickler run code, or ask for an object."""


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_read_as_python_reads_them(protocol: int) -> None:
    plain = {k: v for k, v in PLAIN.items() if protocol > 2 or k not in ("bytes", "set")}
    if protocol == 3:
        plain.pop("set")
    assert read_plain_pickle(pickle.dumps(plain, protocol)) == plain


@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_pickle_acts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RAN.clear()
    data = HOSTILE[name]()
    (path := tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(ValueError, match=r"more than plain values|damaged"):
        read_plain_pickle(data)
    with pytest.raises(RecordsError):
        read_trace(path)
    assert not RAN
    assert [each.name for each in tmp_path.iterdir()] == ["rank_0"]


def test_the_hostile_pickles_do_execute_something_elsewhere() -> None:
    RAN.clear()
    for name in ("REDUCE, protocol 2", "BUILD, protocol 4", "GLOBAL", "STACK_GLOBAL", "EXT1"):
        pickle.loads(HOSTILE[name]())
    assert len(RAN) == 5


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\x80\x02", b"\x80\x02.", b"(.", b"a.", b"]a.", b"}]s.", b"h\x05.", b"0.",
     b"\x80\x02]K\x01K\x02e.", b"}(K\x01u.", b"}(]K\x01u.", b"K\x01K\x02.", b"\x85.", b"t.",
     b"X\xff\xff\xff\x7fabc.", b"\x8c\x02\xff\xff.", b"I" + b"9" * 6000 + b"\n.",
     b"\x80\x04r\xff\xff\xff\xff."],
)  # fmt: skip
def test_a_damaged_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_plain_pickle(data)


def test_a_large_number_of_the_memo_takes_no_memory() -> None:
    data = b"\x80\x02K\x07r" + struct.pack("<I", 0xFFFFFFFF) + b"."
    assert read_plain_pickle(data) == 7


PATIENCE_S = 20


def sound() -> list[tuple[str, bytes]]:
    """A small file of each format, and its name."""

    def of_communication(event: dict[str, object]) -> dict[str, object] | None:
        name = str(event.get("name"))
        is_own = name.startswith(("record_param", "nccl", "Profiler"))
        return event if is_own else None

    kineto = real_trace.changed(of_communication).encode()
    lines = [inspected(0, number, "AllGather", 64) for number in range(9)]
    return [
        ("rank0.json", kineto), ("rank0.json.gz", gzip.compress(kineto)),
        ("rank0", pickle.dumps(DUMP, 2)), ("recorder_rank0.json", json.dumps(DUMP).encode()),
        ("et_rank0.json", json.dumps(CHAKRA).encode()),
        ("inspector.log", "\n".join(map(json.dumps, lines)).encode()),
    ]  # fmt: skip


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.full)])
def test_a_damaged_trace_gives_an_answer_or_two_lines(count: int, tmp_path: Path) -> None:
    chance, files = Random(count), sound()
    answers = errors = 0
    for number in range(count):
        name, data = files[number % len(files)]
        (folder := tmp_path / str(number)).mkdir()
        path = folder / name
        path.write_bytes(damaged(data.decode("latin-1"), chance).encode("latin-1", "replace"))
        start = time.monotonic()
        try:
            analysis = workload.analyse(path)
            assert VIEW.write(analysis) and VIEW.write(analysis, "json")
            found = workload.load(path)
            assert VIEW.write(found)
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


GIGABYTE = 10**9
MOST_TIMES = 3.0
"""The time that a streaming JSON reader alone needs, as the issue of traces asks for."""
MOST_MIB = 1024
_TIME = re.compile(r'"ts": ([\d.]+)')
_ID = re.compile(r'"External id": (\d+)')
_STEP = re.compile(r"ProfilerStep#(\d)")
_PERIOD_US = 1e6
READ = """
from commbench.api import workload
assert len(workload.analyse(sys.argv[1]).calls) == int(sys.argv[2])
"""
READ_JSON = """
import ijson
with open(sys.argv[1], "rb") as file:
    for _ in ijson.basic_parse(file, use_float=True):
        pass
"""


def moved(events: str, times: int) -> str:
    """The events so many seconds later, with numbers and steps of their own."""
    later = _TIME.sub(lambda match: f'"ts": {float(match[1]) + times * _PERIOD_US:.3f}', events)
    later = _ID.sub(lambda match: f'"External id": {int(match[1]) + times * 10**6}', later)
    return _STEP.sub(lambda match: f"ProfilerStep#{times}{match[1]}", later)


def make_trace(path: Path, size: int) -> int:
    """Repeat the events of the real trace, each time a second later and with other numbers, until
    the file has the size. How often they are repeated."""
    head, _, rest = real_trace.text().partition('"traceEvents": [')
    events, _, tail = rest.rpartition("\n  ],")
    times = 0
    with path.open("w") as file:
        file.write(f'{head}"traceEvents": [')
        while file.tell() < size:
            file.write(("," if times else "") + moved(events, times))
            times += 1
        file.write(f"\n  ],{tail}")
    return times


@pytest.mark.full
def test_a_trace_of_one_gigabyte_takes_little_time_and_memory(tmp_path: Path) -> None:
    times = make_trace(path := tmp_path / "rank0.json", GIGABYTE)
    mib, taken = measure_process(READ, str(path), str(21 * times), cwd=tmp_path)
    _, json_alone = measure_process(READ_JSON, str(path), cwd=tmp_path)
    assert mib < MOST_MIB
    assert taken < MOST_TIMES * json_alone


def test_a_trace_that_is_longer_takes_no_more_memory_for_its_text(tmp_path: Path) -> None:
    (path := tmp_path / "rank0.json").write_text(real_trace.small_text())
    with Source(path) as source:
        longest = max(len(source.text) for _ in source.records("traceEvents"))
    assert longest < 3 * stream.PIECE
