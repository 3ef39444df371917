"""`commbench show` of runs that did not end well; of made-up runs, for which no rank is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Commbench
from synthetic import synthetic_run

from commbench.results.journal import Journal
from commbench.results.run_folder import JOURNAL
from commbench.results.schema import RunEnd

GOES_ON = "To continue it: commbench run --resume cut\n"


@pytest.mark.parametrize(
    ("end", "sentence", "hint"),
    [
        (RunEnd("complete"), "", ""),
        (RunEnd("failed", "rank 1 died"), "This run failed: rank 1 died\n", GOES_ON),
        (RunEnd("interrupted", "by you"), "This run was interrupted: by you\n", GOES_ON),
        (
            None,
            "This run has not ended: it is still running, or it was cut off.\n",
            "If it was cut off, continue it: commbench run --resume cut\n",
        ),
    ],
)
def test_how_a_run_ended_is_told_with_what_goes_on_with_it(
    commbench: Commbench, tmp_path: Path, end: RunEnd | None, sentence: str, hint: str
) -> None:
    folder = synthetic_run(tmp_path / "cut", "cut")
    lines = (folder / JOURNAL).read_text().splitlines(keepends=True)
    (folder / JOURNAL).write_text("".join(lines[:-1]))
    if end:
        Journal(folder).end(end)
    shown = commbench("show", "cut")
    assert (shown.code, shown.err) == (0, hint)
    assert f"\n{sentence}" in shown.out if sentence else "This run" not in shown.out
