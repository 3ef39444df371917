"""Texts of other tools' files, imported or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from commbench.errors import CommbenchError
from commbench.readers.base import ImportedFile
from commbench.readers.registry import import_text
from commbench.readers.source import ImportHints, parse_source, read_source

FOREIGN = Path(__file__).parent / "data" / "foreign"


def read(text: str, **hints: object) -> ImportedFile:
    return import_text(parse_source("out", text), ImportHints(**hints))  # type: ignore[arg-type]


def read_path(path: Path, **hints: object) -> ImportedFile:
    known = ImportHints(**hints).validate()  # type: ignore[arg-type]
    return import_text(read_source(path), known)


def refused(error: type[CommbenchError], text: str, **hints: object) -> str:
    """The message with which a text is refused."""
    with pytest.raises(error) as raised:
        read(text, **hints)
    assert raised.value.hint
    return raised.value.message
