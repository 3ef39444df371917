"""DIAGNOSTICS: the warnings about a measurement, the most important first.

Each has a name, a figure, a threshold, a message and advice. They are computed from the journal
whenever a run is read, so a better rule applies to old runs too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from commbench.analysis.advice import more_launches, more_time, write_options
from commbench.analysis.diagnostic_figures import (
    above_link,
    always_last,
    bimodality,
    clock_coarseness,
    different_variables,
    drift,
    far_ranks,
    imprecision,
    late_launches,
    launch_spread,
    overlap_threads_per_core,
    ranks_per_core,
    risen_counters,
    shown_asymmetric,
    skew,
    unread_variables,
)
from commbench.analysis.interference import gpu_clock_spread, gpu_throttled_share, throttle_reasons
from commbench.host.fault_counters import explain_counter
from commbench.output.paragraphs import list_some
from commbench.results.schema import is_in_process
from commbench.spec.plan import CPU_MODES
from commbench.spec.timing_modes import PIPELINED
from commbench.units import format_share

if TYPE_CHECKING:
    from commbench.analysis.rows import ResultRow
    from commbench.results.schema import RunHeader


class Diagnostic(NamedTuple):
    """One way in which a measurement can mislead."""

    name: str
    figure: Callable[[ResultRow], float | None]
    """What is compared with the threshold; None where it is unknown or does not apply."""
    threshold: float
    """The diagnostic applies where the figure is above it."""
    message: str
    """What is wrong, in a few words. `{}` is the largest figure of the rows concerned, `{percent}`
    the same in percent, with `up to` where it is of one row of several, `{capped}` likewise, and
    100 % at most. `{precision}` and `{target}` say how well
    the median of that row is known; `{variables}`, `{different}`, `{reasons}` and
    `{backend}` are unread_variables(), different_variables(), throttle_reasons() and the backend of
    its run; `{risen}` and `{far}` are risen_counters() and far_ranks()."""
    advice: Callable[[RunHeader], str]
    """What to do about it, in a few words; it names an option that the run takes and has not used
    yet."""
    explanation: str
    """What the message means, and what else to do, in sentences."""
    explained_by: tuple[str, ...] = ()
    """Diagnostics that give the reason. Where one of them applies, this one is not shown."""

    def describe(self, concerned: Sequence[tuple[ResultRow, float]]) -> str:
        """Message and advice for the rows concerned, each given with its figure."""
        row, worst = max(concerned, key=lambda found: found[1])
        plan = row.header.plan
        up_to = "up to " * (len(concerned) > 1)
        message = self.message.format(
            worst,
            percent=up_to + format_share(worst),
            capped=up_to + format_share(min(worst, 1.0)),
            precision=_interval_text(row) + " in the worst row" * (len(concerned) > 1),
            target=f"{100 * plan.precision:.2g} %",
            variables=list_some(unread_variables(row.header), 1),
            backend=plan.backend,
            different=list_some(different_variables(row.header), 1),
            risen=list_some(
                [f"{n} rose by {rise}" for n, rise in risen_counters(row.header).items()], 1
            ),
            far=list_some([f"rank {rank}" for rank in far_ranks(row.header)], 1),
            reasons=list_some(throttle_reasons(row.measurement.batches), 1),
        )
        advice = {self.advice(row.header) for row, _ in concerned}
        return f"{message}; {advice.pop() if len(advice) == 1 else _RUN_DOCTOR}"


SYMMETRIC = 1.5
"""An interval is written as `±` where neither side is more than so many times the other."""


def _interval_text(row: ResultRow) -> str:
    """How well the median is known: `±25 %`, or, where one side is much wider or the interval is as
    wide as the median, its two ends: `-20/+80 %`, or `0.6-3.1 times`."""
    time = row.time
    if time is None or time.low is None or time.high is None or time.precision is None:
        return "±0 %"
    below, above = time.median - time.low, time.high - time.median
    is_symmetric = max(below, above) <= SYMMETRIC * min(below, above)
    if time.precision < 0.1 or (is_symmetric and time.precision < 0.75):
        return f"±{format_share(time.precision)}"
    if above > time.median:
        return f"{time.low / time.median:.1g}-{time.high / time.median:.2g} times its value"
    return f"-{100 * below / time.median:.0f}/+{format_share(above / time.median)}"


def diagnose_row(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics that apply to a row, each with its figure, in the order of the table."""
    if not row.measurement.batches:
        return {}
    figures = ((diagnostic, diagnostic.figure(row)) for diagnostic in DIAGNOSTICS)
    return {d: figure for d, figure in figures if figure is not None and figure > d.threshold}


