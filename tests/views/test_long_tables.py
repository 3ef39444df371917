"""Tables of many rows: the worst rows, and how all are distributed."""

from __future__ import annotations

from operator import itemgetter

from commbench.stats import Estimate
from commbench.views.cells import NUMBER, TEXT, TIME, Column
from commbench.views.document import MOST_LISTED, WORST, Table, summarise
from commbench.views.terminal import blocks_text

RANK = Column("rank", itemgetter(0), NUMBER)
KIND = Column("kind", itemgetter(1), TEXT)
TOOK = Column("took", itemgetter(2), TIME)


def make_table(rows: int) -> Table:
    """Ranks of two kinds, of which rank R took R us; every seventh has no time."""
    found = [
        (rank, "odd" if rank % 2 else "even", Estimate(rank * 1e-6) if rank % 7 else None)
        for rank in range(rows)
    ]
    return Table("Ranks", [RANK, KIND, TOOK], found)


def summarise_ranks(rows: int) -> list[Table]:
    table = make_table(rows)
    return summarise(table, lambda row: row[2].value if row[2] else 0.0, [TOOK], "ranks", [KIND])


def test_few_rows_are_all_listed() -> None:
    assert summarise_ranks(MOST_LISTED) == [make_table(MOST_LISTED)]


def test_of_many_rows_a_file_has_the_worst_and_the_distribution_of_each_kind() -> None:
    worst, spread = summarise_ranks(1000)
    _, rows, _ = worst.texts()
    ranks = [rank for rank in range(999, 980, -1) if rank % 7][:WORST]
    assert [int(row[0]) for row in rows] == ranks
    assert worst.title == "Ranks: the 10 worst of 1000"
    headings, rows, _ = spread.texts()
    assert headings == [
        "kind", "ranks", "took least", "took 5 %", "took median", "took 95 %", "took most",
    ]  # fmt: skip
    for (kind, number, *found), first in zip(rows, (0, 1), strict=True):
        known = [rank for rank in range(first, 1000, 2) if rank % 7]
        wanted = [known[round(at * (len(known) - 1))] for at in (0, 0.05, 0.5, 0.95, 1)]
        assert (kind, number) == ("odd" if first else "even", "500")
        assert [float(text.split()[0]) for text in found] == wanted


def test_a_terminal_lists_all_where_all_are_asked_for() -> None:
    tables = summarise_ranks(100)
    (brief, _), (every, _) = ([*blocks_text(tables, is_verbose)] for is_verbose in (False, True))
    assert len(brief.splitlines()) == 3 + WORST + 1
    assert brief.endswith("90 more rows: --verbose prints all.")
    assert len(every.splitlines()) == 3 + 100
