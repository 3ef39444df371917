"""`commbench compare`: whole outputs for made-up runs, every format read back, exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from commands import Commbench
from page import Page
from synthetic import noisy, plan, steady, synthetic_run

import commbench as commbench_api

FACTORS = {1 << 10: 0.8, 1 << 14: 1.0, 1 << 18: 1.02, 1 << 20: 1.5}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    for stamp, name, factors in (("060000", "ring", {}), ("060100", "tree", FACTORS)):
        synthetic_run(
            folder / f"20261121-{stamp}-{name}",
            name,
            lambda case, f=factors: steady(100e-6 * f.get(case.size_bytes, 1), 2),
            launches=12,
            environment={"variables": {"NCCL_ALGO": name.title()}},
        )
    return folder


def test_csv_and_json_hold_every_row(commbench: Commbench, results: Path) -> None:
    asked = plan(sizes=(1024, 4096))
    synthetic_run(results / "more", "more", lambda _: steady(1e-4, 2), asked, launches=12)
    ended = commbench("compare", "ring", "tree", "more", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert [(row["b"], row["size_bytes"], row["verdict"]) for row in rows] == [
        ("tree", "1024", "faster"), ("tree", "16384", "same"), ("tree", "262144", "same"),
        ("tree", "1048576", "slower"), ("more", "1024", "same"), ("more", "16384", "only in A"),
        ("more", "262144", "only in A"), ("more", "1048576", "only in A"),
        ("more", "4096", "only in B"),
    ]  # fmt: skip
    assert (rows[3]["ratio"], rows[3]["ratio_ci_low"]) == ("1.5", "1.47328")
    assert (rows[5]["time_a_us"], rows[5]["time_b_us"], rows[5]["ratio"]) == ("100.0", "", "")
    assert (rows[8]["time_a_us"], rows[8]["time_b_us"]) == ("", "100.0")
    told = json.loads(commbench("compare", "ring", "tree", "more", "--format", "json").out)
    first, second = told["comparisons"]
    assert (first["a"]["name"], first["b"]["name"], second["b"]["name"]) == ("ring", "tree", "more")
    assert [row["verdict"] for row in second["rows"]] == ["same"]
    assert [row["size_bytes"] for row in second["only_a"]] == [16384, 262144, 1048576]
    assert [row["size_bytes"] for row in second["only_b"]] == [4096]
    last = first["rows"][3]
    assert (last["root"], last["size_bytes"]) == (None, 1 << 20)
    assert last["ratio"] == {"value": 1.5, "low": 1.47328, "high": 1.527205}
    assert last["b"]["time_s"]["value"] == 150e-6


def test_plots_are_drawn_and_never_overwritten(commbench: Commbench, results: Path) -> None:
    ended = commbench("compare", "ring", "tree", "--plot", "one.png", "--output", "plots")
    drawn = ["one.png", "plots/compare-all-reduce-float32-sum-in-place.png"]
    assert (ended.code, ended.out.splitlines(), ended.err) == (0, drawn, "")
    assert all((results.parent / path).read_bytes()[:4] == b"\x89PNG" for path in drawn)
    beside = commbench("compare", "ring", "tree", "--plot", "two.png")
    assert (beside.code, beside.err, "tree (B)" in beside.out) == (0, "two.png\n", True)
    again = commbench("compare", "ring", "tree", "--plot", "one.png")
    assert again.code == 6
    assert again.out == ""
    assert again.err == "error: one.png exists\nhint: choose another name: nothing is overwritten\n"


def test_several_kinds_need_several_pictures(commbench: Commbench, tmp_path: Path) -> None:
    asked = plan(operations=("all_reduce", "broadcast", "barrier"), sizes=(1024, 4096))
    for name in ("a", "b"):
        synthetic_run(tmp_path / name, name, lambda _: steady(1e-4), asked)
    ended = commbench("compare", "a", "b", "--plot", "one.png")
    assert (ended.code, ended.err) == (
        2,
        "error: one.png can hold one picture, and here are 2\n"
        "hint: --output DIR draws a picture of each\n",
    )
    assert commbench("compare", "a", "b", "--output", ".").out.splitlines() == [
        "compare-all-reduce-float32-sum-in-place.png",
        "compare-broadcast-float32-in-place-root-0.png",
    ]


def test_results_without_samples_can_be_compared_only(commbench: Commbench, tmp_path: Path) -> None:
    for name in ("old", "new"):
        synthetic_run(tmp_path / name, name)
        (tmp_path / name / "results.csv").rename(tmp_path / f"{name}.csv")
    alone = commbench("report", "new.csv")
    assert alone.code == 2
    assert "name the run's folder" in alone.err
    commbench("report", "old.csv", "new.csv", "-o", "both.html").good()
    page = Page((tmp_path / "both.html").read_text())
    assert page.texts["h1"] == ["new (B) compared with old (A)"]


@pytest.mark.parametrize(("times", "code"), [(1.4, 7), (1.03, 0)])
def test_an_undecided_row_that_may_be_slower_is_no_pass(
    commbench: Commbench, tmp_path: Path, times: float, code: int
) -> None:
    for name, factor in (("a", 1e-4), ("b", times * 1e-4)):
        samples = [[factor, 2 * factor] * 10]
        synthetic_run(tmp_path / name, name, lambda _, s=samples: s, plan(sizes=(1024,)))
    ended = commbench("compare", "a", "b", "--fail-if-slower")
    assert (ended.code, "1 undecided" in ended.out) == (code, True)
    beyond = (
        "the ratio is above the tolerance, but not its whole interval, in 1 row; "
        "the largest ratio: all_reduce 1K, 1.4 (0.83 … 2.4) times as long"
    )
    assert " ".join(ended.err.split()) == f"no verdict: {beyond}" * (code == 7)


@pytest.mark.usefixtures("results")
def test_rows_of_an_operation_and_of_some_sizes_are_compared(commbench: Commbench) -> None:
    some = ("--op", "all_reduce", "--size", "1K,1M")
    ended = commbench("compare", "ring", "tree", *some, "--format", "csv")
    assert [row["size_bytes"] for row in csv.DictReader(io.StringIO(ended.out))] == [
        "1024", "1048576",
    ]  # fmt: skip
    refused = commbench("compare", "ring", "tree", "--op", "broadcast")
    assert (refused.code, "ring has no broadcast" in refused.err) == (2, True)


def test_the_sweep_of_the_only_difference_is_named_where_runs_were_not_in_turns(
    tmp_path: Path,
) -> None:
    ring, tree = (
        commbench_api.load(synthetic_run(
            tmp_path / name, name,
            lambda case, f=factor: noisy(1e-4 * f, seed=case.index + int(100 * f), noise=0.05),
            launches=2, environment={"variables": {"NCCL_ALGO": name.title()}},
        ))._replace(starts=(start,))
        for name, factor, start in (("ring", 1.0, "1"), ("tree", 1.06, "2"))
    )  # fmt: skip
    told = " ".join(commbench_api.compare(ring, tree).text().split())
    assert "`commbench sweep --env NCCL_ALGO=Ring,Tree --op all_reduce --sizes" in told
    assert "--resume" not in told
