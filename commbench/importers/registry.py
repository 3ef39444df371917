"""IMPORTERS, the table of other tools' file formats, and how a file's format is recognised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from commbench.errors import RecordsError
from commbench.importers import imb, osu, param
from commbench.importers.base import ImportedFile
from commbench.importers.hints import NO_HINTS, ImportHints
from commbench.importers.nccl_tests import json_output as nccl_json
from commbench.importers.nccl_tests import text_output as nccl_text
from commbench.importers.text_source import SourceText, read_source
from commbench.importers.to_run import make_run
from commbench.results.schema import Run


class Importer(NamedTuple):
    """One file format of another tool."""

    name: str
    recognises: Callable[[SourceText], bool]
    """Whether a file is of this format, by its content."""
    read: Callable[[SourceText, ImportHints], ImportedFile]


IMPORTERS = {
    module.NAME: Importer(module.NAME, module.recognises, module.read)
    for module in (nccl_json, nccl_text, osu, imb, param)
}


def import_run(path: Path, hints: ImportHints = NO_HINTS) -> Run:
    """The results in another tool's file as a run."""
    return make_run(import_file(path, hints))


def import_file(path: Path, hints: ImportHints = NO_HINTS) -> ImportedFile:
    """The results in another tool's file; raises RecordsError where it cannot be read, UsageError
    where a hint is missing, is invalid or contradicts the file."""
    hints = hints.validate()
    return import_text(read_source(path), hints)


def import_text(source: SourceText, hints: ImportHints) -> ImportedFile:
    """The results in the text of another tool's file."""
    found = [importer for importer in IMPORTERS.values() if importer.recognises(source)]
    if not found:
        is_csv = source.path.endswith(".csv")
        damaged = "; a results.csv without its first line is damaged" if is_csv else ""
        raise RecordsError(
            f"{source.path} is not the output of a tool that commbench knows",
            f"it reads nccl-tests (text, JSON), OSU, Intel MPI Benchmarks and PARAM{damaged}",
        )
    if len(found) > 1:
        raise RecordsError(
            f"{source.path} contains results of {' and '.join(one.name for one in found)}",
            "write the results of each tool into a file of its own",
        )
    return found[0].read(source, hints)
