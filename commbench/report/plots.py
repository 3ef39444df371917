"""Plots: bus bandwidth and time against size, one line per kind of case and run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.analysis.rows import ResultRow, make_rows
from commbench.errors import UnavailableError, unwritable_error
from commbench.output import plot_style
from commbench.output.plot_style import plain
from commbench.results.files import make_folder, new_file, unused_path
from commbench.results.schema import Run
from commbench.units import GB, MICRO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
Curve = list[dict[str, float]]
"""Points of one line, by ascending size."""

MOST_TITLES = 6
CPU_MODE = "cpu mode"
MORE_SIZES_NEEDED = "no plot: a curve needs at least two sizes"


def has_curve(runs: list[Run]) -> bool:
    """Whether any kind of case was timed at two sizes or more."""
    return bool(_curves(runs))


def draw(runs: list[Run], folder: Path) -> list[Path]:
    """Draw all runs into new PNG files in `folder`; return their paths."""
    curves = _curves(runs)
    if not curves:
        raise UnavailableError(MORE_SIZES_NEEDED, "run with several sizes: --sizes 1K-64M")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    files = []
    titles = [plain(title) for title in make_titles(runs)]
    if len(titles) > MOST_TITLES:
        titles = [*titles[:MOST_TITLES], f"and {len(titles) - MOST_TITLES} more"]
    for quantity, label in (("busbw", "bus bandwidth (GB/s)"), ("time", "time (us)")):
        below = 0.3 + 0.17 * len(curves) if len(curves) > 1 else 0.0  # inches for the legend
        height = 5.4 + below
        figure = Figure(figsize=(9, height), dpi=120)
        figure.subplots_adjust(
            left=0.11, right=0.98, bottom=(0.86 + below) / height,
            top=1 - (0.38 + 0.16 * len(titles)) / height,
        )  # fmt: skip
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_ylabel(label)
        styles = zip(cycle(plot_style.COLOURS), cycle(plot_style.MARKERS), strict=False)
        for (name, curve), (colour, marker) in zip(curves.items(), styles, strict=False):
            _paint(axes, plot_style.tag(name), curve, quantity, colour, marker)
        is_log = any(max(_column(curve, quantity)) > 0 for curve in curves.values())
        _format_axes(axes, titles, _statistic(runs), is_log)
        path = unused_path(folder, quantity, ".png")
        try:
            make_folder(folder)
            with new_file(path) as file, plot_style.quiet_about_glyphs():
                canvas.print_png(file)  # draws once; savefig would draw twice
        except OSError as error:
            raise unwritable_error(path, error, "name a writable folder with --output") from None
        files.append(path)
    return files


def _curves(runs: list[Run]) -> dict[str, Curve]:
    """For each line its points: size, time with 10th and 90th percentile, and the same of busbw."""
    rows: dict[str, list[ResultRow]] = {}
    names = [run.name for run in runs]
    for run in {run.path: run for run in runs}.values():
        label = run.name if names.count(run.name) == 1 else f"{run.name} ({run.path})"
        for row in make_rows(run):
            if row.time and row.measurement.case.dtype:
                title = row.measurement.case.title
                name = f"{label}: {title}" if len(runs) > 1 else title
                rows.setdefault(name, []).append(row)
    return {
        name: sorted((_point(row) for row in found), key=lambda point: point["size"])
        for name, found in rows.items()
        if len(found) > 1
    }


def _point(row: ResultRow) -> dict[str, float]:
    assert row.time is not None
    time = row.time.median
    low, high = row.time.p10 or time, row.time.p90 or time
    return {
        "size": row.measurement.case.size_bytes,
        "time": time / MICRO,
        "time_low": low / MICRO,
        "time_high": high / MICRO,
        "busbw": (row.busbw or 0) / GB,
        "busbw_low": (row.busbw_at(high) or 0) / GB,
        "busbw_high": (row.busbw_at(low) or 0) / GB,
    }


def _paint(axes: Axes, name: str, curve: Curve, column: str, colour: str, marker: str) -> None:
    sizes, values, low, high = (
        _column(curve, name) for name in ("size", column, f"{column}_low", f"{column}_high")
    )
    axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(sizes, values, color=colour, marker=marker, markersize=4, label=name)


def _column(curve: Curve, name: str) -> list[float]:
    return [point[name] for point in curve]


def _statistic(runs: list[Run]) -> str:
    """The statistic that the curves show: our median, or what another tool reported."""
    reported = {m.reported.statistic for run in runs for m in run.measurements if m.reported}
    ours = any(m.batches for run in runs for m in run.measurements)
    own = ["median of the slowest rank; band: 10th to 90th percentile"] if ours else []
    return "\n".join([*own, *map(plain, sorted(reported)[:2])])


def _format_axes(axes: Axes, titles: list[str], statistic: str, is_log: bool) -> None:
    axes.set_xscale("log", base=2)
    if is_log:  # one rank alone has no bus bandwidth: 0 everywhere
        axes.set_yscale("log")
    low, high = axes.get_xlim()
    plot_style.format_size_axis(axes)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(low, high)
    axes.grid(which="major", alpha=0.4)
    axes.grid(which="minor", alpha=0.15)
    _place_legend(axes, statistic)
    axes.set_title("\n".join(titles), fontsize=10)


def _place_legend(axes: Axes, statistic: str) -> None:
    """Place the legend where it hides no curve: for one curve in the axes, else below them."""
    style = {"title": statistic, "fontsize": 8, "title_fontsize": 8}
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < 2:
        axes.legend(**style)
    else:
        axes.figure.legend(handles, labels, loc="lower center", frameon=False, **style)


def make_titles(runs: list[Run]) -> list[str]:
    """A line for each machine on which runs were measured, without repetitions."""
    lines: dict[str, list[tuple[str, ...]]] = {}
    for run in runs:
        machine, *settings = _title_parts(run)
        lines.setdefault(machine, []).append(tuple(settings))
    return [
        ", ".join([machine, *(_join_parts(p) for p in zip(*settings, strict=True) if any(p))])
        for machine, settings in lines.items()
    ]


def _join_parts(texts: Sequence[str]) -> str:
    """Different texts in one, with `cpu mode` only once: `cpu mode quiet / plain`."""
    first, *others = dict.fromkeys(text for text in texts if text)
    head = f"{CPU_MODE} " if first.startswith(f"{CPU_MODE} ") else ""
    return " / ".join([first, *(text.removeprefix(head) for text in others)])


def _title_parts(run: Run) -> tuple[str, ...]:
    """Hosts and device, ranks, CPU mode, and a warning; the latter two may be empty."""
    plan, ranks = run.header.plan, run.header.ranks
    device = ranks[0].device if ranks else plan.device
    if plan.device == "cpu":
        device = run.header.environment.get("processor") or device
    shared = "ranks share a GPU: not performance" if run.header.gpu_shared else ""
    where = f"{', '.join(run.header.hosts[:3]) or 'hosts unknown'} ({device})"
    mode = f"{CPU_MODE} {plan.cpu_mode}" if plan.device == "cpu" else ""
    return where, f"{plan.world_size} {plan.backend} ranks", mode, shared
