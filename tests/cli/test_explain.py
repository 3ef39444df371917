"""`commbench explain` through the real entry point: figures computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Commbench
from synthetic import steady, synthetic_run


def explained(commbench: Commbench, line: str) -> str:
    ended = commbench("explain", *line.split())
    assert (ended.code, ended.err) == (0, "")
    assert "markdown" in line or "json" in line or max(map(len, ended.out.splitlines())) <= 100
    return ended.out


def facts_of(commbench: Commbench, line: str) -> dict[str, list[str]]:
    """By name, the value and the computation of the facts of the first row, in words."""
    text = explained(commbench, f"{line} --format markdown")
    cells = [row.split(" | ") for row in text.splitlines() if row.startswith("| ")]
    facts = [row for row in cells if len(row) == 3]
    return {name.strip("| "): [value.strip(), how.strip("| ")] for name, value, how in facts}


# 1.75 x 1073741824 / 450e9 = 4.1757 ms. tests/golden has more lines.
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("all_gather --ranks 2 --size 1M --time 1ms", {"messages in a row": "at least 1"}),
        # 1 GiB in 3.9 ms: 275.32 x 1.75 = 481.81; 275.32 / 450 = 61.2 %.
        ("all_reduce --ranks 8 --size 1G --time 3.9ms --peak 450GB/s", {
            "of the peak": "107 %", "t at the peak": "4.18 ms", "of the limit": "61 %"}),
        # 275.32 x 1.75 / 250: more than even S each way takes.
        ("all_reduce --ranks 8 --size 1G --time 3.9ms --peak 250GB/s", {
            "of the peak": "193 %", "above 100 %": "impossible"}),
        # The published 376.71 GB/s of 4 x 8 B200: 194.43 x 2 x 3/4 = 291.65.
        ("all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 400GB/s/node", {
            "busbw": "377 GB/s", "of the peak": "73 %", "t at the peak": "64.4 ms"}),
        ("all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 50GB/s", {
            "of the peak": "753 %", "above 100 %": "impossible"}),
    ],
)  # fmt: skip
def test_a_quoted_time_is_explained_with_its_figures(
    commbench: Commbench, line: str, values: dict[str, str]
) -> None:
    facts = facts_of(commbench, line)
    assert {name: facts[name][0] for name in values} == values
    above = {"of the limit", "above 100 %"}
    assert facts.keys() & above == values.keys() & above


def test_the_sentence_has_the_bandwidth_that_is_compared_with_the_peak_of_a_node(
    commbench: Commbench,
) -> None:
    line = "all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 400GB/s/node"
    text = " ".join(explained(commbench, line).split())
    assert "needs 292 GB/s per node, 73 % of the peak of 400 GB/s." in text


def test_a_row_that_was_not_timed_says_why(commbench: Commbench, tmp_path: Path) -> None:
    synthetic_run(
        tmp_path / "run", "run", lambda case: steady(1e-4) if case.size_bytes > 1024 else None,
        statuses={1024: "unsupported"},
    )  # fmt: skip
    text = explained(commbench, "run --size 1K")
    assert "in_place was not timed: unsupported: it has no samples.\n" in " ".join(text.split(" "))
