"""What rows of runs say about buckets, forms of calls and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from commbench.analysis.diagnostics import waited_answer
from commbench.analysis.environment import (
    CORES,
    environment_facts,
    environment_variables,
    find_crowd,
)
from commbench.analysis.rows import ResultRow
from commbench.analysis.statistics import median
from commbench.answers.advise import choices, simulation
from commbench.answers.advise import measured as commands
from commbench.answers.advise.measured import Measured
from commbench.answers.advise.simulation import TimeTable
from commbench.answers.show.run_notes import RowsWarning, find_warnings
from commbench.errors import UsageError
from commbench.output.text import join_words, short_repr
from commbench.plan.dtypes import DTYPES
from commbench.results.run_folder import RESULTS, find_sweep
from commbench.results.schema import OK, Run, RunHeader
from commbench.stats import CHANGE, KEEP, SLOWER, UNDECIDED, decide
from commbench.units import format_size
from commbench.views.formats import Result

DDP = "Bucket size of DDP"
TOLERANCE = 0.02
"""Gains up to this part count as none."""


class Question(NamedTuple):
    """What the user says about a training step."""

    params: float | None = None
    """The number of parameters."""
    model_bytes: int | None = None
    """Bytes of all gradients, instead of `params`."""
    backward_s: float | None = None
    """Seconds of the backward pass without communication; None: as long as the communication of
    all gradients, for which the bucket size matters most."""
    tensors: int | None = None
    """Gradients of equal size, which become ready one by one; None: of any size."""
    bucket_bytes: int | None = None
    """The bucket size in use; None: torch's default."""
    tolerance: float = TOLERANCE

    @property
    def options(self) -> str:
        """The options that say this."""
        given = {
            "--params": self.params and f"{self.params / 1e6:g}M",
            "--model-bytes": self.model_bytes, "--tensors": self.tensors,
            "--backward": self.backward_s and f"{self.backward_s * 1e3:g}ms",
            "--bucket-cap": self.bucket_bytes and format_size(self.bucket_bytes),
        }  # fmt: skip
        return " ".join(f"{name} {value}" for name, value in given.items() if value)


@short_repr("subject", "about", "verdict")
class Advice(NamedTuple):
    """One piece of advice."""

    subject: str
    """What is chosen: `Bucket size of DDP`."""
    about: str
    """The rows and the ranks that it is about."""
    verdict: str
    """CHANGE, KEEP or UNDECIDED."""
    paste: tuple[str, ...]
    """Lines for a program or a shell; none where nothing should change."""
    measure: tuple[str, ...]
    """Commands that make it surer."""
    details: simulation.BucketAdvice | choices.ChoiceAdvice
    """The figures."""


class Missing(NamedTuple):
    """A choice that no rows decide."""

    subject: str
    needs: str
    """What is missing, in words."""
    command: str
    """The command that measures it; empty where none is needed."""
    is_asked: bool = True
    """Whether the runs or the question are about it; of a replay only its steps are."""


@dataclass(frozen=True, repr=False)
class AdviceReport(Result, view="answers.advise.document", rows="advice"):
    """All advice from some runs."""

    runs: tuple[str, ...]
    """Their names."""
    sources: tuple[str, ...]
    """What a command names them by."""
    question: Question
    advice: tuple[Advice, ...]
    missing: tuple[Missing, ...]
    warnings: tuple[RowsWarning, ...] = ()
    """About the runs that the advice rests on."""
    crowd: str = ""
    """`4 ranks share 2 cores`, where they do."""
    waited: tuple[str, ...] = ()
    """What is said first where ranks waited for a core."""
    apart: tuple[tuple[str, ...], ...] = ()
    """The runs on as many ranks that differ in devices or CPU mode: each group has own advice."""
    may_compare: bool = False
    """Whether two runs measured the same case in environments that differ."""


def find_advice(runs: Sequence[Run], question: Question) -> AdviceReport:
    """The advice from the rows of runs. Raises UsageError for a question without an answer."""
    if question.params is not None and question.model_bytes is not None:
        raise UsageError("--params and --model-bytes say the same", "give one of them")
    groups = commands.group_runs(runs)
    modes = [*commands.group_modes(groups)]
    fastest = {each.fastest_mode for each in modes}
    groups.sort(key=lambda each: (each.has_waited, each.header.plan.cpu_mode not in fastest))
    advised = [(each, [*_advise(each, question)]) for each in groups]
    advised += [(each, [*_advise_mode(each, question)]) for each in modes]
    found = [each for _, own in advised for each in own]
    rests_on = (
        measured for measured, own in advised
        if any(isinstance(e, Advice) or e.needs.startswith(commands.UNKNOWN) for e in own)
    )  # fmt: skip
    every = (row for measured in rests_on for each in measured.results for row in each.rows)
    rows = [*{id(row): row for row in every}.values()]
    advice = tuple(each for each in found if isinstance(each, Advice))
    subjects = {each.subject for each in advice}
    # Of what several groups lack, that of the first one counts, which has the fastest mode.
    missing = (each for each in reversed(found) if isinstance(each, Missing))
    lacking = {each.subject: each for each in missing if each.subject not in subjects}
    names, sources = dict.fromkeys(run.name for run in runs), map(_source_of, runs)
    return AdviceReport(
        tuple(names), tuple(dict.fromkeys(sources)), question,
        advice, tuple(reversed(lacking.values())),
        tuple(find_warnings(rows, lambda row: f"in {row.header.label}")),
        find_crowd([*{id(r.header): r.header for r in rows}.values()]),
        tuple(waited_answer(rows)),
        tuple(each.runs for each in groups if not each.is_only),
        any(_may_compare(*pair) for pair in combinations(runs, 2)),
    )  # fmt: skip


