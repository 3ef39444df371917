"""The operations and the forms of their calls: the result of `commbench ops` and its document."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from commbench.spec.call_forms import CALL_FORMS
from commbench.spec.operations import OPERATION_SETS, OPERATIONS
from commbench.units import format_count
from commbench.views.cells import NUMBER, TEXT, Column
from commbench.views.document import Document, Facts, Section, Table, Text
from commbench.views.formats import View


class OperationFacts(NamedTuple):
    """An operation; formulas are of S, the size, and n, the number of ranks."""

    name: str
    summary: str
    torch_call: str
    sends: str
    receives: str
    busbw_over_algbw: str | None
    """None for an operation without bandwidth."""


class FormFacts(NamedTuple):
    """A form of a call."""

    name: str
    summary: str
    is_timed: str
    """The calls that are timed."""


class OperationTable(NamedTuple):
    """What `--op` and `--form` take."""

    operations: tuple[OperationFacts, ...]
    sets: dict[str, tuple[str, ...]]
    """Names for several operations."""
    forms: tuple[FormFacts, ...]


def operation_table() -> OperationTable:
    """Every operation, set of operations and form."""
    operations = (
        OperationFacts(
            each.name, each.summary, each.torch_call, each.send.value, each.receive.value,
            each.busbw_formula or None,
        )
        for each in OPERATIONS.values()
    )  # fmt: skip
    forms = (FormFacts(form.name, form.summary, form.calls) for form in CALL_FORMS.values())
    sets = {name: tuple(own) for name, own in OPERATION_SETS.items()}
    return OperationTable(tuple(operations), sets, tuple(forms))


SUMMARY_COLUMNS = (
    Column("operation", attrgetter("name"), TEXT),
    Column("what it does", attrgetter("summary"), TEXT),
)
CALL_COLUMNS = (
    Column("operation", attrgetter("name"), TEXT),
    Column("torch call", attrgetter("torch_call"), TEXT),
    Column("sends", attrgetter("sends"), TEXT),
    Column("receives", attrgetter("receives"), TEXT),
    Column("busbw/\nalgbw", lambda row: row.busbw_over_algbw or "none", NUMBER),
)
FORM_COLUMNS = (
    Column("form of a call", attrgetter("name"), TEXT),
    Column("what it does", attrgetter("summary"), TEXT),
)
TIMED_COLUMNS = (
    Column("form of a call", attrgetter("name"), TEXT),
    Column("what is timed", attrgetter("is_timed"), TEXT),
)
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


def document(found: OperationTable) -> Document:
    """The tables of operations and of forms."""
    operations = format_count(len(found.operations), "operation")
    sets = [(name, ", ".join(own)) for name, own in found.sets.items()]
    return Document(
        "Operations",
        (),
        [f"{operations}, in {format_count(len(found.forms), 'form')} of a call."],
        [
            Table("", SUMMARY_COLUMNS, found.operations),
            Table("", CALL_COLUMNS, found.operations),
            Section("Names for several operations", [Facts(sets)]),
            Table("", FORM_COLUMNS, found.forms),
            Table("", TIMED_COLUMNS, found.forms),
            Text(NOTE),
        ],
    )


VIEW = View(document, schema=1)
