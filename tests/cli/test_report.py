from __future__ import annotations

from pathlib import Path

from commands import Commbench
from page import Page
from synthetic import steady, synthetic_run


def make_runs(folder: Path) -> None:
    """Runs `old`, and `new`, which takes twice as long."""
    for times, name in enumerate(("old", "new"), start=1):
        synthetic_run(
            folder / name, name, lambda case, times=times: steady(times * case.size_bytes * 1e-9)
        )


def test_results_without_samples_can_be_compared_only(commbench: Commbench, tmp_path: Path) -> None:
    make_runs(tmp_path)
    for name in ("old", "new"):
        (tmp_path / name / "results.csv").rename(tmp_path / f"{name}.csv")
    alone = commbench("report", "new.csv")
    assert alone.code == 2
    assert "name the run's folder" in alone.err
    both = commbench("report", "old.csv", "new.csv", "-o", "both.html")
    assert both.code == 0, both.err
    assert Page((tmp_path / "both.html").read_text()).texts["h1"] == ["A = old, B = new"]
