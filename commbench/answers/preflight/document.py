"""What a document of a preflight says: whether enough hosts are good, which are not and why, the
stages, and lines to paste; and its files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS
from commbench.answers.preflight.preflight import PREFLIGHT_JOURNAL, PreflightResult
from commbench.answers.preflight.verdicts import FLAPPING, VERDICTS
from commbench.output.paragraphs import list_some
from commbench.units import format_count
from commbench.views.as_json import fields_of
from commbench.views.cells import NUMBER, TEXT, Column
from commbench.views.document import BAD, GOOD, Block, Code, Document, Items, Table
from commbench.views.formats import View
from commbench.views.verdict_files import write_verdict_files

MOST_NAMED = 6
MOST_ROWS = 24
"""Hosts of the table that a terminal shows."""
EXCLUDED = "exclude.txt"
"""The list of all hosts that are not good."""
_ADVICE = {
    DRAIN: "drain: take the host out of use, and look at its logs in {path}.",
    MISSING: "missing: find out why the host does not answer: {starter}.",
    FLAPPING: "flapping: do not use the host now; it failed once, and passed with other hosts.",
    AGAIN: "again: undecided; test the host once more.",
}
_HOST = (
    Column("host", lambda host: host.name, TEXT),
    Column("verdict", lambda host: host.verdict, TEXT),
    Column("stage", lambda host: host.stage, TEXT),
    Column("why", lambda host: host.reason, TEXT, 1, is_wrapped=True),
)


class StageRow(NamedTuple):
    """What happened in a stage."""

    name: str
    runs: int
    failed: int
    retries: int
    slow: int
    """Findings about times."""
    longest_s: float


_STAGE = (
    Column("stage", lambda row: row.name, TEXT),
    Column("runs", lambda row: str(row.runs), NUMBER),
    Column("failed", lambda row: str(row.failed), NUMBER),
    Column("of them\nretries", lambda row: str(row.retries), NUMBER),
    Column("found\nslow", lambda row: str(row.slow), NUMBER),
    Column("longest\nrun, s", lambda row: f"{row.longest_s:.0f}", NUMBER),
)


def document(result: PreflightResult) -> Document:
    """The answer, the hosts that are not good, the stages, and what to paste."""
    bad = [host for host in result.hosts if host.verdict != PASS]
    bad.sort(key=lambda host: VERDICTS.index(host.verdict))
    found = {host.verdict for host in bad}
    values = {"path": str(result.path), "starter": result.starter}
    advice = [text.format(**values) for verdict, text in _ADVICE.items() if verdict in found]
    blocks: list[Block] = [
        Table("Hosts that are not good", _HOST, bad, brief=bad[:MOST_ROWS]),
        Table("Stages", _STAGE, stage_rows(result)),
        Items(advice, "What to do"),
        *lines_to_paste(result),
    ]
    took = f"{format_count(len(result.hosts), 'host')}, {result.seconds:.0f} s, {result.path}"
    tone = GOOD if result.is_ready else BAD
    return Document("Preflight", [took], [answer(result)], blocks, tone=tone)


def answer(result: PreflightResult) -> str:
    """Whether enough hosts are good, and which are not."""
    good, every = len(result.names(PASS)), format_count(len(result.hosts), "host")
    head = "READY" if result.is_ready else "NOT READY"
    told = [
        f"{verdict}: {list_some(names, MOST_NAMED)}"
        for verdict in VERDICTS
        if verdict != PASS and (names := result.names(verdict))
    ]
    text = f"{head}: {good} of {every} are good, and {result.need} are needed."
    return f"{text} {'; '.join(told)}.".replace(" .", "") if told else text


def stage_rows(result: PreflightResult) -> list[StageRow]:
    """What happened in each stage."""
    rows = []
    for name in dict.fromkeys(attempt.stage for attempt in result.attempts):
        own = [attempt for attempt in result.attempts if attempt.stage == name]
        runs = [attempt for attempt in own if attempt.folder]
        rows.append(
            StageRow(
                name, len(runs), sum(not a.passed for a in runs),
                sum(bool(a.retried) for a in runs), len(own) - len(runs),
                max((a.seconds for a in runs), default=0.0),
            )
        )  # fmt: skip
    return rows


def lines_to_paste(result: PreflightResult) -> list[Block]:
    """Command lines that keep a job away from the hosts that are not good."""
    good, starter = result.names(PASS), result.starter.split()[0]
    excluded, drained, passed = (
        shlex.quote(f"{result.path}/{name}") for name in (EXCLUDED, f"{DRAIN}.txt", f"{PASS}.txt")
    )
    if starter == "kubectl" and result.names(DRAIN):
        kubectl = result.starter.partition(" exec ")[0]
        node = f"{kubectl} get pod \"$pod\" -o jsonpath='{{.spec.nodeName}}'"
        label = f'kubectl label node "$({node})" commbench=drain'
        loop = f"for pod in $(cat {drained}); do\n  {label}\ndone"
        return [Code("Label the nodes of the pods to drain:", loop)]
    if len(good) == len(result.hosts) or not good or starter == "kubectl":
        return []
    if starter == "srun":
        line = f"srun --exclude=$(paste -sd, {excluded}) --nodes={len(good)} ..."
        return [Code("Start a job without the others, with srun:", line)]
    line = f"mpirun --hostfile {passed} ..."
    return [Code("Start a job without the others, with Open MPI for example:", line)]


def as_json(result: PreflightResult) -> dict[str, Any]:
    """The answer, the lists, and every attempt."""
    own = {"ready": result.is_ready, "exit_code": result.exit_code, "verdict": answer(result)}
    lists = {verdict: result.names(verdict) for verdict in VERDICTS}
    return own | lists | fields_of(result)


VIEW = View(document, schema=1, data=as_json)


def write_files(result: PreflightResult) -> list[Path]:
    """Write the lists, a page, JSON and JUnit XML into the folder; their paths."""
    lists = {verdict: result.names(verdict) for verdict in VERDICTS}
    lists[Path(EXCLUDED).stem] = [host.name for host in result.hosts if host.verdict != PASS]
    nodes = [(host.name, host.verdict, host.reason) for host in result.hosts]
    files = write_verdict_files(
        result.path, "preflight", lists, (VIEW, result), nodes, answer(result)
    )
    return [*files, result.path / PREFLIGHT_JOURNAL]
