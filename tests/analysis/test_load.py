import pandas
from commands import Commbench

from commbench import frame
from commbench.analysis.columns import COLUMNS


def test_runs_become_one_tidy_frame_that_agrees_with_results_csv(
    commbench: Commbench,
) -> None:
    ended = commbench("run", "--op", "all_reduce,barrier", "--sizes", "1K,2K", "--iters", "5",
                      "--no-plots")  # fmt: skip
    both = frame(ended.folder, ended.folder / "run.jsonl")
    assert list(both.columns) == ["run", *COLUMNS]
    assert len(both) == 6
    first = both.head(3)
    written = pandas.read_csv(ended.folder / "results.csv")
    assert first["time_us"].tolist() == written["time_us"].tolist()
    assert first["size_bytes"].tolist() == written["size_bytes"].tolist()
    assert pandas.isna(first["busbw_GBps"].iloc[2])
