"""Small files of /proc and /sys, read without complaint: what is not there is None."""

from __future__ import annotations

from pathlib import Path

HOST = Path("/")


def text(path: Path) -> str | None:
    """What a file holds, stripped; None where it cannot be read or is empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The whole number that a file holds; None where it holds something else."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def switch(path: Path) -> bool | None:
    """Whether a file holds 1; None where it holds neither 0 nor 1."""
    return {"0": False, "1": True}.get(text(path) or "")


def cores(listed: str) -> tuple[int, ...]:
    """The cores of the kernel's list format: `0-2,8` is 0, 1, 2, 8."""
    found: list[int] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def size_bytes(written: str) -> int | None:
    """Bytes of a cache size as the kernel writes it: `32768K`."""
    digits, unit = written[:-1], written[-1:]
    shift = {"K": 10, "M": 20, "G": 30}.get(unit)
    return int(digits) << shift if shift and digits.isdigit() else None
