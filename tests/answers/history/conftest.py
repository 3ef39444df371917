from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commbench.answers.history.store import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.sqlite", is_written=True) as made:
        yield made
