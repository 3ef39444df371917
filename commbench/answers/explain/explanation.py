"""What `commbench explain` finds: rows of a run, or a call that a user quotes, with facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, NamedTuple

from commbench import units
from commbench.analysis import environment, figures, load, nccl_log, row_names
from commbench.analysis.rows import ResultRow, make_row, make_rows, worst_alone
from commbench.answers.cost.machine import Machine, read_machine
from commbench.answers.explain import facts as known
from commbench.answers.explain.bounds import FEWER_BYTES, UNDECIDED
from commbench.errors import RecordsError, UsageError
from commbench.output.text import exact, join_words, short_repr
from commbench.plan import dimensions, dtypes, links, operations, plan
from commbench.plan.backends import BACKENDS
from commbench.plan.case import READY
from commbench.plan.cases import LIMITS
from commbench.plan.operation import Operation
from commbench.readers.source import ImportHints
from commbench.results import files, run_folder
from commbench.results.schema import (
    OK,
    Measurement,
    ReportedTiming,
    Run,
    RunHeader,
    tell_incomplete,
)
from commbench.stats import Estimate, collect
from commbench.validation import require_within
from commbench.views import cells
from commbench.views.cells import Column, Unit
from commbench.views.document import Document, Facts, Items, Section, Table, Text, facts_table
from commbench.views.formats import Result, View


@short_repr("row.case.name")
class RowExplanation(NamedTuple):
    """A row with its facts."""

    row: ResultRow
    facts: tuple[known.Fact, ...]

    def get(self, name: str) -> Any:
        """The value of the fact of that name; None where there is none."""
        return next((fact.value for fact in self.facts if fact.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """What was called, and the facts."""
        case, nodes = self.row.case, self.row.header.num_nodes
        return {"call": case.title, "ranks": case.ranks, "nodes": nodes, "facts": self.facts}


@dataclass(frozen=True, repr=False)
class Explanation(Result, view="answers.explain.explanation", rows="rows facts"):
    """Rows of a run, or a call that a user quotes, explained."""

    name: str
    """The run's name; empty for a call."""
    rows: tuple[RowExplanation, ...]
    """The row with the highest busbw of each kind among those that were asked for."""
    is_overview: bool = False
    """Whether no row was asked for."""
    has_others: bool = False
    """Whether there are rows of other sizes."""

    def as_json(self) -> dict[str, Any]:
        """The name and the rows."""
        return {"name": self.name, "rows": self.rows}


def explain_row(
    row: ResultRow, every: Sequence[ResultRow] = (), peak: links.Peak | None = None,
    machine: Machine | None = None,
) -> RowExplanation:  # fmt: skip
    """Everything about a row, by all rows of its run and the models of a machine."""
    facts = known.row_facts(row, peak) + known.bound_facts(row, every, machine)
    found = [f for f in facts if not (f.value is None or f.value is False or f.value == "")]
    return RowExplanation(row, tuple(found))


def explain_run(
    run: Run, op: str | None = None, size: str | None = None, peak: links.Peak | None = None,
    machine: Machine | None = None,
) -> Explanation:  # fmt: skip
    """The row with the highest busbw of each kind of call, else the largest size, of the chosen
    rows. A `machine` has models that say what bounds each. UsageError where no row is chosen."""
    every = chosen = list(worst_alone(make_rows(run)))
    if not every:
        raise UsageError(f"{run.name} has no finished case yet", "wait, or give another run")
    if op is not None:
        name = operations.find_operation(op).name
        chosen = [row for row in every if row.case.operation == name]
        if not chosen:
            names = dict.fromkeys(row.case.operation for row in every)
            raise UsageError(f"{run.name} has no {name}", f"it has {', '.join(names)}")
    if size is not None:
        size_bytes = units.parse_size(size)
        some = [row_names.named_bytes(row.case) for row in chosen]
        chosen = [row for row in chosen if known.is_of_size(row, size_bytes)]
        if not chosen:
            raise row_names.lacks_size(run.name, some, size_bytes)
    kinds = collect(((row.case.title, row.case.timing), row) for row in chosen).values()
    best = (max(own, key=lambda r: (r.busbw or bool(r.time), r.case.size_bytes)) for own in kinds)
    found = tuple(explain_row(row, every, peak, machine) for row in best)
    is_overview = op is None and size is None and len(every) > 1
    return Explanation(run.name, found, is_overview, len(found) < len(chosen))


