"""The machine file: written and read again, and refused where it is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted
import pytest

from commbench.errors import RecordsError
from commbench.models.machine import (
    Piece,
    Point,
    Rival,
    drift_at,
    factor_at,
    piece_at,
    read_machine,
    scatter_at,
    time_of,
    write_machine,
)

MACHINE = planted.machine()


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    rival = Rival("ring", 0.25, planted.pieces(planted.RING))
    fitted = MACHINE.fitted[0]._replace(
        rivals=(rival,), cv_error=None,
        pieces=planted.pieces(planted.TREE, ends=(134217728.0,)),
        size_factors=((134217728.0, 1.25), (1e15, 0.5)),
    )  # fmt: skip
    machine = MACHINE._replace(fitted=(fitted,), notes=("été",), facts={"torch": "2.13"})
    write_machine(machine, tmp_path / "m.json")
    found = read_machine(tmp_path / "m.json")
    assert found._replace(fitted=()) == machine._replace(fitted=())
    (again,) = found.fitted
    assert again._replace(pieces=(), rivals=(), points=()) == fitted._replace(
        pieces=(), rivals=(), points=()
    )
    assert (again.rivals[0].model, again.pieces[0].up_to_bytes) == ("ring", 1 << 27)
    assert again.pieces[0].samples[3] == pytest.approx(fitted.pieces[0].samples[3], rel=1e-6)
    assert time_of(again, 64, 8, 1 << 20) == pytest.approx(time_of(fitted, 64, 8, 1 << 20), 1e-6)
    assert (again.world_sizes, again.ranks_per_node) == (fitted.world_sizes, (8,))


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    write_machine(MACHINE, tmp_path / "m.json")
    with pytest.raises(RecordsError, match="exists"):
        write_machine(MACHINE, tmp_path / "m.json")


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = to

    return change


FITTED = ("fitted", 0)
PIECES = (*FITTED, "pieces")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_set("version", to="1"), "version"),
        (_set("fitted", to=7), "is damaged"),
        (_set("name", to=3), "name is no text"),
        (_set("facts", to=[1]), "facts"),
        (_set(*FITTED, "scatter", to=-1), "scatter is -1"),
        (_set(*FITTED, "drift", to=float("nan")), "drift is nan"),
        (_set(*FITTED, "points", 0, "time_s", to=0), "no time"),
        (_set(*FITTED, "points", 0, "world_size", to=1.5), "world_size is 1.5"),
        (_set(*FITTED, "points", 0, "size_bytes", to=True), "size_bytes is True"),
        (_set(*PIECES, to=[]), "do not cover all sizes"),
        (_set(*PIECES, 0, "up_to_bytes", to=8), "do not cover all sizes"),
        (_set(*FITTED, "size_factors", to=[[8, 1.0], [4, 1.0]]), "not in ascending order"),
        (_set(*FITTED, "size_factors", to=[[8, 0]]), "above 0"),
        (_set(*PIECES, 0, "parameters", to=[1.0]), "does not have"),
        (_set(*PIECES, 0, "parameters", 0, to="x"), "a parameter is 'x'"),
        (_set(*PIECES, 0, "samples", 0, to=[]), "does not have"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(
    tmp_path: Path, change: Callable[[Any], None], why: str
) -> None:
    file = tmp_path / "m.json"
    write_machine(MACHINE, file)
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))
    with pytest.raises(RecordsError, match=why):
        read_machine(file)


def test_a_size_belongs_to_the_first_piece_that_reaches_it() -> None:
    pieces = (Piece(1024.0, (1.0,)), Piece(4096.0, (1.0,)), Piece(None, (1.0,)))
    assert [piece_at(pieces, size) for size in (0, 1024, 1025, 4096, 1 << 40)] == [0, 0, 1, 1, 2]


def test_the_factor_between_two_sizes_is_between_theirs() -> None:
    factors = ((1024.0, 1.0), (4096.0, 4.0))
    assert [factor_at(factors, size) for size in (0, 8, 1024, 2048, 4096, 1 << 40)] == [
        1, 1, 1, pytest.approx(2), 4, 4,
    ]  # fmt: skip
    assert factor_at((), 8) == 1


def test_the_scatter_at_a_size_is_that_of_the_points_near_it() -> None:
    points = tuple(
        Point(n, 1, 1 << k, 1.0, cv_error=0.2 if k < 10 else -0.01)
        for k in range(20)
        for n in (2, 4, 8)
    )
    fitted = MACHINE.fitted[0]._replace(points=points, scatter=0.005)
    assert scatter_at(fitted, 1) == pytest.approx(0.2)
    assert scatter_at(fitted, 1 << 18) == pytest.approx(0.01)
    drifting = fitted._replace(drift=0.1)
    assert drift_at(drifting, 1) > drift_at(drifting, 1 << 18) > 0
    unknown = tuple(point._replace(cv_error=None) for point in points)
    assert scatter_at(fitted._replace(points=unknown), 1) == 0.005
    assert drift_at(drifting._replace(points=unknown), 1) == 0.1
