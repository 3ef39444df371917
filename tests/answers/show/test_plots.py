"""Plots: files that are made, and files that are left alone."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from pictures import legend_texts, panels_of, require_readable, said
from synthetic import header, in_memory, plan
from synthetic_rows import batches

from commbench.analysis.diagnostics import WAITED
from commbench.analysis.load import open_run
from commbench.answers.show.plots import draw, find_curves, no_picture, run_pictures
from commbench.errors import RecordsError, UsageError
from commbench.plan.links import parse_peak
from commbench.plan.operations import OPERATION_SETS
from commbench.results.schema import Measurement, Run
from commbench.views.draw import write_pictures
from commbench.views.pictures import BANDWIDTHS, LOG_BANDWIDTHS, TIMES, Bars, Curves, Picture


def synthetic_run(
    *sizes: int, label: str = "made-up", timed: int = 99_999, scale: float = 1.0,
    failed: tuple[int, ...] = (), **asked: Any,
) -> Run:  # fmt: skip
    """A run in which the first `timed` cases took some microseconds more for each size; the cases
    with the numbers `failed` have no time."""
    found = []
    for case in (wishes := plan(sizes=sizes, **asked)).cases():
        times = [1e-6 * scale * (case.index + 1) * (10 + i) for i in range(5)]
        measured = Measurement(case, "ok", batches=batches(times, times))
        if case.index >= timed or case.index in failed:
            measured = Measurement(case, "failed", "made up")
        found.append(measured)
    return Run(f"results/{label}", header(wishes, label), tuple(found), None)


def size_of_png(path: Path) -> tuple[int, ...]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[12:16] == b"IHDR"
    assert data.endswith(b"IEND\xae\x42\x60\x82")
    return struct.unpack(">II", data[16:24])


def test_bandwidth_and_time_are_drawn_and_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    run = synthetic_run(1024, 4096, 16384)
    folder = tmp_path / "plots"
    first = draw([run], folder)
    assert [*first] == [folder / "busbw.png", folder / "time.png"]
    assert [size_of_png(path)[0] for path in first] == [1440, 1440]
    assert [*draw([run], folder)] == [*first]  # the same pictures are there already
    second = [folder / "busbw-2.png", folder / "time-2.png"]
    for path in second:
        path.write_bytes(b"another's")
    before = [path.read_bytes() for path in (*first, *second)]
    other = synthetic_run(1024, 4096, 65536)
    assert [*draw([other], folder)] == [folder / "busbw-3.png", folder / "time-3.png"]
    assert [path.read_bytes() for path in (*first, *second)] == before
    assert len(list(folder.iterdir())) == 6


def test_a_run_that_goes_on_replaces_its_own_pictures_and_no_other(tmp_path: Path) -> None:
    pictures = run_pictures([synthetic_run(1024, 4096, 16384)])
    own, others = tmp_path / "time.png", tmp_path / "busbw.png"
    others.write_bytes(b"another's")
    write_pictures(pictures[1:], tmp_path)
    before = own.read_bytes()
    larger = run_pictures([synthetic_run(1024, 4096, 65536)])
    for _ in range(2):
        drawn = write_pictures(larger, tmp_path, is_again=True)
        assert [*drawn] == [tmp_path / "busbw-2.png", own]
    assert own.read_bytes() != before
    assert others.read_bytes() == b"another's"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_title_has_an_interval_and_no_figure_where_ranks_waited_for_a_core(share: float) -> None:
    cases, found = (wishes := plan(sizes=(1024, 4096))).cases(), []
    for case in cases:
        own = [[1e-4 * (10 + i) for i in range(20)] for _ in range(5)]
        found.append(
            Measurement(case, "ok", batches=batches(*own, elapsed_s=0.1, queued_s=0.1 * share))
        )
    pictures = run_pictures([Run("results/made-up", header(wishes, "made-up"), tuple(found), None)])
    titles, waited = [each.title for each in pictures], WAITED.capitalize()
    panels = [panel for each in pictures for panel in each.panels]
    assert all(panel.series[0].hollow == [1024, 4096] * (share > 0.5) for panel in panels)
    assert ("Hollow points do not count" in said(require_readable(pictures[0]))) == (share > 0.5)
    if share < 0.5:
        assert re.search(r": up to [\d.]+ \([\d.]+ … [\d.]+\) GB/s$", titles[0])
        assert not any(waited in " ".join(each.notes) for each in pictures)
    else:
        assert titles[0].startswith("Bus bandwidth of ") and not re.search(r"\d", "".join(titles))
        assert all(each.notes[0].startswith(waited) for each in pictures)
        assert "Highest bus bandwidth" not in " ".join(note for p in pictures for note in p.notes)


@pytest.mark.parametrize("shares", [(0.1, 0.9), (0.9, 0.9)])
def test_the_run_whose_ranks_waited_for_a_core_is_named(shares: tuple[float, float]) -> None:
    wishes, runs = plan(sizes=(1024, 4096)), []
    for name, share, factor in zip(("before", "loaded"), shares, (2, 1), strict=True):
        own = [[factor * 1e-4 * (10 + i) for i in range(20)] for _ in range(5)]
        timed = batches(*own, elapsed_s=0.1, queued_s=0.1 * share)
        found = tuple(Measurement(case, "ok", batches=timed) for case in wishes.cases())
        runs.append(Run(f"results/{name}", header(wishes, name), found, None))
    said = {note for each in run_pictures(runs) for note in each.notes if "a core" in note}
    waited = f"loaded: {WAITED}:" if shares[0] < 0.5 else f"{WAITED.capitalize()}:"
    assert len(said) == 1 and next(iter(said)).startswith(waited)


def test_rows_that_do_not_count_are_named_with_their_run() -> None:
    wishes, runs = plan(sizes=(1024, 4096, 16384)), []
    for name, waited in (("before", 1024), ("after", 4096)):
        found = tuple(
            Measurement(case, "ok", batches=batches(
                *[[1e-4 * (10 + i) for i in range(20)]] * 5, elapsed_s=0.1,
                queued_s=0.09 * (case.size_bytes == waited),
            ))
            for case in wishes.cases()
        )  # fmt: skip
        runs.append(Run(f"results/{name}", header(wishes, name), found, None))
    said = " ".join(note for each in run_pictures(runs) for note in each.notes)
    for name, row in (("before", "all_reduce 1K"), ("after", "all_reduce 4K")):
        assert f"so these rows of {name} do not count: {row}." in said


NEEDS_TWO = "no plot: it needs two sizes or two operations"


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([], "no plot: nothing was timed"),
        ([synthetic_run(1024)], NEEDS_TWO),
        ([synthetic_run(1024, 4096)], ""),
        ([synthetic_run(1024, 4096, timed=1)], NEEDS_TWO),
        ([synthetic_run(1024, 4096, timed=0)], "no plot: nothing was timed"),
        ([synthetic_run(1024, operations=("all_reduce", "broadcast"))], ""),
        ([synthetic_run(1, operations=("barrier",))], NEEDS_TWO),
        ([synthetic_run(1024, label="a"), synthetic_run(4096, label="b")], ""),
        ([synthetic_run(1024), synthetic_run(1024, 4096)], ""),
    ],
)
def test_a_picture_needs_two_sizes_or_two_kinds(runs: list[Run], why: str, tmp_path: Path) -> None:
    assert bool(run_pictures(runs)) == (not why)
    if why:
        with pytest.raises(UsageError) as refused:
            draw(runs, tmp_path)
        assert (refused.value.message, "--sizes" in refused.value.hint) == (why, True)
        assert no_picture(runs).message == why
        assert list(tmp_path.iterdir()) == []


def test_runs_of_the_same_label_are_curves_of_their_own() -> None:
    # A label not given is made of the operations, so that many runs have the same.
    for size in (1024, 4096):
        runs = [synthetic_run(1024), synthetic_run(size)._replace(path="results/tuesday")]
        assert not any(curve.has_size for curve in find_curves(runs).curves)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_single_size_is_a_row_for_each_kind_of_call(runs: int) -> None:
    found = [
        synthetic_run(1 << 20, operations=OPERATION_SETS["all"], label=name, scale=1 + k)
        for k, name in enumerate(("ring", "tree", "a-long-name-of-a-run-with-many-words-in-it"))
    ][:runs]
    (picture,) = run_pictures(found)
    require_readable(picture)
    assert picture.title == f"Time of 10 operations at 1 MiB: 12.0 us to {120 * runs} us"
    (panel,) = picture.panels
    assert isinstance(panel, Bars)
    bars = [bar for row in panel.rows for bar in row.bars]
    assert len(bars) == len({row.name for row in panel.rows}) == 10 * runs
    assert all(bar.time.has_interval for bar in bars)


LADDER = tuple(1 << k for k in range(10, 27))
NCCL_LOG = Path(__file__).parents[2] / "data" / "foreign" / "nccl-tests-several.txt"


def shapes() -> dict[str, Callable[[], list[Run]]]:
    """Runs of every shape that a picture has to cope with."""
    three = ("all_reduce", "all_gather", "broadcast")
    ten = OPERATION_SETS["all"]
    long = "a-run-with-a-name-that-is-much-longer-than-any-legend-would-want-it-to-be-0123456789"
    return {
        "one operation": lambda: [synthetic_run(*LADDER)],
        "ten operations": lambda: [synthetic_run(*LADDER, operations=ten)],
        "three operations in three runs": lambda: [
            synthetic_run(*LADDER, operations=three, label=name, scale=1 + k)
            for k, name in enumerate(("ring", "tree", long))
        ],
        "ten operations in two runs": lambda: [
            synthetic_run(*LADDER, operations=ten, label=name, scale=1 + k)
            for k, name in enumerate(("ring", "tree"))
        ],
        "many dtypes": lambda: [
            synthetic_run(
                *LADDER[::4], operations=ten, dtypes=("float32", "float64", "int8", "bfloat16")
            )
        ],
        "twelve runs": lambda: [
            synthetic_run(*LADDER[::4], label=f"run {k}", scale=1 + k / 4) for k in range(12)
        ],
        "names that no font has": lambda: [
            synthetic_run(*LADDER, label=name, scale=1 + k)
            for k, name in enumerate(("été", "测试一", "测试二", "$x_2$", "_hidden", "\u202eabc"))
        ],
        "failed rows": lambda: [
            synthetic_run(*LADDER, operations=("all_reduce", "broadcast", "barrier"), failed=(3, 4))
        ],
        "sizes that almost agree": lambda: [
            synthetic_run(1000, 1024, 1048572, 1048576, 5_000_000, operations=three)
        ],
        "sizes in equal steps": lambda: [synthetic_run(*range(1 << 20, (16 << 20) + 1, 1 << 20))],
        "two sizes": lambda: [synthetic_run(1 << 20, 2 << 20)],
        "many sizes": lambda: [synthetic_run(*(1 << k for k in range(33)))],
        "another tool's log": lambda: [open_run(NCCL_LOG)],
    }


@pytest.mark.parametrize(
    ("shape", "peak"),
    [
        *((shape, "") for shape in shapes() if shape != "ten operations in two runs"),
        ("one operation", "450GB/s"), ("two sizes", "1.5GB/s"),
        ("ten operations in two runs", "450GB/s"),
        pytest.param("ten operations", "1.5GB/s", marks=pytest.mark.full),
        pytest.param("ten operations in two runs", "", marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_nothing_covers_anything_else_and_no_two_curves_look_alike(shape: str, peak: str) -> None:
    runs = shapes()[shape]()
    parsed = parse_peak(peak) if peak else None
    pictures = run_pictures(runs, parsed)
    assert [picture.name for picture in pictures] == ["busbw", "time"]
    for picture in pictures:
        require_readable(picture)


def test_one_picture_holds_bandwidth_and_time_and_its_ending_is_its_format(tmp_path: Path) -> None:
    runs = [synthetic_run(1 << 10, 1 << 20, 1 << 26)]
    beginnings = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    for ending, beginning in beginnings.items():
        path = tmp_path / f"whole{ending}"
        assert [*draw(runs, path)] == [path]
        assert path.read_bytes().startswith(beginning)
    (whole,) = run_pictures(runs, is_whole=True)
    require_readable(whole)
    assert [panel.scale for panel in curve_panels(whole)] == [BANDWIDTHS, LOG_BANDWIDTHS, TIMES]
    with pytest.raises(RecordsError, match="exists"):
        draw(runs, tmp_path / "whole.svg")


def test_a_folder_may_be_called_like_a_file_and_a_file_of_another_format_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="which does not say how to draw it"):
        draw(shapes()["two sizes"](), tmp_path / "run.gif")
    assert not list(tmp_path.iterdir())
    for name in ("run.gif", "run.png"):
        (tmp_path / name).mkdir()
        assert len(draw(shapes()["two sizes"](), tmp_path / name).paths) == 2


def curve_panels(picture: Picture) -> list[Curves]:
    return [panel for panel in picture.panels if isinstance(panel, Curves)]


def test_a_curve_has_the_colour_of_its_operation_and_the_style_of_its_run() -> None:
    operations = ("all_reduce", "broadcast")
    runs = [synthetic_run(*LADDER, operations=operations, label=name) for name in ("ring", "tree")]
    found = run_pictures(runs)[1]
    series = curve_panels(found)[0].series
    assert len(series) == 4
    looks = {tuple(each.name.split(" in ", 1)): each.look for each in series}
    for (operation, run), own in looks.items():
        for (other, another), theirs in looks.items():
            assert (own.colour == theirs.colour) == (operation == other)
            assert (own[1:] == theirs[1:]) == (run == another)
    assert not any("float32" in each.name for each in series)
    assert "float32" in found.notes[0]


def test_of_more_than_five_curves_each_operation_has_a_panel_where_runs_differ_in_all() -> None:
    panels = curve_panels(run_pictures(shapes()["three operations in three runs"]())[1])
    assert [panel.heading for panel in panels] == [
        f"{operation}, time" for operation in ("all_reduce", "all_gather", "broadcast")
    ]
    looks = [{each.name: each.look for each in panel.series} for panel in panels]
    assert looks[0] == looks[1] == looks[2]
    assert len({(look.colour, look.marker, look.dashes) for look in looks[0].values()}) == 3


def test_ticks_are_at_measured_sizes_and_values_have_plain_labels() -> None:
    figure = require_readable(run_pictures(shapes()["one operation"](), is_whole=True)[0])
    *bandwidths, times = panels_of(figure)
    for axes in (*bandwidths, times):
        ticks = {*axes.xaxis.get_majorticklocs(), *axes.xaxis.get_minorticklocs()}
        assert ticks == set(LADDER)
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert {"1 KiB", "1 MiB", "64 MiB"} <= set(labels)
    for label in times.get_yticklabels():
        assert re.fullmatch(r"\d+(\.\d+)? (us|ms|s)", label.get_text())
    for axes in bandwidths:
        assert axes.get_yticklabels()
        for label in axes.get_yticklabels():
            assert re.fullmatch(r"\d+(\.\d+)?", label.get_text())
    assert [axes.get_yscale() for axes in bandwidths] == ["linear", "log"]
    assert bandwidths[0].get_ylim()[0] == 0


def test_every_entry_of_a_legend_says_something() -> None:
    found = run_pictures([synthetic_run(*LADDER, timing="both")])[0]
    texts = [text.get_text() for text in legend_texts(require_readable(found))]
    assert texts == ["isolated", "pipelined"]
    (alone,) = run_pictures([synthetic_run(*LADDER)], is_whole=True)
    assert not legend_texts(require_readable(alone))


@pytest.mark.parametrize("speed", [0.5, 3.0, 450.0])
def test_the_peak_is_a_line_with_its_speed(speed: float) -> None:
    run = synthetic_run(*LADDER, peak=f"{speed:g}GB/s")
    for picture in (run_pictures([run])[0], run_pictures([run], parse_peak(f"{speed:g}GB/s"))[0]):
        figure = require_readable(picture)
        for panel, axes in zip(curve_panels(picture), panels_of(figure), strict=True):
            assert [mark.low for mark in panel.marks] == [speed * 1e9]
            seen = [text.get_text() for text in axes.texts]
            is_within = axes.get_ylim()[1] >= speed * 1e9
            assert (f"peak {speed:g} GB/s" in seen) == is_within
            assert is_within or f"Above this picture: peak {speed:g} GB/s" in said(figure)
        assert f"{speed:g} GB/s" in picture.description


def test_a_size_that_failed_is_a_gap_and_a_cross() -> None:
    time = run_pictures(shapes()["failed rows"]())[1]
    (panel,) = curve_panels(time)
    points = dict(panel.series[0].points)
    gaps = [size for size, value in points.items() if value is None]
    assert gaps == [LADDER[3], LADDER[4]]
    figure = require_readable(time)
    (axes,) = panels_of(figure)
    crosses = [place for line in axes.get_lines() if line.get_label() == "_bad"
               for place in line.get_xdata()]  # fmt: skip
    assert crosses == gaps
    assert "failed or wrong: no time" in [text.get_text() for text in legend_texts(figure)]
    assert [mark.name for mark in panel.marks] == ["barrier"]


def test_bands_are_drawn_where_they_can_be_told_apart() -> None:
    for shape, has_bands in (
        ("one operation", True),
        ("ten operations", True),
        ("twelve runs", False),
    ):
        text = said(require_readable(run_pictures(shapes()[shape]())[1]))
        assert ("Band: 95 % interval" in text) == has_bands


def test_a_triangle_marks_where_an_interval_leaves_its_panel() -> None:
    far = [[[1e-4 * times] * 40 for times in wide] for wide in ((1, 1, 1), (1, 300, 30000))]
    figure = require_readable(run_pictures([in_memory("wild", far)])[0])
    assert "a triangle points at what is outside the panel" in said(figure)
    cuts = {
        (line.get_marker(), place) for axes in panels_of(figure) for line in axes.get_lines()
        if line.get_label() == "_cut" for place in line.get_xdata()
    }  # fmt: skip
    assert cuts == {("^", 2048), ("v", 2048)}


def test_the_interval_of_the_highest_bandwidth_is_within_its_linear_panel() -> None:
    wide = [[[1e-4 * times] * 40 for times in (0.45, 1, 1)]] * 3
    picture = run_pictures([in_memory("wide", wide)])[0]
    (panel, *_), (axes, *_) = curve_panels(picture), panels_of(require_readable(picture))
    assert panel.scale == BANDWIDTHS
    highest = max((value for _, value in panel.series[0].known), key=lambda each: each.value)
    assert 1.6 < highest.ends[1] / highest.value < 3
    assert axes.get_ylim()[1] >= highest.ends[1]


def test_making_a_picture_leaves_matplotlib_as_it_is() -> None:
    with matplotlib.rc_context({"font.size": 33, "axes.facecolor": "red"}):
        require_readable(run_pictures(shapes()["two sizes"]())[0])
        assert matplotlib.rcParams["font.size"] == 33
        assert matplotlib.rcParams["axes.facecolor"] == "red"
    assert "matplotlib.pyplot" not in sys.modules
