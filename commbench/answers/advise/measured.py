"""The rows of several runs, by what ran: the same ranks and devices, under one or several settings
of the environment; and the commands that measure what is missing for advice, or make it surer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any, NamedTuple

from commbench.analysis.clearer import FEW_LAUNCHES, more_precisely, same_options
from commbench.analysis.diagnostics import WAITED, has_waited
from commbench.analysis.environment import NEEDED_FACTS
from commbench.analysis.load import as_loaded_run
from commbench.analysis.rows import ResultRow, make_rows
from commbench.answers.advise.choices import CPU_MODE, Choice, ChoiceAdvice
from commbench.answers.advise.simulation import ESTIMATED, BucketAdvice, Slowdown, TimeTable
from commbench.answers.compare.comparison import find_mismatches
from commbench.answers.sweep.ranking import is_timed, make_points, rank_settings
from commbench.answers.sweep.runner import SettingResult
from commbench.answers.sweep.settings import NAME, UNSET, Setting
from commbench.host.cpu import PLAIN
from commbench.output.text import list_some
from commbench.plan.backends import BACKENDS, find_family, suggest_variable
from commbench.plan.call_forms import CALL_FORMS, DIRECT, ONE_TENSOR
from commbench.plan.case import Case
from commbench.plan.dimensions import EAGER, ISOLATED
from commbench.plan.replay import replayed_workload
from commbench.plan.workload_fit import SHRINK, was_shrunk
from commbench.plan.workload_variants import AS_TRACED, EVERY_VARIANT, expand_variants
from commbench.results.run_folder import find_sweep
from commbench.results.schema import Run, RunHeader
from commbench.stats import TOLERANCE, UNDECIDED, Estimate, collect
from commbench.units import format_count, format_size, format_sizes, parse_sizes
from commbench.views.cells import WIDE

MOST_NAMES = 3
"""Runs that are named, at most."""


class Measured(NamedTuple):
    """Runs on the same ranks and devices."""

    runs: tuple[str, ...]
    """Their names."""
    header: RunHeader
    """Of the first one under the default setting."""
    results: tuple[SettingResult, ...]
    """By setting, the default first: without variables where that was measured, else that of the
    first run. Of two rows of one case the later one counts."""
    is_only: bool = True
    """Whether no other group of runs has as many ranks and nodes."""
    overlapped: tuple[ResultRow, ...] = ()
    """The rows in which computations may go on beside calls: also those of other CPU modes, for a
    run with overlaps chooses another mode than one without."""
    fastest_mode: str = ""
    """The CPU mode with the shortest times, where the settings are CPU modes."""

    @property
    def rows(self) -> tuple[ResultRow, ...]:
        """The rows of the default setting."""
        return self.results[0].rows

    @property
    def has_waited(self) -> bool:
        """Whether ranks waited for a core in most of these rows."""
        return 2 * sum(has_waited(row.queued_share) for row in self.rows) > len(self.rows)

    @property
    def who(self) -> str:
        """`8 nccl ranks on 2 nodes`; with the names of the runs, where others have as many."""
        plan = self.header.plan
        ranks = format_count(plan.world_size, f"{plan.backend} rank".replace("  ", " "))
        nodes = f" on {self.header.num_nodes} nodes" if self.header.num_nodes > 1 else ""
        named = "" if self.is_only else f", in {list_some(self.runs, MOST_NAMES)}"
        return ranks + nodes + named

    def leave_open(self, found: ChoiceAdvice) -> ChoiceAdvice:
        """The advice on these settings, without what `commbench compare` refuses to compare."""
        runs = {e.setting: as_loaded_run(e.run, NEEDED_FACTS) for e in self.results if e.run}
        apart = {s for s, run in runs.items() if find_mismatches(runs[found.default], run)[0]}
        ranges = [*found.ranges]
        for at, each in enumerate(ranges):
            if each.alternative in apart:
                ranges[at] = each._replace(verdict=UNDECIDED, best=found.default, is_apart=True)
        crossings = (each for each in found.crossings if apart.isdisjoint(each[:2]))
        return found._replace(ranges=(*ranges,), crossings=(*crossings,))


def _place(header: RunHeader) -> tuple[Any, ...]:
    plan = header.plan
    return plan.world_size, header.num_nodes, plan.device, header.devices, header.gpu_shared


def group_modes(groups: Sequence[Measured]) -> Iterator[Measured]:
    """The groups that differ in nothing but their CPU mode, each mode as a setting: `plain` first,
    where it was measured, since programs run so."""
    facts = ((_place(each.header), *sorted(_facts(each.header).items())) for each in groups)
    alike = collect(zip(facts, groups, strict=True))
    for same in filter(lambda same: len(same) > 1, alike.values()):
        modes = {each.header.plan.cpu_mode: each.results[0] for each in same}
        results = [
            modes[mode]._replace(setting=Setting(options=((CPU_MODE, mode),)))
            for mode in sorted(modes, key=lambda mode: mode != PLAIN)
        ]
        ranked = rank_settings(make_points(results, TOLERANCE))
        fastest = ranked[0].setting.options[0][1] if ranked else ""
        yield same[0]._replace(results=(*results,), is_only=True, fastest_mode=fastest)


def group_runs(runs: Iterable[Run]) -> list[Measured]:
    """The runs by ranks, nodes, device and CPU mode, in the order given."""
    by_ranks = collect(((_place(run.header), run.header.plan.cpu_mode), run) for run in runs)
    groups = {key: _measured(same) for key, same in by_ranks.items()}
    alike = Counter(each.who for each in groups.values())
    rows = collect((key, row) for (key, _), each in groups.items() for row in each.rows)
    return [
        each._replace(is_only=alike[each.who] == 1, overlapped=tuple(rows.get(key, ())))
        for (key, _), each in groups.items()
    ]


def _measured(runs: Sequence[Run]) -> Measured:
    facts = [_facts(run.header) for run in runs]
    names = dict.fromkeys(name for own in facts for name in own)
    varied = [name for name in names if len({own.get(name, UNSET) for own in facts}) > 1]

    def setting(own: dict[str, str]) -> Setting:
        values = [(name, own.get(name, UNSET)) for name in varied]
        options = tuple(value for value in values if value[0].islower())
        return Setting(tuple(value for value in values if value not in options), options)

    found = collect((setting(own), run) for own, run in zip(facts, runs, strict=True))
    plain = (s for s in found if all(value == UNSET for _, value in s.variables))
    default = next(plain, next(iter(found)))
    rows = {each: tuple(r for run in same for r in make_rows(run)) for each, same in found.items()}
    order = sorted(found, key=lambda each: each != default)
    results = tuple(SettingResult(each, found[each][-1], rows[each]) for each in order)
    return Measured(tuple(run.name for run in runs), found[default][0].header, results)


def _facts(header: RunHeader) -> dict[str, str]:
    """What may make communication faster or slower, and is chosen by variables or options: names in
    capitals are variables that the backend reads."""
    backend = header.plan.backend
    found = {"backend": backend, "nccl-option": ",".join(header.plan.nccl_options) or UNSET}
    recorded = header.environment.get("variables")
    for name, value in recorded.items() if isinstance(recorded, dict) else ():
        family = find_family(name)
        is_read = family and backend in family.backends and suggest_variable(name, backend) is None
        if is_read and NAME.fullmatch(name) and "DEBUG" not in name:
            found[name] = str(value)
    return found


# The times of all_reduce


def make_tables(rows: Iterable[ResultRow]) -> dict[str, TimeTable]:
    """The tables by the group that calls (Case.group), each of the kind of its rows with most
    sizes: the dtype, placement and so on. Calls that were timed back to back count only where no
    call was timed alone. Groups with fewer than two sizes have none."""
    every = [row for row in rows if is_timed(row) and row.case.operation == "all_reduce"]
    plain = [row for row in every if _is_plain(row.case)]
    alone = {row.case.group for row in plain if row.case.timing == ISOLATED}
    counted = (r for r in plain if r.case.timing == ISOLATED or r.case.group not in alone)
    tables = {}
    for group, of_group in collect((row.case.group, row) for row in counted).items():
        same = max(collect((row.case.title, row) for row in of_group).values(), key=len)
        if table := _make_table(same):
            tables[group] = table._replace(busy=_busy(every, same[0], table))
    return tables


def _is_plain(case: Case) -> bool:
    """Whether a case is one eager call alone: no computation beside it, and one tensor."""
    is_direct = case.form in (DIRECT, "") and not case.call and case.launch_mode == EAGER
    return bool(is_direct and not case.part and case.tensors == ONE_TENSOR and case.size_bytes)


def _busy(rows: Sequence[ResultRow], like: ResultRow, table: TimeTable) -> TimeTable | None:
    """The times of calls without a pause between them, of the same kind: of several tensors whose
    calls were started together, over their number; else of calls that were timed back to back.

    A backend that works on k calls at once takes at least T(b)/k for each, and no less than their
    bytes at the speed of the largest size; that is estimated where calls that were started together
    were not measured."""
    key = like.case.key(*_FREE)
    alike = [row for row in rows if row.case.key(*_FREE) == key]
    several = [row for row in alike if row.case.tensors.isdigit() and row.case.num_tensors > 1]
    together = [r for r in several if r.case.form == "async" and r.case.timing == ISOLATED]
    if found := _make_table(together):
        return found
    followed = [row for row in alike if _is_plain(row.case) and row.case.timing != ISOLATED]
    found = _make_table(followed)
    backend = BACKENDS.get(like.header.plan.backend)
    at_once = backend.calls_at_once if backend else 1
    if at_once == 1:
        return found
    table = found or table
    seconds_per_byte = table.times[-1].value / table.largest
    times = tuple(
        time.scaled(min(1.0, max(1 / at_once, size * seconds_per_byte / time.value)))
        for size, time in zip(table.sizes, table.times, strict=True)
    )
    return TimeTable(ESTIMATED, table.sizes, times)


_FREE = ("timing", "size_bytes", "tensors", "form", "buffers")
"""What may differ between a call alone and calls that follow one another."""


def _make_table(rows: Sequence[ResultRow]) -> TimeTable | None:
    """The time of each call by its bytes; None for fewer than two sizes. Of several rows of one
    size the last counts."""
    sized = [(row.case.size_bytes // row.case.num_tensors, row) for row in rows]
    known = {size: t.estimate.scaled(1 / r.case.num_tensors) for size, r in sized if (t := r.time)}
    if len(known) < 2:
        return None
    sizes, times = zip(*sorted(known.items()), strict=True)
    waited = tuple(size for size, row in sized if has_waited(row.queued_share))
    return TimeTable(rows[0].case.title, sizes, times, None, waited)


def find_slowdown(rows: Sequence[ResultRow], cpu_mode: str) -> Slowdown:
    """What a computation and all_reduce cost each other while both go on: the median over the
    measured sizes, with the first computation of the plan, in this CPU mode where that was
    measured; none where nothing was, but for rows whose ranks waited for a core."""
    calm = (row for row in rows if row.overlap and not has_waited(row.queued_share))
    rows = [row for row in calm if row.case.operation == "all_reduce"]
    rows.sort(key=lambda row: row.header.plan.cpu_mode != cpu_mode)
    kinds = [(row.case.overlap, row.header.plan.cpu_mode) for row in rows]
    same = (row.overlap for row, kind in zip(rows, kinds, strict=True) if kind == kinds[0])
    if not (overlaps := [*filter(None, same)]):
        return Slowdown()
    of_work = _median([each.computation_slowdown for each in overlaps])
    of_calls = _median([each.communication_slowdown or Estimate(0.0) for each in overlaps])
    (work, mode), run = kinds[0], rows[0].header.label
    return Slowdown(of_work, of_calls, work, f"{run} (cpu mode {mode})" * (mode != cpu_mode))


def _median(found: Sequence[Estimate]) -> Estimate:
    """The median of the values, and those of their ends, as if sizes erred alike."""
    ends = [each.ends for each in found if each.has_interval]
    return Estimate(median(e.value for e in found), *map(median, zip(*ends, strict=True)))


# What is missing, and the commands that measure it

UNKNOWN = "not known: "
WIDE_SIZES = "64K-256M"
STEP_FILE = "STEP.json"
"""A file of a workload: a run has its content, but not its path."""
TOGETHER = 8
"""Calls that are started together, to see what a bucket takes after others."""
Needs = tuple[str, str]
"""What is missing, and the command that measures it, which may be empty."""


def surer_buckets(found: BucketAdvice, measured: Measured) -> Iterator[str]:
    """Commands that make the advice about buckets surer."""
    if not found.is_guess:
        yield from surer([UNDECIDED] * found.is_open, measured, found.has_waited)
    if found.beyond or found.is_guess:
        yield wide_command(measured.header)
    power = max(1 << 12, 1 << (found.recommended.bucket_bytes.bit_length() - 1))
    most = 1 << found.step.gradient_bytes.bit_length()
    measures = []
    if not found.slowdown.source or found.slowdown.other_run:
        measures.append(("--overlap matmul", power))
    if found.table.busy is None or found.table.busy.kind == ESTIMATED:
        measures.append((f"--tensors {TOGETHER} --form async", TOGETHER * power))
    for options, size in measures:
        low = min(size, most // 4) // 4
        sizes = f"{format_size(low)}-{format_size(min(4 * size, most))}:x4"
        yield run_command(measured.header, ["all_reduce"], options, sizes)


def surer(verdicts: Sequence[str], measured: Measured, has_waited: bool) -> tuple[str, ...]:
    """What decides what is undecided: more rounds of a sweep, options for the same run."""
    if UNDECIDED not in verdicts:
        return ()
    if has_waited:
        return ("the same on an idle host, or in another CPU mode (`commbench doctor`)",)
    run = measured.results[0].run
    if run and (sweep := find_sweep(str(Path(run.path).parent))):
        rounds = max(FEW_LAUNCHES, *(2 * len(row.launch_medians) for row in measured.rows))
        return (f"commbench sweep --resume {quote(str(sweep))} --rounds {rounds}",)
    return (f"the same run with {more_precisely(measured.header)}",)


def run_command(header: RunHeader, operations: Sequence[str], options: str, sizes: str = "") -> str:
    """The `commbench run` of the ranks of a run; its sizes are those of the run, if not given. The
    dtypes, timing and CPU mode are the run's, where `options` do not exclude them."""
    plan = header.plan
    wanted = sizes or format_sizes(plan.sizes)
    if len(parse_sizes(wanted)) < 2 and plan.sizes:
        wanted = WIDE_SIZES
    begin = f"commbench run --op {','.join(operations)} --sizes {wanted}"
    kept = same_options(header, options)
    return f"{_with_ranks(header, begin, f'{options}{kept}'.strip())} --label {_label(options)}"


