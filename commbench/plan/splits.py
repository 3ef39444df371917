"""Unequal blocks: how many elements each rank sends to each other, as a function of a text alone.

The text is a kind, a value where the kind has one, and a seed: `zipf:1.2`, `hot:4:7`, `w2`. The
seed shuffles the ranks; without one the first rank has the most load. The same text gives the same
numbers on every rank, every host and in every run.

Of n ranks the elements of all blocks together are n times those of the size S, whatever the kind:
so S is what a rank sends on average, and rows of different imbalance move equally much.

w0 to w7 are after the workloads of Megatron-LM#7488, which are of experts. Here a rank has 4
experts, and a hot expert gets 4 times as much as another one.

A Load says how unequally ranks are loaded then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from commbench.errors import RecordsError, UsageError, wrong_value

if TYPE_CHECKING:
    from commbench.plan.case import Case

UNIFORM = "uniform"
FILE = "file"
MOST_SPLIT_RANKS = 1024
"""A matrix has so many rows at most."""
_SCALE = 1 << 20
"""Weights are whole numbers, so that all hosts compute the same blocks."""
_EXPERTS, _HOT = 4, 4
_LARGEST_SEED = 1 << 32

Weights = tuple[list[int], list[int]]
"""How much each rank sends, and how much of that goes to each rank."""


class _Kind(NamedTuple):
    """A kind of imbalance."""

    summary: str
    weigh: Callable[[int, float], Weights]
    """The weights of so many ranks for a value."""
    value: str = ""
    """What its value is; empty for a kind without one."""
    largest: float = 0.0
    usual: float | None = None
    """The value that is taken where none is given; None where one must be."""


def _receiving(weights: list[int]) -> Weights:
    return [1] * len(weights), weights


def _experts(ranks: int, hot: Callable[[int], bool]) -> Weights:
    load = [_HOT if hot(expert) else 1 for expert in range(_EXPERTS * ranks)]
    return _receiving([sum(load[_EXPERTS * r : _EXPERTS * (r + 1)]) for r in range(ranks)])


def _hot_rank(ranks: int, hot: int = 0) -> Weights:
    """One rank has as much more than the others as all hot experts of w1 have together."""
    return _receiving([_EXPERTS + (_HOT - 1) * ranks * (rank == hot) for rank in range(ranks)])


KINDS: dict[str, _Kind] = {
    UNIFORM: _Kind("equal blocks", lambda n, _: _receiving([1] * n)),
    "zipf": _Kind(
        "rank k gets k^-A, from k = 1",
        lambda n, a: _receiving([round(_SCALE * k**-a) for k in range(1, n + 1)]), "A", 16,
    ),
    "hot": _Kind(
        "rank 0 gets R times as much as others",
        lambda n, r: _receiving([round(_SCALE * r), *[_SCALE] * (n - 1)]), "R", 1e6,
    ),
    "w0": _Kind("balanced", lambda n, _: _receiving([1] * n)),
    "w1": _Kind("the first quarter of the experts is hot", lambda n, _: _experts(
        n, lambda expert: expert < n)),
    "w2": _Kind("the heat of w1 on one rank", lambda n, _: _hot_rank(n)),
    "w3": _Kind("the heat of w1 spread over all ranks", lambda n, _: _experts(
        n, lambda expert: expert % _EXPERTS == 0)),
    "w4": _Kind("rank k sends k times as much", lambda n, _: (
        [*range(1, n + 1)], [1] * n)),
    "w5": _Kind("the last rank gets nothing", lambda n, _: _receiving(
        [int(rank + 1 < n or n == 1) for rank in range(n)])),
    "w6": _Kind(
        "w2 on rank STEP modulo n",
        lambda n, step: _hot_rank(n, int(step) % n), "STEP", _LARGEST_SEED, usual=0.0,
    ),
    "w7": _Kind("one rank gets half of all", lambda n, _: _receiving(
        [max(1, n - 1), *[1] * (n - 1)])),
}  # fmt: skip
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,12})?")
_DIGEST = re.compile(r"#[0-9a-f]{8}$")


def parse_imbalance(text: str) -> str:
    """The normal form of a text that describes an imbalance: `1` means equal blocks. UsageError for
    any other."""
    text = {"1": UNIFORM}.get(text.strip(), text.strip())
    if text.startswith(f"{FILE}:") and text.removeprefix(f"{FILE}:"):
        return text
    _take_apart(text.lower())
    return text.lower()


def _take_apart(text: str) -> tuple[str, float, int | None]:
    """The kind, its value and the seed of a text."""
    name, *numbers = text.split(":")
    if name not in KINDS:
        known = [_form(each) for each in KINDS]
        hint = f"known: {', '.join(known)}, {FILE}:MATRIX.csv; a seed may follow, as in zipf:1:7"
        raise UsageError(f"unknown imbalance {text!r:.60}", hint)
    kind = KINDS[name]
    value = kind.usual or 0.0
    if kind.value and (numbers or kind.usual is None):
        number = numbers.pop(0) if numbers else ""
        value = _parse_number(text, number, kind.value, kind.largest)
    seed = int(_parse_number(text, numbers.pop(0), "seed", _LARGEST_SEED)) if numbers else None
    if numbers:
        hint = f"write {_form(name)}, or with a seed at its end"
        raise wrong_value(text, "has too many numbers", hint, "imbalance")
    return name, value, seed


def _parse_number(text: str, number: str, what: str, largest: float) -> float:
    is_whole = what in ("STEP", "seed")
    wrong = f"has no valid {what}" if number else f"lacks its number {what}"
    if _NUMBER.fullmatch(number) and float(number) <= largest and not (is_whole and "." in number):
        return float(number)
    hint = f"{what} is a {'whole ' if is_whole else ''}number up to {largest:g}, as in zipf:1.2:7"
    raise wrong_value(text, wrong, hint, "imbalance")


def _form(name: str) -> str:
    return name + (f":{KINDS[name].value}" if KINDS[name].value else "")


KINDS_HELP = "; ".join(f"{_form(name)}: {kind.summary}" for name, kind in KINDS.items())


def read_matrix(text: str) -> tuple[str, tuple[int, ...]]:
    """The matrix of `file:PATH`, row by row, and the text with a digest of the matrix.

    A line of the file has the numbers of one sender, separated by commas or blanks, one for each
    receiver: whole numbers in any unit, since only their ratios count. Raises RecordsError for a
    file that cannot be read, UsageError for one that is no square matrix, and for another digest
    than the text has already.
    """
    from hashlib import sha256

    given = text.removeprefix(f"{FILE}:")
    path = Path(_DIGEST.sub("", given))
    try:
        with path.open(encoding="utf-8") as file:
            content = file.read(MOST_SPLIT_RANKS * MOST_SPLIT_RANKS * 16)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        what = f"cannot read the matrix {path}: {reason}"
        raise RecordsError(what, "give a CSV file with a line per sender") from None
    lines = [line.replace(",", " ").split() for line in content.splitlines()]
    rows = {at: row for at, row in enumerate(lines, 1) if row and not row[0].startswith("#")}
    hint = "it needs n lines of n whole numbers from 0, and one of them above 0"
    for at, row in rows.items():
        is_row = all(re.fullmatch(r"\d{1,12}", cell) for cell in row)
        if not is_row or len(row) != len(rows) or len(rows) > MOST_SPLIT_RANKS:
            what = f"{path} is no square matrix of whole numbers: see its line {at}"
            raise UsageError(what, hint)
    matrix = tuple(int(cell) for row in rows.values() for cell in row)
    if not any(matrix):
        raise UsageError(f"{path} is no matrix: it has no number above 0", hint)
    digest = "#" + sha256(repr(matrix).encode()).hexdigest()[:8]
    if (told := _DIGEST.search(given)) and told.group() != digest:
        why = f"{path} has changed: its digest is {digest}, not {told.group()}"
        raise UsageError(why, f"write {FILE}:{path} for the matrix that it has now")
    return f"{FILE}:{path}{digest}", matrix


def read_matrices(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The texts with the digest of a matrix that one of them names, and this matrix; none: empty.
    UsageError where two name one."""
    if sum(text.startswith(f"{FILE}:") for text in texts) > 1:
        raise UsageError("only one matrix can be measured in a run", "leave out the others")
    matrix: tuple[int, ...] = ()
    found = []
    for text in texts:
        if text.startswith(f"{FILE}:"):
            text, matrix = read_matrix(text)
        found.append(text)
    return tuple(found), matrix


