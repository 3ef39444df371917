"""Reads and writes the file of a workload (plan.workload)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shlex import quote

from commbench.errors import RecordsError
from commbench.plan.workload import KIND, Workload, make_workload, workload_values
from commbench.results.files import first_bytes, read_whole, why_unreadable, write_new

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
        raise RecordsError(f"{path} is not a workload", import_)
    again = "mend it, or make it again: `commbench workload --help` says how"
    try:
        return make_workload(json.loads(read_whole(path, LARGEST_FILE_BYTES, again)))
    except (ValueError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else "it is no JSON, or was cut off"
        raise RecordsError(f"{path} is a damaged workload: {why}", again) from None
