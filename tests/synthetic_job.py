"""A job for several nodes, and words that do harm where they are not quoted."""

from __future__ import annotations

from typing import Any

from commbench.runner.jobs import Job

HOSTILE = (
    "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '"; touch pwned; "', "a b\\", "#",
)  # fmt: skip


def a_job(**wishes: Any) -> Job:
    usual: dict[str, Any] = {
        "title": "ring", "words": ("--sizes", "1K-1G", "--label", "ring"), "output": None,
        "nodes": 4, "ranks_per_node": 8, "gpus_per_node": 8,
    }  # fmt: skip
    return Job(**{**usual, **wishes})
