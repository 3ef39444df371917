"""The rules of `commbench check --expect`, and limits that the hardware makes impossible.

Each row has limits of its own (expect.expectation): its bus bandwidth is at least the least that
is plausible, and at most what the links allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from commbench.analysis.load import LoadedRun
from commbench.errors import RecordsError, UsageError
from commbench.expect.document import (
    gbps,
    judgement_text,
    machine_text,
    range_text,
)
from commbench.expect.expectation import (
    BELOW,
    HIGH,
    IMPOSSIBLE,
    LOW,
    Call,
    Expectation,
    expect,
    judge,
)
from commbench.expect.rows import fabric_of, is_plain_case, make_call
from commbench.gate.limits import LIMITS
from commbench.gate.rules import RowLimit, Rule
from commbench.output.paragraphs import list_some
from commbench.results.schema import OK
from commbench.spec.fabrics import Fabric, choose_gpu, make_fabric, parse_nics
from commbench.units import format_bytes, format_share

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
    gpu = choose_gpu(name, "--expect", "run, the hardware that the run names")
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

    Raises RecordsError for a results.csv that should name its hardware, for it cannot.
    """
    if hardware is None and run.header is None:
        raise RecordsError(
            f"{run.path} does not say what hardware it was measured on",
            "name it: --expect h100; or give the run folder with its run.jsonl",
        )

    what = f" of {_what(hardware)}" if hardware else ""

    def of_row(row: Any, is_least: bool) -> RowLimit:
        call = call_of(row, hardware) if hardware else None
        if call is None:
            return RowLimit(None, "nothing is known of its hardware" if not hardware else _OTHER)
        found = expect(call, tolerance)
        if not is_least:
            busbw = found.bound.busbw_bytes_per_s if found.bound else None
            return RowLimit(busbw, "" if busbw else "no link is known")
        if not is_plain_case(row.case):
            return RowLimit(None, _OTHER)
        low = found.low_bytes_per_s
        return RowLimit(low, "" if low else "nothing comparable was published")

    least = LIMITS["min_busbw"]._replace(
        name="expected_busbw",
        words=lambda limit: f"bus bandwidth at least {gbps(limit)} GB/s, as expected{what}",
    )
    most = LIMITS["min_busbw"]._replace(
        name="possible_busbw",
        words=lambda limit: f"at most {gbps(limit)} GB/s are possible",
        is_least=False,
    )
    below = f"at most {format_share(tolerance)} below the lowest figure of others"
    return [
        Rule(
            least, 0.0, of_row=lambda row: of_row(row, True),
            name=f"bus bandwidth as expected{what}: {below}",
        ),
        Rule(
            most, 0.0, of_row=lambda row: of_row(row, False),
            name=f"bus bandwidth that the links{what} allow",
        ),
    ]  # fmt: skip


_OTHER = "others measured no such calls"


def _what(hardware: Hardware) -> str:
    gpu, nics = hardware.fabric.gpu, hardware.fabric.nics
    return " with ".join(filter(None, (gpu.what if gpu else "", nics.name if nics else "")))


def call_of(row: Any, hardware: Hardware) -> Call | None:
    """The call of a row of results; None where the ranks that took part are not known."""
    case = row.case._replace(ranks=row.world_size or 0)
    return make_call(case, hardware.fabric, hardware.nodes or row.num_nodes or 1)


def remarks(rule: Rule, run: LoadedRun, hardware: Hardware | None) -> Iterator[str]:
    """What the hardware says about a rule: where limits of rows come from, or that a limit is
    impossible, or more than others measured."""
    if hardware is None or rule.limit.needs_baseline:
        return
    rows = [row for row in run.rows if row.status == OK and rule.covers(row)]
    if rule.of_row is not None:
        yield from _remarks_of_expectation(rule, rows, hardware)
        return
    worst = [found for row in rows if (found := _demanded(rule, row, hardware))]
    for verdict in (IMPOSSIBLE, HIGH):
        found = [(row, judgement) for row, judgement in worst if judgement.verdict == verdict]
        if found:
            row, judgement = found[-1]
            number = "" if len(rows) == 1 else f" ({len(found)} of {len(rows)} rows)"
            machine = machine_text(judgement.expectation.call)
            source = judgement.expectation.sources
            yield (
                f"This limit is {verdict}{number}. On {machine}, {format_bytes(row.size_bytes)}: "
                f"{judgement_text(judgement)} Sources: {list_some(source, _MOST_SOURCES)}"
            )
            return


def _demanded(rule: Rule, row: Any, hardware: Hardware) -> Any:
    """A row with the judgement of the bus bandwidth that a rule demands of it."""
    call = call_of(row, hardware)
    if call is None:
        return None
    busbw = rule.value
    if rule.limit.name == "max_time":
        busbw = row.size_bytes / rule.value * call.factor
    return row, judge(expect(call), busbw)


def _remarks_of_expectation(rule: Rule, rows: Sequence[Any], hardware: Hardware) -> Iterator[str]:
    """The sources of the limits, and what explains the row that is furthest off."""
    judged = []
    for row in rows:
        call = call_of(row, hardware)
        if call and row.busbw:
            judged.append((row, judge(expect(call), row.busbw.value)))
    wanted = LOW if rule.limit.is_least else IMPOSSIBLE
    if found := [(row, judgement) for row, judgement in judged if judgement.verdict == wanted]:
        row, judgement = found[-1]
        yield f"{row.case.name}: {judgement_text(judgement)}"
    expectations = [judgement.expectation for _, judgement in judged]
    if rule.limit.is_least:
        known = [one for one in expectations if one.measured]
        sources = [source for one in known for source in _published_sources(one)]
        spans = [one.measured for one in known if one.measured]
        if spans:
            low, high = min(span[0] for span in spans), max(span[1] for span in spans)
            yield f"Others measured {range_text(low, high)} in such calls."
    else:
        sources = [one.bound.source for one in expectations if one.bound]
    if unique := list(dict.fromkeys(filter(None, sources))):
        word = "Source" if len(unique) == 1 else "Sources"
        yield f"{word}: {list_some(unique, _MOST_SOURCES)}"


def _published_sources(found: Expectation) -> list[str]:
    return [one.published.source for one in found.known]