def answer(
    what: str | Run, op: str | None, size: str | None, peak: str | None, model: str | Path | None,
    notify: Callable[[str], None], **quoted: Any,
) -> Explanation:  # fmt: skip
    """The explanation of a run, or of an operation's call; `model` is a machine file.

    A text `what` is a path, else an operation, else a run's label, where `notify` is told if there
    are several. `quoted` are `ranks`, `time`, `dtype`, `timing` and `nodes` of a call, or None.
    """
    parsed_peak = links.parse_peak(peak) if peak is not None else None
    machine = read_machine(model) if model is not None else None
    if isinstance(what, str):
        found = None if files.path_exists(Path(what)) else _operation_or_run(what, notify)
        if isinstance(found, Operation):
            row = _quoted_row(found, op, size, **quoted)
            return Explanation("", (explain_row(row, (), parsed_peak, machine),))
        what = load.open_run(found or run_folder.find_run(what, notify), ImportHints(operation=op))
        tell_incomplete(what, notify)
    for option, value in quoted.items():
        if value is not None:
            why = f"--{option} {value} describes a call of an operation, but {what.name} is a run"
            raise UsageError(why, f"leave out --{option}")
    return explain_run(what, op, size, parsed_peak, machine)


def _operation_or_run(what: str, notify: Callable[[str], None]) -> Operation | Path:
    try:
        return operations.find_operation(what)
    except UsageError as error:
        try:
            return run_folder.find_run(what, notify)
        except RecordsError:
            if "/" in what or what.endswith(".jsonl") or run_folder.find_sweep(what):
                raise
        guess = "".join(error.hint.rpartition("? ")[:2])
        why = f"{what!r} is neither an operation nor a run"
        raise UsageError(why, f"{guess}`commbench ops` and `commbench list` name them") from None


def _quoted_row(
    operation: Operation, op: str | None, size: str | None, *, ranks: int | None,
    time: str | None, dtype: str | None, timing: str | None, nodes: int | None,
) -> ResultRow:  # fmt: skip
    """The row of the call that the options describe. UsageError where one is missing, or has no
    meaning for the operation, and for an impossible call, such as one of fewer bytes than ranks."""
    name, useless = operation.name, {"op": op}
    needed: dict[str, Any] = {"ranks": ranks, "size": size, "time": time}
    if not operation.has_data:
        useless |= {"size": needed.pop("size"), "dtype": dtype}
    for option, value in useless.items():
        if value is not None:
            why = f"--{option} {value} has no meaning for {name}, which is an operation"
            raise UsageError(why + " without data" * (option != "op"), f"leave out --{option}")
    require_within("--ranks", ranks, *LIMITS["world_size"])
    if missing := [f"--{option}" for option, value in needed.items() if value is None]:
        examples = {"--ranks": "--ranks 8", "--size": "--size 1G", "--time": "--time 4.2ms"}
        why = f"{name} cannot be explained without {', '.join(missing)}"
        raise UsageError(why, "add for example " + " ".join(map(examples.__getitem__, missing)))
    nodes = 1 if nodes is None else nodes
    try:
        asked = plan.Plan(
            operations=(name,), dtypes=(dtypes.find_dtype(dtype or "float32").name,),
            sizes=() if size is None else (units.parse_size(size),), backend="", device="",
            world_size=ranks or 0, timing=timing or dimensions.DEFAULT_TIMING,
        )  # fmt: skip
    except UsageError as error:
        raise error.with_option_names({"world_size": "--ranks"}) from None
    if not 1 <= nodes <= asked.world_size:
        why = f"{asked.world_size} ranks cannot be on {nodes} nodes"
        raise UsageError(why, "each node has at least one")
    case = asked.cases()[0]
    if case.status != READY:
        why = f"{case.name} cannot be measured: {case.reason}"
        raise UsageError(why, "ask for more bytes or ranks")
    header = RunHeader(plan=asked, label="", started="", launcher=known.AS_GIVEN, num_nodes=nodes)
    given = ReportedTiming(units.parse_time(time or ""), known.AS_GIVEN)
    return make_row(header, Measurement(case=case, status=OK, reported=given))


