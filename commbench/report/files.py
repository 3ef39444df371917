"""Files that are written for people: whole, and never in the place of another."""

from __future__ import annotations

from pathlib import Path

from commbench.errors import RecordsError
from commbench.records.files import new_file


def write_new(path: Path, content: str | bytes) -> None:
    """Write a file that did not exist; RecordsError where it did, or cannot be written."""
    encoded = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            file.write(encoded)
    except FileExistsError:
        raise RecordsError(
            f"{path} exists", "choose another name: nothing is overwritten"
        ) from None
    except OSError as error:
        raise RecordsError(
            f"cannot write {path}: {error.strerror}", "name a writable place"
        ) from None
