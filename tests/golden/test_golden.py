"""Every command prints for recorded files what `expected/` has; `scripts/golden` rewrites it."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest
from golden.cases import CASES
from golden.facts import lost_facts
from golden.options import PAGE, make_page
from golden.runner import EXPECTED, name_of, run_case


def test_no_file_is_expected_of_no_case() -> None:
    names = {name_of(line) for line in CASES}
    assert len(names) == len(CASES)
    assert {path.name for path in EXPECTED.glob("*.txt")} == {f"{name}.txt" for name in names}


def test_the_page_of_options_has_what_help_prints() -> None:
    assert PAGE.read_text() == make_page()


@pytest.mark.parametrize("line", CASES, ids=name_of)
def test_a_command_prints_what_is_expected(line: str, tmp_path: Path) -> None:
    found = run_case(line, tmp_path)
    expected = {name: (EXPECTED / name).read_text() for name in found if (EXPECTED / name).exists()}
    changed = [
        "\n".join(unified_diff(expected.get(name, "").splitlines(), text.splitlines(), lineterm=""))
        for name, text in found.items()
        if text != expected.get(name)
    ]
    if changed:
        pytest.fail(
            "\n".join(("not what is expected; see scripts/golden", *changed)), pytrace=False
        )


def test_a_fact_is_lost_where_its_value_is_gone_and_not_where_its_key_or_unit_is_another() -> None:
    before = {"time_us": 1500.0, "samples": [7, 7], "status": "ok", "peak": None}
    assert lost_facts(before, {"time_s": 0.0015, "rows": {"n": [7, 7]}, "state": "ok"}) == []
    assert lost_facts(before, {"time_s": 0.0016, "n": 7, "status": "ok"}) == [
        ("samples[] = 7", 1),
        ("time_us = 1500.0", 1),
    ]
