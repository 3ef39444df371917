"""What rows of runs say about buckets, groups of FSDP, experts, forms of calls and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from commbench.advise import commands, sentences
from commbench.advise.buckets import BucketAdvice, Step, find_buckets
from commbench.advise.choices import ADVICE, CHANGE, KEEP, UNDECIDED, ChoiceAdvice, find_choices
from commbench.advise.fsdp import Blocks, GroupingAdvice, find_grouping
from commbench.advise.measured import Measured, find_slowdown, group_runs
from commbench.advise.moe import MoEAdvice, Routing, find_moe
from commbench.advise.paste import bucket_line, grouping_lines
from commbench.advise.time_table import TimeTable, make_tables
from commbench.errors import UsageError
from commbench.results.schema import Run
from commbench.spec.dtypes import DTYPES
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import SLOWER, decide
from commbench.stats.verdict import UNDECIDED as NOT_DECIDED

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
    blocks: int | None = None
    """Blocks of the model, for FSDP."""
    bucket_bytes: int | None = None
    """The bucket size in use; None: torch's default."""
    routing: Routing | None = None
    tolerance: float = TOLERANCE


class Advice(NamedTuple):
    """One piece of advice."""

    subject: str
    """What is chosen: `Bucket size of DDP`."""
    about: str
    """The rows and the ranks that it is about."""
    verdict: str
    """CHANGE, KEEP or UNDECIDED."""
    sentences: tuple[str, ...]
    paste: tuple[str, ...]
    """Lines for a program or a shell; none where nothing should change."""
    measure: tuple[str, ...]
    """Commands that make it surer."""
    details: BucketAdvice | GroupingAdvice | MoEAdvice | ChoiceAdvice
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


@dataclass(frozen=True)
class AdviceReport:
    """All advice from some runs."""

    runs: tuple[str, ...]
    """Their names."""
    question: Question
    advice: tuple[Advice, ...]
    missing: tuple[Missing, ...]

    @property
    def text(self) -> str:
        """What `commbench advise` prints."""
        from commbench.advise.text import advice_text

        return advice_text(self)

    def __str__(self) -> str:
        return self.text.rstrip("\n")


def find_advice(runs: Sequence[Run], question: Question) -> AdviceReport:
    """The advice from the rows of runs. Raises UsageError for a question without an answer."""
    _require_sensible(question)
    advice: list[Advice] = []
    missing: list[Missing] = []
    for measured in group_runs(runs):
        for found in _advise(measured, question):
            if isinstance(found, Advice):
                advice.append(found)
            elif measured.header.plan.workload:
                missing.append(found._replace(is_asked=_is_asked(found.subject, question)))
            else:
                missing.append(found)
    subjects = {each.subject for each in advice}
    lacking = {each.subject: each for each in missing if each.subject not in subjects}
    names = tuple(dict.fromkeys(run.name for run in runs))
    return AdviceReport(names, question, tuple(advice), tuple(lacking.values()))


def _require_sensible(question: Question) -> None:
    if question.params is not None and question.model_bytes is not None:
        raise UsageError("--params and --model-bytes say the same", "give one of them")
    routing = question.routing
    if routing and routing.topk > routing.experts:
        raise UsageError(
            f"--topk {routing.topk} is larger than --experts {routing.experts}",
            "a token goes to at most all experts",
        )


def _is_asked(subject: str, question: Question) -> bool:
    """Whether a replay or the question is about a subject."""
    model = question.params or question.model_bytes
    of_question = {DDP: model, FSDP: question.blocks, MOE: question.routing}
    of_calls = {choice.subject for choice in ADVICE if not choice.is_of_steps}
    return bool(of_question.get(subject, subject not in of_calls))


def _advise(measured: Measured, question: Question) -> Iterator[Advice | Missing]:
    for name, values in measured.ignored:
        yield Missing(name, *commands.ignored_needs(name, values, measured))
    yield from _bucket_advice(measured, question)
    yield from _grouping_advice(measured, question)
    yield from _moe_advice(measured, question)
    for choice in ADVICE:
        found = find_choices(choice, measured.results, question.tolerance)
        for each in found:
            yield _choice_advice(each, measured)
        if not found and choice.is_possible(measured.header):
            yield Missing(choice.subject, *commands.choice_needs(choice, measured.header))


DDP, FSDP, MOE = "Bucket size of DDP", "Groups of FSDP2", "Tokens to experts"


def _bucket_advice(measured: Measured, question: Question) -> Iterator[Advice | Missing]:
    tables = make_tables(measured.rows, "all_reduce")
    if not tables:
        yield Missing(DDP, *commands.bucket_needs(measured.header, "all_reduce"))
    elif question.params is None and question.model_bytes is None:
        yield Missing(DDP, commands.NEEDS_MODEL, "")
    else:
        for table in tables.values():
            yield _bucket_advice_of(table, measured, question)


