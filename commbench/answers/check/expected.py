"""The rules of `commbench check --expect`, and limits that the hardware makes impossible.

Each row has limits of its own (expect.expectation): its bus bandwidth is at least the least that
is plausible, and at most what the links allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from commbench.analysis.load import LoadedRun
from commbench.answers.check.rules import LIMITS, RowLimit, Rule
from commbench.answers.expect import expectation as verdicts
from commbench.answers.expect.document import gbps, judgement_text, machine_text, range_text
from commbench.answers.expect.expectation import BELOW, Call, find_expectation, judge
from commbench.answers.expect.question import fabric_of, is_plain_case, make_call
from commbench.errors import RecordsError, UsageError
from commbench.output.paragraphs import list_some
from commbench.plan.fabrics import Fabric, choose_gpu, make_fabric, parse_nics, unique_gpu
from commbench.results.schema import OK
from commbench.stats.estimate import Estimate
from commbench.units import format_share

FROM_RUN = "run"
"""The value of --expect for the hardware that the run names."""
_EXAMPLE = "write run, or for example h100, h100:efa or h100:8x400G:2 nodes"
_MOST_SOURCES = 3


class Hardware(NamedTuple):
    """What a run was measured on."""

    fabric: Fabric
    nodes: int | None = None
    """None: as many as the run says."""


def hardware_of(run: LoadedRun) -> Hardware | None:
    """The hardware that a run names; None where it names none that is known."""
    fabric = fabric_of(run.header) if run.header else None
    return Hardware(fabric) if fabric else None


def parse_hardware(text: str) -> Hardware | None:
    """The hardware in the text of --expect, `GPU[:NICS][:K nodes]`; None for `run`.

    Raises UsageError for a text that is not such, or for an accelerator that is not known.
    """
    if text.strip() == FROM_RUN:
        return None
    name, *fields = (field.strip() for field in text.split(":"))
    gpu = choose_gpu(name, "--expect", "run")
    nodes, nics = None, None
    for field in fields:
        number = field.removesuffix("s").removesuffix("node").strip()
        if field != number and number.isdecimal() and nodes is None and int(number[:9]) > 0:
            nodes = int(number[:9])
        elif field and nics is None:
            nics = parse_nics(field, gpu)
        else:
            raise UsageError(f"{text!r} does not say what hardware it is", _EXAMPLE)
    return Hardware(make_fabric(gpu, nics), nodes)


def expectation_rules(
    run: LoadedRun, hardware: Hardware | None, tolerance: float = BELOW
) -> list[Rule]:
    """The rules of a run on this hardware; on None, no row has a limit.

    Raises RecordsError for a results.csv that should name its hardware, for it cannot, and
    UsageError for a run that names another accelerator, or CPUs.
    """
    if hardware is None and run.header is None:
        raise RecordsError(
            f"{run.path} does not say what hardware it was measured on",
            "name it: --expect h100; or give the run folder with its run.jsonl",
        )
    _require_accelerator(run, hardware)
    nothing = "no published figures for such calls"
    if hardware is None and run.header:
        where = "this CPU" if run.header.plan.device == "cpu" else "this hardware"
        nothing = f"no published figures for {run.header.plan.backend} on {where}"
    what = f" of {_what(hardware)}" if hardware else ""

    def limit(row: Any, is_least: bool) -> RowLimit:
        call = call_of(row, hardware) if hardware else None
        if call is None or (is_least and not is_plain_case(row.case)):
            return RowLimit(None, nothing)
        found = find_expectation(call, tolerance)
        if is_least:
            return RowLimit(found.low_bytes_per_s, nothing)
        busbw = found.bound.busbw_bytes_per_s if found.bound else None
        return RowLimit(busbw, "no link is known")

    least = LIMITS["min_busbw"]._replace(
        name="expected_busbw",
        words=lambda limit: f"bus bandwidth at least {gbps(limit)} GB/s, as expected{what}",
    )
    most = LIMITS["min_busbw"]._replace(
        name="possible_busbw",
        words=lambda limit: f"the links allow at most {gbps(limit)} GB/s",
        is_least=False,
    )
    below = f"at most {format_share(tolerance)} below the lowest figure of others"
    names = {
        least: f"bus bandwidth as expected{what}: {below}",
        most: f"bus bandwidth that the links{what} allow",
    }
    return [
        Rule(kind, 0.0, of_row=partial(limit, is_least=kind.is_least), name=name)
        for kind, name in names.items()
    ]


def _require_accelerator(run: LoadedRun, hardware: Hardware | None) -> None:
    """The accelerator that a run names decides, whatever --expect says."""
    wanted = hardware.fabric.gpu if hardware else None
    named = unique_gpu(run.header.devices) if run.header else None
    is_cpu = run.header is not None and run.header.plan.device == "cpu"
    if wanted and (is_cpu or named not in (None, wanted)):
        ran = named.what if named else "CPUs"
        raise UsageError(f"the run {run.name} used {ran}, not {wanted.what}", "write --expect run")


def _what(hardware: Hardware) -> str:
    gpu, nics = hardware.fabric.gpu, hardware.fabric.nics
    return " with ".join(filter(None, (gpu.what if gpu else "", nics.name if nics else "")))


def call_of(row: Any, hardware: Hardware) -> Call | None:
    """The call of a row of results; None where the ranks that took part are not known."""
    case = row.case._replace(ranks=row.world_size or 0)
    return make_call(case, hardware.fabric, hardware.nodes or row.num_nodes or 1)


def remarks(rule: Rule, run: LoadedRun, hardware: Hardware | None) -> Iterator[str]:
    """What the hardware says about a rule: that it is impossible, or more than others measured;
    where limits of rows come from, and what explains the row that is furthest off."""
    if hardware is None or rule.limit.needs_baseline:
        return
    judged = [
        (row, judge(find_expectation(call), busbw))
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
    spans = [found.measured for found in expectations if found.measured]
    if rule.of_row and rule.limit.is_least and spans:
        low, high = min(span[0] for span in spans), max(span[1] for span in spans)
        yield f"Others measured {range_text(low, high)} in such calls."
    is_bound = rule.of_row and not rule.limit.is_least
    bounds = [found.bound.source for found in expectations if found.bound]
    figures = [source for found in expectations for source in found.sources]
    if sources := list(dict.fromkeys(bounds if is_bound else figures)):
        yield f"Sources: {list_some(sources, _MOST_SOURCES)}"


def _judged_busbw(rule: Rule, row: Any, call: Call) -> float | None:
    """The bus bandwidth (bytes/s) that is judged: what a limit demands of a row, or, where the
    rows have limits of their own, what the row reached."""
    if rule.of_row:
        busbw: Estimate | None = row.busbw
        return busbw.value if busbw else None
    is_time = rule.limit.name == "max_time"
    return row.size_bytes / rule.value * call.factor if is_time else rule.value
