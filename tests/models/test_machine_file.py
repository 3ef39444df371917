"""The machine file: written and read again, and refused where it is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted
import pytest

from commbench.errors import RecordsError
from commbench.models.machine import factor_at
from commbench.models.machine_file import read_machine, write_machine

MACHINE = planted.machine()


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    rival = planted.candidate(model="ring", parameters=planted.RING, error_scale=1.5)
    fitted = planted.fitted(rivals=(rival,), cv_error=None, size_growth=0.25,
                            size_factors=((134217728.0, 1.25), (1e15, 0.5)))  # fmt: skip
    machine = MACHINE._replace(fitted=(fitted,), notes=("été",), facts={"torch": "2.13"})
    write_machine(machine, tmp_path / "m.json")
    found = read_machine(tmp_path / "m.json")
    assert found._replace(fitted=()) == machine._replace(fitted=())
    (again,) = found.fitted
    assert again._replace(points=()) == fitted._replace(points=())
    assert [p.time_s for p in again.points] == pytest.approx([p.time_s for p in fitted.points])
    with pytest.raises(RecordsError, match="exists"):
        write_machine(MACHINE, tmp_path / "m.json")


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = to

    return change


FITTED = ("fitted", 0)
BEST = (*FITTED, "candidates", 0)
CURVE = (*BEST, "curve")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_set("format", to="other"), "is no machine file|is not a machine"),
        (_set("version", to="2"), "version"),
        (_set("version", to=1), "has version 1 of the machine file; this commbench reads 2"),
        (_set("fitted", to=7), "is damaged"),
        (_set("name", to=3), "name is no text"),
        (_set("facts", to=[1]), "facts"),
        (_set(*FITTED, "scatter", to=-1), "scatter is -1"),
        (_set(*FITTED, "scatter", to=float("inf")), "scatter is inf"),
        (_set(*FITTED, "operation", to="all_everything"), "all_everything"),
        (_set(*FITTED, "kind", to="somewhere"), "somewhere"),
        (_set(*FITTED, "speed", to=1), "speed"),
        (_set(*FITTED, "points", to=[]), "without points or parameters"),
        (_set(*FITTED, "candidates", to=[]), "without points or parameters"),
        (_set(*BEST, "error_scale", to=float("nan")), "error_scale is nan"),
        (_set(*FITTED, "points", 0, "time_s", to=0), "no time"),
        (_set(*FITTED, "points", 0, "time_s", to=1e300), "time_s|no time"),
        (_set(*FITTED, "points", 0, "world_size", to=10**400), "world_size"),
        (_set(*FITTED, "points", 0, "world_size", to=1.5), "world_size is 1.5"),
        (_set(*FITTED, "points", 0, "size_bytes", to=True), "size_bytes is True"),
        (_set(*CURVE, "size_factors", to=[[8, 1.0], [4, 1.0]]), "not in ascending order"),
        (_set(*CURVE, "size_factors", to=[[8, 0]]), "above 0"),
        (_set(*CURVE, "model", to="fastest"), "no cost model 'fastest'"),
        (_set(*CURVE, "parameters", to=[1.0]), "does not have"),
        (_set(*CURVE, "parameters", to="123"), "parameter"),
        (_set(*CURVE, "parameters", to=[-1, 0, 0]), "parameter"),
        (_set(*CURVE, "parameters", to=[1e300] * 3), "parameter"),
        (_set(*CURVE, "parameters", 0, to="x"), "a parameter is 'x'"),
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


def test_the_factor_between_two_sizes_is_between_theirs() -> None:
    factors = ((1024.0, 1.0), (4096.0, 4.0))
    assert [factor_at(factors, size) for size in (0, 8, 1024, 2048, 4096, 1 << 40)] == [
        1, 1, 1, pytest.approx(2), 4, 4,
    ]  # fmt: skip
    assert factor_at((), 8) == 1