def _label(options: str) -> str:
    """A name for a run with these options: `tensors-16` for `--tensors 16`, `via`, `wide`."""
    first, value, *_ = *options.removeprefix("--vary").split(), "", ""
    name = first.partition("=")[0].removeprefix("--") or "wide"
    return f"{name}-{value}" if value.isalnum() else name


LABEL = re.compile(r" --label (\S+)")
"""The name of a run in a command."""


def _with_ranks(header: RunHeader, *words: str) -> str:
    ranks = f"--nproc-per-node {header.plan.world_size}" if header.num_nodes == 1 else ""
    return " ".join(filter(None, [*words, ranks]))


def _replay_command(header: RunHeader, *words: str) -> str:
    """A command on the workload of a replay, whose file is not known."""
    fit = f"--fit {SHRINK}" if was_shrunk(replayed_workload(header.plan)) else ""
    return _with_ranks(header, *words, fit)


def sweep_command(header: RunHeader, varied: str) -> str:
    """A sweep of what a run measured, without its CPU mode where that is varied."""
    if header.plan.workload:
        return _replay_command(header, f"commbench sweep {varied} --workload {STEP_FILE}")
    command = run_command(header, header.plan.operations, varied)
    return command.replace("commbench run", "commbench sweep", 1)


def _variant_needs(choice: Choice, header: RunHeader) -> Needs:
    """What advice about the variants of a step needs."""
    steps = replayed_workload(header.plan).steps
    others = {v for step in steps for v in expand_variants((EVERY_VARIANT,), step)}
    if not others - set(AS_TRACED):
        return "the step has no other variants: no all_reduce of 1 MiB or more", ""
    several = "--step all" if len(steps) > 1 else ""
    words = (f"commbench replay {STEP_FILE}", several, choice.measure)
    return "no alternatives have a valid time", _replay_command(header, *words)