def find_causes(row: ResultRow) -> dict[Diagnostic, float]:
    """The diagnostics of a row without those that another of them explains."""
    found = diagnose_row(row)
    names = {diagnostic.name for diagnostic in found}
    return {d: figure for d, figure in found.items() if names.isdisjoint(d.explained_by)}


_RUN_DOCTOR = "run `commbench doctor`"


def _plain_cpu_mode(header: RunHeader) -> str:
    """Advice for a run in the default mode of the CPU; no advice goes back to that mode."""
    is_quiet = header.plan.cpu_mode == CPU_MODES[0] and not is_in_process(header)
    return "try --cpu-mode plain" if is_quiet else _RUN_DOCTOR


def _more_time(header: RunHeader) -> str:
    return f"try {more_time(header)}"


def _more_launches(header: RunHeader) -> str:
    return f"try {more_launches(header.plan.launches)}"


def _pipelined(header: RunHeader) -> str:
    return f"use {write_options(header, timing=PIPELINED)}"


def _every_memory(header: RunHeader) -> str:
    return f"use {write_options(header, memory='all')}"


def _explain_risen(header: RunHeader) -> str:
    return explain_counter(next(iter(risen_counters(header)), "")) or _RUN_DOCTOR


def _always(advice: str) -> Callable[[RunHeader], str]:
    return lambda _: advice


