"""The operations and the forms of their calls, as `commbench ops` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.operation import Operation
from commbench.plan.operations import OPERATION_SETS
from commbench.plan.own_calls import ENTRY_POINTS, InstalledCall
from commbench.units import format_count
from commbench.views.cells import NUMBER, TEXT, Column
from commbench.views.document import Document, Facts, Section, Table, Text
from commbench.views.formats import View

OPERATION = Column("operation", attrgetter("name"), TEXT)
FORM = Column("form of a call", attrgetter("name"), TEXT)
SUMMARY = Column("what it does", attrgetter("summary"), TEXT)
CALL_COLUMNS = (
    OPERATION,
    Column("torch call", attrgetter("torch_call"), TEXT),
    Column("sends", attrgetter("send.value"), TEXT),
    Column("receives", attrgetter("receive.value"), TEXT),
    Column("busbw/\nalgbw", lambda row: row.busbw_formula or "none", NUMBER),
)
TIMED = Column("what is timed", attrgetter("calls"), TEXT)
NOTE = (
    "S is the printed size in bytes: the larger of what one rank sends and what it receives, "
    "as in nccl-tests. n is the number of ranks. algbw = S / t, busbw = algbw x factor, where "
    "t is the time of one call; of ping_pong half a round trip, of stream one message of the "
    "window. An operation of point to point is made of send and recv, of isend and irecv, or "
    "of batch_isend_irecv (--p2p-call), and its pairs are those of --pairs. The calls of symm_mem "
    "are of torch.ops.symm_mem, not of torch.distributed. "
    "A form (--form, --tensors) has the result of the operation by other calls; K is the "
    "number of tensors. Unequal blocks are those of --imbalance: S is the mean over the ranks, "
    "and busbw is what crossed the link of the rank with most to send or to receive."
)


INSTALLED = (
    Column("call", attrgetter("name"), TEXT),
    Column("class", attrgetter("source"), TEXT),
    Column("package", attrgetter("package"), TEXT),
    Column("operation", lambda call: call.operation or f"not usable: {call.trouble}", TEXT, 8,
           is_wrapped=True),
)  # fmt: skip
NO_CALLS = (
    f"No package has installed calls: none is in the entry point group {ENTRY_POINTS}. --call also "
    "takes file.py:name and package.module:name."
)


class InstalledCalls(NamedTuple):
    """The calls that `--call` takes by a name."""

    calls: Sequence[InstalledCall]


def document(found: Mapping[str, Operation] | InstalledCalls) -> Document:
    """The tables of operations and of forms; or that of installed calls."""
    if isinstance(found, InstalledCalls):
        answer = [] if found.calls else [NO_CALLS]
        return Document("Installed calls", (), answer, [Table("", INSTALLED, found.calls)])
    operations, forms = found.values(), CALL_FORMS.values()
    sets = [(name, ", ".join(own)) for name, own in OPERATION_SETS.items()]
    number = format_count(len(operations), "operation")
    return Document(
        "Operations",
        (),
        [f"{number}, in {format_count(len(forms), 'form')} of a call."],
        [
            Table("", (OPERATION, SUMMARY), operations),
            Table("", CALL_COLUMNS, operations),
            Section("Names for several operations", [Facts(sets)]),
            Table("", (FORM, SUMMARY), forms),
            Table("", (FORM, TIMED), forms),
            Text(NOTE),
        ],
    )


def as_json(found: Mapping[str, Operation] | InstalledCalls) -> dict[str, Any]:
    """What `--op` and `--form` take; formulas are of S, the size, and n, the number of ranks. Or
    what `--call` takes."""
    if isinstance(found, InstalledCalls):
        return {"calls": [call._asdict() for call in found.calls]}
    operations = [
        {
            "name": each.name, "summary": each.summary, "torch_call": each.torch_call,
            "sends": each.send.value, "receives": each.receive.value,
            "busbw_over_algbw": each.busbw_formula or None,
        }
        for each in found.values()
    ]  # fmt: skip
    forms = [
        {"name": form.name, "summary": form.summary, "is_timed": form.calls}
        for form in CALL_FORMS.values()
    ]
    return {"operations": operations, "sets": OPERATION_SETS, "forms": forms}


VIEW = View(document, schema=1, data=as_json)
