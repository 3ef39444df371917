"""Break real runs at random moments, and see that commbench survives as it promises.

scripts/faults [--faults N] [--soak N] [--seed N] [--nodes N] [KIND...]

Each fault is one run with real ranks in which something happens to a rank or to a launcher; every
third run has two nodes, which are launchers on this host. Of each run it is checked that it ended
in time and with the right code, that no process and no file in memory was left, that no finished
case was lost, that its folder can be read, and that each launcher named the culprit. The soak
is one launcher that makes N launches in a row. Exit code 1 if anything was not as promised; each
such run is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from commbench.errors import CommbenchError
from commbench.results.journal_reader import read_run
from commbench.worker.watchdog.rank_state import RankState, read_states

MARK, SPEC = "COMMBENCH_FAULT_RUN", "COMMBENCH_FAULT"
STRUCK = "struck"
"""File in which a planted fault notes the monotonic time at which it struck."""
NO_PROCESS = 1 << 22
"""The number of no process: the kernel gives none above 2**22."""
TIMEOUT_S = 4
ENDS_WITHIN_S = 10.0
HANGS_FOR_S = TIMEOUT_S + 5.0
"""What --timeout allows, the next heartbeat of a watchdog, and its diagnosis."""
STEPS_BEFORE = 45
"""Signals come after so many commands of rank 0 at most, of the 60 or more that a run has."""
MOST_TRIES = 5
"""Of a kind of fault whose runs end before it comes."""
RUN = ["--sizes", "1K-16K", "--no-plots", "--verbose", "--output", "run",
       "--timeout", str(TIMEOUT_S)]  # fmt: skip


class Fault(NamedTuple):
    """One kind of fault."""

    codes: tuple[int, ...]
    """The exit codes with which the launcher may end."""
    inside: str = ""
    """Python code that the culprit runs; empty for a signal from outside."""
    phase: str = "call"
    """When it does: `start`, `call`, `after` a call, `check`, `checked`, `gather`."""
    to_rank: int = 0
    """The signal that a rank gets."""
    to_launcher: tuple[int, ...] = ()
    """The signals that the launcher gets, 0.1 s apart."""
    hangs: bool = False
    named: bool = True
    """There is a culprit, and it has to be named."""


DIES, HANGS = (4,), (4,)
FAULTS = {
    "raises": Fault(DIES, "raise ValueError('lost')"),
    "raises at the start": Fault(DIES, "raise ValueError('lost')", "start"),
    "raises in a check": Fault(DIES, "raise ValueError('lost')", "check"),
    "raises in handing in": Fault(DIES, "raise ValueError('lost')", "gather"),
    "exits": Fault(DIES, "os._exit(3)"),
    "exits at the start": Fault(DIES, "os._exit(3)", "start"),
    "exits in a check": Fault(DIES, "os._exit(3)", "check"),
    "leaves with code 0": Fault(DIES, "os._exit(0)"),
    "leaves by sys.exit": Fault(DIES, "sys.exit(0)"),
    "segfaults": Fault(DIES, "ctypes.string_at(0)"),
    "aborts": Fault(DIES, "os.abort()"),
    "aborts in handing in": Fault(DIES, "os.abort()", "gather"),
    "loops": Fault(HANGS, "while True: pass", hangs=True),
    "never enters": Fault(HANGS, "time.sleep(1e6)", hangs=True),
    "stops in a check": Fault(HANGS, "os.kill(os.getpid(), 19)", "check", hangs=True),
    "runs out of memory": Fault((0,), "raise MemoryError('none left')", "checked", named=False),
    "gives wrong data": Fault((5,), "b.receive.zero_()", "after", named=True),
    "rank: SIGKILL": Fault(DIES, to_rank=signal.SIGKILL),
    "rank: SIGSEGV": Fault(DIES, to_rank=signal.SIGSEGV),
    "rank: SIGTERM": Fault(DIES, to_rank=signal.SIGTERM),
    "rank: SIGSTOP": Fault(HANGS, to_rank=signal.SIGSTOP, hangs=True),
    "launcher: SIGINT": Fault((130,), to_launcher=(signal.SIGINT,), named=False),
    "launcher: SIGINT twice": Fault((130,), to_launcher=(signal.SIGINT,) * 2, named=False),
    "rank: SIGSTOP, launcher: SIGINT": Fault(
        (130,), to_rank=signal.SIGSTOP, to_launcher=(signal.SIGINT,), named=False
    ),
    "launcher: SIGTERM": Fault((143,), to_launcher=(signal.SIGTERM,), named=False),
    "launcher: SIGHUP": Fault((129,), to_launcher=(signal.SIGHUP,), named=False),
    "launcher: SIGKILL": Fault((-9,), to_launcher=(signal.SIGKILL,), named=False),
}


def main() -> None:
    if SPEC in os.environ:
        run_with_fault(json.loads(os.environ[SPEC]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(FAULTS))
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--nodes", type=int, help="of every run; else 1 or 2")
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bad = 0
    if options.faults:
        bad += break_runs(
            options.kinds or list(FAULTS), options.faults, options.seed, options.nodes
        )
    if options.soak:
        bad += soak(options.soak)
    sys.exit(1 if bad else 0)


def break_runs(kinds: list[str], number: int, seed: int, nodes: int | None) -> int:
    """So many faults, each of a kind in turn; how many were not survived as promised."""
    done: Counter[str] = Counter()
    too_late: Counter[str] = Counter()
    wrong: list[str] = []
    slowest = 0.0
    attempt = tries = 0
    while done.total() < number:
        kind = kinds[done.total() % len(kinds)]
        random = Random(f"{seed} {attempt}")
        attempt += 1
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            found, took = one_run(kind, random, nodes, Path(folder))
        tries += 1
        if found is None and tries < MOST_TRIES:
            too_late[kind] += 1
            continue
        tries = 0
        found = [f"it came too late {MOST_TRIES} times"] if found is None else found
        done[kind] += 1
        slowest = max(slowest, took)
        for what in found:
            wrong.append(f"{kind}, --seed {seed}, run {attempt - 1}: {what}")
            print(f"  {wrong[-1]}", flush=True)
        if done.total() % 25 == 0:
            print(f"{done.total()} faults, {len(wrong)} complaints", flush=True)
    print(
        f"{done.total()} faults of {len(done)} kinds: {len(wrong)} complaints; "
        f"runs ended at most {slowest:.1f} s after their fault; {too_late.total()} faults too late"
    )
    return len(wrong)


class Trial(NamedTuple):
    """One run: the launchers of its nodes, which share this host, and what is to happen to it."""

    fault: Fault
    culprit: int
    """The rank that the fault is about."""
    per_node: int
    struck: int
    """The node that the fault is about."""
    folder: Path
    mark: str
    launchers: list[subprocess.Popen[str]]

    @property
    def ranks(self) -> int:
        return self.per_node * len(self.launchers)


class NodeEnd(NamedTuple):
    """How a launcher ended."""

    code: int
    err: str


def one_run(
    kind: str, random: Random, nodes: int | None, folder: Path
) -> tuple[list[str] | None, float]:
    """What is wrong with how a run with one fault ended, None where the fault came too late, and
    how many seconds after the fault it ended."""
    fault = FAULTS[kind]
    trial = start(fault, random, nodes or random.choice((1, 1, 2)), folder)
    began = time.monotonic()
    try:
        if not fault.inside:
            wait_for_step(trial, random.randint(1, STEPS_BEFORE))
            if any(launcher.poll() is not None for launcher in trial.launchers):
                return None, 0.0
            began = time.monotonic()
            with suppress(ProcessLookupError):  # it has just ended
                strike(trial)
        limit = ENDS_WITHIN_S + HANGS_FOR_S * fault.hangs + 60.0 * bool(fault.inside)
        ends = [finish(launcher, began + limit) for launcher in trial.launchers]
    except subprocess.TimeoutExpired:
        return [f"it hung; {hanging(trial)}"], time.monotonic() - began
    finally:
        end_all(trial.mark)
    ended = time.monotonic()
    for note in folder.glob(f"*/{STRUCK}"):
        began = float(note.read_text())
    took = 0.0 if fault.codes in ((0,), (5,)) else ended - began
    if all(one.code == 0 for one in ends) and fault.codes != (0,):
        return None, 0.0
    wrong = []
    if took > ENDS_WITHIN_S + HANGS_FOR_S * fault.hangs:
        wrong.append(f"it ended {took:.1f} s after the fault")
    for node, one in enumerate(ends):
        wrong += complaints(trial, node, one, ends[0])
    wrong += what_is_left(trial, ends)
    if wrong:
        words = [f"node {n}: {' | '.join(one.err.splitlines()[-3:])}" for n, one in enumerate(ends)]
        wrong.append(
            f"of {trial.ranks} ranks on {len(ends)} nodes; they printed: {'; '.join(words)}"
        )
    return wrong, took


def start(fault: Fault, random: Random, nodes: int, folder: Path) -> Trial:
    """Start the launchers of a run, each in a folder `node<N>` of its own."""
    per_node = random.choice((1, 2)) if nodes > 1 else random.choice((2, 2, 3))
    culprit = random.randrange(nodes * per_node)
    spec = {"code": fault.inside, "phase": fault.phase, "rank": culprit,
            "at": random.randrange(2, 400) if fault.phase == "call" else 2}  # fmt: skip
    mark = f"{os.getpid()}-{random.random()}"
    # What comes from outside needs some time: batches that take longer than that.
    words = [sys.executable, __file__, "run", *RUN, "--nproc-per-node", str(per_node),
             "--iters", "100" if fault.inside else "1000"]  # fmt: skip
    if nodes > 1:
        words += ["--nnodes", str(nodes), "--master-addr", "127.0.0.1",
                  "--master-port", str(free_port())]  # fmt: skip
    launchers = []
    for node in range(nodes):
        own = folder / f"node{node}"
        own.mkdir()
        launcher = subprocess.Popen(
            [*words, *(["--node-rank", str(node)] if nodes > 1 else [])],
            cwd=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {MARK: mark, SPEC: json.dumps(spec)}, start_new_session=True,
        )  # fmt: skip
        launchers.append(launcher)
    return Trial(fault, culprit, per_node, culprit // per_node, folder, mark, launchers)


def hanging(trial: Trial) -> str:
    """Which nodes still run, and what each printed; ends them."""
    words = []
    for node, launcher in enumerate(trial.launchers):
        there = "is there" if launcher.poll() is None else f"ended with {launcher.returncode}"
        launcher.kill()
        words.append(
            f"node {node} {there}: {' | '.join(launcher.communicate()[1].splitlines()[-3:])}"
        )
    return f"rank {trial.culprit} of {trial.ranks}; {'; '.join(words)}"


def finish(launcher: subprocess.Popen[str], deadline: float) -> NodeEnd:
    _, err = launcher.communicate(timeout=max(0.1, deadline - time.monotonic()))
    return NodeEnd(launcher.returncode, err)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def complaints(trial: Trial, node: int, end: NodeEnd, first: NodeEnd) -> list[str]:
    """What is not as promised with how a node ended; `first` is what node 0 left."""
    fault, wrong = trial.fault, []
    codes = fault.codes
    if node != trial.struck and fault.to_launcher:
        all_done = re.search(r"^\[100 %\] ", first.err, re.MULTILINE)
        codes = (*DIES, 0) if all_done else DIES  # its ranks lose the others
    if node and fault.codes == (5,):
        codes = (0,)  # node 0 tells of results
    if end.code not in codes:
        wrong.append(f"node {node}: exit code {end.code} instead of {codes[0]}")
    if end.code in (0, -signal.SIGKILL):
        return wrong
    lines = re.sub(r"\n +", " ", end.err).splitlines()  # a long line goes on below, indented
    errors = [line for line in lines if line.startswith("error: ")]
    if len(errors) != 1 or not lines[-1].startswith("hint: "):
        return [*wrong, f"node {node}: it did not end with two lines"]
    who = rf"\brank {trial.culprit}\b" if fault.named else ""
    if node != trial.struck and fault.to_launcher:
        lowest = trial.struck * trial.per_node
        who = rf"\bnode {trial.struck}\b|\branks? {lowest}\b"
    if not re.search(who, errors[0]):
        wrong.append(f"node {node}: the culprit was not named")
    return wrong


def what_is_left(trial: Trial, ends: list[NodeEnd]) -> list[str]:
    """Processes, files in memory, and finished cases that are not where they should be."""
    wrong = []
    deadline = time.monotonic() + ENDS_WITHIN_S
    while (left := processes(trial.mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        wrong.append(f"{len(left)} processes were left")
    for launcher, one in zip(trial.launchers, ends, strict=True):
        if one.code != -signal.SIGKILL and list(scratch_dirs_of(launcher)):
            wrong.append("files are left in /dev/shm")
    run, first = trial.folder / "node0" / "run", ends[0]
    finished = re.findall(r"^\[\d+ %\] (\S.*?)  ", first.err, re.MULTILINE)
    if run.exists() or finished:
        wrong += lost(run, finished, first.code)
    return wrong


def lost(run: Path, finished: list[str], code: int) -> list[str]:
    """What is missing in a run folder of the cases that were printed as finished."""
    try:
        found = read_run(run)
    except CommbenchError as error:
        killed_early = code == -signal.SIGKILL and not (run / "run.jsonl").read_text()
        return [] if killed_early else [f"its folder cannot be read: {error.message}"]
    names = {measurement.case.name for measurement in found.measurements}
    with (run / "results.csv").open() as file:
        rows = {int(row["size_bytes"]) for row in csv.DictReader(file)}
    wrong = []
    if missing := set(finished) - names:
        wrong.append(f"finished cases are lost in the journal: {missing}")
    if len(rows) < len(set(finished)):
        wrong.append("finished cases are lost in results.csv")
    if code != -signal.SIGKILL and found.end is None:
        wrong.append("the journal does not say how it ended")
    return wrong


def strike(trial: Trial) -> None:
    """Send the fault's signals."""
    launcher = trial.launchers[trial.struck]
    if trial.fault.to_rank:
        os.kill(state_of(launcher, trial.culprit).pid or NO_PROCESS, trial.fault.to_rank)
    for number in trial.fault.to_launcher:
        launcher.send_signal(number)
        time.sleep(0.1)