DIAGNOSTICS: tuple[Diagnostic, ...] = (
    Diagnostic(
        "above_link", above_link, 1.005,
        "busbw is {percent} of the peak, impossible", _always("check the peak"),
        "The bus bandwidth is higher than the link of the given peak can carry. Perhaps that is the"
        " speed of one link of several, or of another link: `commbench links` lists speeds.",
    ),
    Diagnostic(
        "unread_variables", lambda row: len(unread_variables(row.header)), 0,
        "{backend} does not read {variables}", _always("unset it"),
        "The environment of the run sets variables of NCCL, and this backend does not use NCCL."
        " They have no effect on these times. Unset them, or measure with the backend nccl.",
    ),
    Diagnostic(
        "different_variables", lambda row: len(different_variables(row.header)), 0,
        "ranks differ in {different}", _always("set it alike"),
        "An environment variable that communication libraries read has different values on"
        " different ranks, or a file such as /etc/nccl.conf has. The header in run.jsonl names the"
        " ranks. Set it to the same value on all hosts.",
    ),
    Diagnostic(
        "faults", lambda row: len(risen_counters(row.header)), 0,
        "{risen}", _explain_risen,
        "Counters of faults of network ports, NVLinks or GPUs rose during the run. Whatever is"
        " damaged or lost is sent again, which takes time. The last line of run.jsonl has all of"
        " them. Compare with a run on other hosts.",
    ),
    Diagnostic(
        "far_from_gpu", lambda row: len(far_ranks(row.header)), 0,
        "{far} may run far from its GPU", _always("bind it to the NUMA node"),
        "These ranks may run on cores of another NUMA node than that of their GPU, so what the host"
        " does for them takes longer. commbench binds the ranks that it starts itself, where they"
        " may use all cores. Bind others with an option of their launcher, or with numactl.",
    ),
    Diagnostic(
        "too_few_cores", ranks_per_core, 1.0,
        "{:.3g} ranks share a core", _always("start fewer ranks"),
        "There are more ranks than cores. The ranks wait for each other to get a core, so the times"
        " show the scheduler more than the collective. Start fewer ranks on each host.",
    ),
    Diagnostic(
        "overlap_cores", overlap_threads_per_core, 1.0,
        "{:.3g} threads share a core", _always("start fewer ranks"),
        "A rank computes in one thread and its backend communicates in another. Here both have to"
        " share a core, so the communication stops while the rank computes, or the other way round."
        " Start fewer ranks on each host, in the CPU mode plain.",
        ("too_few_cores",),
    ),
    Diagnostic(
        "not_symmetric", shown_asymmetric, 0,
        "NCCL logged no symmetric call", _every_memory,
        "The buffers are registered as symmetric windows, but NCCL's log of such a call names"
        " neither a symmetric kernel nor copy engines alone. NCCL uses other algorithms without a"
        " word, for example where it has no symmetric kernel for a function, or for these GPUs. Of"
        " calls in graphs nothing is known, nor where NCCL is not to log. So these may be the times"
        " of memory that is only registered: measure that, too.",
    ),
    Diagnostic(
        "throttled", lambda row: row.interference.throttled_share, 0.01,
        "CPU limit reached {percent} of the time", _always("raise the limit"),
        "The control group of the ranks used up its CPU quota, and the kernel stopped the ranks"
        " until the next period. Raise the CPU limit of the container, or start fewer ranks.",
    ),
    Diagnostic(
        "stolen", lambda row: row.interference.stolen_share, 0.05,
        "the hypervisor took {percent} of the CPU time", _always("use an idle host"),
        "Other virtual machines on the same physical host used the processor. Run again later, or"
        " on a host that you share with nobody.",
    ),
    Diagnostic(
        "gpu_throttled", lambda row: gpu_throttled_share(row.measurement.batches), 0.10,
        "a GPU was throttled ({reasons})", _always(_RUN_DOCTOR),
        "A GPU ran below its usual clock, for the reason that NVML gives. Raise a power cap"
        " (nvidia-smi -pl), or compare only runs with the same one. For a temperature or a slowdown"
        " by the hardware, check the cooling and the power supply.",
    ),
    Diagnostic(
        "gpu_clocks", lambda row: gpu_clock_spread(row.measurement.batches), 0.10,
        "GPU clocks differ by {percent}", _always("lock them (nvidia-smi -lgc)"),
        "The clock of the slowest GPU was not the same in all batches, so neither are the times. An"
        " idle GPU lowers its clock. Lock it: nvidia-smi -lgc 1980,1980, with a clock that your GPU"
        " can keep up; nvidia-smi -rgc undoes that.",
        ("gpu_throttled",),
    ),
    Diagnostic(
        "stalls", lambda row: row.interference.stalled_share, 0.05,
        "{percent} of the calls stalled", _plain_cpu_mode,
        "A call is stalled if it was 50 % slower than typical and at least 1.5 ms slower. The"
        " scheduler of the host causes that: it gave the core of a rank to other work. `commbench"
        " doctor` measures which CPU mode helps on this host.",
        ("too_few_cores", "throttled", "stolen", "queued"),
    ),
    Diagnostic(
        "queued", lambda row: row.interference.queued_share, 0.5,
        "ranks lacked a core {capped} of the time", _plain_cpu_mode,
        "Threads of a rank were ready to run and had no core, because other work ran there. In the"
        " CPU mode quiet of `commbench run` each rank stays on one core; in the mode plain it may"
        " move. `commbench doctor` measures which mode helps on this host.",
        ("too_few_cores", "throttled"),
    ),
    Diagnostic(
        "drift", drift, 0.10,
        "times drifted by {percent}", _more_time,
        "Later batches of calls were slower, or faster, than earlier ones, and all in the same"
        " direction: the machine became warm, or other work began. Run longer, or again.",
    ),
    Diagnostic(
        "launches", launch_spread, 0.10,
        "medians of launches differ by {percent}", _more_launches,
        "Each launch of a run, and each round of a sweep, measures in fresh processes. Here their"
        " medians differ, so a single one says little. Compare runs of several launches"
        " (--launches), or use a sweep of several rounds (`commbench sweep --rounds`).",
    ),
    Diagnostic(
        "bimodal", bimodality, 4.0,
        "times form two separate groups", _more_time,
        "The times form two groups, for example because a path or a clock changes now and then."
        " The median is in one of them by chance. The samples are in run.jsonl: look at both groups"
        " before you compare the median.",
        ("too_few_cores",),
    ),
    Diagnostic(
        "skew", skew, 0.10,
        "a rank starts late by {percent} of the call",
        _always("see slowest_rank"),
        "Ranks do not start a call at the same time. From the first to the last one it takes that"
        " part of the time of the call. The first one waits so long and moves no data. In"
        " results.csv, the column operation_us is the time without the wait, and slowest_rank names"
        " the rank that starts last.",
        ("too_few_cores", "always_last"),
    ),
    Diagnostic(
        "always_last", always_last, 0.90,
        "a rank is last in {percent} of calls",
        _always("see slowest_rank"),
        "The same rank starts the call last nearly every time, and the others wait for it. The"
        " column slowest_rank of results.csv names it. Look for other work on its core, a lower"
        " clock of its processor, or a slower link.",
        ("too_few_cores",),
    ),
    Diagnostic(
        "launch_bound", late_launches, 0.10,
        "{percent} of calls were queued late", _always("compare larger sizes"),
        "The device came to a call before the host had queued it, so the time contains a wait for"
        " the host and is too long. A host with a higher clock, or with less other work, queues"
        " calls earlier.",
    ),
    Diagnostic(
        "coarse_clock", clock_coarseness, 1.0,
        "clock {:.1f} times too coarse", _pipelined,
        "The step of the clock, or the overhead of the timed loop, is a large part of such a short"
        " time. Pipelined timing measures many calls at once.",
    ),
    Diagnostic(
        "imprecise", imprecision, 1.0,
        "median known only to {precision} (target ±{target})", _more_time,
        "The 95 % interval of the median is wider than the requested precision, and the time for"
        " measuring (the budget) was used up. Give it more time, or use a quieter host.",
    ),
)  # fmt: skip
