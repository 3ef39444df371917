"""Files with random damage: an answer, or a clean error; never a traceback."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from synthetic import plan, steady, synthetic_run

from commbench.analysis.load import load
from commbench.compare.comparison import compare
from commbench.compare.document import VIEW, Comparisons
from commbench.errors import CommbenchError
from commbench.gate.ci import gate_junit
from commbench.gate.document import VIEW as CHECK_VIEW
from commbench.gate.gate import check
from commbench.gate.rules import parse_rule
from commbench.report.exporters import EXPORTERS, export_run

TRIES = 25
"""tests/test_bad_input.py damages hundreds of files."""
PIECES = (
    b"nan", b"inf", b"-1", b"", b'"', b",", b"\n", b"\x00", b"\xff", b"1e308", b"1.5", b"0",
    b"99999999999999999999", b"null", b"{}", b"[]", b"wrong", b"unsupported", b"all_gather",
)  # fmt: skip
LIMITS = {"max_slowdown": "10%", "min_busbw": "1GB/s", "max_time": "1s"}
RULES = [parse_rule(name, text) for name, text in LIMITS.items()]


def damaged(content: bytes, chance: Random) -> bytes:
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.choice((1, 2, 5, 30, 200)))
    fields = content.split(b",")
    fields[chance.randrange(len(fields))] = chance.choice(PIECES)
    return chance.choice(
        (
            content[:start] + content[end:],
            content[:start] + chance.choice(PIECES) + content[start:],
            content[:start] + content[start:end] * 2 + content[end:],
            content[:start],
            b",".join(fields),
            b",".join(fields),
        )
    )


@pytest.mark.parametrize("name", ["results.csv", "run.jsonl"])
def test_damage_gives_an_answer_or_a_clean_error(tmp_path: Path, name: str) -> None:
    asked = plan(operations=("all_reduce", "broadcast", "barrier"), sizes=(1024, 4096))
    folder = synthetic_run(tmp_path / "a", "a", lambda _: steady(1e-4), asked)
    sound, content = load(folder), (folder / name).read_bytes()
    chance, answers = Random(3), 0
    for _ in range(TRIES):
        (tmp_path / name).write_bytes(damaged(content, chance))
        try:
            source = load(tmp_path / name)
            for found in (compare(sound, source), compare(source, sound)):
                assert all(VIEW.write(Comparisons([found]), name) for name in VIEW.formats)
            for exporter in EXPORTERS.values():
                if exporter.name != "parquet" and (source.run or not exporter.needs_run):
                    assert [*export_run(source, exporter.name)]
            gate = check(source, RULES, sound, allow_unmatched=True)
            assert all(CHECK_VIEW.write(gate, name) for name in CHECK_VIEW.formats)
            assert gate_junit(gate)
            answers += 1
        except CommbenchError as error:
            assert error.message
    assert 0 < answers < TRIES
