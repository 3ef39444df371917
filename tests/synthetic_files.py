"""Folders with files that look like a host's /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def lay(host: Path, **files: str) -> Path:
    """Write files; `__` in a name is a slash."""
    for name, content in files.items():
        put(host, name.replace("__", "/"), content)
    return host


def put(host: Path, path: str, content: str) -> None:
    (host / path).parent.mkdir(parents=True, exist_ok=True)
    (host / path).write_text(content)
