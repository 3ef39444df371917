"""What commbench must reach, as ratios measured side by side in one run.

scripts/bench [CHECK...] [--pairs N]    (--help lists the checks)

Each line: what, the median ratio over the pairs (and their range), the limit, and ok or MISSED.
Exit code 1 if any is missed. These are ratios of whole commands taken in turn, so that a machine
whose speed drifts still gives a fair answer; absolute times are printed only for orientation.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
COMMBENCH = [sys.executable, "-m", "commbench"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
missed: list[str] = []


def main() -> None:
    checks = {
        "help": check_help,
        "start": check_start,
        "memory": check_memory,
        "fidelity": check_fidelity,
        "sweep": check_sweep,
        "mesh": check_mesh,
        "compare": check_compare,
        "hundred": check_hundred_starts,
        "repeat": check_repeatability,
        "overhead": check_overhead,
        "honesty": check_honesty,
        "equal": check_equal_runs,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(checks))
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.checks or list(checks):
        if name not in checks:
            parser.error(f"unknown check {name!r}; known: {', '.join(checks)}")
    for name in arguments.checks or list(checks):
        checks[name](arguments.pairs)
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


def check_start(pairs: int) -> None:
    """A whole command with one tiny all_reduce against a torchrun script that does the same."""
    for ranks, limit, few in ((2, 0.6, max(7, pairs)), (64, 1 / 15, pairs)):
        script = [*torchrun(ranks), str(HERE / "tiny_torchrun.py")]
        ours, theirs = [], []
        for _ in range(few):
            ours.append(timed(run_line(ranks)))
            theirs.append(timed(script))
        say(
            f"start, {ranks} ranks: time over torchrun's",
            ratios(ours, theirs),
            limit,
            f"{statistics.median(ours):.2f} s against {statistics.median(theirs):.2f} s",
        )
    # Memory in runs of their own: looking at it takes the processor's time.
    mine, his = peak_pss(run_line(ranks)), peak_pss(script)
    say(
        f"start, {ranks} ranks: memory (PSS) over torchrun's",
        [mine / his],
        0.1,
        f"{mine:.0f} MiB against {his:.0f} MiB",
    )


def check_hundred_starts(_: int) -> None:
    """A hundred starts at 32 ranks, each of which must end by itself."""
    hangs, seconds = 0, []
    for _ in range(100):
        start = time.monotonic()
        try:
            subprocess.run(run_line(32), cwd=scratch(), check=True, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            hangs += 1
        seconds.append(time.monotonic() - start)
    say(
        "hundred starts at 32 ranks: hangs",
        [float(hangs)],
        0.0,
        f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s",
    )


def check_sweep(pairs: int) -> None:
    """all_reduce 1K-1G against a plain loop of 5 + 20 iterations at every size."""
    ours, theirs, fewest_small, fewest = [], [], [], []
    for _ in range(pairs):
        folder = scratch()
        ours.append(timed([*COMMBENCH, "run", "--op", "all_reduce", "--sizes", "1K-1G"], folder))
        theirs.append(timed([*torchrun(2), str(HERE / "plain_loop.py")]))
        rows = results(folder)
        fewest.append(min(int(row["iterations"]) for row in rows))
        fewest_small.append(
            min(int(r["iterations"]) for r in rows if int(r["size_bytes"]) <= 1 << 20)
        )
    say(
        "sweep 1K-1G: time over the plain loop's",
        ratios(ours, theirs),
        0.35,
        f"{statistics.median(ours):.1f} s against {statistics.median(theirs):.1f} s",
    )
    say("sweep 1K-1G: 6 over the fewest iterations", [6 / min(fewest)], 1.0, f"{min(fewest)}")
    say(
        "sweep 1K-1G: 10 over the fewest up to 1 MiB",
        [10 / min(fewest_small)],
        1.0,
        f"{min(fewest_small)}",
    )


def check_mesh(pairs: int) -> None:
    """A mesh of 64 ranks, one size over each dimension, against plain torch code with as many
    calls, whose ranks are forked too."""
    ours, theirs, processor = [], [], []
    for _ in range(pairs):
        began = processor_s()
        ours.append(
            timed([*COMMBENCH, "run", "--mesh", "pp=4,dp=4,tp=4", "--sizes", "64K", "--iters",
                   "10", "--warmup", "2", "--no-plots"])
        )  # fmt: skip
        between = processor_s()
        theirs.append(timed([sys.executable, str(HERE / "plain_mesh.py"), "--mesh", "4,4,4"]))
        processor.append((between - began) / (processor_s() - between))
    say(
        "mesh of 64 ranks: time over plain code's",
        ratios(ours, theirs),
        1.3,
        f"{statistics.median(ours):.1f} s against {statistics.median(theirs):.1f} s; processor "
        f"time {statistics.median(processor):.2f} times that of plain code",
    )


def processor_s() -> float:
    """Processor time of all processes that this one has started and that have ended: it depends on
    the load of the host less than the time of the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_fidelity(_: int) -> None:
    """Medians against a plain loop's on the same ranks, under the same scheduling and pinning."""
    for name, size, iterations, blocks, limit in (
        ("1 KiB", 1 << 10, 300, 40, 0.10),
        ("64 MiB", 1 << 26, 10, 15, 0.03),
    ):
        words = [*torchrun(2), str(HERE / "fidelity.py"), *map(str, (size, iterations, blocks))]
        found = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        values = [ours / theirs for ours, theirs in found]
        ours, theirs = (statistics.median(column) for column in zip(*found, strict=True))
        off = abs(statistics.median(values) - 1)
        say(
            f"fidelity, {name}: deviation of the median ratio from 1",
            [off],
            limit,
            f"{blocks} pairs, medians {ours:.1f} us against {theirs:.1f} us; "
            f"ratios {min(values):.3f} to {max(values):.3f}",
        )


