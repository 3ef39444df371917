"""Texts of other tools' files, imported or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commbench.errors import CommbenchError
from commbench.readers.base import ImportedFile
from commbench.readers.registry import import_text
from commbench.readers.source import ImportHints, parse_source, read_source

FOREIGN = Path(__file__).parent / "data" / "foreign"


def read(text: str, **hints: Any) -> ImportedFile:
    return import_text(parse_source("out", text), ImportHints(**hints))


def read_path(path: Path, **hints: Any) -> ImportedFile:
    known = ImportHints(**hints).validate()
    return import_text(read_source(path), known)


def refused(error: type[CommbenchError], text: str, **hints: Any) -> str:
    """The message with which a text is refused."""
    with pytest.raises(error) as raised:
        read(text, **hints)
    assert raised.value.hint
    return raised.value.message


def fields(file: ImportedFile, *names: str) -> list[Any]:
    """For each row these fields of it, of its case, or of what was reported; one field as it is."""
    found = []
    for row in file.rows:
        known = row.case._asdict() | row.reported._asdict() | row._asdict()
        found.append(tuple(known[name] for name in names) if names[1:] else known[names[0]])
    return found


CASE = ("operation", "dtype", "reduce_op", "placement", "size_bytes", "count")
