"""Starts commbench on other hosts of an allocation, with a limit, and brings back its journal.

HOST_STARTERS is the table of commands that run a program on a host; any other one can be given as a
text with {host}. What runs on a host is a script on the standard input of its shell, so no starter
has to quote it, and no file system is shared: the journal comes back on standard output. When the
standard input closes, as it does when this process dies, the script ends what it has started.

Sources: the manual pages ssh(1), srun(1), scontrol(1), mpirun(1) of Open MPI and timeout(1) of GNU
coreutils; https://kubernetes.io/docs/reference/kubectl/generated/kubectl_exec/.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from commbench.errors import UnavailableError, UsageError, name_error
from commbench.results.run_folder import JOURNAL

HOST = "{host}"
GRACE_S = 8.0
"""How long a host has to end a run after its limit, before its starter is killed."""
OTHERS_S = 15.0
"""How long the other hosts of a run may take to end after one of them has failed."""
_LOOK_EVERY_S = 0.05
_LONGEST_QUERY_S = 30.0


class HostStarter(NamedTuple):
    """A command that runs the command after it on a host; {host} in it is the host's name."""

    command: str
    program: str = ""
    """How commbench is called there; empty: as here."""
    address: str = ""
    """A command that prints the address of a host; empty where others find it by its name."""
    variable: str = ""
    """An environment variable that is set within an allocation of its scheduler."""
    list_hosts: str = ""
    """A command that prints the hosts of that allocation."""


HOST_STARTERS = {
    "srun": HostStarter(
        "srun --nodelist={host} --nodes=1 --ntasks=1 --ntasks-per-node=1 --overlap --mpi=none "
        "--quiet", variable="SLURM_JOB_NODELIST", list_hosts="scontrol show hostnames",
    ),
    "ssh": HostStarter("ssh -o BatchMode=yes -o ConnectTimeout=20 {host}"),
    "mpirun": HostStarter("mpirun --host {host} -n 1"),
    "kubectl": HostStarter(
        "kubectl exec --stdin {host} --", "commbench",
        address="kubectl get pod {host} --output=jsonpath={.status.podIP}",
    ),
}  # fmt: skip
"""By name. The first one whose variable is set is the default, else ssh."""
SCRIPT = """{{
exec 3<&0
where=$(mktemp -d) && cd "$where" || exit 3
trap 'cd / && rm -rf "$where"' EXIT
{exports}
timeout -k 5 {limit:.0f} {command} </dev/null 3<&- >&2 &
run=$!
{{ cat <&3; kill "$run"; }} >/dev/null 2>&1 &
watcher=$!
wait "$run"
code=$?
kill "$watcher" 2>/dev/null
cat run/{journal} 2>/dev/null
exit "$code"
}}
"""
"""What runs on a host. Braces let a shell read all of it before it begins, and the rest of the
input is for `cat`, which waits for its end."""


def find_starter(text: str | None, environment: Mapping[str, str] = os.environ) -> HostStarter:
    """The starter of that name, perhaps with options of its program, or a command with {host};
    without a text the default."""
    if text is None:
        found = (s for s in HOST_STARTERS.values() if s.variable and s.variable in environment)
        return next(found, HOST_STARTERS["ssh"])
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--start {text!r:.60}: {error}", "close every quote") from None
    if not words:
        raise UsageError("--start is blank", f"write --start 'ssh -p 2222 {HOST}'")
    if HOST in text:
        return HostStarter(text)
    if known := HOST_STARTERS.get(name := words[0]):
        commands = (each.replace(name, text, 1) for each in (known.command, known.address))
        return known._replace(**dict(zip(("command", "address"), commands, strict=True)))
    unknown = name_error("--start", text, list(HOST_STARTERS))
    raise UsageError(unknown.message, f"{unknown.hint}; or a command such as 'ssh -p 2222 {HOST}'")


