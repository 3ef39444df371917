"""The published curves in tests/data/published, each with its source in its first lines."""

from __future__ import annotations

from pathlib import Path

from commbench.answers.cost.machine import Point
from commbench.answers.cost.observations import read_published

FOLDER = Path(__file__).parent / "data" / "published"


def curve(name: str) -> list[Point]:
    """The points of a file."""
    return sorted(each.point for each in read_published(FOLDER / f"{name}.csv"))


def without(points: list[Point], above_ranks: int) -> list[Point]:
    """The points, with those of more ranks left out."""
    return [point._replace(is_left_out=point.world_size > above_ranks) for point in points]
