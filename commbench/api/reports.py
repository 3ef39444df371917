"""Reports: one file about a run, a comparison, a check or a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from commbench.api.runs import ignore

if TYPE_CHECKING:
    from commbench.analysis.load import LoadedRun
    from commbench.api.runs import AnyRun
    from commbench.compare.comparison import Comparison
    from commbench.gate.gate import GateResult


def report(
    *what: AnyRun | Comparison | GateResult,
    output: str | Path | None = None,
    format: str | None = None,
) -> str:
    """A report about one run, about the result of `check`, about the sweep in a folder, or about
    several runs or results of `compare` with the same first run.

    Returns the text, and writes it into the new file `output` if that is given. `format` is "html"
    or "markdown"; by default Markdown for a file that ends in .md, else HTML. Raises UsageError for
    runs that cannot be compared, RecordsError if the file exists.
    """
    from commbench.compare.comparison import Comparison
    from commbench.document.contents import find_contents, make_document
    from commbench.document.formats import choose_format
    from commbench.gate.gate import GateResult
    from commbench.results.files import write_new

    write = choose_format(format, output)
    results = (Comparison, GateResult)
    found = [each if isinstance(each, results) else find_reported(each) for each in what]
    text = write(make_document(find_contents(found)))
    if output is not None:
        write_new(Path(output), text)
    return text


def find_reported(
    what: AnyRun,
    *,
    ranks: int | None = None,
    op: str | None = None,
    dtype: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> LoadedRun | Path:
    """A run with its rows, or the folder of the sweep that `what` names.

    The keywords are those of `load`; a results.csv is found too.
    """
    from commbench.analysis.columns import COLUMNS
    from commbench.analysis.load import as_loaded_run, load
    from commbench.importers.hints import ImportHints
    from commbench.results.run_folder import find_run, find_sweep

    if isinstance(what, (str, Path)):
        sweep = find_sweep(str(what))
        hints = ImportHints(ranks, op, dtype)
        return sweep or load(find_run(str(what), notify), COLUMNS, hints)
    return as_loaded_run(what)
