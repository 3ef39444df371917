"""Plots: files that are made, and files that are left alone."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from synthetic_rows import batches

from commbench.errors import RecordsError, UnavailableError
from commbench.report.curves import make_titles
from commbench.report.plots import MORE_SIZES_NEEDED, draw, has_curve
from commbench.results.schema import Measurement, RankInfo, Run, RunHeader
from commbench.spec.plan import Plan


def synthetic_run(
    *sizes: int, label: str = "made-up", folder: str = "run", timed: int = 99,
    **wishes: Any,
) -> Run:  # fmt: skip
    """A run in which the first `timed` cases took some microseconds more for each size."""
    usual: dict[str, Any] = {
        "operations": ("all_reduce",), "backend": "gloo", "device": "cpu", "world_size": 2
    }  # fmt: skip
    plan = Plan(sizes=sizes, **{**usual, **wishes})
    header = RunHeader(
        plan=plan,
        label=label,
        started="2026-11-21T00:00:00+00:00",
        launcher="local",
        environment={"processor": "Example Processor"},
        ranks=(RankInfo(0, "example", 1, "cpu"), RankInfo(1, "example", 2, "cpu")),
    )
    measurements = tuple(
        Measurement(
            case=case,
            status="ok",
            batches=batches(*[[1e-6 * (case.index + 1) * (10 + i) for i in range(5)]] * 2),
        )
        if case.index < timed
        else Measurement(case=case, status="failed", reason="made up")
        for case in plan.cases()
    )
    return Run(path=f"results/{folder}", header=header, measurements=measurements, end=None)


def size_of_png(path: Path) -> tuple[int, ...]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[12:16] == b"IHDR"
    assert data.endswith(b"IEND\xae\x42\x60\x82")
    return struct.unpack(">II", data[16:24])


def test_bandwidth_and_time_are_drawn_and_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    run = synthetic_run(1024, 4096, 16384)
    folder = tmp_path / "plots" / "new"
    first = draw([run], folder)
    assert first == [folder / "busbw.png", folder / "time.png"]
    assert [size_of_png(path)[0] for path in first] == [1600, 1600]
    before = [path.read_bytes() for path in first]
    second = draw([run], folder)
    assert second == [folder / "busbw-2.png", folder / "time-2.png"]
    assert draw([run], folder) == [folder / "busbw-3.png", folder / "time-3.png"]
    assert [path.read_bytes() for path in first] == before
    assert len(list(folder.iterdir())) == 6


def test_several_runs_share_their_axes_above_a_legend_that_hides_nothing(tmp_path: Path) -> None:
    runs = [synthetic_run(1024, 4096, label=label, folder=label) for label in ("ring", "tree")]
    assert draw(runs, tmp_path) == [tmp_path / "busbw.png", tmp_path / "time.png"]
    assert size_of_png(tmp_path / "time.png")[0] == 1600


def test_a_title_says_nothing_twice() -> None:
    one, other, third = (
        synthetic_run(1024, 4096, cpu_mode=mode, world_size=ranks)
        for mode, ranks in (("quiet", 2), ("plain", 2), ("plain", 4))
    )
    place = make_titles([one])[0].removesuffix(", 2 gloo ranks, cpu mode quiet")
    assert make_titles([one, one]) == make_titles([one])
    assert make_titles([one, other, third]) == [
        f"{place}, 2 gloo ranks / 4 gloo ranks, cpu mode quiet / plain"
    ]


def test_more_curves_than_colours_and_markers_are_drawn(tmp_path: Path) -> None:
    run = synthetic_run(
        64, 128,
        operations=("all_reduce", "reduce_scatter", "broadcast"),
        dtypes=("float32", "float64", "int8", "bfloat16"),
    )  # fmt: skip
    assert len(draw([run], tmp_path)) == 2


def test_a_run_of_one_rank_has_no_bus_bandwidth_and_no_picture_of_it(tmp_path: Path) -> None:
    assert draw([synthetic_run(1024, 4096, world_size=1)], tmp_path) == [tmp_path / "time.png"]


@pytest.mark.parametrize(
    ("runs", "drawable"),
    [
        ([], False),
        ([synthetic_run(1024)], False),
        ([synthetic_run(1024, 4096)], True),
        ([synthetic_run(1024, 4096, timed=1)], False),
        ([synthetic_run(1024, 4096, timed=0)], False),
        ([synthetic_run(1024, operations=("all_reduce", "broadcast"))], False),
        ([synthetic_run(1024, operations=("barrier",))], False),
        ([synthetic_run(1024, label="ring"), synthetic_run(4096, label="tree")], False),
        ([synthetic_run(1024), synthetic_run(1024, 4096)], True),
    ],
)
def test_a_curve_needs_two_sizes_of_one_kind_in_one_run(runs: list[Run], drawable: bool) -> None:
    assert has_curve(runs) is drawable


def test_runs_of_the_same_label_are_curves_of_their_own() -> None:
    # A label not given is made of the operations, so that many runs have the same.
    for size in (1024, 4096):
        runs = [synthetic_run(1024, folder="monday"), synthetic_run(size, folder="tuesday")]
        assert not has_curve(runs)


def test_a_figure_of_a_single_size_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as refused:
        draw([synthetic_run(1024)], tmp_path)
    assert refused.value.message == MORE_SIZES_NEEDED
    assert "--sizes" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RecordsError, match=f"cannot write {file / 'busbw.png'}"):
        draw([synthetic_run(1024, 4096)], file)
