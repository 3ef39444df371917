"""Checks before a file named by the user is read, and writing of a file completely or not at all;
and the file of a workload (plan.workload).

Only regular files are read: reading a FIFO would wait for a writer, and a device has no end.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from commbench.errors import RecordsError, unwritable_error
from commbench.plan.workload import KIND, TOTALS, Workload, make_workload, workload_values

GZIP = b"\x1f\x8b"
"""How a compressed file begins."""
MAKE_FIRST = "make it first, or choose another folder"
is_file, is_folder, path_exists = os.path.isfile, os.path.isdir, os.path.lexists
"""Unlike the methods of Path they are False for an invalid path, and where a folder on the way may
not be read. path_exists: whether a file of any kind has that name, also a broken link."""


def why_unreadable(path: Path, most_bytes: int | None = None) -> str:
    """Why a file must not be opened for reading, in a few words; empty if it may be."""
    try:
        found = path.stat()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    if not stat.S_ISREG(found.st_mode):
        return "Is a directory" if stat.S_ISDIR(found.st_mode) else "it is no regular file"
    if most_bytes is not None and found.st_size > most_bytes:
        return f"it is larger than {most_bytes >> 20} MiB"
    return ""


def unreadable_error(path: object, why: OSError | str, hint: str) -> RecordsError:
    """The error for a file that cannot be read."""
    reason = why if isinstance(why, str) else why.strerror or str(why)
    return RecordsError(f"cannot read {path}: {reason}", hint)


@contextmanager
def reading(path: Path, hint: str, most_bytes: int | None = None) -> Iterator[BinaryIO]:
    """A regular file that is open for reading; RecordsError where it is larger or cannot be read,
    also while it is being read."""
    try:
        if why := why_unreadable(path, most_bytes):
            raise unreadable_error(path, why, hint)
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise unreadable_error(path, error, hint) from None


def read_whole(path: Path, most_bytes: int, hint: str) -> bytes:
    """The content of a regular file; RecordsError where it is larger or cannot be read."""
    with reading(path, hint, most_bytes) as file:
        return file.read()


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file, at most so many, decompressed if they are compressed; none where
    that is not possible. Raises RecordsError where the file cannot be read."""
    with reading(path, "check its permissions") as file:
        raw = file.read(count)
    if not raw.startswith(GZIP):
        return raw
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(raw, count)
    except zlib.error:
        return b""


def unused_path(
    folder: Path, stem: str, suffix: str = "", replaced: re.Pattern[bytes] | None = None
) -> Path:
    """A path in the folder that write_new can write: `stem`, else `stem-2` and so on."""
    names = (f"{stem}-{number}" if number > 1 else stem for number in count(1))
    paths = (folder / f"{name}{suffix}" for name in names)
    return next(p for p in paths if not path_exists(p) or _is_replaced(p, replaced))


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, which is removed if writing fails; FileExistsError if it exists."""
    with path.open("xb") as file:
        try:
            yield file
            file.flush()
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def make_folder(folder: Path) -> Path:
    """Make a folder where it does not exist, and of a relative path the one above it, such as
    `results`; RecordsError where others do not exist, a file is in the way, or the place is not
    writable."""
    try:
        if not folder.is_absolute():
            folder.parent.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if path_exists(path))
        if file == folder.parent and is_folder(file):
            raise RecordsError(f"no folder can be made in {file}", "choose another") from None
        if is_folder(file):
            raise RecordsError(f"there is no folder {folder.parent}", MAKE_FIRST) from None
        raise RecordsError(f"{file} is not a folder", "choose another folder") from None
    except OSError as error:
        hint = "choose a writable place"
        raise RecordsError(f"cannot make the folder {folder}: {error.strerror}", hint) from None
    return folder


def write_new(
    path: Path,
    content: str | bytes | Iterable[str | bytes],
    replaced: re.Pattern[bytes] | None = None,
) -> None:
    """Write a new file, perhaps in parts; RecordsError where it exists or cannot be written, or its
    folder does not exist. A file that begins as `replaced` says is replaced, by a whole one."""
    parts = [content] if isinstance(content, str | bytes) else content
    place = _place(path, replaced)
    try:
        with new_file(place) as file:
            for part in parts:
                file.write(part.encode("utf-8", "replace") if isinstance(part, str) else part)
            file.flush()
            if place != path:
                place.replace(path)
    except FileExistsError:
        if is_folder(path):
            raise RecordsError(f"{path} is a folder", f"name a file: {path}/NAME") from None
        hint = "choose another name: nothing is overwritten"
        raise RecordsError(f"{path} exists", hint) from None
    except (FileNotFoundError, NotADirectoryError):
        hint, trouble = MAKE_FIRST, "there is no folder"
        if is_folder(path.parent):
            hint, trouble = "choose another folder", "no file can be made in"
        raise RecordsError(f"{trouble} {path.parent}", hint) from None
    except OSError as error:
        raise unwritable_error(path, error, "choose a writable place") from None


def replace_file(path: Path, text: str) -> None:
    """Write a file anew, as a whole: who reads it finds the old or the new one. OSError where it
    cannot be written."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8", errors="replace")
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()  # it is incomplete
        raise


