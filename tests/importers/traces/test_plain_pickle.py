"""Pickles of plain values are read; a hostile one executes nothing."""

from __future__ import annotations

import copyreg
import io
import pickle
import pickletools
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commbench.errors import RecordsError
from commbench.importers.traces.plain_pickle import read_plain_pickle
from commbench.importers.traces.registry import read_trace

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
def test_a_hostile_pickle_executes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RAN.clear()
    data = HOSTILE[name]()
    (path := tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(ValueError, match=r"opcode|damaged"):
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


def test_every_opcode_that_needs_an_object_is_refused() -> None:
    objects = {
        "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID",
        "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER", "DUP", "FROZENSET",
        "BYTEARRAY8",
    }  # fmt: skip
    arguments = {
        "GLOBAL": b"os\nsystem\n", "INST": b"os\nsystem\n", "PERSID": b"1\n", "EXT1": b"\1",
        "EXT2": b"\1\0", "EXT4": b"\1\0\0\0", "BYTEARRAY8": bytes(8),
    }  # fmt: skip
    for opcode in pickletools.opcodes:
        if opcode.name in objects:
            data = b"\x80\x05(" + opcode.code.encode("latin-1") + arguments.get(opcode.name, b"")
            with pytest.raises(ValueError, match=f"opcode {opcode.name} "):
                read_plain_pickle(data + b".")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80", b"\x80\x02", b"\x80\x02.", b"(.", b"a.", b"]a.", b"}]s.", b"h\x05.", b"0.",
        b"\x80\x02]K\x01K\x02e.", b"}(K\x01u.", b"}(]K\x01u.", b"K\x01K\x02.", b"\x85.", b"t.",
        b"X\xff\xff\xff\x7fabc.", b"\x8c\x02\xff\xff.", b"I" + b"9" * 6000 + b"\n.",
        b"\x80\x04r\xff\xff\xff\xff.",
    ],
)  # fmt: skip
def test_a_damaged_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_plain_pickle(data)


def test_a_large_number_of_the_memo_takes_no_memory() -> None:
    data = b"\x80\x02K\x07r" + struct.pack("<I", 0xFFFFFFFF) + b"."
    assert read_plain_pickle(data) == 7


def test_random_bytes_end_in_an_error_or_a_value() -> None:
    RAN.clear()
    chance = random.Random(1)
    sound = pickle.dumps(PLAIN, 4)
    for _ in range(300):
        damaged = bytearray(sound)
        for _ in range(4):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read_plain_pickle(bytes(damaged))
        except ValueError:
            continue
    assert not RAN