_WRITERS: dict[str, Callable[[Any], str]] = {
    known.BYTES: lambda found: (
        f"{exact(found)} bytes" if isinstance(found, int) else units.format_about(*found)
    ),
    known.SECONDS: cells.time_with_interval_text,
    known.RATE: cells.bandwidth_with_interval_text,
    known.RATIO: lambda found: f"{_ratio_text(found)} times",
    known.SHARE: cells.share_with_interval_text,
    known.TEXT: str,
}
"""How a value of a unit is written: with the digits of its interval, and with that."""


def _ratio_text(found: Any) -> str:
    """A ratio with its interval, or both ends of a range."""
    if isinstance(found, tuple) and not isinstance(found, Estimate):
        return " … ".join(dict.fromkeys(f"{float(f'{end:.2g}'):g}" for end in found))
    return cells.RATIO_WITH_INTERVAL.write(found)


def _about_ratio(found: Any) -> str:
    """The same without the interval of a ratio, which the facts have."""
    write = cells.ratio_text if isinstance(found, Estimate) else _ratio_text
    return found if isinstance(found, str) else write(found)


_RATIO = Unit(_about_ratio, is_left=True)
_HALF = Unit(lambda found: units.format_about(found.value))
_COLUMNS = (
    Column("size", methodcaller("get", "size S"), cells.BYTES),
    Column("time", methodcaller("get", "time t"), cells.TIME),
    Column("interval", methodcaller("get", "time t"), cells.TIME_INTERVAL, 7),
    Column("not timed", lambda each: "" if each.row.time else each.row.measurement.outcome,
           cells.TEXT, 5, is_wrapped=True),
    Column("algbw\nGB/s", methodcaller("get", "algbw"), cells.BANDWIDTH, 4),
    Column("busbw\nGB/s", methodcaller("get", "busbw"), cells.BANDWIDTH),
    Column("over\ndirect", methodcaller("get", known.OVER_DIRECT), _RATIO, 6),
    Column("of\npeak %", methodcaller("get", "of the peak"), cells.SHARE_WITH_INTERVAL),
    Column("latency\n%", methodcaller("get", known.LATENCY_SHARE), cells.SHARE_WITH_INTERVAL, 6),
    Column("n-half\n(fitted)", methodcaller("get", known.HALF), _HALF, 5),
    Column("times at\n2 x size", methodcaller("get", known.TWICE_SIZE), _RATIO, 7),
    Column("times at\n2 x ranks", methodcaller("get", known.TWICE_RANKS), _RATIO, 7),
)  # fmt: skip


def document(found: Explanation) -> Document:
    """A row with its facts; several as a table, and their facts where they were asked for."""
    first, is_one = found.rows[0], len(found.rows) == 1
    is_summary = not is_one or found.is_overview
    table = Table("", _COLUMNS, found.rows, attrgetter("row.case.title"))
    blocks: list[Any] = [table, Items([*_notes(found)])] if is_summary else []
    if found.has_others:
        blocks.append(Text("The size of the highest busbw is explained: --size chooses another."))
    for each in found.rows:
        if not found.is_overview or each.get("step"):
            facts = [fact for fact in each.facts if fact.unit != known.FIGURE]
            rows = [(f.name, _WRITERS[f.unit](f.value), f.how) for f in facts]
            warned = Facts([(f.name, f.how) for f in each.facts if f.unit == known.FIGURE])
            told: list[Any] = [facts_table(rows), *([warned] if warned.pairs else [])]
            blocks += told if is_one else [Section(_title(each), told)]
    if found.name:
        timings = {each.row.case.timing: row_names.describe_time(each.row) for each in found.rows}
        blocks += [Facts(_measured(first.row.header)), Facts([*timings.items()])]
    title = found.name if is_summary else _title(first)
    return Document(title, (), [_summary(found) if is_summary else _sentence(first)], blocks)