class Splits(NamedTuple):
    """The blocks of one case, in elements."""

    matrix: tuple[tuple[int, ...], ...]
    """What each rank (row) sends to each rank; all together n * n * count."""
    vector: tuple[int, ...]
    """One block per rank, all together n * count: for an operation in which a rank has one block,
    the load of the rank."""


@lru_cache(maxsize=64)
def make_splits(imbalance: str, ranks: int, count: int, matrix: tuple[int, ...] = ()) -> Splits:
    """The blocks of so many ranks with `count` elements on average."""
    total = ranks * ranks * count
    if matrix:
        rows = [matrix[ranks * r : ranks * (r + 1)] for r in range(ranks)]
        sent = apportion(total, [sum(row) for row in rows])
        blocks = tuple(apportion(s, row) for s, row in zip(sent, rows, strict=True))
        load: Sequence[int] = [sum(column) for column in zip(*rows, strict=True)]
    else:
        sending, receiving = _weigh(imbalance, ranks)
        rows_by_total = {s: apportion(s, receiving) for s in apportion(total, sending)}
        blocks = tuple(rows_by_total[s] for s in apportion(total, sending))
        load = receiving if len(set(receiving)) > 1 else sending
    return Splits(blocks, apportion(ranks * count, load))


def _weigh(imbalance: str, ranks: int) -> Weights:
    kind, value, seed = _take_apart(imbalance or UNIFORM)
    weights = KINDS[kind].weigh(ranks, value)
    if not any(weights[1]):  # one rank, which should get nothing
        return [1], [1]
    if seed is None:
        return weights
    order = list(range(ranks))
    Random(seed).shuffle(order)
    sending, receiving = ([own[place] for place in order] for own in weights)
    return sending, receiving