def _bucket_advice_of(table: TimeTable, measured: Measured, question: Question) -> Advice:
    gradient_bytes = _bytes_of(question, table)
    backward_s = question.backward_s or _longest(table, gradient_bytes)
    step = Step(gradient_bytes, backward_s, question.tensors)
    slowdown = find_slowdown(measured.rows, "all_reduce")
    found = find_buckets(table, step, slowdown, question.tolerance, question.bucket_bytes)
    verdict = UNDECIDED if found.is_guess else _verdict(found.gain, question.tolerance)
    said = sentences.bucket_sentences(found, verdict, question)
    paste = (bucket_line(found.recommended.bucket_bytes),) if verdict == CHANGE else ()
    measure = commands.surer_buckets(found, verdict, measured.header)
    return Advice(DDP, f"{table.kind}, {measured.who}", verdict, said, paste, measure, found)


def _bytes_of(question: Question, table: TimeTable) -> int:
    """Bytes of all parameters in the dtype of a table's rows."""
    if question.model_bytes is not None:
        return question.model_bytes
    dtype = next(word for word in table.kind.split() if word in DTYPES)
    return max(1, int((question.params or 0) * DTYPES[dtype].size_bytes))


def _longest(table: TimeTable, gradient_bytes: int) -> float:
    """Seconds of all gradients at the speed of the largest measured size."""
    return gradient_bytes * table.times[-1].value / table.largest


def _verdict(gain: Estimate, tolerance: float) -> str:
    found = decide(gain, tolerance)
    return CHANGE if found == SLOWER else UNDECIDED if found == NOT_DECIDED else KEEP


def _grouping_advice(measured: Measured, question: Question) -> Iterator[Advice | Missing]:
    gathers, scatters = (make_tables(measured.rows, op) for op in ("all_gather", "reduce_scatter"))
    groups = [group for group in gathers if group in scatters]
    is_told = question.blocks is not None and (question.params or question.model_bytes)
    if not groups:
        yield Missing(FSDP, *commands.bucket_needs(measured.header, "all_gather,reduce_scatter"))
    elif not is_told:
        yield Missing(FSDP, commands.NEEDS_BLOCKS, "")
    for group in groups if is_told else ():
        gather, scatter = gathers[group], scatters[group]
        gathered, reduced = (_bytes_of(question, table) for table in (gather, scatter))
        backward_s = question.backward_s or _longest(scatter, reduced)
        step = Blocks(gathered, reduced, question.blocks or 1, backward_s)
        slowdown = find_slowdown(measured.rows, "all_gather")
        found = find_grouping(gather, scatter, step, slowdown, question.tolerance)
        if found is None:
            yield Missing(FSDP, *commands.grouping_needs(measured.header, step))
            continue
        verdict = _verdict(found.gain, question.tolerance)
        said = sentences.grouping_sentences(found, verdict, question)
        paste = grouping_lines(found.recommended.blocks) if verdict == CHANGE else ()
        measure = commands.surer(verdict, measured.header)
        about = f"{gather.kind} and {scatter.kind}, {measured.who}"
        yield Advice(FSDP, about, verdict, said, paste, measure, found)


def _moe_advice(measured: Measured, question: Question) -> Iterator[Advice | Missing]:
    names = ("all_gather", "reduce_scatter", "all_to_all")
    by_group = [make_tables(measured.rows, name) for name in names]
    groups = [group for group in by_group[0] if all(group in own for own in by_group)]
    if not groups:
        yield Missing(MOE, *commands.bucket_needs(measured.header, ",".join(names)))
    elif question.routing is None:
        yield Missing(MOE, commands.NEEDS_ROUTING, "")
    for group in groups if question.routing else ():
        assert question.routing
        gather, scatter, exchange = (own[group] for own in by_group)
        ranks = _ranks(measured, group)
        if question.routing.experts % ranks:
            raise UsageError(
                f"--experts {question.routing.experts} is no multiple of {ranks} ranks",
                "each rank has equally many experts here",
            )
        found = find_moe(gather, scatter, exchange, ranks, question.routing, question.tolerance)
        if found is None:
            yield Missing(MOE, *commands.moe_needs(measured.header, ranks, question.routing))
            continue
        verdict, said, paste = sentences.moe_sentences(found, question)
        measure = commands.surer(verdict, measured.header)
        if question.routing.tokens not in (None, *(point.tokens for point in found.curve)):
            needs, command = commands.moe_needs(measured.header, ranks, question.routing)
            said, measure = (*said, f"{needs}."), (*measure, command)
        about = f"{gather.kind}, {scatter.kind} and {exchange.kind}, {measured.who}"
        yield Advice(MOE, about, verdict, said, paste, measure, found)


def _ranks(measured: Measured, group: str) -> int:
    """The ranks of a group."""
    return next(
        row.measurement.case.ranks
        for row in measured.rows
        if row.measurement.case.group == group and row.measurement.case.ranks
    )


def _choice_advice(found: ChoiceAdvice, measured: Measured) -> Advice:
    verdicts = [each.verdict for each in found.ranges]
    verdict = next(v for v in (CHANGE, UNDECIDED, KEEP) if v in verdicts)
    said = sentences.choice_sentences(found)
    paste = sentences.choice_paste(found, measured)
    is_open = UNDECIDED if UNDECIDED in verdicts else KEEP
    measure = commands.surer(is_open, measured.header)
    about = f"{found.kind}, {measured.who}"
    return Advice(found.choice.subject, about, verdict, said, paste, measure, found)