def _title(found: RowExplanation) -> str:
    row, case = found.row, found.row.case
    operation = operations.OPERATIONS[case.operation]
    size = f", {units.format_bytes(case.size_bytes)}" if case.dtype else ""
    nodes = f" of {row.header.num_nodes} nodes" if row.header.num_nodes > 1 else ""
    ranks = units.format_count(case.ranks, "rank")
    return f"{case.title_without('timing')}{size}, on {ranks}{nodes}: {operation.summary}"


def _sentence(found: RowExplanation) -> str:
    """A row in one sentence."""
    row, case = found.row, found.row.case
    if row.time is None:
        return f"{case.title} was not timed: {row.measurement.outcome}."
    size = f" of {units.format_bytes(case.size_bytes)}" if case.dtype else ""
    form, ranks = found.get(known.FORM), units.format_count(case.ranks, "rank")
    text = f"{case.operation}{f' ({form})' * bool(form)}{size} on {ranks} takes "
    text += cells.time_with_interval_text(row.time.estimate)
    if isinstance(ratio := found.get(known.OVER_DIRECT), Estimate):
        text += f", {_ratio_text(ratio)} times as long as a direct call"
    if isinstance(predicted := found.get("predicted"), Estimate):
        text += f", {units.format_times(row.time.median / predicted.value)} the predicted time"
    if case.ranks > 1 and (busbw := found.get("busbw")):
        text += f", a bus bandwidth of {cells.bandwidth_text(busbw)} GB/s"
    if share := found.get("of the peak"):
        reached = f"{units.format_share(share.value)} of the peak"
        if any(figures.NODE_BOUND in fact.how for fact in found.facts):
            peak = found.get("peak")
            text += f", and needs {cells.bandwidth_text(share.scaled(peak))} GB/s per node"
            reached += f" of {cells.bandwidth_text(peak)} GB/s"
        text += f", {reached}"
    if row.measurement.wrong:
        return f"{text}; its results are wrong."
    warning = next((fact.how for fact in found.facts if fact.unit == known.FIGURE), "")
    return f"{text}. {_what_helps(found)}{f' Warning: {warning}.' if warning else ''}".strip()


_FULL, _RING, _MARGIN = 0.75, 0.82, 0.005
"""Of a peak: from the first on, a link is full; above the second, it may be no ring."""
_REDUCED = (
    "the library reduces in the network (NVLS, SHARP), or the peak is not this link's; "
    "`commbench expect` says what is possible"
)


def _may_reduce(row: ResultRow) -> bool:
    """Whether the network may have reduced: for a call of unknown or NCCL's backend."""
    operation, backend = operations.OPERATIONS[row.case.operation], row.header.plan.backend
    is_nccl = not backend or (backend in BACKENDS and BACKENDS[backend].is_nccl)
    return operation.reduces and (row.case.busbw_factor or 0.0) > 1 and is_nccl


def _bound_sentence(bound: known.Fact, share: known.Fact) -> str:
    latency = f"latency is {cells.share_with_interval_text(share.value)} of the time"
    if bound.value == UNDECIDED:
        return f"Whether latency or bandwidth bounds it is undecided: {latency}; {bound.how}."
    return f"It is {bound.value}: {latency}, {share.how}; {bound.how}."


