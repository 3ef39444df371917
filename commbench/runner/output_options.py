"""The options of `commbench run` about what it prints and writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from commbench.report.formats import FORMAT_HELP, PEAK_HELP, require_format
from commbench.runner.option import (
    IF_CHANGED,
    IN_COMMAND,
    declare_option,
    require_label,
    require_peak,
)

OUTPUT = "Output"
"""The heading of these options in the help."""
_output = partial(declare_option, OUTPUT)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Some of the RunOptions."""

    label: str | None = _output(
        "NAME", "Name of the run: in files, in plots, and for other commands.", default=None,
        require=require_label, passed_on=IF_CHANGED, is_fixed=True,
        default_text="the name of --output, or the operations",
    )  # fmt: skip
    output: Path | None = _output(  # noqa: RUF009 - it gives a field
        "DIR", "Folder of the run. It must be new or empty.", default=None, parse=Path,
        passed_on=IN_COMMAND, default_text="results/TIME-LABEL",
        refused_by={"resume": "leave it out: a run is resumed in its own folder"},
    )  # fmt: skip
    resume: str | None = _output(
        "RUN", "Continue a run that was cut off, in its folder: the folder or the label.",
        default=None, parse=str, default_text="start a new run", refused_by={
            "sweep": "`commbench sweep --resume` takes the folder of a sweep",
            "measure": "leave it out: there is nothing to resume",
        },
    )  # fmt: skip
    format: str = _output(
        "HOW", FORMAT_HELP, default="text", require=partial(require_format, peak=None),
        passed_on=IN_COMMAND,
        refused_by={"api": "leave it out: nothing is printed"},
    )  # fmt: skip
    peak: str | None = _output(
        "SPEED", PEAK_HELP, default=None, plan="peak", is_fixed=False, require=require_peak,
        default_text="none",
    )  # fmt: skip
    plots: bool = _output(
        "", "Draw no plots.", default=True, flags=("--no-plots",), passed_on=IN_COMMAND,
        refused_by={"measure": "call plot() of the run"},
    )  # fmt: skip
    nccl_log: bool = _output(
        "", "Do not let NCCL log how it makes its communicator.", default=True,
        flags=("--no-nccl-log",), passed_on=IF_CHANGED,
        refused_by={"measure": "leave it out: the process group exists already"},
    )  # fmt: skip
    dry_run: bool = _output(
        "", "Print the plan, its cases and the memory they need. Measure nothing.", default=False,
        refused_by={
            "resume": "leave it out: `commbench show` prints the run",
            "sweep": "leave it out: a sweep always measures",
            "job": "leave it out: nothing is measured here",
            "api": "leave it out: commbench.Plan lists its cases",
        },
    )  # fmt: skip
    verbose: bool = _output(
        "", "Print every table, every warning with its explanation, and how ranks are started.",
        default=False, flags=("--verbose", "-v"), passed_on=IN_COMMAND, refused_by={
            "sweep": "leave it out: a sweep prints one table",
            "api": "leave it out: nothing is printed",
        },
    )  # fmt: skip