def check_memory(_: int) -> None:
    """Peak resident memory of a rank in a 1 GiB in-place all_reduce above an idle rank's."""
    probe = HERE / "peak_memory.py"
    idle, busy = (
        float(
            subprocess.run(
                [sys.executable, str(probe), size], capture_output=True, text=True, check=True,
                cwd=scratch(),
            ).stderr.split("peak MiB ")[1].split()[0]
        )
        for size in ("4", "1G")
    )  # fmt: skip
    say(
        "memory of a rank, 1 GiB all_reduce: GiB above idle",
        [(busy - idle) / 1024],
        1.15,
        f"{busy:.0f} MiB against {idle:.0f} MiB",
    )


def check_repeatability(_: int) -> None:
    """Ten identical runs, in turn with a loop that prints means of 20, as people write it; the same
    with 4 ranks, and left alone by --cpu-mode plain."""
    small, large = [str(1 << i) for i in range(10, 21)], [str(1 << i) for i in range(21, 27)]
    sweep = ["--op", "all_reduce", "--sizes", "1K-64M", "--no-plots"]
    modes = {"2 ranks": [], "4 ranks": ["--nproc-per-node", "4"], "plain": ["--cpu-mode", "plain"]}
    found: dict[str, list[dict[str, dict[str, str]]]] = {mode: [] for mode in modes}
    means: list[dict[str, float]] = []
    for _ in range(10):
        for mode, more in modes.items():
            folder = scratch()
            timed([*COMMBENCH, "run", *sweep, *more], folder)
            found[mode].append({row["size_bytes"]: row for row in results(folder)})
        words = [
            *torchrun(2),
            str(HERE / "plain_loop.py"),
            "--mean",
            "--sizes",
            ",".join(small + large),
        ]
        lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        said = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
        means.append({str(line["size"]): line["time_us"] for line in said})
    spreads = {
        mode: {
            size: spread([float(run[size]["time_us"]) for run in runs]) for size in small + large
        }
        for mode, runs in found.items()
    }
    spreads["loop"] = {size: spread([run[size] for run in means]) for size in small + large}
    for mode, limits in (("2 ranks", (1.2, 1.35)), ("4 ranks", (1.5, 1.5))):
        for sizes, limit, words in ((small, limits[0], "up to 1 MiB"), (large, limits[1], "above")):
            worst = max(spreads[mode][size] for size in sizes)
            usual = statistics.median(spreads[mode][size] for size in sizes)
            loop = max(spreads["loop"][size] for size in sizes)
            say(
                f"repeat, {mode}, {words}: largest over smallest of ten, worst size",
                [worst],
                limit,
                f"median size {usual:.2f}; the loop's means: worst {loop:.2f}",
            )
    unsaid = [
        size
        for size in small + large
        if spreads["plain"][size] > 1.5
        and not any("stalls" in run[size]["warnings"].split() for run in found["plain"])
    ]
    say(
        "repeat, plain: sizes that move by more than 1.5 without a warning of stalls",
        [float(len(unsaid))],
        0.0,
        f"worst size moves by {max(spreads['plain'].values()):.2f}",
    )
    for size in small + large:
        print(
            "       ",
            f"{int(size):>9} B ",
            *(f"{mode} {s[size]:.2f} " for mode, s in spreads.items()),
        )


