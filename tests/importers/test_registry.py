"""Formats are known by their content; files that are none are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commbench.errors import RecordsError, UsageError
from commbench.importers import text_source as source
from commbench.importers.hints import ImportHints
from commbench.importers.registry import IMPORTERS, import_file

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("nccl-tests-several.txt", "nccl-tests-text"),
        ("nccl-tests-3.json", "nccl-tests-json"),
        ("osu.txt", "osu"),
        ("imb.txt", "imb"),
        ("param.txt", "param"),
    ],
)
def test_a_format_is_known_by_its_content_alone(name: str, known: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes((FOREIGN / name).read_bytes())
    text = source.read_source(tmp_path / "x")
    assert [importer.name for importer in IMPORTERS.values() if importer.recognises(text)] == [
        known
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not the output of a tool"),
        (b"\x7fELF\x00\xff\xfe", "not the output of a tool"),
        (b"some,csv\n1,2\n", "not the output of a tool"),
        (b'{"kind": "header"}\n', "not the output of a tool"),
    ],
)
def test_other_files_are_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(RecordsError, match=why) as raised:
        import_file(tmp_path / "x")
    assert "nccl-tests" in raised.value.hint


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="cannot read"):
        import_file(tmp_path / "missing")
    with pytest.raises(RecordsError, match="cannot read"):
        import_file(tmp_path)


def test_a_file_of_two_tools_is_refused(tmp_path: Path) -> None:
    both = (FOREIGN / "osu.txt").read_text() + (FOREIGN / "param.txt").read_text()
    (tmp_path / "x").write_text(both)
    with pytest.raises(RecordsError, match="osu and param"):
        import_file(tmp_path / "x")


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LARGEST_FILE_BYTES", 10)
    (tmp_path / "x").write_text("x" * 11)
    with pytest.raises(RecordsError, match="larger than"):
        import_file(tmp_path / "x")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_known(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text((FOREIGN / "param.txt").read_text(), encoding=encoding)
    assert len(import_file(tmp_path / "x").rows) == 4


def test_options_are_validated(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--ranks 0 is below 1"):
        import_file(tmp_path, ImportHints(ranks=0))
    with pytest.raises(UsageError, match="unknown operation"):
        import_file(tmp_path, ImportHints(operation="all_refuse"))
    with pytest.raises(UsageError, match="unknown dtype"):
        import_file(tmp_path, ImportHints(dtype="float33"))
    file = import_file(
        FOREIGN / "nccl-tests-several.txt", ImportHints(operation="all-gather", dtype="fp32")
    )
    assert {row.operation for row in file.rows} == {"all_gather"}


def test_reading_needs_no_heavy_module() -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from commbench.importers.registry import import_file\n"
        f"import_file(Path({str(FOREIGN / 'param.txt')!r}))\n"
        "print([m for m in ('torch', 'numpy', 'pandas', 'matplotlib', 'rich') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
