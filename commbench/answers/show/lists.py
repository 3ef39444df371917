"""What `commbench links`, `ops`, `list` and `env` show: links with their speeds and published
bandwidths, operations and forms of their calls, recorded runs, and this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from commbench.analysis.figures import peak_fraction
from commbench.analysis.row_names import format_range
from commbench.answers.expect.curves import load_curves
from commbench.answers.show.formats import texts
from commbench.host.gpu_system import describe_gpu_facts
from commbench.output.text import join_words
from commbench.plan import links
from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.links import Link, Published
from commbench.plan.operation import Operation
from commbench.plan.operations import OPERATION_SETS, OPERATIONS, REPLAY
from commbench.plan.own_calls import InstalledCall
from commbench.results.run_folder import WRONG_RESULTS, StoredRun
from commbench.results.schema import COMPLETE
from commbench.stats import collect
from commbench.units import GB, format_count, format_share
from commbench.views import document as doc
from commbench.views.cells import NUMBER, TEXT, Column, Unit
from commbench.views.formats import Result, View, facts

_GBPS = Unit(lambda value: f"{value / GB:g}")
_BUSBW = Unit(lambda value: f"{value / GB:.4g}")


class Reached(NamedTuple):
    """A published bus bandwidth."""

    published: Published
    fraction: float | None
    """Of the speed of its link; None for an operation without bandwidth."""


class Curves(NamedTuple):
    """What the published curves of one system are of; several values as `2, 4, 8`."""

    system: str
    operation: str
    ranks: str
    nccl: str
    dtype: str
    source: str
    sizes: str
    """Their range: `512B-512M`."""


class Links(NamedTuple):
    """What `commbench links` answers."""

    links: tuple[Link, ...]
    """Those that were asked for."""
    published: tuple[Reached, ...]
    curves: tuple[Curves, ...] = ()
    """Only where what others published was asked for."""


def find_links(name: str | None = None, published: bool = False) -> Links:
    """All links, or the one of that name or alias with the bandwidths that were published for it;
    `published`: these bandwidths only, of all links without a name."""
    if name is None and not published:
        return Links(links.load_links(), ())
    link = None if name is None else links.find_link(name)
    figures = [one for one in links.load_published() if link is None or one.link == link.name]
    shown = (link,) if link and not published else ()
    curves = tuple(_curves(link)) if published else ()
    return Links(shown, tuple(Reached(one, _fraction(one)) for one in figures), curves)


def _curves(link: Link | None) -> Iterator[Curves]:
    """The published curves, of all systems or of those with this link."""
    found = collect(
        (curve.system, curve)
        for curve in load_curves()
        if link is None or ((gpu := links.find_gpu(curve.system)) and gpu.link == link)
    )
    for curves in found.values():
        of_fields = (sorted({*map(attrgetter(name), curves)}) for name in Curves._fields[:-1])
        sizes = [size for curve in curves for size, _ in curve.points]
        texts = (", ".join(map(str, values)) for values in of_fields)
        yield Curves._make((*texts, format_range(min(sizes), max(sizes))))


def _fraction(figure: Published) -> float | None:
    operation = OPERATIONS[figure.operation]
    if operation.busbw_factor is None:
        return None
    algbw = figure.busbw_bytes_per_s / operation.busbw_factor(figure.ranks)
    peak = links.find_link(figure.link)
    needed = peak_fraction(operation, figure.ranks, figure.nodes, algbw, peak)
    return needed.fraction if needed else None


def links_document(found: Links) -> doc.Document:
    """Tables of links and of published bandwidths; the source of each row is a number."""
    cited = [link.source for link in found.links] + [each.source for each in found.curves]
    sources = [*dict.fromkeys([*cited, *(one.published.source for one in found.published)])]
    source = Column("source", lambda one: sources.index(one.source) + 1, NUMBER)
    columns = (
        Column("link", attrgetter("name"), TEXT),
        Column("GB/s", attrgetter("bytes_per_second"), _GBPS),
        Column("per", attrgetter("per"), TEXT),
        Column("what it is", attrgetter("what"), TEXT),
        source,
    )
    published = (
        Column("machine", attrgetter("published.machine"), TEXT, 10),
        Column("operation", lambda o: f"{o.published.operation} {o.published.how}".strip(), TEXT),
        Column("size", lambda one: one.published.size.replace(" ", "").removesuffix("iB"), NUMBER),
        Column("busbw\nGB/s", attrgetter("published.busbw_bytes_per_s"), _BUSBW),
        Column("of the\nlink", attrgetter("fraction"), Unit(format_share)),
        Column("NCCL", attrgetter("published.nccl"), TEXT, 6),
        source._replace(of=lambda one: sources.index(one.published.source) + 1),
    )
    curves = (
        Column("system", attrgetter("system"), TEXT, 10),
        Column("GPUs", attrgetter("ranks"), TEXT),
        Column("sizes", attrgetter("sizes"), TEXT),
        Column("NCCL", attrgetter("nccl"), TEXT),
        source,
    )
    named = dict.fromkeys(name for each in found.curves for name in each.operation.split(", "))
    about = f"Curves of {', '.join(named)}: `commbench expect RUN` compares with them"
    blocks: list[doc.Block] = [
        doc.Table("", columns, found.links),
        doc.Items(texts("links") if len(found.links) > 1 else ()),
        doc.Table("", published, found.published, attrgetter("published.link"), "link"),
        doc.Items(texts("published") if found.published else ()),
        doc.Table(about, curves, found.curves),
        doc.sources_section(sources),
    ]
    title = found.links[0].name if len(found.links) == 1 else "Links"
    return doc.Document(title, (), [_links_answer(found)], blocks)


def _links_answer(found: Links) -> str:
    if len(found.links) == 1:
        (link,) = found.links
        return f"{link.what}: {link.bytes_per_second / GB:g} GB/s one way per {link.per}."
    if found.links:
        return f"The specified speeds of {format_count(len(found.links), 'link')}, one way."
    return f"{format_count(len(found.published), 'bus bandwidth')} that others published."


LINKS = View(links_document, schema=1)


_OPERATION = Column("operation", attrgetter("name"), TEXT)
FORM = Column("form of a call", attrgetter("name"), TEXT)
SUMMARY = Column("what it does", attrgetter("summary"), TEXT)
CALL_COLUMNS = (
    _OPERATION,
    Column("torch call", attrgetter("torch_call"), TEXT),
    Column("sends", attrgetter("send.value"), TEXT),
    Column("receives", attrgetter("receive.value"), TEXT),
    Column("busbw/\nalgbw", lambda row: row.busbw_formula or "none", NUMBER),
)
INSTALLED = (
    Column("call", attrgetter("name"), TEXT),
    Column("class", attrgetter("source"), TEXT),
    Column("package", attrgetter("package"), TEXT),
    Column("operation", lambda call: call.operation or f"not usable: {call.trouble}", TEXT, 8,
           is_wrapped=True),
)  # fmt: skip


def operations_document(found: Mapping[str, Operation] | Sequence[InstalledCall]) -> doc.Document:
    """The tables of operations and of forms; or that of installed calls."""
    if not isinstance(found, Mapping):
        answer = [] if found else [*texts("no calls")]
        return doc.Document("Installed calls", (), answer, [doc.Table("", INSTALLED, found)])
    operations, forms = found.values(), CALL_FORMS.values()
    sets = [(name, ", ".join(own)) for name, own in OPERATION_SETS.items()]
    number = format_count(len(operations), "operation")
    answer = [f"{number}, in {format_count(len(forms), 'form')} of a call."]
    blocks: list[doc.Block] = [
        doc.Table("", (_OPERATION, SUMMARY), operations),
        doc.Table("", CALL_COLUMNS, operations),
        doc.Section("Names for several operations", [doc.Facts(sets)]),
        doc.Table("", (FORM, SUMMARY), forms),
        doc.Table("", (FORM, Column("what is timed", attrgetter("calls"), TEXT)), forms),
        doc.Text(*texts("operations")),
    ]
    return doc.Document("Operations", (), answer, blocks)


def _operations_json(found: Mapping[str, Operation] | Sequence[InstalledCall]) -> dict[str, Any]:
    """What `--op` and `--form` take; formulas are of S, the size, and n, the number of ranks. Or
    what `--call` takes."""
    if not isinstance(found, Mapping):
        return {"calls": found}
    operations = [
        {"name": each.name, "summary": each.summary, "torch_call": each.torch_call,
         "sends": each.send.value, "receives": each.receive.value,
         "busbw_over_algbw": each.busbw_formula or None}
        for each in found.values()
    ]  # fmt: skip
    forms = [{"name": form.name, "summary": form.summary, "is_timed": form.calls}
             for form in CALL_FORMS.values()]  # fmt: skip
    return {"operations": operations, "sets": OPERATION_SETS, "forms": forms}


CALLS = View(operations_document, schema=1, data=_operations_json)


@dataclass(frozen=True, repr=False)
class RunList(Result, view="answers.show.lists:RUNS", rows="runs"):
    """The runs and the folders of sweeps under `results`: a sequence of the folders of runs."""

    runs: Sequence[StoredRun]
    sweeps: Sequence[str]

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, at: Any) -> Any:
        return [run.folder for run in self.runs][at]


def runs_document(found: RunList) -> doc.Document:
    """A row for each run, in the given order."""
    runs, sweeps = format_count(len(found.runs), "run"), format_count(len(found.sweeps), "sweep")
    answer = f"{runs} and {sweeps}." if found.runs or found.sweeps else "There are no runs here."
    folders = doc.Items(found.sweeps, "Sweeps (`commbench show FOLDER` prints one)")
    blocks: list[doc.Block] = [doc.Table("", RUN_COLUMNS, found.runs), folders]
    return doc.Document("The folder results", (), [answer], blocks)


def _started(run: StoredRun) -> str:
    """The start in the time zone of this host; the text itself where it is no time, and empty
    where the folder's name begins with it."""
    if re.match(r"\d{8}-\d{6}-", run.folder.name):
        return ""
    try:
        return f"{datetime.fromisoformat(run.started).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return run.started[:19]