def spread(values: list[float]) -> float:
    return max(values) / min(values)


def check_overhead(_: int) -> None:
    """What the timed loop adds to an iteration, as the run itself records it."""
    folder = scratch()
    timed([*COMMBENCH, "run", "--sizes", "1K", "--iters", "1", "--no-plots"], folder)
    journal = next(folder.glob("results/*/run.jsonl")).read_text().splitlines()
    overhead = json.loads(journal[0])["overhead_s"] * 1e6
    say("overhead of the timed loop, us per iteration", [overhead], 1.0, "with an empty call")


def check_honesty(_: int) -> None:
    """Twenty sweeps of one setting against itself: rows in which one is called slower."""
    from commbench.answers.sweep.ranking import make_points
    from commbench.answers.sweep.runner import make_results, read_rounds, read_sweep

    nothing = ["--env", "COMMBENCH_NOTHING=1,2", "--force", "--rounds", "3"]
    rows = false = 0
    for seed in range(20):
        folder = scratch() / "sweep"
        timed([*COMMBENCH, "sweep", *nothing, "--sizes", "1K-4M:x4", "--seed", str(seed),
               "--output", str(folder)])  # fmt: skip
        sweep = read_sweep(folder)
        points = make_points(make_results(sweep, folder, read_rounds(sweep, folder)), 0.05)
        rows += sum(point.is_compared for point in points)
        false += sum(point.is_compared and len(point.not_slower) == 1 for point in points)
    say(
        "sweeps of a setting against itself: rows with a verdict other than same or undecided",
        [false / rows],
        0.05,
        f"{false} of {rows}",
    )


def check_equal_runs(pairs: int) -> None:
    """Pairs of default runs of one setting: rows and ranges of sizes that are called different, on
    the host as it is and beside 20 busy processes; ranges that are found slower where every call of
    b took 40 % longer."""
    from commbench.answers.compare.comparison import compare

    folders = scratch()
    busy = [sys.executable, "-c", "while True: pass"]
    for name, others in (("quiet", 0), ("load", 20)):
        load = [subprocess.Popen(busy) for _ in range(others)]
        counts = dict.fromkeys(("rows", "rows different", "ranges", "ranges different", "found"), 0)
        try:
            for pair in range(pairs):
                a, b = (default_run(folders / f"{name}-{pair}-{side}") for side in "ab")
                equal, slowed = compare(a, b), compare(a, longer(b, 1.4))
                counts["rows"] += len(equal.rows)
                counts["rows different"] += sum(is_different(row) for row in equal.rows)
                counts["ranges"] += len(equal.pooled)
                counts["ranges different"] += sum(map(is_different, equal.pooled))
                counts["found"] += all(found.verdict == "slower" for found in slowed.pooled)
        finally:
            for process in load:
                process.kill()
                process.wait()
        for what in ("rows", "ranges"):
            false, number = counts[f"{what} different"], counts[what]
            share = false / number
            say(f"equal, {name}: {what} called different", [share], 0.05, f"{false} of {number}")
        if not others:
            missing = 1 - counts["found"] / pairs
            say("equal, quiet: +40 % not found", [missing], 0.1, f"{counts['found']} of {pairs}")


def default_run(folder: Path) -> Any:
    """A run with default options."""
    from commbench.results.journal_reader import read_run

    timed([*COMMBENCH, "run", "--op", "all_reduce", "--sizes", "4K-1M:x4", "--no-plots",
           "--output", str(folder)], folder.parent)  # fmt: skip
    return read_run(folder)


def longer(run: Any, factor: float) -> Any:
    """The run with every sample so many times as long."""
    return run._replace(
        measurements=tuple(
            measurement._replace(
                batches=tuple(
                    batch._replace(samples_s=tuple(factor * s for s in batch.samples_s))
                    for batch in measurement.batches
                )
            )
            for measurement in run.measurements
        )
    )


def is_different(found: Any) -> bool:
    """Whether a row or a range is called faster or slower."""
    return found.verdict in ("faster", "slower")


