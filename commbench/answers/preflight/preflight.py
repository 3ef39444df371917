"""Runs the stages of a preflight from one process, and judges the hosts.

Each attempt has a rendezvous of its own and a limit, so a host that hangs blocks only the attempts
it is in. Every attempt is a line of preflight.jsonl, and the verdicts are computed from these lines
alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from commbench import errors
from commbench.answers.fleet.fleet import DRAIN, PASS
from commbench.answers.preflight import stages
from commbench.answers.preflight.stages import PAIRS, Attempt, Group, HostVerdict, Stage
from commbench.errors import GATE_FAILS, NO_VERDICT_REACHED, Interrupted, UsageError
from commbench.launch.hosts import HostRun, HostStarter, Outcome, find_address, run_on_hosts
from commbench.results.journal import Journal
from commbench.results.run_folder import JOURNAL, empty_folder
from commbench.runner.run_options import RUN_OPTIONS, RunOptions
from commbench.units import format_count
from commbench.views.formats import Result

PREFLIGHT_JOURNAL = "preflight.jsonl"
RESERVE_S = 10.0
"""Of the limit, what is kept for ending runs and for the page."""
LEAST_S = 5.0
"""Nothing is started with less time."""
STATUS_EVERY_S = 10.0
FIRST_PORT, PORTS = 20_000, 9_000
"""Below the ports that Linux gives to clients."""
_NAMED = re.compile(r"\b(rank|node)s? (\d+)[-\d, ]*(?: on ([^\s,;:]+(?:, [^\s,;:]+)*))?")
"""Ranks or nodes in an error, and their hosts where it knows them."""
_DEFAULTS = {"op": "all", "sizes": "64K-16M:x16", "budget": "0.1", "launches": "1"}
"""Of the run, where `words` do not say it; a host alone has the usual launches."""
_OF_PAIRS = ("backend", "device", "nccl_option", "timeout", "cpu_mode")
"""The options of the run that the pairs have, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOptions:
    """What a preflight tests, and how."""

    hosts: tuple[str, ...]
    need: int
    """So many hosts have to be good."""
    starter: HostStarter
    run: RunOptions
    """What `words` say."""
    words: tuple[str, ...]
    """Options of `commbench run` for the stages other than pairs."""
    ranks_per_host: int | None
    variables: dict[str, str]
    limit_s: float
    stage_limit_s: float
    """Of each attempt."""
    at_once: int
    tolerance: float
    folder: Path

    def command(self, stage: str, hosts: int) -> list[str]:
        """The words after `commbench` of the command of a stage on one of so many hosts. A rank
        that hangs is named well before the limit of the stage."""
        ranks = [f"--nproc-per-node={self.ranks_per_host}"] * (self.ranks_per_host is not None)
        if "timeout" not in self.run.given:
            ranks.append(f"--timeout={self.stage_limit_s / 3:g}")
        if stage == PAIRS:
            given = [RUN_OPTIONS[n].argument(getattr(self.run, n)) for n in _OF_PAIRS
                     if n in self.run.given]  # fmt: skip
            return ["pairs", "--quick", "--no-plots", *ranks, *given]
        own = {RUN_OPTIONS[n].sets or n for n in self.run.given}
        own |= {"budget"} if own & {"iters", "precision"} else set()
        own |= {"launches"} if hosts == 1 or "iters" in own else set()
        defaults = [f"--{n}={value}" for n, value in _DEFAULTS.items() if n not in own]
        return ["run", "--no-plots", *defaults, *ranks, *self.words]


@dataclass(frozen=True, repr=False)
class PreflightResult(Result, view="answers.preflight.document", rows="hosts"):
    """The verdict about each host, and the attempts on which it rests."""

    hosts: tuple[HostVerdict, ...]
    attempts: tuple[Attempt, ...]
    need: int
    seconds: float
    path: Path
    starter: str
    """The command that starts a program on a host."""
    least: dict[str, float | None]
    """How many times as slow as the others a host must be to be named, by stage: see
    stages.find_least."""

    @property
    def lists(self) -> dict[str, list[str]]:
        """The names of the hosts with each verdict, in the order of the list of hosts."""
        return {v: [host.name for host in self.hosts if host.verdict == v] for v in stages.VERDICTS}

    @property
    def is_ready(self) -> bool:
        """Whether enough hosts are good."""
        return len(self.lists[PASS]) >= self.need

    @property
    def exit_code(self) -> int:
        """0 if enough hosts are good, 1 if not and any is to be drained, else 7."""
        if self.is_ready:
            return 0
        return GATE_FAILS if self.lists[DRAIN] else NO_VERDICT_REACHED


