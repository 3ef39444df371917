"""What a document of a run says: the answer, its tables, what was not measured, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from commbench.analysis.diagnostics import waited_answer
from commbench.analysis.environment import find_crowd
from commbench.analysis.nccl_log import describe_start_up
from commbench.analysis.row_names import column_meanings
from commbench.analysis.rows import ResultRow, find_stop_reason, make_rows
from commbench.answers.pairs.matrix import has_matrix
from commbench.answers.show import numerics, run_notes, shapes
from commbench.answers.show import rows as run_table
from commbench.answers.show.formats import NCCL_TESTS, meanings
from commbench.answers.show.nccl_tests import nccl_tests_text
from commbench.answers.show.plan import left_out, list_missing
from commbench.output.text import about
from commbench.plan.dimensions import describe_timing
from commbench.plan.links import Peak, parse_peak
from commbench.plan.operations import REPLAY
from commbench.results.schema import CUT_OFF, OK, WRONG, Run, is_imported
from commbench.stats import TOLERANCE
from commbench.units import format_count
from commbench.views import document as doc
from commbench.views.formats import View

if TYPE_CHECKING:
    from commbench.answers.replay.replay import ReplayResult
    from commbench.answers.soak.soak import SoakResult
    from commbench.views.pictures import Picture


@dataclass(frozen=True)
class ShownRun:
    """A run, and which parts of it a terminal shows."""

    run: Run
    given_peak: str | None = None
    """The speed of which a column has the part that was reached; None for that of the run."""
    are_warnings_explained: bool = False
    has_calls: bool = False
    """Whether the single calls of a replay are shown."""
    only_groups: bool = False
    only_warnings: bool = False
    is_brief: bool = False
    """Whether many rows are left out, as after a run."""
    tolerance: float | None = None
    """Of a soak: smaller drifts count as none; None for the usual one."""

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        """The rows of the run."""
        return make_rows(self.run)

    @cached_property
    def warnings(self) -> list[run_notes.RowsWarning]:
        """The warnings about the rows."""
        return run_notes.find_warnings(self.rows)

    @cached_property
    def shapes(self) -> list[shapes.Finding]:
        """What the run found about its shapes of communication."""
        return shapes.find_shapes(self.rows)

    @cached_property
    def numerics(self) -> numerics.NumericsResult:
        """What the run found out about its numbers."""
        return numerics.find_numerics(self.rows)

    @cached_property
    def peak(self) -> Peak | None:
        """The speed of which a column has the part that was reached."""
        text = self.given_peak or self.run.header.plan.peak
        return parse_peak(text) if text else None

    @cached_property
    def steps(self) -> ReplayResult | None:
        """The steps that the run replays."""
        if not self.run.header.plan.workload:
            return None
        from commbench.answers.replay.replay import analyse_replay

        return analyse_replay(self.run, self.rows, self.peak)

    @cached_property
    def soak(self) -> SoakResult | None:
        """What the run found if it is a soak."""
        if not self.run.header.plan.is_soak:
            return None
        from commbench.answers.soak.soak import analyse_soak

        return analyse_soak(self.run, TOLERANCE if self.tolerance is None else self.tolerance)

    def as_json(self) -> dict[str, Any]:
        """The rows in SI units, the plan, the environment, warnings, the steps of a replay, and
        what a soak found."""
        from commbench.analysis.load import as_loaded_run
        from commbench.answers.replay.document import replay_facts
        from commbench.answers.show.exporters import json_facts

        loaded, replay = as_loaded_run(self.run), self.steps and replay_facts(self.steps)
        facts = {"rows": loaded.rows, "warnings": self.warnings, "shapes": self.shapes}
        bits = {"numerics": self.numerics} if self.numerics.rows else {}
        soak = {"soak": self.soak} if self.soak else {}
        return {**json_facts(loaded), **facts, **bits, **soak, REPLAY: replay}


def document(shown: ShownRun) -> doc.Document:
    """The whole run; of `only_groups` the tables of its groups."""
    run, rows = shown.run, shown.rows
    where, _, how = describe_run(run).partition("; ")
    if shown.only_groups:
        return doc.Document(run.name, [where, how], (), shapes.groups_blocks(rows))
    kinds = [*run_table.summarise_kinds(run_table.timed_kinds(run_table.without_parts(rows)))]
    special, sections = _special(shown)
    highest = "" if shown.steps or shown.shapes or shown.soak else run_table.highest_sentence(kinds)
    found = [] if shown.soak else waited_answer(rows)
    waited = run_table.waited_rows_sentence(rows), run_table.waiting_sentence(rows)
    found = found or [highest, *(waited if highest else ())]
    found += special or [shapes.shapes_sentence(run.header, shown.shapes)]
    found += numerics.sentences(shown.numerics)
    is_bad = bool(run.incomplete) or has_wrong(run)
    is_lacking = bool(run.incomplete) and not is_imported(run.header)
    is_first = (is_lacking or has_wrong(run)) and not shown.soak
    sentences = [*_status(shown), *found] if is_first else [*found, *_status(shown)]
    answer = [*filter(None, sentences)]
    wrong = [(m.case, m.reason * (m.status == WRONG)) for m in (row.measurement for row in rows)]
    missing = [
        (row.case, "" if row.time or why else row.measurement.outcome)
        for row, (_, why) in zip(rows, wrong, strict=True)
    ]
    of_groups = [row for row in rows if row.case.group and row.time]
    are_both = any(row.group_interference for row in of_groups)
    each_group = shapes.groups_blocks(of_groups)
    start_up = describe_start_up(run.header)
    notes = run.header.environment.get("notes", ()) if is_imported(run.header) else ()
    notes = [note for note in notes if "left out" not in note]
    are_there = {
        "summary": kinds,
        "pairs": has_matrix(run.header.plan),
        "overlap": any(row.overlap for row in rows),
    }
    explained = [*column_meanings(rows).items()] if kinds else []
    explained += meanings(*(name for name, is_there in are_there.items() if is_there))
    section = doc.Section if shown.are_warnings_explained else doc.Folded
    warnings = run_notes.warnings_section(
        [("", warning) for warning in shown.warnings],
        shown.are_warnings_explained,
        f"`commbench show {run_notes.typed_name(run)} --warnings` prints them",
    )
    columns = section("What the columns mean", [doc.Facts(explained)])
    if shown.only_warnings:
        return doc.Document(run.name, [where, how], answer, [warnings, columns])
    blocks: list[doc.Block] = [
        *([] if shown.are_warnings_explained else [warnings]),
        doc.Pictures(lambda: _pictures(run)),
        *sections,
        *_tables(shown, kinds),
        doc.Items(list_missing(wrong), "Wrong results, so there is no time"),
        doc.Items(list_missing(missing), "Not measured"),
        doc.Items(left_out(run.header.plan)),
        doc.Items(notes, "Notes about the imported file"),
        *numerics.blocks(shown.numerics),
        run_table.timings_table(rows),
        *run_table.overlap_blocks(rows),
        *(each_group if are_both else [doc.Folded("Each group", each_group)] if of_groups else []),
        *([warnings] if shown.are_warnings_explained else []),
        *run_notes.slow_links_tables(run.header),
        doc.Items(list(filter(None, [run_notes.interfaces_text(run.header)]))),
        *([doc.Folded("Start-up", [doc.Text(f"{start_up}.")])] if start_up else []),
        doc.Items([*run_notes.peak_notes(rows, shown.peak)] if shown.peak else ()),
        columns,
    ]
    return doc.Document(run.name, [where, how], answer, blocks, tone=doc.BAD if is_bad else "")


def _special(shown: ShownRun) -> tuple[list[str], list[doc.Block]]:
    """The answer and the sections of a soak, a replay, or a run of pairs in rounds."""
    run = shown.run
    if shown.soak:
        from commbench.answers.soak.document import soak_answer, soak_blocks

        return soak_answer(shown.soak), [*soak_blocks(shown.soak)]
    if shown.steps:
        from commbench.answers.replay.document import replay_answer, replay_sections

        return replay_answer(shown.steps), [*replay_sections(shown.steps)]
    if has_matrix(run.header.plan):
        from commbench.answers.pairs import document as pairs_table

        pairs = pairs_table.diagnose_pairs(run)
        answer = pairs_table.pairs_answer(pairs, find_crowd([run.header]))
        return [*answer], [*pairs_table.pairs_blocks(run, pairs)]
    return [], []


def _pictures(run: Run) -> Sequence[Picture]:
    from commbench.answers.show.plots import run_pictures

    return run_pictures([run])


def _tables(shown: ShownRun, kinds: Sequence[run_table.Kind]) -> Iterator[doc.Table | doc.Items]:
    """The summary of several kinds, every row, and what they mean. A terminal shows the rows of a
    replay and of the parts of an overlap only where they are asked for."""
    every = run_table.timed_kinds(shown.rows)
    if not every:
        return
    if any(len(kind.rows) > 1 for kind in kinds) and not shown.steps:
        yield run_table.summary_table(kinds)
    brief = [row for kind in kinds for row in kind.rows]
    notes = run_table.kind_notes(kinds, every)
    notes += within_note(shown.run, "launches")
    if shown.is_brief and len(kinds) > 1 and len(brief) > run_table.MOST_ROWS:
        brief = []
        notes.append(f"`commbench show {run_notes.typed_name(shown.run)}` prints every row.")
    table = run_table.rows_table(every, shown.peak, None if shown.has_calls else brief)
    if shown.steps:
        table = table._replace(title="Single calls, and whole steps", brief=table.brief and [])
    yield table
    yield doc.Items(notes)


def describe_run(run: Run) -> str:
    """One line: how many ranks of which backend, where, and how they were timed."""
    plan = run.header.plan
    launches = f"; {plan.launches} launches{_within(run)}" if plan.launches > 1 else ""
    if run.incomplete and run.launches < plan.launches > 1:
        launches = f"; {run.launches} of {plan.launches} launches complete"
    statistics = {m.reported.statistic for m in run.measurements if m.reported}
    of_pairs = ["lower quartile of a pair's batches, by its sender"] * has_matrix(plan)
    how = "; ".join(sorted(statistics)) or describe_timing(plan.timing).summarise(*of_pairs)
    return f"{run.header.describe_ranks()}; {how}{launches}"


def within_note(run: Run, word: str) -> list[str]:
    """In how much time its launches were made, which `word` names, and what follows from that."""
    within = _within(run)
    return [f"Intervals are of {word}{within}: another run may differ more."] * bool(within)


def _within(run: Run) -> str:
    """In how much time its launches were made: intervals say nothing of what is slower."""
    if len(run.starts) < 2 or run.end is None:
        return ""
    try:
        first, last = (datetime.fromisoformat(run.starts[place]) for place in (0, -1))
        took_s = (last - first).total_seconds() + run.end.elapsed_s
    except (ValueError, TypeError):  # a time that is none, or one without its zone
        return ""
    return f" within {about(took_s).removeprefix('about ')}"


def has_wrong(run: Run) -> bool:
    """Whether some result of the run is wrong."""
    return any(m.wrong or m.status == WRONG for m in run.measurements)


def _status(shown: ShownRun) -> Iterator[str]:
    """How many cases were measured, whether results are right, and how the run ended; of an
    imported run how many rows were read, and which were left out."""
    run = shown.run
    if is_imported(run.header):
        facts = run.header.environment
        rows = format_count(len(run.measurements), "row")
        yield f"{rows} imported from {facts['imported_from']}."
        notes, said = facts.get("notes", ()), run_notes.run_end_text(run)
        notes = [n for n in notes if "left out" in n and n not in said]
        yield from (f"{n[:1].upper()}{n[1:]}." for n in notes)
        if has_wrong(run):
            yield "Some results are wrong."
    else:
        yield _measured(run)
    if run.header.gpu_shared:
        yield "Ranks share a GPU: these times do not measure performance."
    if run.restarts:
        times = "once" if len(run.restarts) == 1 else f"{len(run.restarts)} times"
        yield f"This run was cut off and resumed {times}."
    yield run_notes.run_end_text(run)


def _measured(run: Run) -> str:
    """`4 of 5 cases were measured, 1 skipped; all results are correct.`"""
    found = run.measurements
    cases = len(run.header.plan.cases()) if run.header.ranks else len(found)
    measured = [m for m in found if m.status == OK]
    part = sum(find_stop_reason(run.header, m) == CUT_OFF for m in measured)
    checked = sum(m.wrong == 0 for m in measured)
    unchecked = sum(m.case.has_result and m.wrong is None for m in measured)
    verb = "was" if 1 in (cases, len(measured)) else "were"
    only = f" only in part ({CUT_OFF}): with fewer samples than asked"
    is_all = 0 < part == len(measured)
    parts = [f"{len(measured)} of {format_count(cases, 'case')} {verb} measured{only * is_all}"]
    if part and not is_all:
        parts.append(f"{part} of them{only}")
    if alone := sum(bool(m.case.group_ranks) for m in measured):
        parts.append(f"{alone} of them a group alone, of which rows show the slowest")
    others = Counter(m.status for m in found) - Counter(m.status for m in measured)
    parts += [f"{number} {status}" for status, number in others.items()]
    if others[WRONG]:
        results = ""
    elif unchecked and part == unchecked:
        some = f"the results of {checked} were checked and are correct; " * bool(checked)
        results = f"; {some}no check is recorded of those that were {CUT_OFF}"
    elif not checked:
        results = ". Results were not checked" if unchecked else ""
    elif not unchecked:
        results = f"; {'all results' if cases > 1 else 'its results'} are correct"
    else:
        results = f"; the results of {checked} were checked and are correct"
        results += f", those of {unchecked} were not checked"
        bare = len(measured) - checked - unchecked
        results += f", {bare} {'has' if bare == 1 else 'have'} none" * bool(bare)
    return f"{', '.join(parts)}{results}."


VIEW = View(document, schema=2, more={NCCL_TESTS: lambda shown: nccl_tests_text(shown.run)})
