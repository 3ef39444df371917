"""What a document of a comparison says, and what a terminal shows of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from document_texts import item_texts
from pictures import legend_texts, require_readable
from synthetic import Samples, in_memory, noisy, plan, steady, synthetic_run
from synthetic_replay import synthetic_replay

from commbench.analysis.load import load, open_run
from commbench.answers.compare.causes import known_causes
from commbench.answers.compare.comparison import Comparison, compare
from commbench.answers.compare.document import VIEW, Comparisons, document, pooled_sentences
from commbench.answers.compare.plot import comparison_pictures
from commbench.errors import UsageError
from commbench.views.document import Table
from commbench.views.draw import write_pictures
from commbench.views.draw_curves import find_limits
from commbench.views.pictures import Curves, Picture, log_ticks

pytestmark = pytest.mark.usefixtures("launches_alike")


def noisy_runs(tmp_path: Path, launches: int = 2, **options: object) -> Comparison:
    """Two runs of one setting whose rows scatter too much for a verdict; in B the size 32K is
    wrong."""
    seeds = count()
    for name in "ab":
        synthetic_run(
            tmp_path / name, name, lambda _: noisy(1e-4, next(seeds), 0.6),
            plan(launches=launches, **options), launches=launches,
            statuses={1 << 15: "wrong"} if name == "b" else {},
        )  # fmt: skip
    return compare(load(tmp_path / "a"), load(tmp_path / "b"))


def test_what_only_one_side_has_and_what_is_not_compared_is_named(tmp_path: Path) -> None:
    sizes = tuple(1024 << i for i in range(7))
    synthetic_run(tmp_path / "a", "a", asked=plan(sizes=sizes))
    operations = ("all_reduce", "broadcast")
    asked = plan(operations=operations, sizes=(sizes[0], *sizes[3:]))
    synthetic_run(tmp_path / "b", "b", asked=asked, statuses={1024: "wrong"})
    texts = item_texts(compare(load(tmp_path / "a"), load(tmp_path / "b")))
    assert {
        "Wrong results in B (1 row): all_reduce 1K.",
        "Only in A (2 rows): all_reduce 2K-4K.",
        "Only in B (5 rows): broadcast 1K-64K.",
    } <= {*texts}


def test_a_table_without_a_journal_is_said_to_hide_its_host_first(tmp_path: Path) -> None:
    for name in "ab":
        synthetic_run(tmp_path / name, name)
    found = compare(load(tmp_path / "a"), load(tmp_path / "b" / "results.csv"))
    answer = document(found).answer
    assert answer[0] == (
        "b is a table without a journal: its host, versions and variables are not known."
    )
    assert repr(found) == f"<Comparison: b (B) compared with a (A)>\n{answer[1]}"


def test_the_repr_is_two_lines_and_counts_what_it_leaves_out() -> None:
    factors = (0.5, 1.0, 2.0, 4.0)
    a = in_memory("a", [steady(1e-4)] * 4, SIZES[:4])
    b = in_memory("b", [steady(1e-4 * factor) for factor in factors], SIZES[:4])
    found = compare(a, b)
    first, told = repr(found).split("\n")
    assert first == "<Comparison: b (B) compared with a (A)>"
    assert told == f"{' '.join(document(found).answer[1:3])} (and 2 more)"


def test_of_several_comparisons_each_count_is_said_once() -> None:
    found = comparisons(("ring", 1.2), ("tree", 0.5))
    text = VIEW.write(Comparisons(found), "text")
    assert text.count("in common") == 2


def test_an_undecided_answer_has_advice_and_a_clear_one_has_none(tmp_path: Path) -> None:
    unsure = noisy_runs(tmp_path / "unsure")
    assert {pooled.verdict for pooled in unsure.pooled} == {"undecided"}
    assert "with `--launches 6 --precision 2% --budget 2` on a quiet host" in item_texts(unsure)[-1]
    for name in "ab":
        synthetic_run(tmp_path / name, name, asked=plan(launches=2), launches=2)
    sure = compare(load(tmp_path / "a"), load(tmp_path / "b"))
    assert not any("measure" in text for text in item_texts(sure))


def brief_rows(found: Comparison) -> list[int]:
    """The sizes of the rows that a terminal lists."""
    (table,) = [
        block for block in document(found).blocks
        if isinstance(block, Table) and block.title.startswith("Rows")
    ]  # fmt: skip
    assert tuple(table.rows) == found.rows
    return [row.a.size_bytes for row in table.brief or ()]


def test_a_terminal_lists_of_many_rows_those_that_differ_most_in_their_order(
    tmp_path: Path,
) -> None:
    sizes = tuple(1024 * (1 + i) for i in range(32))
    assert 1 << 15 in brief_rows(noisy_runs(tmp_path, sizes=sizes))
    factors = [4.0 - 0.1 * i for i in range(32)]
    a = in_memory("a", [steady(1e-4)] * 32, sizes)
    b = in_memory("b", [steady(1e-4 * factor) for factor in factors], sizes)
    assert brief_rows(compare(a, b)) == [*sizes[:8]]
    assert document(compare(a, b)).answer[-1].startswith("Of ")


def test_steps_of_a_replay_come_first_with_a_sentence_for_each(tmp_path: Path) -> None:
    synthetic_replay(tmp_path / "old", "old")
    synthetic_replay(tmp_path / "new", "new", lambda case: 1.3 if case.step else 1.0, seed=1)
    found = compare(open_run(tmp_path / "old"), open_run(tmp_path / "new"))
    assert [bool(row.a.step) for row in found.rows] == [True] * 4 + [False] * 3
    first, *others = (text for _, text in pooled_sentences(found, known_causes(found)))
    assert first.startswith("replay train calls: new takes 1.3")
    assert others[-1].startswith("all_reduce 1M-3M: ") and others[-1].endswith(": same.")
    assert [text.partition(":")[0] for text in others[:-1]] == [
        "replay train bucket 1M", "replay train bucket 6M",
        "replay train reduce_scatter+all_gather",
    ]  # fmt: skip


SIZES = tuple(1 << k for k in range(10, 25, 2))


def samples(seed: int, factor: float = 1.0) -> list[Samples]:
    return [
        noisy(factor * (1e-4 + size * 1e-9), seed + number, batches=3, each=6)
        for number, size in enumerate(SIZES)
    ]


def comparisons(*named: tuple[str, float]) -> list[Comparison]:
    """Runs with these names and factors, each compared with one called `before`."""
    before = in_memory("before", samples(1), SIZES)
    return [
        compare(before, in_memory(name, samples(100 * k, factor), SIZES))
        for k, (name, factor) in enumerate(named, start=2)
    ]


def panels(picture: Picture) -> list[Curves]:
    return [panel for panel in picture.panels if isinstance(panel, Curves)]


@pytest.mark.parametrize("limit", [1.0, 1.25, 60.0])
def test_the_limit_of_a_check_is_a_line_of_the_ratios_and_always_in_sight(limit: float) -> None:
    (picture,) = comparison_pictures(comparisons(("after", 1.1)), limit)
    times, ratios = panels(picture)
    legend = [text.get_text() for text in legend_texts(require_readable(picture))]
    marks = [mark for mark in ratios.marks if mark.name.startswith("limit")]
    assert [mark.low for mark in marks] == ([limit] if limit > 1 else [])
    assert (f"limit: {limit:g} times as long" in legend) == (limit > 1)
    low, high = find_limits([ratios], ratios.scale)
    assert low < limit < high
    assert not times.marks


@pytest.mark.parametrize(
    "named",
    [
        [("after", 1.0)],
        [("after", 39.0)],
        [("ring", 1.2), ("tree", 0.5), ("a-run-with-a-name-too-long-for-any-legend" * 2, 3)],
        [(f"run {k}", 1 + k / 5) for k in range(6)],
        [("测试一", 1.1), ("测试二", 1.2), ("$x_2$", 0.9), ("_hidden", 0.8)],
    ],
    ids=["the same", "39 times slower", "three", "six", "names that no font has"],
)  # fmt: skip
def test_every_run_is_named_and_nothing_covers_anything_else(
    named: list[tuple[str, float]],
) -> None:
    (picture,) = comparison_pictures(comparisons(*named))
    legend = [text.get_text() for text in legend_texts(require_readable(picture))]
    times, ratios = panels(picture)
    assert len(times.series) == len(named) + 1
    assert times.may_have_bands == (len(named) <= 3)
    assert legend[0] == "before"
    assert len({*legend}) == len(legend) == len(named) + 2 + 2 * (len(named) == 1)
    assert "no difference: within 5 %" in legend
    runs = [each for each in ratios.series if each.has_band]
    assert [each.look for each in times.series[1:]] == [each.look for each in runs]


def test_the_band_of_no_difference_is_that_of_the_tolerance() -> None:
    (picture,) = comparison_pictures(comparisons(("after", 1.02)))
    _, ratios = panels(picture)
    (mark,) = [mark for mark in ratios.marks if mark.high]
    assert (mark.low, mark.high) == pytest.approx((1 / 1.05, 1.05))
    low, high = find_limits([ratios], ratios.scale)
    assert low < 1 / 1.05 < 1.05 < high
    assert "1" in [ratios.scale.text(tick) for tick in log_ticks(low, high)]


def test_the_pooled_ratio_is_drawn_and_is_the_description() -> None:
    (found,) = comparisons(("after", 2.0))
    (picture,) = comparison_pictures([found])
    said = [text for _, text in pooled_sentences(found, known_causes(found))]
    assert picture.description == " ".join(said)
    drawn = [each.known[0][1].value for each in panels(picture)[1].series if not each.has_band]
    (pooled,) = found.pooled
    assert drawn == [*pooled.ratio]


def test_a_file_has_the_format_of_its_ending_and_holds_one_picture(tmp_path: Path) -> None:
    found = comparison_pictures(comparisons(("after", 2.0)))
    assert [*write_pictures(found, tmp_path / "one.svg")] == [tmp_path / "one.svg"]
    assert (tmp_path / "one.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(UsageError, match="does not say how to") as refused:
        write_pictures(found, tmp_path / "one.jpg")
    assert refused.value.hint == "end the name with .png, .svg or .pdf: one.png"
    with pytest.raises(UsageError, match="can hold one picture, and here are 2"):
        write_pictures(found * 2, tmp_path / "two.svg")
