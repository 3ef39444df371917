"""Random command lines. They are made so that no rank is ever started: what they ask for ends
before, or is a dry run. Those of commands that import torch, which end their process at once, get a
process each."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from commands import start_command
from fuzz import HOSTILE, MOST_FAILURES, PATIENCE_S, Ended, call, hung, seeds, what_is_wrong
from synthetic_step import WORKLOAD
from synthetic_traces import DUMP

from commbench.cli.commands import COMMANDS, command
from commbench.results.files import write_workload

ENDS_BEFORE = {
    "run": (["--dry-run"],),
    "sweep": (["--rounds", "0"], ["--output", "full"], ["--tolerance", "x"], ["--nnodes", "2"]),
    "pairs": (["--dry-run"],),
    "replay": (["--dry-run"],),
    "init": (["--ranks", "0"], ["--timeout", "0"], ["--backend", "none"]),
    "smoke": (["--timeout", "0"], ["--backend", "none"], ["--junit", "text/x.xml"]),
    "soak": (["--for", "0"], ["--cycles", "0"], ["--timeout", "0"], ["--backend", "none"]),
    "preflight": (["--need", "0"], ["--tolerance", "x"]),
    "doctor": (["--seconds", "0"], ["--rounds", "0"], ["--nproc-per-node", "1"]),
}
"""What keeps a command from starting ranks."""
IMPORT_TORCH = (*ENDS_BEFORE, "env")
MOST_MEMORY = 16 << 30

NUMBERS = (
    "0", "1", "2", "-1", "3", "7", "64", "1.5", "1e3", "1e400", "nan", "inf", "-inf", "9" * 30,
    "9" * 400, "9" * 5000, str(2**31), str(2**63), str(2**64), "0x10", "1_000", "١٢", " 3 ", "",
    "1e-320", "5e-324", "1e15", "65536", "10000000000",
)  # fmt: skip
TEXTS = (
    "all", "all_reduce", "all_gather,barrier", "broadcast", "all_redcue", ",", "all,all", "float32",
    "float32,int64", "bfloat16", "int16", "sum", "avg,max", "in_place", "both", "natural", "exact",
    "nccl-tests", "isolated", "pipelined", "shuffled", "ascending", "gloo", "nccl", "mpi", "cpu",
    "cuda", "xpu", "meta", "quiet", "plain", "realtime", "table", "json", "csv", "markdown",
    "openmetrics", "parquet", "pass", "fail", "agent", "torchrun", "localhost", "::1", "a", "b",
    "nccl-tuner", "one", "1K", "1K-1M", "1K-1G:x4", "1M-16M:+1M", "8,1K", "1K-", "-1K", "1G-1K",
    "1-1T", "1-1024G:+1", "1K-1G:x1", "1K-1G:x1.0000001", "1KB", "9" * 80, "0", "1K-1K", "5%",
    "10%", "0.1", "150%", "-5%", "nan%", "450GB/s", "400Gbit/s/node", "nvlink4", "1Gb", "0GB/s",
    "120us", "4.2ms", "0s", "9" * 20 + "s", "all_reduce:1M-1G:3.0GB/s", "all_reduce:-64K:80us",
    "::1s", "barrier:200us", "3GB/s", "A=1,2", "NCCL_ALGO=RING,TREE", "B:=1,2", "A=", "=1", "A=-,1",
    "nproc-per-node=2,3", "cpu-mode=quiet,plain", "dtype=float32,x", "backend=gloo,nccl", "timing=",
    *HOSTILE[:-6], "x" * 3000, "--", "-", "-x", "--help", "--no-such", "",
)  # fmt: skip
PATHS = (
    "a", "b", "c", "a/run.jsonl", "a/results.csv", "full", "dir", "fifo", "fifo/x", "loop",
    "loop/x", "nowhere", "nowhere/x", "null", "zero", "random", "cut.jsonl", "binary", "text",
    "latin.csv", "huge", "huge.csv", "nccl.log", "nccl.json", "osu.txt", "limits.toml", "bad.toml",
    "deep.toml", "trace.json", "rank_0", "traces", "sweep", "bad-sweep", "socket", "unnamed\udcff",
    "x" * 300, "x" * 5000, "", ".",
    "./a/", "a/../a", "a\tb", "-", "/dev/full", "/proc/self/mem", "/proc/self/environ", "newlabel",
    "machine.json", "bad-machine.json", "step.json",
)  # fmt: skip
SOUND = {
    "--op": ("all_reduce", "all_gather,barrier", "all", "reduce"), "--dtype": ("float32", "all"),
    "--sizes": ("1K", "1K-1G:x4", "1M-16M:+1M", "8,1K", "1-1024G"), "--precision": ("5%", "0.1"),
    "--reduce-op": ("sum", "avg,max", "all"), "--placement": ("both", "in_place", "natural"),
    "--rounding": ("exact", "nccl-tests"), "--iters": ("1", "64"), "--warmup": ("0", "7"),
    "--timing": ("isolated", "both"), "--order": ("shuffled", "ascending"), "--seed": ("3",),
    "--budget": ("0.2", "1e3"), "--timeout": ("3", "1e-320"), "--nproc-per-node": ("2", "64"),
    "--root": ("0", "1"), "--launches": ("2",), "--backend": ("gloo",), "--device": ("cpu",),
    "--cpu-mode": ("quiet", "plain"), "--launcher": ("agent", "torchrun"), "--label": ("one",),
    "--format": ("table", "nccl-tests", "csv", "json", "markdown", "openmetrics"),
    "--peak": ("450GB/s", "nvlink4", "400Gbit/s/node"), "--minbytes": ("8",), "--maxbytes": ("1G",),
    "--stepfactor": ("2", "1.5"), "--stepbytes": ("1M",), "-c": ("0", "1"),
    "--ranks": ("8", "64", "8-512"),
    "--size": ("1K", "1G"), "--time": ("120us", "4.2ms"), "--nodes": ("1", "2"),
    "--tolerance": ("5%",), "--env": ("NCCL_ALGO=RING,TREE", "A=-,1"), "--undecided": ("fail",),
    "--vary": ("cpu-mode=quiet,plain", "nproc-per-node=2,3"), "--against": ("a", "b", "one"),
    "--max-slowdown": ("10%", "all_reduce:1M-1G:5%"), "--min-busbw": ("3GB/s", "barrier:1GB/s"),
    "--max-time": ("1s", "all_reduce:-64K:80us"), "--rules": ("limits.toml",),
    "--params": ("350M", "7B"), "--model-bytes": ("32M",), "--backward": ("120ms",),
    "--tensors": ("4", "16"), "--bucket-cap": ("25M",),
    "--experts": ("8", "64"), "--hidden": ("1024",),
    "--gpu": ("h100", "a100-pcie", "gb200", "NVIDIA H100 80GB HBM3", "none"),
    "--gpus-per-node": ("1", "4", "8"), "--nic": ("8x400G", "efa", "8xib-ndr", "dgx-h100-ib"),
    "--link": ("450GB/s", "nvlink4"), "--busbw": ("430GB/s",), "--algbw": ("250GB/s",),
    "--algorithm": ("ring", "nvls"), "--nccl": ("2.16", "2.29.7"),
    "--expect": ("run", "h100", "h100:2 nodes:efa", "a100:8x200G"),
    "--model": ("machine.json", "bad-machine.json"), "--ranks-per-node": ("1", "8"),
    "--master-addr": ("localhost",), "--master-port": ("29500",), "--nnodes": ("2",),
}  # fmt: skip
FRESH = ("fresh-{}", "fresh-{}/x", "full", "full/x", "a", "fifo", "loop", "null", "x" * 300)


def fixtures(folder: Path) -> None:
    """Everything that somebody may name."""
    import socket

    import planted

    from commbench.answers.cost.machine import write_machine

    os.chdir(folder)
    seeds(folder)
    data = Path(__file__).parent / "data"
    for name in ("full", "dir", "sweep", "bad-sweep", "results"):
        Path(name).mkdir()
    Path("full/mine").write_text("mine")
    Path("results/20261121-120000-one").symlink_to(folder / "a")
    os.mkfifo("fifo")
    Path("loop").symlink_to("loop")
    for name, device in (("null", "/dev/null"), ("zero", "/dev/zero"), ("random", "/dev/urandom")):
        Path(name).symlink_to(device)
    whole = Path("a/run.jsonl").read_bytes()
    Path("cut.jsonl").write_bytes(whole[: len(whole) // 2])
    Path("binary").write_bytes(bytes(range(256)) * 9)
    Path("text").write_text("nothing of use\n")
    table = Path("a/results.csv").read_bytes()
    Path("latin.csv").write_bytes(table.replace(b"\na,", "\né,".encode("latin-1")))
    for name, head in (("huge", b""), ("huge.csv", table)):
        with Path(name).open("wb") as file:
            file.write(head)
            file.truncate(1 << 42)  # takes no room: nothing but a hole
    Path("nccl.log").write_bytes((data / "nccl-tests" / "nccl_allreduce.log").read_bytes())
    Path("nccl.json").write_bytes((data / "foreign" / "nccl-tests-3.json").read_bytes())
    Path("osu.txt").write_bytes((data / "foreign" / "osu.txt").read_bytes())
    Path("rank_0").write_bytes(pickle.dumps(DUMP, 2))
    Path("traces").mkdir()
    for trace in (Path("trace.json"), Path("traces/rank1.json")):
        trace.write_text(json.dumps(DUMP))
    Path("limits.toml").write_text('[[rule]]\nmax_time = "1s"\n')
    Path("bad.toml").write_text(f"[[rule]]\nmax_time = 0x{'f' * 5000}\n")
    Path("deep.toml").write_text(f"rule = {'[' * 5000}{']' * 5000}\n")
    write_machine(planted.machine(), Path("machine.json"))
    machine = Path("machine.json").read_text()
    Path("bad-machine.json").write_text(machine.replace('"scatter": 0', '"scatter": -0'))
    write_workload(Path("step.json"), WORKLOAD)
    Path("bad-sweep/sweep.json").write_text('{"format": 1, "settings": [{"variables": 1}]}')
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")


def random_line(chance: Random, number: int) -> list[str]:
    """A command line: mostly options of the command, mostly with values of their kind."""
    quick = [name for name in COMMANDS if name not in IMPORT_TORCH]
    name = chance.choice((*COMMANDS, *quick, *quick, "run", "run", "run"))
    if chance.random() < 0.02:
        name = chance.choice(TEXTS)
    words = [name]
    made = command(name) if name in COMMANDS else None
    if of_group := getattr(made, "commands", None):
        words.append(chance.choice([*of_group]))
        made = of_group[words[-1]]
    known = made.params if made else []
    if name == "sweep" and chance.random() < 0.5:
        known = [*known, *command("run").params]
    arguments = [p for p in known if p.param_type_name == "argument"]
    options = [p for p in known if p.param_type_name == "option"]
    for argument in arguments:
        several = 1 if argument.nargs == 1 else chance.choice((0, 1, 1, 2, 3))
        words += [_path_or_name(name, chance) for _ in range(several)]
    chosen = chance.choices(options, k=chance.choice((0, 1, 1, 2, 3, 6))) if options else []
    chosen += [option for option in options if option.required and chance.random() < 0.9]
    for option in chosen:
        words.append(chance.choice(option.opts))
        if not option.is_flag and chance.random() < 0.97:
            words.append(_value(option, chance, number))
    if chance.random() < 0.03:
        words.insert(chance.randrange(1, len(words) + 1), chance.choice(TEXTS))
    if name in ENDS_BEFORE:
        words += chance.choice(ENDS_BEFORE[name]) * 2  # twice: the first may become a value
    return words


USUAL = {
    "explain": ("all_reduce", "a", "b"), "links": ("nvlink4", "h100"),
    "model": ("machine.json", "bad-machine.json", "a"), "replay": ("step.json",),
}  # fmt: skip


def _path_or_name(name: str, chance: Random) -> str:
    usual = USUAL.get(name, ("a", "b", "one"))
    return chance.choice(usual) if chance.random() < 0.4 else chance.choice(PATHS + TEXTS[-30:])


def _value(option: Any, chance: Random, number: int) -> str:
    if chance.random() < 0.6 and option.opts[0] in SOUND:
        return chance.choice(SOUND[option.opts[0]])
    if chance.random() < 0.08:
        return chance.choice(TEXTS + NUMBERS + PATHS)
    if option.type.name in ("int", "float", "integer"):
        return chance.choice(NUMBERS)
    if option.type.name == "path":
        if option.opts[0] in ("--rules", "--resume"):
            return chance.choice([path for path in PATHS if path != "sweep"])
        return chance.choice(FRESH).format(number)
    return chance.choice(TEXTS)


def run(line: list[str]) -> Ended:
    """Run a command line in a process of its own."""
    limits = {"RLIMIT_AS": (MOST_MEMORY, MOST_MEMORY)}
    command = start_command(Path.cwd(), *line, limits=limits)
    try:
        out, err = command.communicate(PATIENCE_S)
    except subprocess.TimeoutExpired:
        return Ended("none: it hung", "", "")
    code = command.returncode
    return Ended(code if code is not None and code >= 0 else f"none: signal {code}", out, err)


def call_these(folder: Path, lines: list[list[str]]) -> dict[str, Any]:
    """How command lines ended that import no torch: codes, and what was said."""
    fixtures(folder)
    signal.signal(signal.SIGALRM, hung)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    began = time.monotonic()
    ended = [call([as_argument(word) for word in line]) for line in lines]
    return {"ended": [(e.code, e.err) for e in ended], "seconds": time.monotonic() - began}


def as_argument(word: str) -> str:
    """A word as a program can be given it: without a NUL, and of bytes."""
    return word.replace("\0", "0").replace("\ud800", "\udcff")


def fuzz_command_lines(folder: Path, seed: int, count: int) -> dict[str, Any]:
    fixtures(folder)
    signal.signal(signal.SIGALRM, hung)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    lines = [random_line(Random(f"{seed} {number}"), number) for number in range(count)]
    lines.sort(key=lambda line: line[0] in IMPORT_TORCH)
    codes: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    began = time.monotonic()
    for line in lines:
        words = [as_argument(word) for word in line]
        ended = run(words) if line[0] in IMPORT_TORCH else call(words)
        codes[str(ended.code)] += 1
        if wrong := what_is_wrong(ended):
            failures.append({"wrong": wrong, "line": words, "err": ended.err[-500:]})
            if len(failures) >= MOST_FAILURES:
                break
    return {"codes": codes, "failures": failures, "seconds": time.monotonic() - began}
