"""Options of `commbench run` that give a clearer answer: the same in warnings, comparisons and
checks."""

from __future__ import annotations

from commbench.spec.plan import Plan

FEW_LAUNCHES = 6
"""Launches from which their differences can be seen: this many at least."""
PRECISION = 0.02
"""Half the interval over the median that is enough for most comparisons."""
BUDGET_S = 2.0


def more_launches(launches: int = 1) -> str:
    """`--launches 6`, or twice as many as there were."""
    return f"--launches {max(FEW_LAUNCHES, 2 * launches)}"


def more_time(plan: Plan | None = None) -> str:
    """`--budget 2`, or ten times the budget of the plan."""
    budget = 10 * plan.budget_s if plan else 0.0
    return f"--budget {max(BUDGET_S, budget):g}"


def more_precisely(plan: Plan | None = None) -> str:
    """`--precision 2% --budget 2`, or more where the plan asked for as much; `--iters` where the
    plan fixed the iterations. None for a plan that is not known."""
    if plan and plan.iterations:
        return f"--iters {10 * plan.iterations}"
    precision = min(PRECISION, plan.precision / 2) if plan else PRECISION
    return f"--precision {100 * precision:g}% {more_time(plan)}"