def scratch_dirs_of(launcher: subprocess.Popen[str]) -> Iterator[Path]:
    return Path("/dev/shm").glob(f"commbench-{launcher.pid}-*")


def state_of(launcher: subprocess.Popen[str], rank: int) -> RankState:
    """What a rank has recorded of itself; zeros where it has not begun."""
    for scratch_dir in scratch_dirs_of(launcher):
        with suppress(OSError):  # the run has ended meanwhile
            return read_states(scratch_dir).get(rank, RankState())
    return RankState()


def wait_for_step(trial: Trial, step: int) -> None:
    """Return when the culprit has waited for so many commands of rank 0, or a launcher has ended.
    The state of the run decides when a fault comes, and not the time: that depends on the load."""
    launcher = trial.launchers[trial.struck]
    while all(launcher.poll() is None for launcher in trial.launchers):
        if state_of(launcher, trial.culprit).step >= step:
            return
        time.sleep(0.005)


def processes(mark: str) -> list[int]:
    """Processes that descend from a run."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def end_all(mark: str) -> None:
    for pid in processes(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def run_with_fault(spec: dict[str, Any]) -> None:
    """`commbench ARGUMENTS`, in whose ranks the fault of the environment waits."""
    if spec["code"]:
        plant(spec)
    from commbench.cli.main import main as commbench_main

    if __name__ == "__main__":
        commbench_main()


def plant(spec: dict[str, Any]) -> None:
    """Make the culprit run the fault's code when it comes to the fault's phase."""
    from commbench.launch.devices import import_torch

    import_torch()
    from commbench.launch import elastic

    # Spawned ranks import this script, and so get the fault too.
    elastic._preparation_without_main = elastic._PREPARATION
    from commbench.plan.operations import OPERATIONS
    from commbench.worker import communicator, entrypoint, verify

    code = compile(spec["code"], "fault", "exec")
    calls = Counter[str]()

    def strike_here(phase: str, rank: int, **names: Any) -> None:
        calls[phase] += 1
        if phase == spec["phase"] and rank == spec["rank"] and calls[phase] == spec["at"]:
            import ctypes

            Path(STRUCK).write_text(str(time.monotonic()))
            exec(code, {"os": os, "sys": sys, "time": time, "ctypes": ctypes, **names})

    healthy = OPERATIONS["all_reduce"].call

    def call(dist: Any, b: Any) -> None:
        strike_here("call", b.rank)
        healthy(dist, b)
        strike_here("after", b.rank, b=b)

    OPERATIONS["all_reduce"] = OPERATIONS["all_reduce"]._replace(call=call)
    wrap(
        verify,
        "verify",
        lambda *given: strike_here("check", given[0].rank),
        lambda *given: strike_here("checked", given[0].rank),
    )
    wrap(communicator.Communicator, "reduce_max", lambda comm, _: strike_here("gather", comm.rank))
    if spec["phase"] == "start":
        spec["at"] = 1
        wrap(
            entrypoint,
            "_end_with_process",
            lambda _: strike_here("start", int(os.environ["RANK"])),
        )


def wrap(
    owner: Any, name: str, before: Callable[..., None], after: Callable[..., None] | None = None
) -> None:
    healthy = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        before(*arguments)
        found = healthy(*arguments)
        if after:
            after(*arguments)
        return found

    setattr(owner, name, wrapped)


def soak(launches: int) -> int:
    """One launcher, so many launches: what it holds after a quarter of them and at the end."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "commbench", "run", "--sizes", "1K", "--iters", "4",
             "--no-plots", "--verbose", "--launches", str(launches), "--output", "run"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"TMPDIR": folder},
        )  # fmt: skip
        assert process.stderr is not None
        held: dict[int, dict[str, int]] = {}
        for line in process.stderr:
            if re.match(r"\[\d+ %\] all_reduce ", line):  # once in each launch
                held[len(held) + 1] = holdings(process.pid, Path(folder))
        code = process.wait()
    early = max(2, launches // 4)
    first, last = held[early], held[launches]
    figures = ", ".join(f"{name} {first[name]} and {last[name]}" for name in first)
    print(
        f"soak of {launches} launches: exit code {code}; at launch {early} and the last: {figures}"
    )
    grown = [name for name in first if last[name] > first[name] * (1.02 if name == "KiB" else 1)]
    if code or grown:
        print(f"  grown: {', '.join(grown) or 'nothing'}")
    return len(grown) + bool(code)


def holdings(pid: int, folder: Path) -> dict[str, int]:
    """What a launcher holds: memory, open files, files in memory and temporary ones."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "KiB": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]),
        "open files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "files in /dev/shm": len(list(Path("/dev/shm").glob(f"commbench-{pid}-*"))),
        "temporary files": len([p for p in folder.iterdir() if p.name != "run"]),
    }


main()
