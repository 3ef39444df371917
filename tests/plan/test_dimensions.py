"""The tables of dimensions and of timing modes, and what follows from them."""

from __future__ import annotations

from dataclasses import fields

import pytest
from synthetic_rows import plan

from commbench.analysis.columns import COLUMNS, INTEGERS, KEY, TEXTS, row_type
from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS, TIMING_MODES, describe_timing
from commbench.plan.plan import Plan
from commbench.runner.run_options import RUN_OPTIONS


def test_every_dimension_is_a_field_of_case_and_of_plan() -> None:
    assert {dimension.field for dimension in DIMENSIONS} <= set(Case._fields)
    assert {dimension.plan_field for dimension in DIMENSIONS} <= {f.name for f in fields(Plan)}


def test_the_option_of_a_dimension_is_the_one_that_sets_its_field_of_plan() -> None:
    flags = {option.plan or name: option.flag for name, option in RUN_OPTIONS.items()}
    assert {d.plan_field: d.option for d in DIMENSIONS}.items() <= flags.items()


def test_no_two_cases_of_a_plan_have_the_same_key() -> None:
    cases = plan(
        operations=("all_gather", "barrier", "broadcast"),
        dtypes=("float32", "int8"),
        sizes=(3, 8, 9, 10, 12),
        placement="both",
        timing="both",
    ).cases()
    assert len({case.key() for case in cases}) == len(cases)
    assert len({case.name for case in cases}) == len(cases)


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda d: d.field)
def test_every_dimension_is_a_column_of_one_kind(dimension: object) -> None:
    (found,) = (d for d in DIMENSIONS if d is dimension)
    assert found.field in COLUMNS
    assert (found.field in INTEGERS, found.field in TEXTS) == (
        found.is_integer, not found.is_integer,
    )  # fmt: skip


@pytest.mark.parametrize("operation", ["barrier", "reduce", "all_gather"])
def test_a_case_is_read_back_from_its_columns(operation: str) -> None:
    (case,) = plan(operations=(operation,), root=1).cases()
    row = row_type(KEY)(*case.key())
    assert row.case.key() == case.key()
    assert row.case.name == case.name


@pytest.mark.parametrize(
    ("name", "call_s", "calls"),
    [
        ("isolated", 0.0, 1), ("isolated", 1e-6, 1),
        ("pipelined", 0.0, 20), ("pipelined", 1e-6, 20), ("pipelined", 2e-3, 10),
        ("pipelined", 1.0, 2),
    ],
)  # fmt: skip
def test_an_iteration_holds_as_many_calls_as_fit_in_its_time(
    name: str, call_s: float, calls: int
) -> None:
    assert TIMING_MODES[name].calls_per_iteration(call_s) == calls


def test_a_mode_of_a_file_that_is_not_known_says_no_more_than_its_name() -> None:
    unknown = describe_timing("sideways")
    assert (unknown.tag, unknown.explanation, unknown.has_entry_skew) == (
        "sideways", "An unknown timing mode.", False,
    )  # fmt: skip
    assert describe_timing("").tag == ""
