"""IMPORTERS: the table of foreign formats, and read_foreign, which knows them by their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from commbench.errors import RecordsError
from commbench.importers import imb, osu, param
from commbench.importers.base import ImportedFile
from commbench.importers.hints import ImportHints, asked_for
from commbench.importers.nccl_tests import json_output as nccl_json
from commbench.importers.nccl_tests import text_output as nccl_text
from commbench.importers.text_source import SourceText, read_source


class Importer(NamedTuple):
    """One foreign format."""

    name: str
    sniff: Callable[[SourceText], bool]
    """Whether a file is of this format, by its content."""
    read: Callable[[SourceText, ImportHints], ImportedFile]


IMPORTERS: dict[str, Importer] = {
    importer.name: importer
    for importer in (
        Importer(module.NAME, module.sniff, module.read)
        for module in (nccl_json, nccl_text, osu, imb, param)
    )
}


def read_foreign(
    path: Path,
    *,
    ranks: int | None = None,
    operation: str | None = None,
    dtype: str | None = None,
) -> ImportedFile:
    """The results in another tool's file.

    RecordsError where it cannot be read; UsageError where it does not tell what is needed and
    was not said, or where what was said contradicts it.
    """
    asked = asked_for(str(path), ranks, operation, dtype)
    return read_text(read_source(path), asked)


def read_text(source: SourceText, asked: ImportHints) -> ImportedFile:
    """The results in a file that has been read."""
    found = [importer for importer in IMPORTERS.values() if importer.sniff(source)]
    if not found:
        raise RecordsError(
            f"{source.path} is no output of a tool that commbench knows",
            "known are nccl-tests (text, JSON), OSU, Intel MPI Benchmarks, PARAM",
        )
    if len(found) > 1:
        raise RecordsError(
            f"{source.path} holds results of {' and '.join(one.name for one in found)}",
            "make a file of each",
        )
    return found[0].read(source, asked)
