"""DIAGNOSTICS: the warnings about a measurement, the most important first; and the options that
give a clearer answer.

Each has a name, a figure, a threshold, a message and advice. They are computed from the journal
whenever a run is read, so a better rule applies to old runs too. The notes of `show`, the rows of
`explain`, the column `warnings` of results.csv and JSON all come from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis import diagnostic_figures as figures
from commbench.host.fault_counters import explain_counter
from commbench.output.paragraphs import list_some
from commbench.plan.timing_modes import PIPELINED
from commbench.results.schema import RunHeader, is_imported, is_in_process
from commbench.units import format_share
from commbench.views.cells import ratio_interval_text

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow

FEW_LAUNCHES = 6
"""Launches from which their differences can be seen: this many at least."""
PRECISION = 0.02
"""Half the interval over the median that is enough for most comparisons."""
BUDGET_S = 2.0
MINUTE_S = 60.0
_RUN_DOCTOR = "run `commbench doctor`"
_SEE_RANK = "see slowest_rank in results.csv"


class Diagnostic(NamedTuple):
    """One way in which a measurement can mislead."""

    name: str
    words: str
    """What the name means, in two or three plain words."""
    figure: Callable[[ResultRow], float | None]
    """What is compared with the threshold; None where it is unknown or does not apply."""
    threshold: float
    """The diagnostic applies where the figure is above it."""
    message: str
    """What is wrong, in a few words. `{}` is the largest figure of the rows concerned, `{percent}`
    the same in percent, with `up to` where it is of one row of several, `{capped}` likewise, and
    100 % at most; `{part}` is `14 % of` or `1.4 times`, and `{longer}` is 1 more than the figure;
    `{names}` are those of its row. `{interval}` is the interval of that row's time over the
    median, and `{backend}` the backend of its run."""
    advice: str | Callable[[RunHeader], str]
    """What to do about it, in a few words; it names an option that the run takes and has not used
    yet."""
    explanation: str
    """What the message means, and what else to do, in sentences."""
    explained_by: tuple[str, ...] = ()
    """Diagnostics that give the reason. Where one of them applies, this one is not shown."""
    names: Callable[[ResultRow], Sequence[str]] = lambda _: ()
    """What it is about: variables, counters, ranks, reasons."""

    def describe(self, concerned: Sequence[tuple[ResultRow, float]]) -> str:
        """Message and advice for the rows concerned, each given with its figure."""
        row, worst = max(concerned, key=lambda found: found[1])
        plan, is_one = row.header.plan, len(concerned) == 1
        up_to = "" if is_one else "up to "
        time = row.time and row.time.estimate
        over = time.scaled(1 / time.value) if time and time.value else None
        message = self.message.format(
            worst,
            percent=up_to + format_share(worst),
            capped=up_to + format_share(min(worst, 1.0)),
            part=up_to + (f"{format_share(worst)} of" if worst < 0.995 else f"{worst:.2g} times"),
            longer=f"{up_to}{1 + worst:.3g}",
            interval=f"{'' if is_one else 'worst row: '}interval {ratio_interval_text(over)}",
            backend=plan.backend,
            names=list_some(self.names(row), 1),
        )
        advice = {
            self.advice if isinstance(self.advice, str) else self.advice(row.header)
            for row, _ in concerned
        }
        todo = f"; {advice.pop() if len(advice) == 1 else _RUN_DOCTOR}"
        return message if is_imported(row.header) else message + todo


def diagnose_row(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics that apply to a row, each with its figure, in the order of the table."""
    if not row.measurement.batches:
        return {}
    found = ((diagnostic, diagnostic.figure(row)) for diagnostic in DIAGNOSTICS)
    return {d: figure for d, figure in found if figure is not None and figure > d.threshold}