def allocated_hosts(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The hosts of the allocation in which this process runs; empty outside of one."""
    for starter in HOST_STARTERS.values():
        if starter.list_hosts and (nodes := environment.get(starter.variable)):
            return _ask([*shlex.split(starter.list_hosts), nodes]).split()
    return []


def find_address(starter: HostStarter, host: str) -> str:
    """The address by which other hosts reach a host."""
    return _ask(_words(starter.address, host)).strip() if starter.address else host


def _words(command: str, host: str) -> list[str]:
    return [word.replace(HOST, host) for word in shlex.split(command)]


def _ask(words: list[str]) -> str:
    try:
        return subprocess.run(
            words, check=True, capture_output=True, text=True, timeout=_LONGEST_QUERY_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        hint = "name the hosts: --hosts node1,node2"
        raise UnavailableError(f"`{shlex.join(words)}` failed: {error}", hint) from None


class HostRun(NamedTuple):
    """A run of commbench on hosts, which join only each other."""

    hosts: tuple[str, ...]
    commands: tuple[Sequence[str], ...]
    """The words after `commbench`, for each host; the first one writes the journal."""
    folder: Path
    """New; takes the journal, and the log of each host."""
    limit_s: float


class Outcome(NamedTuple):
    """How a run on hosts ended."""

    run: HostRun
    codes: tuple[int | None, ...]
    """The exit code of each host; None where it had not ended at its limit."""
    seconds: float

    @property
    def errors(self) -> list[str]:
        """What hosts that failed say is wrong; not that they were stopped."""
        ends = zip(self.run.hosts, self.codes, strict=True)
        found = [_error_of(_log(self.run, host)) for host, code in ends if code != 0]
        return [text for text in found if text and not text.startswith("stopped by SIG")]

    @property
    def last_lines(self) -> list[str]:
        """The last line that each host printed on standard error."""
        return [(_lines(_log(self.run, host)) or [""])[-1] for host in self.run.hosts]


def _log(run: HostRun, host: str) -> Path:
    return run.folder / f"{host}.log"


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text("utf-8", "replace").split("\n")[:-1]
    return []


def _error_of(log: Path) -> str:
    """The last error that a log has, which may wrap, without the hint."""
    _, found, rest = "\n".join(["", *_lines(log)]).rpartition("\nerror: ")
    return " ".join(rest.partition("\nhint: ")[0].split()) if found else ""


class _Running:
    """A run that has been started."""

    def __init__(
        self, run: HostRun, starter: HostStarter, variables: Mapping[str, str], until_s: float
    ) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self.run, self._started = run, time.monotonic()
        self._deadline = min(self._started + run.limit_s, until_s)
        limit_s = max(1.0, self._deadline - self._started)
        self._processes: list[subprocess.Popen[bytes]] = []
        program = starter.program or f"{shlex.quote(sys.executable)} -m commbench"
        exports = "\n".join(f"export {n}={shlex.quote(value)}" for n, value in variables.items())
        try:
            for number, (host, words) in enumerate(zip(run.hosts, run.commands, strict=True)):
                command = f"{program} {shlex.join([*words, '--output=run'])}"
                script = SCRIPT.format(
                    exports=exports, command=command, limit=limit_s, journal=JOURNAL
                )
                out = run.folder / JOURNAL if number == 0 else Path(os.devnull)
                with out.open("wb") as journal, _log(run, host).open("wb") as log:
                    process = subprocess.Popen(
                        [*_words(starter.command, host), "sh", "-s"], stdin=subprocess.PIPE,
                        stdout=journal, stderr=log, start_new_session=True,
                    )  # fmt: skip
                self._processes.append(process)
                assert process.stdin
                with suppress(BrokenPipeError):
                    process.stdin.write(script.encode())
                    process.stdin.flush()
        except OSError as error:
            self.stop()
            why = f"cannot start {shlex.split(starter.command)[0]}: {error.strerror}"
            raise UnavailableError(why, "install it, or choose another with --start") from None

    def look(self) -> Outcome | None:
        """How it ended; None while it goes on. At its limit it is stopped."""
        codes, now = [process.poll() for process in self._processes], time.monotonic()
        if any(codes):  # one has failed; the others wait for it
            self._deadline = min(self._deadline, now + OTHERS_S)
        if None in codes:
            if now < self._deadline:
                return None
            if now < self._deadline + GRACE_S:
                self._close()
                return None
        self.stop()
        return Outcome(self.run, tuple(codes), now - self._started)

    def _close(self) -> None:
        for process in self._processes:
            if process.stdin:
                with suppress(OSError):
                    process.stdin.close()

    def stop(self) -> None:
        """End it at once, on this host; closed inputs end it on the others."""
        self._close()
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_on_hosts(
    runs: Sequence[HostRun], starter: HostStarter, variables: Mapping[str, str], at_once: int,
    until_s: float,
) -> Generator[Outcome, None, None]:  # fmt: skip
    """Run all of them, so many at once, and yield how each ended as soon as it has. At `until_s` of
    the monotonic clock all are stopped. Closing the iterator stops the rest."""
    waiting, running = [*runs], list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Running(waiting.pop(0), starter, variables, until_s))
            for one in [*running]:
                if outcome := one.look():
                    running.remove(one)
                    yield outcome
            time.sleep(_LOOK_EVERY_S)
    finally:
        for one in running:
            one.stop()
