"""Reports: one file about a run, a comparison, a check or a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commbench.api.runs import load_rows

if TYPE_CHECKING:
    from commbench.analysis.load import LoadedRun
    from commbench.answers.check.gate import GateResult
    from commbench.answers.compare.comparison import Comparison
    from commbench.answers.sweep.result import SweepResult
    from commbench.api.runs import AnyRun


def report(
    *what: AnyRun | Comparison | GateResult | SweepResult,
    output: str | Path | None = None,
    format: str | None = None,
) -> str:
    """A report about one run, about the result of `check`, about a sweep, or about several runs
    or results of `compare` with the same first run.

    Returns the text, and writes it into the new file `output` if that is given. `format` is "html"
    or "markdown"; by default Markdown for a file that ends in .md, else HTML. Raises UsageError for
    runs that cannot be compared, RecordsError if the file exists.
    """
    from commbench.analysis.load import LoadedRun
    from commbench.answers.report import find_contents, make_document
    from commbench.api import compare
    from commbench.results.files import write_new
    from commbench.views.formats import HTML, VIEW_OF_DOCUMENT, choose_format

    format = choose_format(format, output, usual=HTML)
    VIEW_OF_DOCUMENT.require(format)
    found = [_reported(each) for each in what]
    runs = [each for each in found if isinstance(each, LoadedRun)]
    if len(runs) > 1 and len(runs) == len(found):
        found = [compare(runs[0], other) for other in runs[1:]]
    text = VIEW_OF_DOCUMENT.write(make_document(find_contents(found)), format)
    if output is not None:
        write_new(Path(output), text)
    return text


def _reported(
    what: AnyRun | Comparison | GateResult | SweepResult,
) -> LoadedRun | Comparison | GateResult | SweepResult:
    from commbench.analysis.load import LoadedRun
    from commbench.answers.sweep.result import load_sweep
    from commbench.results.run_folder import find_sweep
    from commbench.results.schema import Run

    if isinstance(what, (str, Path)) and find_sweep(str(what)):
        return load_sweep(what)
    return load_rows(what) if isinstance(what, (str, Path, Run, LoadedRun)) else what
