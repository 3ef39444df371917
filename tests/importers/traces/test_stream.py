"""JSON read piece by piece: whole, cut off, damaged, compressed, and bombs."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from commbench.errors import RecordsError
from commbench.importers.traces import stream
from commbench.importers.traces.stream import Source

EVENTS = [
    {
        "name": f"event {n} é",
        "ts": n * 1.5,
        "args": {"list": [n, -n, [True, None]], "text": '"}, {'},
    }
    for n in range(200)
]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path) -> tuple[dict[str, Any], list[Any], Source]:
    """The facts of a file, the records of its key `events`, and the source."""
    with Source(path) as source:
        items = list(source.records("events", ("before", "after")))
    return source.facts, items, source


@pytest.fixture(params=[7, 64, 1 << 20])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of the pieces that are read."""
    monkeypatch.setattr(stream, "PIECE", request.param)
    return int(request.param)


def test_a_file_is_read_alike_in_pieces_of_any_size(tmp_path: Path, piece: int) -> None:
    assert piece
    values = {"before": [1.25, "x"], "events": EVENTS, "after": 12345}
    for number, indent in enumerate((None, 2)):
        path = write(tmp_path / f"{number}.json", json.dumps(values, indent=indent))
        facts, items, source = read(path)
        assert facts == {"before": [1.25, "x"], "after": 12345}
        assert items == EVENTS
        assert not source.is_cut and not source.damaged


def test_a_compressed_file_is_read_alike_also_in_several_members(tmp_path: Path) -> None:
    text = json.dumps({"events": EVENTS}).encode()
    parts = gzip.compress(text[:500]) + gzip.compress(text[500:])
    for number, data in enumerate((gzip.compress(text), parts)):
        assert read(write(tmp_path / f"{number}.gz", data))[1] == EVENTS


def test_many_empty_members_garbage_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    text = gzip.compress("\ufeff".encode() + json.dumps({"events": EVENTS}).encode())
    data = 20_000 * gzip.compress(b"") + text + 3 * gzip.compress(b"") + b"\0" * 512
    _, items, source = read(write(tmp_path / "a.gz", data))
    assert items == EVENTS
    assert not source.is_cut


def test_a_cut_file_gives_what_is_complete(tmp_path: Path) -> None:
    text = json.dumps({"events": EVENTS}).encode()
    chance = random.Random(2)
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


def test_a_bomb_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ALWAYS_EXPANDED", 1 << 22)
    path = write(
        tmp_path / "bomb.gz",
        gzip.compress(b'{"events": [') + 8 * gzip.compress(b" " * (1 << 20)),
    )
    with pytest.raises(RecordsError, match="expands to more than 200 times its size"):
        read(path)


def test_a_value_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LARGEST_VALUE", 10_000)
    monkeypatch.setattr(stream, "PIECE", 1000)
    path = write(tmp_path / "a.json", json.dumps({"events": ["x" * 50_000]}))
    with pytest.raises(RecordsError, match="a value of more than"):
        read(path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="nested too deeply"):
        read(write(tmp_path / "a.json", '{"events": [' + "[" * 100_000))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    for path in (fifo, tmp_path, tmp_path / "absent", Path("/dev/zero")):
        with pytest.raises(RecordsError, match="cannot read"):
            Source(path)


def test_progress_is_reported_up_to_the_whole(tmp_path: Path, piece: int) -> None:
    assert piece
    path, reported = write(tmp_path / "a.json", json.dumps({"events": EVENTS})), []
    with Source(path, reported.append) as source:
        list(source.records("events"))
    assert reported == sorted(reported)
    assert reported[-1] == 1.0
