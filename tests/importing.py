"""Texts of other tools' files, imported or refused."""

from __future__ import annotations

import pytest

from commbench.errors import CommbenchError
from commbench.importers.base import ImportedFile
from commbench.importers.hints import ImportHints
from commbench.importers.registry import import_text
from commbench.importers.text_source import parse_source


def read(text: str, **hints: object) -> ImportedFile:
    return import_text(parse_source("out", text), ImportHints(**hints))  # type: ignore[arg-type]


def refused(error: type[CommbenchError], text: str, **hints: object) -> str:
    """The message with which a text is refused."""
    with pytest.raises(error) as raised:
        read(text, **hints)
    assert raised.value.hint
    return raised.value.message
