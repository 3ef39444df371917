"""The lines of PARAM's communication benchmark: results under their headers, and the rest."""

from __future__ import annotations

import re
from typing import NamedTuple

from commbench.records.importers import cells
from commbench.records.importers.collect import Collection
from commbench.records.importers.source import Line, Source

_COLUMNS = (
    (r"size \(B\)", "size"),
    (r"total-size \(B\)", "total"),
    ("nElementsPerRank", "count"),
    ("num-elements", "count"),
    ("nElementsPairPerRank", "pair"),
    (r"Latency\(us\):p50", "time"),
    ("p75", "p75"),
    ("p95", "p95_s"),
    ("Min", "minimum_s"),
    ("Max", "maximum_s"),
    (r"AlgBW\(GB/s\)", "algbw"),
    (r"BusBW\(GB/s\)", "busbw"),
    (r"TotalLatency\(us\):p50", "computing"),
    (r"CompLatency\(us\):p50", "computing"),
    ("TFlops", "computing"),
)
_RESULT = re.compile(r".{0,40}?\bCOMMS-RES(?:-(?P<label>[A-Za-z][\w.-]{0,199}))?(?=\s|$)")
_GROUP = re.compile(r"\ballSizes:.*\bgroupSize (\d{1,9})\b")
_WORLD = re.compile(r"'world_size': (\d{1,9})\b|\bworld_size: (\d{1,9})\b")
_BACKEND = re.compile(r"\bbackend: (\w{1,40}) nw-stack:")
_BLOCKING = re.compile(r"\bargs\.z: ([01])\b")


class Result(NamedTuple):
    """One result and the columns that the header before it names."""

    line: Line
    label: str
    columns: tuple[str, ...]
    cells: list[str]


class Facts(NamedTuple):
    """What other lines tell."""

    groups: set[int]
    worlds: set[int]
    backends: set[str]
    blocking: set[str]


def is_param(source: Source) -> bool:
    """Whether there is a result of PARAM."""
    return any(_RESULT.match(line.text) for line in source.lines)


def facts_of(source: Source) -> Facts:
    """What the file tells about the run."""
    facts = Facts(set(), set(), set(), set())
    for line in source.lines:
        facts.groups.update(int(n) for n in _GROUP.findall(line.text))
        facts.worlds.update(int(a or b) for a, b in _WORLD.findall(line.text))
        facts.backends.update(_BACKEND.findall(line.text))
        facts.blocking.update(_BLOCKING.findall(line.text))
    return facts


def results_of(source: Source, collection: Collection) -> list[Result]:
    """The results; those of other kinds of benchmark are left out."""
    results: list[Result] = []
    columns: tuple[str, ...] | None = None
    for line in source.lines:
        match = _RESULT.match(line.text)
        if not match:
            collection.see_noise(line)
            continue
        label, rest = match["label"] or "", line.text[match.end() :].split()
        if source.is_cut(line):
            collection.leave_out("the file ends within the line", line.number)
        elif label.startswith("QUANT"):
            collection.leave_out("its data was quantised", line.number)
        elif label.startswith("pt2pt"):
            collection.leave_out("point to point is not imported", line.number)
        elif rest and not label and not rest[0][0].isdigit():
            columns = _header(line.text[match.end() :])
        elif columns is None:
            raise source.damaged(line.number, "no header before it names its columns", len(results))
        else:
            results.append(Result(line, label, columns, rest))
    return results


def _header(text: str) -> tuple[str, ...]:
    """The columns; none where they are those of another kind of benchmark."""
    try:
        return tuple(cells.columns(text, _COLUMNS))
    except ValueError:
        return ()
