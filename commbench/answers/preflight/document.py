"""What a document of a preflight says: whether enough hosts are good, which are not and why, the
stages, and lines to paste; and its files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commbench.answers.fleet.fleet import AGAIN, DRAIN, MISSING, PASS
from commbench.answers.preflight.preflight import PREFLIGHT_JOURNAL, PreflightResult
from commbench.answers.preflight.stages import FLAPPING, PAIRS, VERDICTS, Attempt
from commbench.output.text import join_words, list_some
from commbench.stats import collect
from commbench.units import format_count, format_times_up
from commbench.views.cells import NUMBER, TEXT, Column
from commbench.views.document import BAD, GOOD, Block, Code, Document, Items, Table
from commbench.views.formats import View, fields_of, write_verdict_files

MOST_NAMED = 6
MOST_ROWS = 24
"""Hosts of the table that a terminal shows."""
EXCLUDED = "exclude.txt"
"""The list of all hosts that are not good."""
_ADVICE = {
    DRAIN: "drain: take the host out of use, and look at its logs in {path}.",
    MISSING: "missing: find out why the host does not answer: {starter}.",
    FLAPPING: "flapping: do not use the host now; it failed once, and passed with other hosts.",
    AGAIN: "again: undecided; test the host once more. Logs are in {path}{longer}.",
}
_HOST = (
    Column("host", lambda host: host.name, TEXT),
    Column("verdict", lambda host: host.verdict, TEXT),
    Column("stage", lambda host: host.stage, TEXT),
    Column("why", lambda host: host.reason, TEXT, 1, is_wrapped=True),
)


def _runs(stage: Sequence[Attempt]) -> list[Attempt]:
    """The runs of a stage; the other attempts are findings about times."""
    return [attempt for attempt in stage if attempt.folder]


_STAGE = (
    Column("stage", lambda stage: stage[0].stage, TEXT),
    Column("runs", lambda stage: str(len(_runs(stage))), NUMBER),
    Column("failed", lambda stage: str(sum(not a.passed for a in _runs(stage))), NUMBER),
    Column("of them\nretries", lambda s: str(sum(bool(a.retried) for a in _runs(s))), NUMBER),
    Column("found\nslow", lambda stage: str(len(stage) - len(_runs(stage))), NUMBER),
    Column("longest\nrun, s", lambda stage: f"{max(a.seconds for a in stage):.0f}", NUMBER),
)


def document(result: PreflightResult) -> Document:
    """The answer, the hosts that are not good, the stages, and what to paste."""
    stages = collect((attempt.stage, attempt) for attempt in result.attempts)
    bad = [host for host in result.hosts if host.verdict != PASS]
    bad.sort(key=lambda host: VERDICTS.index(host.verdict))
    found = {host.verdict for host in bad}
    longest = max((attempt.seconds for attempt in result.attempts), default=0.0)
    longer = f"; where a run did not end in time, give more: --stage-limit {3 * longest:.0f}"
    values = {"path": result.path, "starter": result.starter, "longer": longer * (longest > 0)}
    advice = [text.format(**values) for verdict, text in _ADVICE.items() if verdict in found]
    blocks: list[Block] = [
        Table("Hosts that are not good", _HOST, bad, brief=bad[:MOST_ROWS]),
        Table("Stages", _STAGE, [*stages.values()]),
        Items(advice, "What to do"),
        *lines_to_paste(result),
    ]
    took = f"{format_count(len(result.hosts), 'host')}, {result.seconds:.0f} s, {result.path}"
    tone = GOOD if result.is_ready else BAD
    return Document("Preflight", [took], [answer(result), _least(result)], blocks, tone=tone)


def _least(result: PreflightResult) -> str:
    """How slow a host must be to be named."""
    words, unknown = [], ""
    for stage, least in result.least.items():
        where = f"in {stage}" if stage == PAIRS else stage
        if least:
            words.append(f"{where} if it is {format_times_up(least)} times as slow")
        else:
            unknown += f", not {where}: too few hosts passed"
    if not words:
        return "Too few hosts passed to tell whether one is slow: that takes 4 or more."
    return f"A slow host shows {join_words(words)}{unknown}."


def answer(result: PreflightResult) -> str:
    """Whether enough hosts are good, and which are not."""
    good, every = len(result.lists[PASS]), format_count(len(result.hosts), "host")
    head = "READY" if result.is_ready else "NOT READY"
    told = [
        f"{verdict}: {list_some(names, MOST_NAMED)}"
        for verdict, names in result.lists.items()
        if verdict != PASS and names
    ]
    text = f"{head}: {good} of {every} are good, and {result.need} are needed."
    return f"{text} {'; '.join(told)}.".replace(" .", "") if told else text


def lines_to_paste(result: PreflightResult) -> list[Block]:
    """Command lines that keep a job away from the hosts that are not good."""
    good, starter = result.lists[PASS], result.starter.split()[0]
    excluded, drained, passed = (
        shlex.quote(f"{result.path}/{name}") for name in (EXCLUDED, f"{DRAIN}.txt", f"{PASS}.txt")
    )
    if starter == "kubectl" and result.lists[DRAIN]:
        kubectl = result.starter.partition(" exec ")[0]
        node = f"{kubectl} get pod \"$pod\" -o jsonpath='{{.spec.nodeName}}'"
        label = f'kubectl label node "$({node})" commbench=drain'
        loop = f"for pod in $(cat {drained}); do\n  {label}\ndone"
        return [Code("Label the nodes of the pods to drain:", loop)]
    if len(good) == len(result.hosts) or not good or starter == "kubectl":
        return []
    tool, line = "Open MPI for example", f"mpirun --hostfile {passed} ..."
    if starter == "srun":
        tool, line = "srun", f"srun --exclude=$(paste -sd, {excluded}) --nodes={len(good)} ..."
    return [Code(f"Start a job without the others, with {tool}:", line)]


def as_json(result: PreflightResult) -> dict[str, Any]:
    """The answer, the lists, and every attempt."""
    own = {"ready": result.is_ready, "exit_code": result.exit_code, "verdict": answer(result)}
    return own | result.lists | fields_of(result)


VIEW = View(document, schema=1, data=as_json)


def write_files(result: PreflightResult) -> list[Path]:
    """Write the lists, a page, JSON and JUnit XML into the folder; their paths."""
    bad = [host.name for host in result.hosts if host.verdict != PASS]
    lists = result.lists | {Path(EXCLUDED).stem: bad}
    nodes = [(host.name, host.verdict, host.reason) for host in result.hosts]
    files = write_verdict_files(
        result.path, "preflight", lists, (VIEW, result), nodes, answer(result), DRAIN
    )
    return [*files, result.path / PREFLIGHT_JOURNAL]
