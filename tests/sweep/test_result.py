"""A sweep from Python: real ranks, the frame, the winners, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import start_command
from synthetic_sweep import synthetic_sweep

import commbench
from commbench.errors import RecordsError, UnavailableError, UsageError
from commbench.sweep.result import COLUMNS

PROGRAM = """
import json, os
import commbench
before = dict(os.environ)
result = commbench.sweep(
    env={"TORCH_GLOO_LAZY_INIT": ["0", "1"]}, op="barrier", sizes=1024, iters=3, rounds=1,
    nproc_per_node=2,
)
assert dict(os.environ) == before
again = commbench.load_sweep(result.path)
print(json.dumps([
    str(result.path), len(result.frame()), len(result.winners), result.failures,
    result.missing_rounds, result.text == again.text, result.text.splitlines()[0],
]))
"""


def test_a_sweep_from_python_returns_its_result(tmp_path: Path) -> None:
    ended = start_command(tmp_path, program=PROGRAM).finish()
    assert ended.code == 0, ended.err
    path, rows, winners, failures, missing, same, first = json.loads(ended.out)
    assert path.startswith("results/")
    assert path.endswith("-sweep")
    assert (rows, winners, failures, missing, same) == (2, 1, {}, 0, True)
    assert first.startswith("Sweep of TORCH_GLOO_LAZY_INIT (0, 1): 2 settings, 1 round, 2 gloo")
    assert not list(tmp_path.glob("results/*/*.png"))


def test_the_frame_has_a_row_for_each_case_and_setting(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", lambda setting, _: 1.0 + setting)
    frame = commbench.load_sweep(tmp_path / "swept").frame()
    assert tuple(frame.columns) == COLUMNS
    assert frame["setting"].tolist() == ["cpu-mode=quiet"] * 4 + ["cpu-mode=plain"] * 4
    assert frame["place"].tolist() == ["best"] * 4 + [""] * 4
    assert frame["ratio"].isna().tolist() == [True] * 4 + [False] * 4
    slower = frame[4:]
    assert ((slower["ratio_ci_low"] < 2) & (slower["ratio_ci_high"] > 2)).all()
    assert (slower["time_us"] > slower["time_ci_low_us"]).all()


def test_a_case_without_a_valid_time_has_a_row_with_its_status(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", statuses={(1, 2): {1 << 14: "wrong"}})
    frame = commbench.load_sweep(tmp_path / "swept").frame()
    wrong = frame[frame["status"] == "wrong"]
    assert wrong["size_bytes"].tolist() == [1 << 14]
    assert wrong[["time_us", "ratio"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vary": {"cpu_mode": "quiet"}}, UsageError, "there is only one setting"),
        ({"vary": {"iters": [1, 2]}}, UsageError, "--vary iters: this option cannot be"),
        ({"vary": {"nproc_per_node": ["two", 2]}}, UsageError, "--nproc-per-node cannot be 'two'"),
        ({"env": {"A B": ["1", "2"]}}, UsageError, "'A B' cannot be an environment variable"),
        ({"env": {"OMP_NUM_THREADS": [1, 2]}, "launches": 2}, UsageError, "--launches cannot be"),
        ({"env": {"OMP_NUM_THREADS": [1, 2]}, "rounds": 0}, UsageError, "--rounds is 0"),
        ({"env": {"OMP_NUM_THREADS": [1, 2]}, "export": "nccl-tuner", "backend": "gloo"},
         UnavailableError, "--export nccl-tuner needs the backend nccl"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_refused_before_anything_is_measured(
    options: dict[str, Any], error: type[Exception], message: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        commbench.sweep(**options)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="there is no sweep"):
        commbench.load_sweep(tmp_path / "nowhere")