def _may_compare(a: Run, b: Run) -> bool:
    """Whether two runs measured the same case in environments that differ."""
    first, second = ((environment_facts(r.header), environment_variables(r.header)) for r in (a, b))
    cases = ({each.case for each in run.measurements if each.status == OK} for run in (a, b))
    return first != second and bool(set.intersection(*cases))


def _source_of(run: Run) -> str:
    """How a command names a run: by the folder of its sweep, its name under results/, or its
    path."""
    path = Path(run.path)
    named = run.name if path.parent == RESULTS else path
    return str(find_sweep(str(path.parent)) or named)


def _advise(measured: Measured, question: Question) -> Iterator[Advice | Missing]:
    tables, has_model = commands.make_tables(measured.rows), question.params or question.model_bytes
    is_replay = bool(measured.header.plan.workload)
    is_asked = not is_replay or bool(has_model)
    if not tables:
        needs = "a single all_reduce is not measured at two sizes or more"
        yield Missing(DDP, needs, commands.wide_command(measured.header), is_asked)
    elif not has_model:
        yield Missing(DDP, "give --params, such as --params 350M --backward 120ms", "", is_asked)
    else:
        yield from (_bucket_advice(table, measured, question) for table in tables.values())
    for choice in choices.ADVICE:
        found = [*choices.find_choices(choice, measured.results, question.tolerance)]
        yield from (_choice_advice(each, measured) for each in found)
        if not found and choice.is_possible(measured.header):
            lacks = commands.choice_needs(choice, measured)
            yield Missing(choice.subject, *lacks, not is_replay or choice.is_of_steps)


def _advise_mode(modes: Measured, question: Question) -> Iterator[Advice]:
    for found in choices.find_choices(choices.CPU_MODES, modes.results, question.tolerance):
        yield _choice_advice(modes.leave_open(found), modes)


def _bucket_advice(table: TimeTable, measured: Measured, question: Question) -> Advice | Missing:
    gradient_bytes = _bytes_of(question, table)
    longest_s = gradient_bytes * table.times[-1].value / table.largest
    assumed_s = float(f"{longest_s:.2g}")  # an assumption has no more digits
    step = simulation.Step(gradient_bytes, question.backward_s or assumed_s, question.tensors)
    slowdown = commands.find_slowdown(measured.overlapped, measured.header.plan.cpu_mode)
    if idle := _nothing_hidden(measured.overlapped):
        slowdown = simulation.IN_TURNS._replace(
            source=idle.case.overlap, hides_nothing_in=idle.header.label
        )
    found = simulation.find_buckets(
        table, step, slowdown, question.tolerance, question.bucket_bytes
    )
    if found.largest_sent > table.largest and (flat := table.flat_sizes):
        where = "" if measured.is_only else f" in {join_words(measured.runs)}"
        return Missing(DDP + where, *commands.growth_needs(table, flat, measured.header))
    decided = UNDECIDED if found.is_open else decide(found.sure_gain, question.tolerance)
    verdict = {SLOWER: CHANGE, UNDECIDED: UNDECIDED}.get(decided, KEEP)
    mib = found.recommended.bucket_bytes / simulation.MIB
    is_other = verdict != KEEP and not found.is_open  # as far as the rows say
    paste = choices.fill_lines("bucket", mib=mib) if is_other else ()
    measure = tuple(commands.surer_buckets(found, measured))
    if idle and _has_more_cores(idle.header):
        measure = ("--overlap with two cores for each rank (--cpu-mode plain)", *measure)
    return Advice(DDP, f"{table.kind}, {measured.who}", verdict, paste, measure, found)


LEAST_HIDDEN = 0.1
"""If less of the communication is hidden, a slowdown says nothing of longer computations."""


def _nothing_hidden(rows: Sequence[ResultRow]) -> ResultRow | None:
    """A row of the run in which computation hid hardly any of an all_reduce, at most of the sizes;
    None where it hid some."""
    own = [row for row in rows if row.overlap and row.case.operation == "all_reduce"]
    shares = sorted(row.overlap.hidden.value for row in own if row.overlap)
    return own[0] if own and median(shares) < LEAST_HIDDEN else None


def _has_more_cores(header: RunHeader) -> bool:
    """Whether ranks with fewer than two cores were on hosts that have two for each."""
    ranks = max(Counter(rank.host for rank in header.ranks).values(), default=0)
    cores = header.environment.get(CORES)
    return bool(find_crowd([header], 2)) and isinstance(cores, int) and cores >= 2 * ranks


def _bytes_of(question: Question, table: TimeTable) -> int:
    """Bytes of all parameters in the dtype of a table's rows."""
    if question.model_bytes is not None:
        return question.model_bytes
    dtype = next(word for word in table.kind.split() if word in DTYPES)
    return max(1, int((question.params or 0) * DTYPES[dtype].size_bytes))


def _choice_advice(found: choices.ChoiceAdvice, measured: Measured) -> Advice:
    every = [each.verdict for each in found.ranges]
    has_waited = any(each.has_waited for each in found.ranges if each.verdict == UNDECIDED)
    measure = commands.surer(every, measured, has_waited)
    if any(each.is_apart for each in found.ranges):
        modes = ",".join(found.names.values())
        measure = (commands.sweep_command(measured.header, f"--vary cpu-mode={modes}"),)
    verdict = next(v for v in (CHANGE, UNDECIDED, KEEP) if v in every)
    return Advice(
        found.choice.subject, f"{found.kind}, {measured.who}", verdict,
        tuple(choices.choice_lines(found)), measure, found,
    )  # fmt: skip