def apportion(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """`total` divided in the ratio of the weights, in whole numbers whose sum is `total`: method of
    the largest remainder, of equal remainders the first. All are 0 where all weights are 0."""
    whole = sum(weights)
    if not whole:
        return (0,) * len(weights)
    parts = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % whole))
    for index in order[: total - sum(parts)]:
        parts[index] += 1
    return tuple(parts)


def why_no_splits(imbalance: str, ranks: int, matrix: tuple[int, ...]) -> str:
    """Why so many ranks cannot have these blocks; empty where they can."""
    if imbalance and ranks > MOST_SPLIT_RANKS:
        return f"unequal blocks are for at most {MOST_SPLIT_RANKS} ranks"
    if imbalance.startswith(f"{FILE}:") and len(matrix) != ranks * ranks:
        return f"{imbalance} is a matrix of {round(len(matrix) ** 0.5)} ranks, not of {ranks}"
    return ""


class Load(NamedTuple):
    """How unequally the ranks of a case with unequal blocks are loaded."""

    sent: float
    """What the rank that sends most sends, over the mean of all ranks."""
    received: float
    """What the rank that receives most receives, over the mean of all ranks."""
    worst_rank: int | None
    """The rank whose link must carry most; None where all carry the same."""
    worst_link: float
    """What that link must carry in one direction, over S: without the block that a rank keeps."""
    largest: float
    """What the rank with most to send or to receive has, its own block included, over S."""

    @property
    def is_unequal(self) -> bool:
        """Whether some rank sends or receives more than another."""
        return max(self.sent, self.received) > 1

    @property
    def busiest(self) -> tuple[str, float]:
        """Whether the busiest rank `sends` or `receives` most, and that over the mean."""
        return max(("receives", self.received), ("sends", self.sent), key=lambda side: side[1])


@lru_cache(maxsize=256)
def find_load(case: Case) -> Load:
    """The load of the ranks of a case with unequal blocks."""
    counts = [case.block_counts(rank) for rank in range(case.ranks)]
    totals = [[sum(own) for own in direction] for direction in zip(*counts, strict=True)]
    links = [max(_crossing(own, r, case.ranks) for own in both) for r, both in enumerate(counts)]
    size, worst = case.count * case.ranks, max(links)
    means = [sum(direction) / case.ranks for direction in totals]
    sent, received = (max(t) / mean if mean else 1.0 for t, mean in zip(totals, means, strict=True))
    worst_rank = links.index(worst) if len(set(links)) > 1 else None
    return Load(sent, received, worst_rank, worst / size, largest=max(map(max, totals)) / size)


def _crossing(blocks: Sequence[int], rank: int, ranks: int) -> int:
    """The elements of the blocks that must cross the link of a rank: all but the one that it keeps;
    a single block has to cross it."""
    return 0 if ranks == 1 else sum(blocks) - (blocks[rank] if len(blocks) > 1 else 0)