def _place(path: Path, replaced: re.Pattern[bytes] | None) -> Path:
    """Where a file is written first: beside the one that it replaces, if it replaces one."""
    return unused_path(path.parent, path.name, ".new") if _is_replaced(path, replaced) else path


def _is_replaced(path: Path, replaced: re.Pattern[bytes] | None) -> bool:
    """Whether there is a file that begins so. A link is never replaced."""
    if not replaced or not is_file(path) or path.is_symlink():
        return False
    return bool(replaced.match(first_bytes(path, 1 << 16)))


def remove_replaced(path: Path, replaced: re.Pattern[bytes]) -> None:
    """Remove a file that begins as `replaced` says, if it can be read and removed."""
    with suppress(OSError, RecordsError):
        if _is_replaced(path, replaced):
            path.unlink()


def require_new(path: Path, replaced: re.Pattern[bytes] | None = None) -> None:
    """Raise the RecordsError now that write_new would raise later."""
    place = _place(path, replaced)
    write_new(place, b"")
    with suppress(OSError):
        place.unlink()


LARGEST_FILE_BYTES = 1 << 28


def write_workload(path: Path, workload: Workload) -> None:
    """Write a new file; RecordsError where it exists or cannot be written."""
    write_new(path, workload_text(workload))


def workload_text(workload: Workload) -> str:
    """The content of its file: JSON with a line for each step, program and call. Quotation marks
    within texts follow a backslash, so that no text looks like the begin of one of these."""
    text = json.dumps(workload_values(workload), allow_nan=False)
    return re.sub(r'(?: |(?<=\[))(?=\{"(?:name|ranks|operation)": )', "\n", text) + "\n"


def is_workload(path: Path) -> bool:
    """Whether a file begins like that of a workload."""
    try:
        return not why_unreadable(path) and f'"{KIND}"'.encode() in first_bytes(path, 200)
    except RecordsError:
        return False


def read_workload(path: Path) -> Workload:
    """The workload in a file; RecordsError where it cannot be read or is damaged."""
    traces = quote(str(path)) if path.is_dir() else "TRACES"
    import_ = f"make one of traces: commbench workload import {traces} -o step.json"
    if why := why_unreadable(path):
        raise RecordsError(f"cannot read {path}: {why}", import_)
    if not is_workload(path):
        has_totals = TOTALS.encode() in first_bytes(path, 200)
        why = f"it has the {TOTALS}" if has_totals else "it has no calls of a step"
        raise RecordsError(f"{path} is not a workload: {why}", import_)
    again = "mend it, or make it again: `commbench workload --help` says how"
    try:
        return make_workload(json.loads(read_whole(path, LARGEST_FILE_BYTES, again)))
    except (ValueError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else "it is no JSON, or was cut off"
        raise RecordsError(f"{path} is a damaged workload: {why}", again) from None