def check_help(pairs: int) -> None:
    """--help and show against importing typer and rich."""
    folder = scratch()
    subprocess.run(
        [*COMMBENCH, "run", "--sizes", "1K,2K", "--output", "run", "--no-plots"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    script = str(BIN / "commbench")
    for arguments in (["--help"], ["show", str(folder / "run")]):
        ours, theirs = [], []
        for _ in range(max(15, pairs)):
            ours.append(timed([script, *arguments]))
            theirs.append(timed([sys.executable, "-c", "import typer, rich"]))
        say(
            f"commbench {arguments[0]}: time over importing typer and rich",
            ratios(ours, theirs),
            1.5,
            f"{statistics.median(ours) * 1e3:.0f} ms against "
            f"{statistics.median(theirs) * 1e3:.0f} ms",
        )


def check_compare(pairs: int) -> None:
    """Comparing two results.csv of a million rows against pandas reading them."""
    folder = scratch()
    files = [str(made_up_results(folder / f"{seed}.csv", seed)) for seed in (1, 2)]
    reading = [sys.executable, "-c",
               f"import pandas; [pandas.read_csv(name) for name in {files!r}]"]  # fmt: skip
    comparing = [*COMMBENCH, "compare", *files]
    ours, theirs = [], []
    for _ in range(pairs):
        ours.append(timed(comparing))
        theirs.append(timed(reading))
    say(
        "compare, 2 x 1,000,000 rows: time over pandas.read_csv's",
        ratios(ours, theirs),
        5.0,
        f"{statistics.median(ours):.1f} s against {statistics.median(theirs):.1f} s",
    )
    mine, his = peak_pss(comparing), peak_pss(reading)
    say(
        "compare, 2 x 1,000,000 rows: memory (PSS) over pandas.read_csv's",
        [mine / his],
        1.0,
        f"{mine:.0f} MiB against {his:.0f} MiB",
    )


def made_up_results(path: Path, seed: int) -> Path:
    """A results.csv of a million rows: 40 kinds of 25,000 sizes, times with 5 % noise."""
    import numpy as np
    import pandas as pd

    from commbench.analysis.columns import COLUMNS

    row = np.arange(1_000_000)
    size = (row % 25_000 + 1) * 1024
    time_us = (10 + size * 1e-4) * np.random.default_rng(seed).lognormal(0, 0.05, len(row))
    known = {
        "label": "many",
        "operation": np.array([f"operation_{n}" for n in range(10)])[row // 100_000],
        "backend": "gloo", "device": "cpu", "world_size": 2, "num_nodes": 1,
        "dtype": np.array(["float32", "bfloat16"])[row // 50_000 % 2], "reduce_op": "sum",
        "root": "", "placement": np.array(["in_place", "out_of_place"])[row // 25_000 % 2],
        "timing": "isolated", "cpu_mode": "quiet", "size_bytes": size, "count": size // 4,
        "iterations": 200, "stop_reason": "precision", "time_ci_low_us": 0.98 * time_us,
        "time_ci_high_us": 1.02 * time_us, "slowest_rank": 1, "wrong": 0, "status": "ok",
        "gpu_shared": 0, "calls": 1, "batches": 10, "launches": 1, "warnings": "",
    }  # fmt: skip
    frame = pd.DataFrame({name: known.get(name, time_us) for name in COLUMNS})
    frame.to_csv(path, index=False, float_format="%.7g")
    return path


def run_line(ranks: int) -> list[str]:
    return [*COMMBENCH, "run", "--sizes", "16", "--iters", "1", "--warmup", "0",
            "--nproc-per-node", str(ranks)]  # fmt: skip


def torchrun(ranks: int) -> list[str]:
    return [*TORCHRUN, f"--nproc-per-node={ranks}"]


def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="commbench-bench-"))


def results(folder: Path) -> list[dict[str, str]]:
    with next(folder.glob("results/*/results.csv")).open() as file:
        return list(csv.DictReader(file))


def timed(command: list[str], folder: Path | None = None) -> float:
    """Seconds that a whole command took."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # as torchrun would set it, with a warning
    start = time.perf_counter()
    subprocess.run(
        command, check=True, capture_output=True, cwd=folder or scratch(), env=environment
    )
    return time.perf_counter() - start


def peak_pss(command: list[str]) -> float:
    """The most memory (PSS, MiB) that all processes of a command held at once."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=scratch(),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, family_pss(process.pid))
        time.sleep(0.1)
    return peak


def family_pss(root: int) -> float:
    """Proportional set size in MiB of a process and all its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
    family = {root}
    for _ in range(4):
        family |= {pid for pid, parent in parents.items() if parent in family}
    total = 0
    for pid in family:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
    return total / 1024


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def say(what: str, values: list[float], limit: float, words: str) -> None:
    value = statistics.median(values)
    verdict = "ok" if value <= limit else "MISSED"
    if value > limit:
        missed.append(what)
    spread = f" [{min(values):.3f}, {max(values):.3f}]" if len(values) > 1 else ""
    print(f"{verdict:6} {what}: {value:.3f}{spread}, limit {limit:.3f}  ({words})", flush=True)


if __name__ == "__main__":
    main()
