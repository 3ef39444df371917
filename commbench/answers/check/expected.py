"""The rules of `commbench check --expect`, and limits that the hardware makes impossible.

Each row has limits of its own: by published figures its bus bandwidth is at least the least that is
plausible, and at most what the links allow (expect.expectation); by published curves it takes no
longer than on sound machines (expect.curves).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from commbench.analysis.environment import fabric_of
from commbench.analysis.load import LoadedRun
from commbench.answers.check.rules import LIMITS, Limit, RowLimit, Rule
from commbench.answers.expect import bound, expectation
from commbench.answers.expect import expectation as verdicts
from commbench.answers.expect.curve_document import curve_notes
from commbench.answers.expect.curves import Curve, RowOnCurve, compare_run
from commbench.answers.expect.document import gbps, judgement_text, machine_text
from commbench.errors import RecordsError, UsageError
from commbench.output.text import list_some
from commbench.plan.case import Case
from commbench.plan.links import Hardware, unique_gpu
from commbench.results.schema import OK, is_imported
from commbench.stats import Estimate
from commbench.units import format_share, parse_percentage
from commbench.views import cells

FROM_RUN, PUBLISHED = "run", "published"
"""The values of --expect for the hardware that the run names, and for published curves."""
_MOST_SOURCES = 3


def hardware_of(run: LoadedRun) -> Hardware | None:
    """The hardware that a run names; None where it names none that is known."""
    fabric = fabric_of(run.header) if run.header else None
    return Hardware(fabric) if fabric else None


def curve_rule(run: LoadedRun, curves: Sequence[Curve], tolerance: float | None = None) -> Rule:
    """The rule of a run by curves; `tolerance` is by default that of each size."""
    found = compare_run(run, curves, tolerance)
    by_case, too_fast = {row.case: row for row in found.rows}, {r.case for r in found.too_fast}
    limit = Limit(
        name=PUBLISHED,
        parse=parse_percentage,
        words=_curve_words,
        unit=cells.RATIO,
        interval=cells.RATIO_INTERVAL,
        sentence="takes {} times the published time",
        heading="measured /\npublished",
        estimate=partial(_ratio, by_case),
    )
    what = f" of {found.system}" if found.system else ""
    is_others = bool(run.header and is_imported(run.header))
    return Rule(
        limit, 0.0, of_row=partial(_curve_limit, by_case, too_fast),
        name=f"Times near the published curves{what}", allow_unchecked=is_others,
        remarks=[*curve_notes(found)],
    )  # fmt: skip


# What a rule calls has no state but its arguments, so that results can be pickled.


def _ratio(by_case: Mapping[Case, RowOnCurve], row: Any) -> Estimate | None:
    return by_case[row.case].ratio


def _curve_words(limit: float) -> str:
    return f"at most {format_share(limit - 1)} longer than the published time"


def _curve_limit(
    by_case: Mapping[Case, RowOnCurve], too_fast: Collection[Case], row: Any
) -> RowLimit:
    if row.case in too_fast:
        return RowLimit(None, "too fast: is a unit wrong?")
    on_curve = by_case[row.case]
    return RowLimit(1 + on_curve.tolerance if on_curve.ratio else None, on_curve.reason)


def _hardware_limit(
    hardware: Hardware | None, tolerance: float, nothing: str, is_least: bool, row: Any
) -> RowLimit:
    call = call_of(row, hardware) if hardware else None
    if call is None or (is_least and not row.case.is_plain):
        return RowLimit(None, nothing)
    found = expectation.find_expectation(call, tolerance)
    if is_least:
        return RowLimit(found.low_bytes_per_s, nothing)
    return RowLimit(found.bound and found.bound.busbw_bytes_per_s, "no link is known")


def _bandwidth_words(words: str, limit: float) -> str:
    return words.format(gbps(limit))


def expectation_rules(
    run: LoadedRun, hardware: Hardware | None, tolerance: float = expectation.BELOW
) -> list[Rule]:
    """The rules of a run on this hardware; on None, no row has a limit.

    Raises RecordsError for a results.csv that should name its hardware, for it cannot, and
    UsageError for a run that names another accelerator, or CPUs.
    """
    nothing, gpu = "no published figures for such calls", hardware and hardware.fabric.gpu
    if run.header:
        is_cpu, named = run.header.plan.device == "cpu", unique_gpu(run.header.devices)
        if gpu and (is_cpu or named not in (None, gpu)):
            ran = named.what if named else "CPUs"
            hint = "judge it by an earlier run: --against RUN"
            hint = "write --expect run" if hardware_of(run) else hint
            raise UsageError(f"the run {run.name} used {ran}, not {gpu.what}", hint)
        if hardware is None:
            where = "this CPU" if is_cpu else "this hardware"
            nothing = f"no published figures for {run.header.plan.backend} on {where}"
    elif hardware is None:
        why = f"{run.path} does not say what hardware it was measured on"
        hint = "name it: --expect h100; or give the run folder with its run.jsonl"
        raise RecordsError(why, hint)
    nics = hardware and hardware.fabric.nics
    what = " with ".join(filter(None, (gpu and gpu.what, nics and nics.name)))
    what = f" of {what}" if what else ""
    below = f"at most {format_share(tolerance)} below the lowest figure of others"
    as_expected = f"bus bandwidth at least {{}} GB/s, as expected{what}"
    possible = "the links allow at most {} GB/s"
    kinds = {
        f"bus bandwidth as expected{what}: {below}": ("expected_busbw", as_expected, True),
        f"bus bandwidth that the links{what} allow": ("possible_busbw", possible, False),
    }
    rules, of_row = [], partial(_hardware_limit, hardware, tolerance, nothing)
    for title, (name, text, is_least) in kinds.items():
        words = partial(_bandwidth_words, text)
        limit = LIMITS["min_busbw"]._replace(name=name, words=words, is_least=is_least)
        rules.append(Rule(limit, 0.0, of_row=partial(of_row, is_least), name=title))
    return rules


def call_of(row: Any, hardware: Hardware) -> bound.Call | None:
    """The call of a row of results; None where the ranks that took part are not known."""
    case = row.case._replace(ranks=row.world_size or 0)
    return bound.make_call(case, hardware.fabric, hardware.nodes or row.num_nodes or 1)


def remarks(rule: Rule, run: LoadedRun, hardware: Hardware | None) -> Iterator[str]:
    """What the hardware says about a rule: that it is impossible, or more than others measured;
    where limits of rows come from, and what explains the row that is furthest off."""
    if hardware is None or rule.limit.needs_baseline:
        return
    judged = [
        (row, expectation.judge(expectation.find_expectation(call), busbw))
        for row in run.rows
        if row.status == OK
        and rule.covers(row)
        and (call := call_of(row, hardware))
        and (busbw := _judged_busbw(rule, row, call)) is not None
    ]
    of_row = verdicts.LOW if rule.limit.is_least else verdicts.IMPOSSIBLE
    wanted = (of_row,) if rule.of_row else (verdicts.IMPOSSIBLE, verdicts.HIGH)
    of_verdict = ([each for each in judged if each[1].verdict == verdict] for verdict in wanted)
    if found := next(filter(None, of_verdict), []):
        row, judgement = found[-1]
        machine = machine_text(judgement.expectation.call)
        whose = "" if rule.of_row else "The limit of "
        yield f"{whose}{row.case.name} on {machine}: {judgement_text(judgement)}"
    expectations = [each.expectation for _, each in (judged if rule.of_row else found[-1:])]
    is_bound = rule.of_row and not rule.limit.is_least
    bounds = [found.bound.source for found in expectations if found.bound]
    figures = [source for found in expectations for source in found.sources]
    if sources := list(dict.fromkeys(bounds if is_bound else figures)):
        yield f"Sources: {list_some(sources, _MOST_SOURCES)}"


def _judged_busbw(rule: Rule, row: Any, call: bound.Call) -> float | None:
    """The bus bandwidth (bytes/s) that is judged: what a limit demands of a row, or, where the
    rows have limits of their own, what the row reached."""
    if rule.of_row:
        busbw: Estimate | None = row.busbw
        return busbw.value if busbw else None
    is_time = rule.limit.name == "max_time"
    return row.size_bytes / rule.value * call.factor if is_time else rule.value
