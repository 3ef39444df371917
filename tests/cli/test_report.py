from __future__ import annotations

from pathlib import Path

from commands import Commbench
from page import Page
from synthetic import steady, synthetic_run

LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"


def make_runs(folder: Path) -> None:
    """Runs `old`, and `new`, which takes twice as long."""
    for times, name in enumerate(("old", "new"), start=1):
        synthetic_run(
            folder / name, name, lambda case, times=times: steady(times * case.size_bytes * 1e-9)
        )


def test_a_report_is_written_into_a_new_file_and_never_over_another(
    commbench: Commbench, tmp_path: Path
) -> None:
    make_runs(tmp_path)
    first = commbench("report", "new", "-o", "report.html")
    assert (first.code, first.out, first.err) == (0, "report.html\n", "")
    again = commbench("report", "old", "-o", "report.html")
    assert again.code == 6
    assert "report.html exists" in again.err
    assert Page((tmp_path / "report.html").read_text()).texts["h1"] == ["new"]


def test_a_file_of_another_kind_is_refused(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_run(tmp_path / "results" / "mine", "mine")
    ended = commbench("report", "mine", "-o", "x.pdf")
    assert (ended.code, ended.err) == (
        2,
        "error: '.pdf' is no ending of a format\n"
        "hint: end the name in .txt, .md, .markdown, .html, .htm, .json, or give --format\n",
    )
    assert not (tmp_path / "x.pdf").exists()


def test_limits_need_a_single_run(commbench: Commbench, tmp_path: Path) -> None:
    make_runs(tmp_path)
    ended = commbench("report", "new", "old", "--max-time", "1s")
    assert ended.code == 2
    assert ended.err.startswith("error: a check is of one run\n")


def test_another_tools_file_is_reported(commbench: Commbench, tmp_path: Path) -> None:
    ended = commbench("report", str(LOG), "--op", "all_reduce", "-o", "log.html")
    assert ended.code == 0, ended.err
    text = " ".join(Page((tmp_path / "log.html").read_text()).texts["p"])
    assert "nccl-tests measured this" in text


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
