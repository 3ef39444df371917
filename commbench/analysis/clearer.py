"""The options that give a clearer answer, as the user of a run writes them."""

from __future__ import annotations

from commbench.analysis import diagnostic_figures as figures
from commbench.host.cpu import PLAIN
from commbench.plan.dimensions import DEFAULT_TIMING
from commbench.plan.plan import CPU_MODES
from commbench.results.schema import IN_SWEEP, RunHeader, is_in_process

FEW_LAUNCHES = 6
"""Launches from which their differences can be seen: this many at least."""
MANY_LAUNCHES = 12
"""More than twice as many hardly narrow an interval: another host, or another time, does."""
PRECISION = 0.02
"""Half the interval over the median that is enough for most comparisons."""
BUDGET_S = 2.0
REALTIME = "--cpu-mode realtime (root or CAP_SYS_NICE)"
"""What keeps other programs from the cores of ranks, and who may use it."""


def write_options(header: RunHeader | None, **values: str | float) -> str:
    """Options as the user of this run writes them: `--budget 2` for `commbench run`,
    `measure(budget=2)` for a program, `--rounds 6` for the launches of a sweep."""
    texts = {name: v if isinstance(v, str) else f"{v:g}" for name, v in values.items()}
    if header and is_in_process(header):
        words = (
            f'{n}="{t}"' if isinstance(values[n], str) else f"{n}={t}" for n, t in texts.items()
        )
        return f"measure({', '.join(words)})"
    names = {"launches": "rounds"} if header and header.launcher == IN_SWEEP else {}
    return " ".join(f"--{names.get(n, n).replace('_', '-')} {text}" for n, text in texts.items())


def more_launches(header: RunHeader | None = None) -> str:
    """`--launches 6`, or twice as many as there were; after MANY_LAUNCHES another remedy."""
    launches = header.plan.launches if header else 1
    if launches > MANY_LAUNCHES:
        return "an idle host (`commbench doctor`)"
    return write_options(header, launches=max(FEW_LAUNCHES, 2 * launches))


def same_options(header: RunHeader, varied: str = "") -> str:
    """The options, each after a blank, with which another command measures as a run did, where
    these are not the usual ones and `varied`, a list of options, has none of them."""
    plan, words = header.plan, {*varied.split()}
    usual = PLAIN if "--overlap" in words else CPU_MODES[0]
    kept = {
        "--dtype": ",".join(plan.dtypes) if plan.dtypes != ("float32",) else "",
        "--timing": plan.timing if not {"--form", "--overlap"} & words else "",
        "--cpu-mode": plan.cpu_mode if plan.device == "cpu" and "cpu-mode=" not in varied else "",
    }
    left_out = {"--timing": DEFAULT_TIMING, "--cpu-mode": usual}
    return "".join(
        f" {name} {value}" for name, value in kept.items() if value and value != left_out.get(name)
    )


def more_time(header: RunHeader | None = None, **values: str | float) -> str:
    """`--budget 2`, or ten times the budget of the run; `--iters` where the run was asked for a
    number of iterations, which takes no budget. Other options come first."""
    if header and header.plan.is_soak:
        name = "duration" if is_in_process(header) else "for"
        return write_options(header, **{name: 10 * (header.plan.soak_s or 60.0)})
    if header and header.plan.iterations:
        return write_options(header, **{**values, "iters": 10 * header.plan.iterations})
    budget_s = max(BUDGET_S, 10 * header.plan.budget_s if header else 0.0)
    return write_options(header, **{**values, "budget": budget_s})


def more_precisely(header: RunHeader | None = None) -> str:
    """`--launches 6 --precision 2% --budget 2`, and only more launches where the run was as precise
    already; `--iters` where it was asked for a number of iterations. None for a run that is not
    known."""
    plan = header.plan if header else None
    values: dict[str, str | float] = {}
    if not (header and is_in_process(header)):
        values["launches"] = max(FEW_LAUNCHES, 2 * (plan.launches if plan else 0))
    if plan and plan.iterations:
        return more_time(header, **values)
    if values and plan and plan.precision <= PRECISION:
        return write_options(header, **values)
    precision = min(PRECISION, plan.precision / 2) if plan else PRECISION
    return more_time(header, **values, precision=f"{100 * precision:g}%")


def may_use_realtime(header: RunHeader) -> bool:
    """Whether another measurement of ranks on CPUs would wait less for other programs: each has a
    core, and commbench, which starts them, had not chosen that mode. A sweep of CPU modes says
    itself which mode is the fastest."""
    return (
        header.plan.device == "cpu"
        and header.plan.cpu_mode != "realtime"
        and not header.plan.needs_two_cores
        and not is_in_process(header)
        and not (header.launcher == IN_SWEEP and "cpu-mode=" in header.label)
        and (figures.ranks_per_core(header) or 0.0) <= 1.0
    )


def clearer(header: RunHeader | None, both: bool = True) -> str:
    """What to do where intervals are too wide for a verdict."""
    return (
        f"For a clearer answer measure {'both ' * both}again with "
        f"`{more_precisely(header)}` on a quiet host (`commbench doctor`)"
        f"{f', or add {REALTIME}' if header and may_use_realtime(header) else ''}"
    )