def _what_helps(found: RowExplanation) -> str:
    """What bounds a row, and what would make it faster."""
    facts = {fact.name: fact for fact in found.facts}
    bound, unknown = facts.get(known.BOUND), facts.get(known.NOT_KNOWN)
    peak, ring = found.get("of the peak"), found.get("in a ring") or 0.0
    texts = {
        "With one rank nothing is moved between ranks.": found.row.case.ranks == 1,
        _bound_sentence(bound, facts[known.LATENCY_SHARE]) if bound else "": bound,
        "That is impossible: check the peak and the time.": found.get("above 100 %"),
        f"A ring over this link cannot reach that: {_REDUCED}.": found.get("of the limit"),
        "That is more than published rings over NVLink reach "
        f"({units.format_share(_RING)}): perhaps {_REDUCED}.": peak
        and peak.value > _RING + _MARGIN
        and _may_reduce(found.row),
        f"The link bounds it: only {FEWER_BYTES}.": peak and peak.value >= _FULL,
        f"A ring needs {units.format_share(ring)} of it: then the link bounds it.": ring >= _FULL,
        "The link is not full: something else bounds it.": peak,
        f"What bounds it is not known: {unknown and unknown.how}.": unknown,
        "To learn what bounds it, give --peak or --model.": found.get("busbw"),
    }
    return next((text for text, applies in texts.items() if applies), "")


def _summary(found: Explanation) -> str:
    """The kinds of calls of a run in one sentence."""
    bounds = Counter(bound for each in found.rows if (bound := each.get(known.BOUND)))
    kinds = units.format_count(len(found.rows), "kind")
    if not bounds:
        told = {f.how for each in found.rows for f in each.facts if f.name == known.NOT_KNOWN}
        why = told.pop() if len(told) == 1 else ""
        return f"What bounds the calls of {found.name} ({kinds}) is not known{why and f': {why}'}."
    if len(bounds) == 1 and len(found.rows) == bounds.total():
        several = bounds.total() > 1
        if UNDECIDED in bounds:
            calls = f"each of {kinds} of calls at its" if several else "the call of the"
            return f"Whether latency or bandwidth bounds {calls} highest busbw is undecided."
        are = f"all {kinds} of calls are" if several else "the call is"
        return f"At the highest busbw, {are} {next(iter(bounds))}."
    if unknown := len(found.rows) - bounds.total():
        bounds["not known"] = unknown
    words = [f"{number} {'is' if number == 1 else 'are'} {kind}" for kind, number in bounds.items()]
    return f"What bounds the calls at their highest busbw: of {kinds} {join_words(words)}."


def _notes(found: Explanation) -> Iterator[str]:
    """Where figures of the table come from that are not measured."""
    every = {each.row.case.operation for each in found.rows}
    names = (known.HALF, known.TWICE_RANKS, known.NOT_KNOWN, "predicted", "no share of it")
    told = collect(
        ((fact.name, *fact.how.split(": ", 1)[:1]), (each.row.case.operation, fact.how))
        for each in found.rows for fact in each.facts if fact.name in names
    )  # fmt: skip
    for (name, how), same in told.items():
        of_each = {whole: operation for operation, whole in same}
        parts = [f"{operation} {whole[len(how) + 2 :]}" for whole, operation in of_each.items()]
        own = f"{how}: {'; '.join(parts)}" if len(of_each) > 1 else same[0][1]
        named = {operation: None for operation, _ in same}
        which = f" ({join_words([*named])})" * (len(of_each) == 1 and named.keys() != every)
        yield f"{name}{which}: {own}."


_SHOWN = ("ranks", "torch", "tool", "imported_from", "started", "nccl_log", "nccl_init_mode",
          "nccl_init", "start_up")  # fmt: skip


def _measured(header: RunHeader) -> list[tuple[str, str]]:
    """Who measured what, with which versions, and how long the start took."""
    facts = environment.environment_facts(header) | {
        "ranks": header.describe_ranks(),
        "started": header.started,
        "nccl_init": nccl_log.describe_init(header.environment.get("nccl_log")),
        "start_up": nccl_log.describe_start_up(header),
    }
    return [(name.replace("_", " "), facts[name]) for name in _SHOWN if facts.get(name)]


VIEW = View(document, schema=3)
