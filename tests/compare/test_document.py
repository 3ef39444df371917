"""Words of a comparison: rows, differences, and advice that was not followed yet."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
from document_texts import item_texts
from synthetic import in_memory, noisy, plan, steady, synthetic_run

from commbench.analysis.load import load
from commbench.compare import sentences
from commbench.compare.comparison import Comparison, compare
from commbench.compare.document import document
from commbench.compare.pooling import PooledRatio
from commbench.stats.estimate import Estimate
from commbench.views.document import Table

pytestmark = pytest.mark.usefixtures("launches_alike")


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0.0, "1 %"), (0.004, "1 %"), (0.0312, "4 %"), (0.04, "4 %"), (0.12, "12 %"),
        (0.995, "100 %"), (1.0, "2 times"), (1.23, "2.3 times"), (27.0, "28 times"),
        (inf, "any factor"),
    ],
)  # fmt: skip
def test_a_difference_is_rounded_up(part: float, text: str) -> None:
    assert sentences.format_part(part) == text


def test_the_far_end_is_the_larger_difference_on_either_side() -> None:
    assert sentences.far_end(Estimate(1.0, 0.98, 1.04)) == pytest.approx(0.04)
    assert sentences.far_end(Estimate(1.0, 0.8, 1.04)) == pytest.approx(0.25)
    assert sentences.far_end(Estimate(1.0, 0.0, 1.04)) == inf
    # As the interval is printed, 0.97-1.04 and 1.001-1.008.
    assert sentences.far_end(Estimate(1.01, 0.966, 1.0401)) == 0.04
    assert sentences.far_end(Estimate(1.005, 1.0011, 1.0084)) == 0.008
    assert sentences.far_end(Estimate(1.0)) == inf


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Estimate(0.92, 0.8, 1.04), "undecided, from 25 % faster to 4 % slower"),
        (Estimate(0.52, 0.19, 1.34), "undecided, from 5.3 times as fast to 34 % slower"),
        (Estimate(1.5, 1.02, 2.31), "undecided, from 2 % slower to 2.3 times as slow"),
        (Estimate(0.9, 0.8, 1.002), "undecided, from 25 % faster to no difference"),
        (Estimate(1.2, 1.04, 1.36), "undecided, from 4 % to 36 % slower"),
        (Estimate(1.5, 0.0, inf), "undecided, from any factor faster to any factor slower"),
    ],
)
def test_an_undecided_ratio_names_both_ends_of_its_interval(ratio: Estimate, text: str) -> None:
    pooled = PooledRatio("all_reduce", 1024, 2048, 2, ratio, "undecided", None, "", 0, 0, 0)
    assert sentences.pooled_sentence(pooled, "all_reduce", "a", "b").endswith(f": {text}.")


@pytest.mark.parametrize(
    ("verdict", "low", "of_low", "rows", "text"),
    [
        ("slower", (1.36, 1.25, 1.48), "slower", 2,
         " are slower too, but less: 1.36 times (1.25-1.48)."),
        ("slower", (3.45, 3.3, 3.6), "slower", 2, " are slower too: 3.45 times (3.30-3.60)."),
        ("slower", (1.2, 0.9, 1.5), "undecided", 2, " do not confirm it: 1.20 times (0.90-1.50)."),
        ("slower", (1.0, 0.98, 1.02), "same", 1,
         " (1K) show no difference above 2 %: 1.00 times (0.98-1.02). The disturbance differs "
         "there, not the collective itself."),
        ("undecided", (1.2, 0.9, 1.5), "undecided", 2,
         " are undecided too: 1.20 times (0.90-1.50)."),
        ("undecided", (1.2, 1.1, 1.3), "slower", 2, " alone are slower: 1.20 times (1.10-1.30)."),
    ],
)  # fmt: skip
def test_undisturbed_calls_confirm_the_medians_or_not(
    verdict: str, low: tuple[float, float, float], of_low: str, rows: int, text: str
) -> None:
    pooled = PooledRatio(
        "all_reduce", 1024, 2048, 2, Estimate(3.51, 3.39, 3.65), verdict,
        Estimate(*low), of_low, rows, 1024, 1024 * rows,
    )  # fmt: skip
    sentence = sentences.pooled_sentence(pooled, "all_reduce", "a", "b")
    assert sentence.endswith(f"; undisturbed calls{text}")


def test_rows_of_one_side_are_named_by_ranges_of_sizes(tmp_path: Path) -> None:
    sizes = tuple(1024 << i for i in range(7))
    synthetic_run(tmp_path / "a", "a", asked=plan(sizes=sizes))
    operations = ("all_reduce", "broadcast")
    some = (sizes[0], *sizes[3:])
    synthetic_run(tmp_path / "b", "b", asked=plan(operations=operations, sizes=some))
    found = compare(load(tmp_path / "a"), load(tmp_path / "b"))
    assert {
        "Only in A (2 rows): all_reduce 2K-4K.", "Only in B (5 rows): broadcast 1K-64K.",
    } <= {*item_texts(found)}  # fmt: skip


def undecided(tmp_path: Path, launches: int, **options: Any) -> Comparison:
    """Two runs of one setting whose rows scatter too much for a verdict."""
    for seed, name in enumerate("ab"):
        synthetic_run(
            tmp_path / name,
            name,
            lambda case, s=seed: noisy(1e-4, 100 * s + case.index, 0.6),
            plan(launches=launches, **options),
            launches=launches,
        )
    return compare(load(tmp_path / "a"), load(tmp_path / "b"))


@pytest.mark.parametrize(
    ("launches", "options", "advice"),
    [
        (1, {}, "`commbench run --launches 6` measures that"),
        (2, {}, "measure both again with --launches 6 --precision 2% --budget 2"),
        (2, {"iterations": 20}, "measure both again with --launches 6 --iters 200"),
        (6, {"precision": 0.02}, "measure on a quieter host (`commbench doctor`), or allow more "
                                 "(--tolerance)"),
    ],
)  # fmt: skip
def test_advice_names_what_was_not_used_yet(
    tmp_path: Path, launches: int, options: dict[str, Any], advice: str
) -> None:
    found = undecided(tmp_path, launches, **options)
    assert {pooled.verdict for pooled in found.pooled} == {"undecided"}
    assert item_texts(found)[-1].endswith(f"{advice}.")


def test_a_clear_answer_needs_no_advice(tmp_path: Path) -> None:
    for name in "ab":
        synthetic_run(tmp_path / name, name, asked=plan(launches=2), launches=2)
    found = compare(load(tmp_path / "a"), load(tmp_path / "b"))
    assert not any("measure" in text or "tolerance" in text for text in item_texts(found))


def brief_rows(found: Comparison) -> list[int]:
    """The sizes of the rows that a terminal lists."""
    (table,) = [
        block for block in document(found).blocks
        if isinstance(block, Table) and block.title.startswith("Rows")
    ]  # fmt: skip
    assert tuple(table.rows) == found.rows
    return [row.a.size_bytes for row in table.brief or ()]


def test_a_terminal_lists_rows_that_do_not_only_repeat_the_sentences(tmp_path: Path) -> None:
    sizes = tuple(1024 << i for i in range(10))
    for seed, name in enumerate("ab"):
        synthetic_run(
            tmp_path / name, name, lambda case, s=seed: noisy(1e-4, 100 * s + case.index, 0.6),
            plan(sizes=sizes), statuses={1 << 15: "wrong"} if name == "b" else {},
        )  # fmt: skip
    assert brief_rows(compare(load(tmp_path / "a"), load(tmp_path / "b"))) == [1 << 15]


def test_a_terminal_lists_the_rows_that_differ_most_in_their_order() -> None:
    sizes = tuple(1024 * (1 + i) for i in range(30))
    factors = [4.0 - 0.1 * i for i in range(30)]
    a = in_memory("a", [steady(1e-4)] * 30, sizes)
    b = in_memory("b", [steady(1e-4 * factor) for factor in factors], sizes)
    assert brief_rows(compare(a, b)) == [*sizes[:20]]
