"""Formats are known by their content. Whatever happens to a file: the rows that are in it, or an
error; nothing else, and soon."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from damage import NUMBER, damaged
from importing import FOREIGN, fields, read_path

from commbench.analysis.columns import row_values
from commbench.analysis.rows import make_rows
from commbench.errors import CommbenchError, RecordsError, UsageError
from commbench.readers import source
from commbench.readers.base import ImportedFile
from commbench.readers.registry import IMPORTERS, import_run
from commbench.readers.source import ImportHints, SourceText, parse_source


@pytest.mark.parametrize(
    ("content", "why", "hint"),
    [
        (b"", ": it is empty", "nccl-tests"),
        (b"\x7fELF\x00\xff\xfe", "", "nccl-tests"),
        (b"some,csv\n1,2\n", "", "nccl-tests"),
        (b'{"kind": "header"}\n', "", "nccl-tests"),
        (b'{"results": [', ": it is not valid JSON", "nccl-tests"),
        (b'{ "schema": 1, "nccl_version": 0}', ": it is JSON that commbench wrote", "give the run"),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "", "commbench workload show"),
    ],
)
def test_other_files_are_refused(content: bytes, why: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(RecordsError, match="not the output of a tool") as raised:
        read_path(tmp_path / "x")
    assert raised.value.message.endswith(f"knows{why}") and hint in raised.value.hint


def test_a_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"SQLite format 3\0")
    with pytest.raises(RecordsError, match="is a history") as raised:
        read_path(tmp_path / "x")
    assert "check RUN --against history --db" in raised.value.hint


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(RecordsError, match="cannot read"):
            read_path(path)


def test_a_file_of_two_tools_is_refused(tmp_path: Path) -> None:
    both = (FOREIGN / "osu.txt").read_text() + (FOREIGN / "param.txt").read_text()
    (tmp_path / "x").write_text(both)
    with pytest.raises(RecordsError, match="OSU and PARAM"):
        read_path(tmp_path / "x")


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LARGEST_FILE_BYTES", 10)
    (tmp_path / "x").write_text("x" * 11)
    with pytest.raises(RecordsError, match="larger than"):
        read_path(tmp_path / "x")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_known(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text((FOREIGN / "param.txt").read_text(), encoding=encoding)
    assert len(read_path(tmp_path / "x").rows) == 4


def test_options_are_validated(tmp_path: Path) -> None:
    for hints, why in (
        ({"ranks": 0}, "--ranks is 0"), ({"operation": "all_refuse"}, "unknown operation"),
        ({"dtype": "float33"}, "unknown dtype"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            read_path(tmp_path, **hints)
    file = read_path(FOREIGN / "nccl-tests-several.txt", operation="all-gather", dtype="fp32")
    assert {*fields(file, "operation")} == {"all_gather"}


@pytest.mark.parametrize(
    ("name", "ranks", "known"),
    [
        ("imb.txt", 4, {"device": "cpu", "iterations": 1000}),
        ("osu.txt", 16, {}),
        ("param.txt", None, {"device": "cuda"}),
        ("nccl-tests-1.json", None, {"device": "cuda", "iterations": 10, "num_nodes": 2}),
        ("nccl-tests-3.json", None,
         {"device": "cuda", "iterations": 10, "num_nodes": 2, "batches": 1, "launches": 1}),
    ],
)  # fmt: skip
def test_what_a_file_does_not_say_is_unknown(
    name: str, ranks: int | None, known: dict[str, Any]
) -> None:
    run = import_run(FOREIGN / name, ImportHints(ranks))
    unknown = dict.fromkeys(("device", "cpu_mode", "num_nodes", "gpu_shared", "iterations",
                             "batches", "launches", "stop_reason", "warnings"))  # fmt: skip
    columns = (*unknown,)
    row = row_values(make_rows(run)[0], columns)
    assert dict(zip(columns, (value or None for value in row), strict=True)) == unknown | known
    assert run.header.launcher == ""


def test_reading_needs_no_heavy_module() -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from commbench.readers.registry import import_run\n"
        f"import_run(Path({str(FOREIGN / 'param.txt')!r}))\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'matplotlib', 'rich') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


DATA = Path(__file__).parents[1] / "data"
LONGEST_S = 60
"""It takes a few seconds; a machine may be busy."""
SEEDS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "nccl-tests (text)": [
        ("nccl-tests/nccl_allreduce.log", {"operation": "all_reduce"}),
        ("nccl-tests/nccl_alltoall.log", {"operation": "all_to_all"}),
        ("foreign/nccl-tests-several.txt", {}),
        ("foreign/nccl-tests-per-iteration.txt", {}),
        ("foreign/nccl-tests-tagged.txt", {}),
    ],
    "nccl-tests (JSON)": [("foreign/nccl-tests-1.json", {}), ("foreign/nccl-tests-3.json", {})],
    "OSU": [("foreign/osu.txt", {"ranks": 8})],
    "IMB": [("foreign/imb.txt", {"ranks": 4})],
    "PARAM": [("foreign/param.txt", {})],
    "curves (CSV)": [("published/h100_curves.csv", {})],
}


def _assert_nothing_is_invented(file: ImportedFile, source: SourceText, is_json: bool) -> None:
    everything = _numbers(source.text) if is_json else set()
    for row in file.rows:
        present = everything if is_json else _numbers(source.lines[row.line - 1].text)
        size = row.case.size_bytes
        assert {size, size / file.ranks} & present or not row.case.dtype
        assert {f"{row.reported.time_s * 1e6:.9g}"} & {f"{number:.9g}" for number in present}
    assert len(file.rows) <= 2 * max(len(source.lines), source.text.count('"size"'))


def _numbers(text: str) -> set[float]:
    return {float(token) for token in NUMBER.findall(text)}


@pytest.mark.parametrize("inputs", [150, pytest.param(2000, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", IMPORTERS)
def test_mutated_files_give_their_own_rows_or_an_error(name: str, inputs: int) -> None:
    rng = random.Random(f"{name} 1")
    seeds = [((DATA / path).read_bytes().decode(), asked) for path, asked in SEEDS[name]]
    began, outcomes = time.monotonic(), {"rows": 0, "errors": 0}
    for _ in range(inputs):
        text, asked = rng.choice(seeds)
        source = parse_source("x", damaged(text, rng))
        try:
            file = IMPORTERS[name].read(source, ImportHints(**asked))
        except CommbenchError as error:
            assert error.message and error.hint
            assert "\n" not in error.message + error.hint
            outcomes["errors"] += 1
        else:
            _assert_nothing_is_invented(file, source, is_json=name.endswith("(JSON)"))
            outcomes["rows"] += 1
    assert min(outcomes.values()) > inputs // 20
    assert time.monotonic() - began < LONGEST_S
