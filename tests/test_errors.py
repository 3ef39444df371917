"""The error tree: exit codes, and the hints of unknown names."""

from __future__ import annotations

import pytest

from commbench.api import words
from commbench.api.words import worded
from commbench.errors import (
    ERRORS_BY_NAME,
    CommbenchError,
    HangError,
    Interrupted,
    OwnCallError,
    RankError,
    RecordsError,
    UnavailableError,
    UsageError,
    WrongResultError,
    name_error,
    value_error,
)
from commbench.runner.run_options import RUN_OPTIONS


def every_error() -> list[type[CommbenchError]]:
    found, waiting = [], [CommbenchError]
    while waiting:
        below = waiting.pop().__subclasses__()
        found += below
        waiting += below
    return found


def test_each_kind_of_error_has_the_exit_code_that_is_documented() -> None:
    assert {error: error("what").exit_code for error in every_error()} == {
        UsageError: 2, UnavailableError: 3, RankError: 4, WrongResultError: 5, RecordsError: 6,
        HangError: 4, OwnCallError: 4, Interrupted: 130,
    }  # fmt: skip


def test_the_error_tree_in_the_docstring_is_the_one_in_the_code() -> None:
    import commbench.errors

    lines = (commbench.errors.__doc__ or "").splitlines()
    drawn = [line.split()[1:3] for line in lines if "──" in line]
    assert drawn == [
        [error.__name__, str(error.exit_code)] for error in CommbenchError.__subclasses__()
    ]


def test_every_error_that_a_rank_can_report_is_found_by_its_name() -> None:
    assert {name: error("a", "b").hint for name, error in ERRORS_BY_NAME.items()} == {
        error.__name__: "b" for error in every_error()
    }


@pytest.mark.parametrize(("signal_number", "code"), [(2, 130), (15, 143), (1, 129)])
def test_an_interruption_exits_as_its_signal_does(signal_number: int, code: int) -> None:
    assert Interrupted("stopped", signal_number=signal_number).exit_code == code


def test_an_option_is_named_as_an_argument_of_python() -> None:
    assert worded("write --no-plots, or --root 2") == "write plots=False, or root=2"
    assert worded("try --launches 6 --precision 2%") == 'try launches=6, precision="2%"'
    assert worded("see `commbench run --help`") == "see help(commbench.run)"
    assert worded("make: commbench workload import A") == "make: `commbench.workload.load(...)`"


def test_a_value_is_refused_by_its_field_and_by_the_option_that_sets_it() -> None:
    error = value_error("timeout_s", "0 s is not above 0", "write --timeout 120")
    assert error.message == "timeout 0 s is not above 0"
    assert (
        error.with_option_names({"timeout_s": "--timeout"}).message
        == "--timeout 0 s is not above 0"
    )
    assert error.with_option_names({"timeout_s": "--timeout"}).hint == "write --timeout 120"
    assert value_error("seed", "is -1", "").with_option_names({}).message == "--seed is -1"
    assert name_error("timing", "x", ["both"]).with_option_names({}).message == "unknown timing 'x'"


def test_the_switches_of_functions_are_known() -> None:
    from commbench import api

    functions = [getattr(api, name) for name in words._SAME_NAMES]
    found = {n for each in functions for n, kind in each.__annotations__.items() if kind == "bool"}
    assert found - {*RUN_OPTIONS} == words.SWITCHES


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("`commbench sweep --resume 'a b'`", "`commbench.resume_sweep(...)`"),
        ("`commbench soak --for 1h`", '`commbench.soak(duration="1h")`'),
        ("`commbench export RUN --format csv`", '`commbench.export(..., format="csv")`'),
        ("`commbench model fit RUN... -o FILE`", "`commbench.fit_model(...)`"),
        ("`commbench sweep --help`", "help(commbench.sweep)"),
        ("`commbench run --history`", "`commbench.run(history=True)`"),
        ("--force", "force=True"),
        ("--via, --call a.py:x", 'form, calls="a.py:x"'),
        ("did you mean --vary dtype?", "did you mean vary={'dtype': [...]}?"),
        ("`commbench ops --calls`", "`commbench ops --calls`"),
    ],
)
def test_a_hint_names_the_call_that_does_the_same(command: str, call: str) -> None:
    assert worded(f"{command} does it") == f"{call} does it"