def _what(run: StoredRun) -> str:
    """The operations and sizes: `all_reduce +2 1K-64M`; of a replay the name of its workload."""
    if run.workload:
        return f"{REPLAY} of {run.workload}"
    more = len(run.operations) - 1
    operations = "".join(run.operations[:1]) + (f" +{more}" if more > 0 else "")
    known = [OPERATIONS[name] for name in run.operations if name in OPERATIONS]
    if not run.sizes_bytes or not any(operation.has_data for operation in known):
        return operations
    return f"{operations} {format_range(min(run.sizes_bytes), max(run.sizes_bytes))}"


def _status(run: StoredRun) -> str:
    """What a reader should know of the run; empty where all is well."""
    if run.status == COMPLETE:
        return WRONG_RESULTS * run.has_wrong
    return run.status or "not ended"


RUN_COLUMNS = (
    Column("folder", lambda run: run.folder.name, TEXT, 9),
    Column("label", lambda run: run.label, TEXT, 8, is_wrapped=True),
    Column("started", _started, TEXT, 5),
    Column("what", _what, TEXT, 7, is_wrapped=True),
    Column("ranks", lambda run: f"{run.ranks} {run.backend}" if run.ranks else "", TEXT, 8),
    Column("status", _status, TEXT),
)
"""Names are never shortened, because they are typed again. A start is
there only where the name of its folder does not begin with it."""
RUNS = View(runs_document, schema=1)


def environment_document(found: Mapping[str, Any]) -> doc.Document:
    """Versions, devices, backends, facts of the host, and variables."""
    backends, devices = join_words(found["backends"]), join_words(found["devices"] or ["no GPU"])
    answer = f"{found['host']} has torch {found['torch']} with {backends}, and {devices}."
    shown = {**found, **describe_gpu_facts(dict(found))}
    return doc.Document("This machine", (), [answer], [doc.Facts([*facts(shown)])])


ENVIRONMENT = View(environment_document, schema=1)