def choice_needs(choice: Choice, measured: Measured) -> Needs:
    """What a choice without rows needs."""
    header = measured.header
    if not choice.option:
        lacks = f"no two runs differ in a variable that {header.plan.backend} reads"
        return lacks, sweep_command(header, choice.measure)
    if choice.is_of_steps:
        return _variant_needs(choice, header)
    known = [name for name in header.plan.operations if name in choice.operations]
    operations = known or choice.operations or header.plan.operations
    measure, _, forms = choice.measure.partition("--via ")
    if forms:
        suiting = [n for n in forms.split(",") if {*CALL_FORMS[n].operations} & {*operations}]
        measure = f"--via {','.join(suiting)}"
    values = {getattr(r.case, choice.option, "") for r in measured.rows if choice.suits(r.case)}
    lacks = "no alternatives are measured"
    if len(values) > 1 and not values & {*choice.defaults}:
        lacks = f"{choice.defaults[0]}, which the others are compared with, is not measured"
    return lacks, run_command(header, operations, measure)


def growth_needs(table: TimeTable, flat_sizes: tuple[int, int], header: RunHeader) -> Needs:
    """What buckets above the measured sizes need where the time says nothing of the size, and
    why."""
    (low, high), sizes = flat_sizes, "-".join(map(format_size, flat_sizes))
    flat = [size in table.waited for size in table.sizes if low <= size <= high]
    needs = f"the time may not grow with the size ({sizes}): measure larger sizes"
    if any(time.is_wider(WIDE) for time in table.times):
        needs = f"the times are too noisy to show how they grow with the size ({sizes})"
    if 2 * sum(flat) > len(flat):
        needs = f"{WAITED}; {needs}, on an idle host (`commbench doctor`)"
    return f"{UNKNOWN}{needs}", wide_command(header)


def wide_command(header: RunHeader) -> str:
    """What measures all_reduce at many sizes."""
    return run_command(header, ["all_reduce"], "", WIDE_SIZES)
