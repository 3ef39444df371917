"""Folders with files that look like a host's /proc and /sys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def lay(host: Path, files: Mapping[str, str], folder: str = "") -> Path:
    """Write files below a folder, by their paths."""
    for path, content in files.items():
        put(host / folder, path, content)
    return host


def put(host: Path, path: str, content: str) -> None:
    (host / path).parent.mkdir(parents=True, exist_ok=True)
    (host / path).write_text(content)
