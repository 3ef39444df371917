"""Options that give a clearer answer, in the words of the run's user: `--budget 2` for `commbench
run`, `measure(budget=2)` for a program. The same in warnings, comparisons and checks."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.results.schema import RunHeader, is_in_process

FEW_LAUNCHES = 6
"""Launches from which their differences can be seen: this many at least."""
PRECISION = 0.02
"""Half the interval over the median that is enough for most comparisons."""
BUDGET_S = 2.0


def more_launches(launches: int = 1) -> str:
    """`--launches 6`, or twice as many as there were."""
    return f"--launches {_more_launches(launches)}"


def _more_launches(launches: int) -> int:
    return max(FEW_LAUNCHES, 2 * launches)


def measure_launches(headers: Sequence[RunHeader | None]) -> str:
    """What shows how much launches of these runs differ."""
    if headers and all(header and is_in_process(header) for header in headers):
        return "measure in several jobs to see that"
    return f"`commbench run {more_launches()}` measures that"


def more_time(header: RunHeader | None = None) -> str:
    """`--budget 2`, or ten times the budget of the run; `--iters` where the run was asked for a
    number of iterations, which takes no budget."""
    plan = header.plan if header else None
    if plan and plan.iterations:
        return write_options(header, iters=10 * plan.iterations)
    return write_options(header, budget=_more_budget(header))


def more_precisely(header: RunHeader | None = None) -> str:
    """`--launches 6 --precision 2% --budget 2`, and only more launches where the run was as precise
    already; `--iters` where it was asked for a number of iterations. None for a run that is not
    known."""
    plan = header.plan if header else None
    values: dict[str, str | float] = {}
    if not (header and is_in_process(header)):
        values["launches"] = _more_launches(plan.launches if plan else 1)
    if plan and plan.iterations:
        return write_options(header, **values, iters=10 * plan.iterations)
    if not values or not plan or plan.precision > PRECISION:
        precision = min(PRECISION, plan.precision / 2) if plan else PRECISION
        values |= {"precision": f"{100 * precision:g}%", "budget": _more_budget(header)}
    return write_options(header, **values)


def write_options(header: RunHeader | None, **values: str | float) -> str:
    """Options as the user of this run writes them."""
    if header and is_in_process(header):
        words = (
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value:g}"
            for name, value in values.items()
        )
        return f"measure({', '.join(words)})"
    texts = {name: v if isinstance(v, str) else f"{v:g}" for name, v in values.items()}
    return " ".join(f"--{name.replace('_', '-')} {text}" for name, text in texts.items())


def _more_budget(header: RunHeader | None) -> float:
    return max(BUDGET_S, 10 * header.plan.budget_s if header else 0.0)
