"""Fixtures for journals."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_journal import MEASUREMENTS, write


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """The lines of a journal: header, first batches of cases 0 and 1, case 1,
    case 2, second batch of case 0, case 0, end."""
    return write(tmp_path, *MEASUREMENTS).read_text(encoding="utf-8").splitlines(keepends=True)
