"""Forms of a call in real runs: the table, results.csv, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from commands import Commbench, Ended, run_commbench
from fake_device import Fake, run_on_fake

from commbench.analysis.rows import make_rows
from commbench.answers.show.rows import rows_table, timed_kinds
from commbench.results.journal_reader import read_run
from commbench.runner.run_options import parse_options

FORMS = ["flat", "separate", "async", "coalesced", "flat_copy"]


@pytest.fixture(scope="module")
def four_tensors(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_commbench(
        tmp_path_factory.mktemp("forms"), "run", "--op", "all_reduce", "--sizes", "4001",
        "--tensors", "4", "--iters", "6", "--no-plots",
    )  # fmt: skip


def test_every_form_has_a_row_of_the_same_bytes_and_its_ratio(four_tensors: Ended) -> None:
    assert four_tensors.code == 0, four_tensors.err
    rows = four_tensors.rows()
    assert [row["form"] for row in rows] == FORMS
    assert {(row["size_bytes"], row["tensors"], row["num_tensors"]) for row in rows} == {
        ("4000", "4", "4")
    }
    assert {(row["status"], row["wrong"]) for row in rows} == {("ok", "0")}
    # In whatever order the cases ended.
    flat = float(rows[0]["time_us"])
    assert rows[0]["form_ratio"] == ""
    for row in rows[1:]:
        assert float(row["form_ratio"]) == pytest.approx(float(row["time_us"]) / flat, rel=1e-5)


def test_the_forms_are_shown_side_by_side(four_tensors: Ended) -> None:
    rows = make_rows(read_run(four_tensors.folder))
    table = rows_table(timed_kinds(rows), None, None)
    (ratios,) = [cells for column, cells in table.cells() if column.heading == "over\nflat"]
    assert [bool(ratio.strip()) for ratio in ratios] == [form != "flat" for form in FORMS]
    title = "all_reduce float32 sum in_place 4 tensors"
    assert all(f"{title} {form}" in four_tensors.out for form in FORMS)


def test_a_journal_is_read_back_with_its_forms(four_tensors: Ended) -> None:
    run = read_run(four_tensors.folder)
    assert [m.case.form for m in run.measurements] == FORMS
    assert run.header.plan.tensors == ("4",)


@pytest.mark.parametrize(
    ("given", "tensors", "forms"),
    [
        ({"tensors": 4}, ("4",), ()),
        ({"tensors": [1, "ddp"], "form": ["separate"]}, ("1", "ddp:25M"), ("separate",)),
        ({"tensors": "1,4,04", "form": "all"}, ("1", "4"), ("all",)),
    ],
)
def test_the_same_is_asked_from_python(
    given: dict[str, Any], tensors: tuple[str, ...], forms: tuple[str, ...]
) -> None:
    plan = parse_options(given, "api").plan("gloo", "cpu", 2)
    assert (plan.tensors, plan.forms) == (tensors, forms)


def test_a_graph_captures_all_calls_of_a_form(program: Commbench) -> None:
    ended = run_on_fake(
        program, Fake(), "--op", "all_reduce", "--sizes", "4K", "--tensors", "1,3", "--form",
        "async,flat_copy,reduce_scatter+all_gather", "--launch", "graph", "--iters", "2",
        "--warmup", "0",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert [(row["tensors"], row["form"], row["status"]) for row in ended.rows()] == [
        ("1", "direct", "ok"), ("1", "async", "ok"), ("1", "reduce_scatter+all_gather", "ok"),
        ("3", "flat", "ok"), ("3", "async", "ok"), ("3", "flat_copy", "ok"),
    ]  # fmt: skip
