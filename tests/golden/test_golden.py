"""Every command prints for recorded files what `expected/` has; `scripts/golden` rewrites it."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest
from golden.cases import CASES
from golden.runner import EXPECTED, name_of, run_case


def test_no_file_is_expected_of_no_case() -> None:
    names = {name_of(line) for line in CASES}
    assert len(names) == len(CASES)
    assert {path.name for path in EXPECTED.glob("*.txt")} == {f"{name}.txt" for name in names}


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
