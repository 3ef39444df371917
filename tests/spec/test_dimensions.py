"""The table of dimensions, and what follows from it."""

from __future__ import annotations

from dataclasses import fields

import pytest
from synthetic_rows import plan

from commbench.analysis.columns import COLUMNS, INTEGERS, KEY, TEXTS, row_type
from commbench.runner.run_options import RUN_OPTIONS
from commbench.spec.case import Case
from commbench.spec.dimensions import DIMENSIONS
from commbench.spec.plan import Plan


def test_every_dimension_is_a_field_of_case_and_of_plan() -> None:
    assert {dimension.field for dimension in DIMENSIONS} <= set(Case._fields)
    assert {dimension.plan_field for dimension in DIMENSIONS} <= {f.name for f in fields(Plan)}


def test_the_option_of_a_dimension_is_the_one_that_sets_its_field_of_plan() -> None:
    flags = {option.plan or name: option.flag for name, option in RUN_OPTIONS.items()}
    assert {d.plan_field: d.option for d in DIMENSIONS}.items() <= flags.items()


def test_every_field_of_a_case_is_a_dimension_or_follows_from_them() -> None:
    others = {"index", "count", "status", "reason", "ranks", "matrix"}
    assert set(Case._fields) - others == {dimension.field for dimension in DIMENSIONS}


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


def test_what_makes_rows_of_two_files_match_is_the_key_of_their_cases() -> None:
    assert KEY == (
        "operation", "dtype", "reduce_op", "root", "placement", "timing", "launch_mode",
        "buffers", "p2p_call", "pairs", "window", "tensors", "form", "memory", "group",
        "concurrency", "group_ranks", "imbalance", "overlap", "part", "step", "variant",
        "size_bytes",
    )  # fmt: skip
    case = plan(operations=("reduce",), root=1).cases()[0]
    assert dict(zip(KEY, case.key(), strict=True)).items() <= case._asdict().items()


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


def test_a_title_says_the_names_first_and_what_qualifies_them_last() -> None:
    (case,) = plan(operations=("reduce",), root=1, timing="pipelined").cases()
    assert case.title == "reduce float32 sum in_place root 1 pipelined"
    assert case.title_without("timing", "dtype") == "reduce sum in_place root 1"
    assert case.key("size_bytes", "placement") == (
        "reduce", "float32", "sum", 1, "pipelined", "eager", "hot", "", "", None, "1", "direct",
        "default", "", "", "", "", "", "", "", "",
    )  # fmt: skip


def test_a_case_knows_how_many_ranks_take_part() -> None:
    assert [case.ranks for case in plan(world_size=6, sizes=(8, 16)).cases()] == [6, 6]