def run_preflight(options: PreflightOptions, notify: Callable[[str], None]) -> PreflightResult:
    """Test the hosts in stages. At a signal what is known is judged, and Interrupted has it in
    `run`."""
    if not 1 <= options.need <= len(options.hosts):
        hosts = format_count(len(options.hosts), "host")
        why = f"--need {options.need} is not from 1 to {hosts}"
        raise UsageError(why, "give fewer, or more hosts")
    empty_folder(options.folder)
    preflight = _Preflight(options, notify)
    errors.raise_at_signals("the verdicts rest on what had ended before")
    try:
        preflight.carry_out()
    except (Interrupted, KeyboardInterrupt) as stopped:
        number = stopped.signal_number if isinstance(stopped, Interrupted) else 2
        preflight.give_up("stopped by a signal")
        error = Interrupted("stopped by a signal", f"see {options.folder}", signal_number=number)
        error.run = preflight.result()
        raise error from None
    return preflight.result()


class _Preflight:
    def __init__(self, options: PreflightOptions, notify: Callable[[str], None]) -> None:
        self._options, self._notify = options, notify
        self._started = time.monotonic()
        self._until = self._started + options.limit_s - RESERVE_S
        self._attempts: list[Attempt] = []
        self._journal = Journal(options.folder, PREFLIGHT_JOURNAL)
        hosts = {"kind": "preflight", "hosts": options.hosts, "need": options.need}
        self._journal.write(hosts | {"starter": options.starter.command})
        self._numbers, self._first_port = count(), Random().randrange(FIRST_PORT, 2 * FIRST_PORT)
        self._stage = stages.ALONE

    def result(self) -> PreflightResult:
        """What is known now."""
        options = self._options
        return PreflightResult(
            tuple(stages.judge_hosts(options.hosts, self._attempts)), tuple(self._attempts),
            options.need, time.monotonic() - self._started, options.folder,
            options.starter.command,
            stages.find_least(self._attempts, options.folder, options.tolerance),
        )  # fmt: skip

    def give_up(self, reason: str) -> None:
        """Record that no host which is good until now has been tested to the end."""
        if hosts := self._good():
            self._leave_out(Group(tuple(hosts)), f"{reason} in the stage {self._stage}")

    def carry_out(self) -> None:
        """Run the stages until nothing is left to test, or no time."""
        for stage in stages.make_stages(self._good):
            self._stage = stage.name
            if self._left_s < LEAST_S:
                self.give_up("--limit left no time")
                break
            self._carry_out(stage)

    def _carry_out(self, stage: Stage) -> None:
        started = time.monotonic()
        for groups in stage.rounds:
            bad = {host for attempt in self._of(stage) for host in attempt.accused}
            self._run(stage, [Group(hosts) for hosts in groups if bad.isdisjoint(hosts)])
        self._judge(stage)
        attempts = self._of(stage)
        failed = [attempt for attempt in attempts if not attempt.passed]
        proven = [host for attempt in attempts if attempt.passed for host in attempt.hosts]
        proven += self._good() if stage.size > 2 else []
        waves = stages.retry_waves(stage, failed, [*dict.fromkeys(proven)])
        for wave in waves:
            self._run(stage, wave)
        if waves:
            self._judge(stage, is_again=True)
        runs, left = sum(bool(a.folder) for a in self._of(stage)), len(self._good())
        took = f"{time.monotonic() - started:.0f} s"
        good = f"{left} of {format_count(len(self._options.hosts), 'host')} are good"
        self._notify(f"{stage.name}: {good}, {format_count(runs, 'run')}, {took}")

    def _judge(self, stage: Stage, is_again: bool = False) -> None:
        """Record what the times of a stage say; after retries only about the retried hosts."""
        passed = [attempt for attempt in self._of(stage) if attempt.passed]
        options = self._options
        for found in [*stage.judge(stage.name, passed, options.folder, options.tolerance)]:
            if bool(found.retried) == is_again:
                self._record(found)

    def _of(self, stage: Stage) -> list[Attempt]:
        return [attempt for attempt in self._attempts if attempt.stage == stage.name]

    def _good(self) -> list[str]:
        found = stages.judge_hosts(self._options.hosts, self._attempts)
        return [host.name for host in found if host.verdict == PASS]

    @property
    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _record(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)
        self._journal.write({"kind": "attempt", **attempt._asdict()})

    def _leave_out(self, group: Group, reason: str) -> None:
        hosts, retried = group
        accused = retried or hosts
        self._record(Attempt(self._stage, hosts, False, reason, accused, retried, True, True))

    def _run(self, stage: Stage, groups: Sequence[Group]) -> None:
        """Run disjoint groups at once, and record each as it ends."""
        if self._left_s < LEAST_S:
            for group in groups:
                self._leave_out(group, "--limit left no time for it")
            return
        options = self._options
        runs, failed = [self._host_run(stage, group) for group in groups], 0
        by_folder = {run.folder: group for run, group in zip(runs, groups, strict=True)}
        told = started = time.monotonic()
        how = options.starter, options.variables, options.at_once, self._until
        with closing(run_on_hosts(runs, *how)) as outcomes:
            for done, outcome in enumerate(outcomes, 1):
                attempt = self._attempt(stage, outcome, by_folder[outcome.run.folder])
                self._record(attempt)
                failed += not attempt.passed
                if (now := time.monotonic()) - told > STATUS_EVERY_S and done < len(runs):
                    counts = f"{done}/{len(runs)} runs, {failed} failed"
                    self._notify(f"{stage.name}: {counts}, {now - started:.0f} s")
                    told = now

    def _host_run(self, stage: Stage, group: Group) -> HostRun:
        """The run of a group, with a rendezvous of its own."""
        options, number = self._options, next(self._numbers)
        words, hosts = options.command(stage.name, len(group.hosts)), group.hosts
        commands = [words]
        if len(hosts) > 1:
            port = FIRST_PORT + (self._first_port + number) % PORTS
            address = find_address(options.starter, hosts[0])
            join = [f"--nnodes={len(hosts)}", f"--master-addr={address}", f"--master-port={port}"]
            commands = [[*words, *join, f"--node-rank={rank}"] for rank in range(len(hosts))]
        name = f"{stage.name.replace(' ', '-')}/{number}-{hosts[0]}"
        limit_s = min(options.stage_limit_s, self._left_s)
        return HostRun(hosts, tuple(commands), options.folder / name, limit_s)

    def _attempt(self, stage: Stage, outcome: Outcome, group: Group) -> Attempt:
        """What the end of a run says about its hosts."""
        run = outcome.run
        has_journal = (run.folder / JOURNAL).stat().st_size > 0
        passed = has_journal and not any(code != 0 for code in outcome.codes)
        attempt = Attempt(
            stage.name, group.hosts, passed, retried=group.retried, seconds=outcome.seconds,
            folder=str(run.folder.relative_to(self._options.folder)),
        )  # fmt: skip
        if passed:
            return attempt
        ended = zip(run.hosts, outcome.codes, strict=True)
        silent = [host for host, code in ended if code is None]
        named = [host for text in outcome.errors for host in self._named(text, run.hosts)]
        accused = named or silent or run.hosts
        if group.retried:  # the others have passed
            accused = [host for host in group.retried if host in accused] or group.retried
        return attempt._replace(
            reason=_why(outcome), accused=tuple(dict.fromkeys(accused)),
            is_answered=has_journal or bool(outcome.errors),
            is_undecided=None in outcome.codes and self._left_s <= 0,
        )  # fmt: skip

    def _named(self, error: str, hosts: Sequence[str]) -> Iterator[str]:
        """The hosts that an error accuses. Its first clause is about ranks that failed or hang, the
        others are about those that wait."""
        for kind, number, names in _NAMED.findall(error.partition(";")[0]):
            ranks = 1 if kind == "node" else self._options.ranks_per_host
            if names:  # each as a host has it for itself
                short = {name.partition(".")[0] for name in names.split(", ")}
                yield from (host for host in hosts if host.partition(".")[0] in short)
            elif ranks or number == "0":
                yield from hosts[(at := int(number) // (ranks or 1)) : at + 1]


def _why(outcome: Outcome) -> str:
    if outcome.errors:
        return outcome.errors[0]
    if None in outcome.codes:
        return f"no answer within {outcome.seconds:.0f} s"
    if outcome.seconds >= outcome.run.limit_s:
        return f"not ended within {outcome.run.limit_s:.0f} s"
    code = next((code for code in outcome.codes if code), 0)
    last = next(filter(None, outcome.last_lines), "")
    return f"ended with exit code {code}" + f": {last}" * bool(last)
