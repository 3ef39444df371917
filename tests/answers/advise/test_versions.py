"""Advice on own calls of one name, of which there are several versions."""

from __future__ import annotations

import pytest
from planted_times import run_of

from commbench.answers.advise.advice import Advice, Question, find_advice
from commbench.answers.advise.choices import ChoiceAdvice
from commbench.results.schema import Run
from commbench.stats import CHANGE

SIZES = tuple(1 << k for k in range(14, 21, 2))


def version(source: str, time_s: float, label: str) -> Run:
    """A run of the call Mine beside all_reduce, which takes 1 ms."""
    own = {"name": "Mine", "operation": "all_reduce", "source": source, "digest": label}
    return run_of(
        lambda case: time_s if case.call else 1e-3, label, sizes=SIZES, calls=(source,),
        own_calls={source: own},
    )  # fmt: skip


def advised(*runs: Run) -> tuple[Advice, ChoiceAdvice]:
    (advice,) = (e for e in find_advice(runs, Question()).advice if "your own" in e.subject)
    assert isinstance(advice.details, ChoiceAdvice)
    return advice, advice.details


@pytest.mark.parametrize(
    ("sources", "named"),
    [(("v1/mine.py:Mine", "v3/mine.py:Mine"), "v3"), (("mine.py:Mine",) * 2, "Mine in new")],
)
def test_each_version_of_an_own_call_is_judged_in_any_order(
    sources: tuple[str, str], named: str
) -> None:
    slow, fast = version(sources[0], 2e-3, "old"), version(sources[1], 5e-4, "new")
    for runs in ((slow, fast), (fast, slow)):
        advice, found = advised(*runs)
        assert advice.verdict == CHANGE
        assert found.names[found.ranges[0].best] == named
        where = sources[1] if named == "v3" else f"{sources[1]} in new"
        assert advice.paste == (f"# all_reduce: the class {where}",)
    _, found = advised(slow)
    assert [*found.names.values()] == ["torch", "Mine"]