def find_causes(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics of a row without those that another of them explains."""
    found = diagnose_row(row)
    names = {diagnostic.name for diagnostic in found}
    return {d: figure for d, figure in found.items() if names.isdisjoint(d.explained_by)}


def write_options(header: RunHeader | None, **values: str | float) -> str:
    """Options as the user of this run writes them: `--budget 2` for `commbench run`,
    `measure(budget=2)` for a program."""
    texts = {name: v if isinstance(v, str) else f"{v:g}" for name, v in values.items()}
    if header and is_in_process(header):
        words = (
            f'{n}="{t}"' if isinstance(values[n], str) else f"{n}={t}" for n, t in texts.items()
        )
        return f"measure({', '.join(words)})"
    return " ".join(f"--{name.replace('_', '-')} {text}" for name, text in texts.items())


def more_launches(launches: int = 1) -> str:
    """`--launches 6`, or twice as many as there were."""
    return write_options(None, launches=max(FEW_LAUNCHES, 2 * launches))


def more_time(header: RunHeader | None = None, **values: str | float) -> str:
    """`--budget 2`, or ten times the budget of the run; `--iters` where the run was asked for a
    number of iterations, which takes no budget. Other options come first."""
    if header and header.plan.is_soak:
        return write_options(header, duration=10 * (header.plan.soak_s or MINUTE_S))
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
        values["launches"] = max(FEW_LAUNCHES, 2 * plan.launches if plan else 0)
    if plan and plan.iterations:
        return more_time(header, **values)
    if values and plan and plan.precision <= PRECISION:
        return write_options(header, **values)
    precision = min(PRECISION, plan.precision / 2) if plan else PRECISION
    return more_time(header, **values, precision=f"{100 * precision:g}%")


def measure_launches(headers: Sequence[RunHeader | None]) -> str:
    """What shows how much launches of these runs differ."""
    if headers and all(header and is_in_process(header) for header in headers):
        return "measure in several jobs to see that"
    return f"`commbench run {more_launches()}` measures that"


def _more_time(header: RunHeader) -> str:
    return f"try {more_time(header)}"


def _named(
    name: str, words: str, find: Callable[[RunHeader], Sequence[str]], message: str,
    advice: str | Callable[[RunHeader], str], explanation: str,
) -> Diagnostic:  # fmt: skip
    """A diagnostic that applies where something of the run has names."""
    return Diagnostic(
        name, words, lambda row: len(find(row.header)), 0, message, advice, explanation,
        names=lambda row: find(row.header),
    )  # fmt: skip


DIAGNOSTICS: tuple[Diagnostic, ...] = (
    Diagnostic(
        "above_link", "more than the peak allows", figures.above_link, 1.005,
        "busbw is {part} the peak, which is impossible", "check the peak",
        "The link of the given peak cannot carry this bus bandwidth. Perhaps the peak is that of"
        " one link of several, or of another link: `commbench links` lists speeds.",
    ),
    _named(
        "unread_variables", "variables without effect", figures.unread_variables,
        "{backend} does not read {names}", "unset it",
        "Variables of NCCL are set, and this backend does not use NCCL: they have no effect.",
    ),
    _named(
        "different_variables", "ranks with other variables", figures.different_variables,
        "ranks differ in {names}", "set it alike",
        "It is read from the environment or a file such as /etc/nccl.conf. The header in run.jsonl"
        " names the ranks.",
    ),
    _named(
        "faults", "faults of links or GPUs",
        lambda header: [f"{n} rose by {by}" for n, by in figures.risen_counters(header).items()],
        "{names}",
        lambda header: explain_counter(next(iter(figures.risen_counters(header)), ""))
        or _RUN_DOCTOR,
        "Whatever is damaged or lost is sent again, which takes time. The last line of run.jsonl"
        " has all counters that rose. Compare with a run on other hosts.",
    ),
    _named(
        "far_from_gpu", "ranks far from their GPU",
        lambda header: [f"rank {rank}" for rank in figures.far_ranks(header)],
        "{names} may run far from its GPU", "bind it to the NUMA node",
        "What the host does takes longer there. commbench binds the ranks that it starts, where"
        " they may use all cores. Bind others with an option of their launcher, or with numactl.",
    ),
    Diagnostic(
        "too_few_cores", "more ranks than cores", figures.ranks_per_core, 1.0,
        "{:.3g} ranks share a core", "start fewer ranks",
        "The ranks of a host wait for each other to get a core, so the times show the scheduler"
        " more than the collective.",
    ),
    Diagnostic(
        "overlap_cores", "too few cores for an overlap", figures.overlap_threads_per_core, 1.0,
        "{:.3g} threads share a core", "start fewer ranks",
        "A rank computes in one thread and its backend communicates in another: with one core, one"
        " of them stops. Start fewer ranks on each host, in the CPU mode plain.",
        ("too_few_cores",),
    ),
    Diagnostic(
        "not_symmetric", "symmetric memory perhaps not used", figures.shown_asymmetric, 0,
        "NCCL logged no symmetric call",
        lambda header: f"use {write_options(header, memory='all')}",
        "NCCL may have no symmetric kernel for this function or these GPUs. Calls in graphs are not"
        " logged. Measure memory that is only registered, too.",
    ),
    Diagnostic(
        "throttled", "CPU limit reached", lambda row: row.interference.throttled_share, 0.01,
        "CPU limit reached {percent} of the time", "raise the limit",
        "The kernel stopped the ranks until the next period. Raise the CPU limit of the container,"
        " or start fewer ranks.",
    ),
    Diagnostic(
        "stolen", "CPU time taken by other virtual machines",
        lambda row: row.interference.stolen_share, 0.05,
        "the hypervisor took {percent} of the CPU time", "use an idle host",
        "Other virtual machines on the same physical host used the processor.",
    ),
    Diagnostic(
        "gpu_throttled", "GPUs slowed down",
        lambda row: figures.gpu_throttled_share(row.measurement.batches), 0.10,
        "a GPU was throttled ({names})", _RUN_DOCTOR,
        "Raise a power cap (nvidia-smi -pl), or compare only runs with the same one. For a"
        " temperature or a slowdown by the hardware, check the cooling and the power supply.",
        names=lambda row: figures.throttle_reasons(row.measurement.batches),
    ),
    Diagnostic(
        "gpu_clocks", "GPU clocks that change",
        lambda row: figures.gpu_clock_spread(row.measurement.batches), 0.10,
        "the highest GPU clock is {longer} times the lowest", "lock them (nvidia-smi -lgc)",
        "An idle GPU lowers its clock. Lock it: nvidia-smi -lgc 1980,1980, with a clock that your"
        " GPU can keep up; nvidia-smi -rgc undoes that.",
        ("gpu_throttled",),
    ),
    Diagnostic(
        "stalls", "interrupted calls", lambda row: row.interference.stalled_share, 0.05,
        "the host interrupted {percent} of the calls", _RUN_DOCTOR,
        "These calls took 50 % and at least 1.5 ms longer than typical: the scheduler of the host"
        " gave the core of a rank to another program. `commbench doctor` measures which CPU mode"
        " helps.",
        ("too_few_cores", "throttled", "stolen", "queued"),
    ),
    Diagnostic(
        "queued", "ranks that waited for a core", lambda row: row.interference.queued_share, 0.5,
        "ranks waited for a core {capped} of the time", _RUN_DOCTOR,
        "Other programs had the core, or there are too few cores. In the CPU mode quiet each rank"
        " stays on one core; in the mode plain it may move. `commbench doctor` measures which mode"
        " helps.",
        ("too_few_cores", "throttled"),
    ),
    Diagnostic(
        "drift", "times that rise or fall", figures.drift, 0.10,
        "times rose or fell by {part} the median", _more_time,
        "Later batches of calls were all slower, or all faster, than earlier ones: the machine"
        " became warm, or other work began. Run longer, or again.",
    ),
    Diagnostic(
        "launches", "launches that differ", figures.launch_spread, 0.10,
        "launches differ: the slowest took {longer} times the fastest",
        lambda header: f"try {more_launches(header.plan.launches)}",
        "A single launch, which measures in fresh processes, says little here. Compare runs of"
        " several (--launches), or use a sweep of several rounds (`commbench sweep --rounds`).",
    ),
    Diagnostic(
        "bimodal", "times in two groups", figures.bimodality, figures.BIMODAL,
        "times form two separate groups", _more_time,
        "A path or a clock may change now and then. The median is in one of the groups by chance."
        " Look at the samples in run.jsonl before you compare the median.",
        ("too_few_cores",),
    ),
    Diagnostic(
        "skew", "ranks that start late", figures.skew, 0.10,
        "a rank starts late, by {part} the call's time", _SEE_RANK,
        "The first rank waits this long for the last one to start. In results.csv, operation_us"
        " is the time without the wait, and slowest_rank names the rank that starts last.",
        ("too_few_cores", "always_last"),
    ),
    Diagnostic(
        "always_last", "one rank always last", figures.always_last, 0.90,
        "{names} is last in {percent} of calls", "look for other work on its core",
        "The others wait for this rank; the column slowest_rank of results.csv names it for each"
        " row. Look for other work on its core, a lower clock of its processor, or a slower link.",
        ("too_few_cores",), figures.last_rank,
    ),
    Diagnostic(
        "launch_bound", "calls that the GPU waited for", figures.late_launches, 0.10,
        "the GPU waited for the host in {percent} of calls", "compare larger sizes",
        "The device came to a call before the host had queued it, so the time contains a wait for"
        " the host. A host with a higher clock, or with less other work, queues calls earlier.",
    ),
    Diagnostic(
        "coarse_clock", "a clock too coarse", figures.clock_coarseness, 1.0,
        "the clock is {:.1f} times too coarse",
        lambda header: f"use {write_options(header, timing=PIPELINED)}",
        "Its step, or the overhead of the timed loop, is a large part of such a short time."
        " Pipelined timing measures many calls at once.",
    ),
    Diagnostic(
        "imprecise", "wide intervals", figures.imprecision, 1.0,
        "{interval} times the median", _more_time,
        "The time for measuring (the budget) was used up before the 95 % interval of the median"
        " was as narrow as the precision asks. Give it more time, or use a quieter host.",
    ),
)  # fmt: skip
