"""The command lines whose output is kept: one table.

`results/` has the recorded runs and sweeps, so that a label or a folder's name finds them; `files/`
has other recorded files, and `other/` is `tests/data`.
"""

from __future__ import annotations

from commbench.cli import commands

RUNS = (
    "all_operations", "both_timings", "buckets", "buckets_of_sizes", "dtypes", "experts", "forms",
    "four_ranks", "groups", "init/2-ranks", "init/4-ranks", "init_groups", "interrupted",
    "made_up_new", "made_up_step", "mesh", "mesh_world", "one_launch", "overlap", "pairs",
    "pairs_quick", "plain", "point_to_point", "rank_died", "reduce_operations", "replay", "resumed",
    "rotating", "soak", "stand_in", "tensors", "three_launches", "three_ranks", "two_nodes",
    "two_ranks", "uneven", "wrong",
)  # fmt: skip
"""The recorded runs."""
IN_EVERY_FORMAT = (
    "groups", "init_groups", "interrupted", "made_up_new", "mesh_world", "overlap", "pairs",
    "replay", "stand_in", "three_launches", "two_nodes", "wrong",
)  # fmt: skip
"""Runs of which every format is kept: one for each kind of table."""
REPORTED = (*IN_EVERY_FORMAT, "all_operations", "mesh", "point_to_point", "rank_died", "uneven")
UNREADABLE = ("cut_off", "damaged", "missing")
"""Folders whose journal ends within a line, or has a changed digit; and one that is not there."""
FORMATS_OF_EXPORT = ("csv", "json", "markdown", "nccl-tests", "openmetrics")
OLD_JOURNALS = tuple(f"other/journal-schema-{number}.jsonl" for number in (1, 2, 3))
TABLES = {
    "other/foreign/imb.txt": "--ranks 4",
    "other/foreign/nccl-tests-1.json": "",
    "other/foreign/nccl-tests-3.json": "",
    "other/foreign/nccl-tests-per-iteration.txt": "",
    "other/foreign/nccl-tests-several.txt": "",
    "other/foreign/nccl-tests-tagged.txt": "",
    "other/foreign/osu.txt": "--ranks 16",
    "other/foreign/param.txt": "",
    "other/published/h100_curves.csv": "",
    "other/nccl-tests/nccl_allgather.log": "--op all_gather",
    "other/nccl-tests/nccl_allreduce.log": "--op all_reduce",
    "other/nccl-tests/nccl_alltoall.log": "--op all_to_all",
}
"""Tables of other tools, each with what the file does not say."""
TRACES = (
    "files/trace", "files/trace/rank0.json.gz", "files/flight_recorder_rank_2.json",
    "files/chakra_rank2.json", "files/inspector", "files/step.json", "files/gloo_tensor_parallel",
    "files/gloo_tensor_parallel/rank1.json.gz", "files/gloo_pipeline", "files/flight_recorder",
    "files/cut",
)  # fmt: skip
SWEEPS = ("made_up_sweep", "sweep", "sweep_two", "sweep_replay")
COMPARED = (
    "made_up_old made_up_new", "pairs pairs_quick", "sweep/cpu-mode=quiet/round-1 three_launches",
    "sweep_replay/cpu-mode=quiet/round-1 sweep_replay/cpu-mode=quiet/round-2",
)  # fmt: skip
HISTORY = "files/made_up_history.sqlite"
COMMANDS = ("", *sorted({*commands.COMMANDS, *commands.declared_commands()}))
FIT = "model fit results/two_ranks results/three_ranks results/four_ranks"
PREDICT = "model predict files/machine.json --op all_reduce --ranks 8,512 --ranks-per-node 8"
DDP = "--params 350M --layers 24 --hidden 1024 --heads 16 --vocab 50304"

FLEET = "a=results/made_up_old b=results/made_up_old c=results/made_up_old d=results/made_up_old "
FLEET += "e=results/made_up_new"

CASES = (
    *(f"{command} --help".strip() for command in COMMANDS),
    "--version", "", "unknown", "show --unknown", "run --op unknown", "run --sizes 7Q",
    # A run, in each format
    *(f"show results/{run}" for run in (*RUNS, *UNREADABLE)),
    *(f"export results/{run}" for run in RUNS if run not in IN_EVERY_FORMAT),
    *(f"export results/{run} --format {how}"
      for run in IN_EVERY_FORMAT for how in FORMATS_OF_EXPORT),
    *(f"show results/{run} --format {how}" for run in ("mesh", "replay", "resumed")
      for how in ("json", "markdown", "nccl-tests")),
    *(f"show results/{run} --warnings" for run in ("all_operations", "three_launches", "uneven")),
    *(f"show results/{run} --groups" for run in ("mesh", "mesh_world", "two_ranks", "uneven")),
    "show results/replay --calls", "show results/two_ranks --peak 10GB/s", "show two",
    "show results/two_ranks --peak nvlink9", "show files/two_ranks.csv", "show files/no_header",
    "show",
    "export results/two_ranks -o two.json --format json",
    "export files/two_ranks.csv --format json", "export results/cut_off", "export results/damaged",
    "list",
    *(f"show {journal}" for journal in OLD_JOURNALS),
    *(f"export {journal} --format json" for journal in OLD_JOURNALS),
    # Its explanations, pictures and pages
    *(f"explain results/{run}" for run in RUNS if run != "wrong"),
    *(f"explain {journal}" for journal in OLD_JOURNALS),
    "explain results/overlap --op all_reduce", "explain results/uneven --op all_to_all_v",
    "explain results/two_ranks --op all_reduce --size 1K",
    "explain results/two_ranks --op all_reduce --size 1M --peak 10GB/s",
    "explain results/cut_off", "explain results/damaged",
    *(f"explain all_reduce --ranks 8 --size 1G --time 4.2ms --peak nvlink4{form}"
      for form in ("", " --format json", " --format markdown", " --format html")),
    "explain results/replay --format json",
    "explain all_gather --ranks 32 --nodes 4 --size 1G --time 5ms --peak 400GB/s/node",
    "explain all_reduce --ranks 64 --nodes 8 --size 1G --time 12ms --model files/machine.json",
    "explain all_to_all --ranks 16 --size 1M --time 200us",
    "explain all-gather --ranks 3 --size 1M --time 200us --timing pipelined",
    "explain barrier --ranks 1 --time 3us --peak 400Gbps", "explain barrier --ranks 16 --time 20us",
    "explain all_reduce --size 1M",
    "plot results/two_ranks results/plain -o both.svg", "plot results/overlap -o plots",
    "plot results/mesh -o mesh.svg",
    *(f"report results/{run} --format markdown" for run in REPORTED),
    *(f"report results/{run} -o report.html" for run in IN_EVERY_FORMAT),
    "report results/cut_off -o report.html",
    # Tables of other tools
    *(f"show {file} {options}".strip() for file, options in TABLES.items()),
    *(f"export {file} --format json" for file in TABLES if file.endswith("json")),
    *(f"import {file} {options} --output imported".replace("  ", " ")
      for file, options in TABLES.items() if "nccl-tests-1" in file or "osu" in file),
    "show other/nccl-tests/nccl_allreduce.log", "explain other/foreign/nccl-tests-3.json",
    "report other/nccl-tests/nccl_allreduce.log --op all_reduce --format markdown",
    # Two runs
    *(f"compare {runs} {options}".strip()
      for runs in (" ".join(f"results/{run}" for run in pair.split()) for pair in COMPARED)
      for options in ("", "--format markdown", "--format csv", "--format json", "--verbose")),
    "compare results/made_up_old results/made_up_new --fail-if-slower --tolerance 10%",
    "compare results/two_ranks results/plain results/three_ranks --force",
    "compare results/pairs results/pairs_quick --fail-if-slower",
    "compare results/two_ranks results/four_ranks",
    "compare results/two_ranks results/point_to_point",
    "compare results/two_ranks results/four_ranks --force",
    "compare results/two_ranks results/plain", "compare results/two_ranks results/plain --force",
    "compare results/mesh results/mesh", "compare results/mesh results/mesh_world --force",
    "compare results/two_ranks results/interrupted", "compare results/sweep results/sweep_two",
    "compare other/foreign/nccl-tests-1.json other/foreign/nccl-tests-3.json --force",
    "compare results/four_ranks other/foreign/imb.txt --ranks 4",
    "replay other/README.md", "replay files/two_ranks.csv", "import other/README.md",
    "workload show other/README.md",
    "compare results/made_up_old results/made_up_new --plot compared.svg",
    "report results/made_up_old results/made_up_new --format markdown",
    "report results/made_up_old results/made_up_new -o comparison.html",
    # A check
    *(f"check results/{run} {rules}"
      for run, rules in (
          ("made_up_new", "--against results/made_up_old"),
          ("made_up_new", "--against results/made_up_old --max-slowdown 40%"),
          ("made_up_new", "--against results/made_up_old --max-slowdown all_reduce:10% "
           "--min-busbw all_reduce:1M-:2GB/s"),
          ("made_up_new", "--against results/made_up_old --verbose --junit j.xml --json j.json"),
          ("made_up_new", "--against results/made_up_old --max-slowdown 1M:10%"),
          ("made_up_new", "--against results/made_up_old --max-slowdown 1M:10% --undecided fail"),
          ("two_ranks", "--against results/plain --force --max-slowdown 10% --json j.json"),
          ("two_ranks", "--against results/plain"),
          ("two_ranks", "--against results/four_ranks"),
          ("two_ranks", "--against results/four_ranks --force --verbose"),
          ("two_ranks", "--max-time all_reduce:-4K:1s --min-busbw all_gather:1M-:1MB/s --verbose"),
          ("two_ranks", "--max-time barrier:1s"), ("two_ranks", "--max-time all_reduce:1us"),
          ("two_ranks", "--rules files/rules.toml --against results/plain --force"),
          ("two_ranks", "--expect h100:8x400G"), ("two_ranks", "--expect run"), ("two_ranks", ""),
          ("rotating", "--max-time 1s"), ("rotating", "--max-time 1s --allow-unchecked"),
          ("wrong", "--max-time 1s"), ("interrupted", "--max-time 1s"),
          ("rank_died", "--max-time 1s --junit j.xml"),
          ("cut_off", "--max-time 1s"), ("damaged", "--max-time 1s"),
          ("mesh", "--max-time 1s --verbose --json j.json"), ("overlap", "--max-time 1s --verbose"),
          ("replay", "--max-time step=ProfilerStep#1:1s --verbose"),
          ("replay", "--max-time step=ProfilerStep#1:variant=calls:1us"),
          ("three_launches", "--max-time 1s --json j.json"),
      )),
    "check other/nccl-tests/nccl_allreduce.log --op all_reduce --expect a100",
    "check other/published/h100_curves.csv --expect published --verbose --json j.json",
    "check other/nccl-tests/nccl_allreduce.log --op all_reduce --expect published",
    "check results/two_ranks --expect published",
    "check results/two_ranks --max-time all_reduce:1us --format markdown",
    "check results/wrong --max-time 1s -o c.html",
    "report results/made_up_new --against results/made_up_old --max-slowdown 10% --format markdown",
    "report results/made_up_new --against results/made_up_old --max-slowdown 10% -o check.html",
    # A history
    *(f"history {what} --db {HISTORY}" for what in ("show", "list", "show --format json")),
    f"check results/made_up_new --against history --db {HISTORY}",
    # A fleet
    *(f"fleet {FLEET} {options}".strip()
      for options in ("", "--format json", "--format markdown", "--tolerance 40%",
                      "--nodes a,f --verbose", "--false-alarms 0%")),
    "fleet results/two_ranks results/plain", "fleet a=results/wrong b=results/interrupted",
    "fleet files/no_header", "fleet results/missing",
    # Sweeps and advice
    *(f"show results/{sweep}" for sweep in SWEEPS),
    "show results/sweep --format json", "show results/made_up_sweep --format json",
    "show results/sweep_replay --format markdown", "show results/sweep_two --warnings",
    *(f"report results/{sweep} --format markdown" for sweep in SWEEPS),
    "report results/made_up_sweep -o sweep.html",
    *(f"advise results/{run} {options}".strip()
      for run in ("buckets_of_sizes", "sweep", "sweep_replay", "experts", "replay", "two_ranks")
      for options in ("", "--format json", "--format markdown")),
    "advise results/buckets_of_sizes --params 16M --backward 20ms",
    "advise results/buckets_of_sizes --params 16M --backward 20ms --format json",
    "advise results/made_up_step --params 350M --backward 300ms -o buckets.svg",
    "advise results/buckets_of_sizes --params 16M --bucket-cap 8M",
    *(f"advise results/made_up_step --params 350M --backward 300ms {how}".strip()
      for how in ("", "--format json", "--format markdown")),
    "advise results/made_up_sweep", "advise results/made_up_sweep --format json",
    "advise results/made_up_step --params 350M --backward 300ms --bucket-cap 8M",
    "advise results/made_up_step --model-bytes 4G --bucket-cap 1M",
    "advise results/made_up_step --topk 2 --experts 8 --hidden 64",
    "advise results/made_up_step --params 350M --backward 300ms -o advice.html",
    "advise results/replay --verbose", "advise results/interrupted", "advise results/damaged",
    # Models and expectations
    FIT, f"{FIT} -o fitted.json", f"{FIT} --leave-out ranks=4 --leave-out sizes=1M-",
    f"{FIT} --op all_reduce", "model fit results/two_ranks",
    "model fit other/published/summit_ring.csv --leave-out ranks=6144-",
    "model fit other/published/h100_nvlstree.csv", "model fit other/published/b200.csv",
    *(f"model show files/machine.json --format {how}" for how in ("text", "markdown", "json")),
    *(f"{PREDICT} --sizes 1M-1G:x32 --format {how}"
      for how in ("markdown", "csv", "json", "autoparallel", "inductor", "nccl-tuner")),
    f"{PREDICT} --sizes 1M-1G:x32 -o predicted.svg", f"{PREDICT} --sizes 1M -o predicted.html",
    "model predict files/machine.json --ranks 4 --ranks-per-node 4 --sizes 1K,1M",
    "model predict files/machine.json --ranks 4 --op scatter",
    "model predict files/machine.json --op all_reduce --ranks 16,4096 --ranks-per-node 4 --sizes "
    "1K,1M",
    "model predict files/rules.toml --ranks 4", "model predict rt --ranks 4",
    "model predict published:h100 --op all_reduce --ranks 8",
    "model fit results/two_ranks results/two_ranks",
    "model fit published:h100 --op all_reduce", "model fit published:l40s",
    *(f"export other/published/h100_curves.csv --format {how}"
      for how in ("nccl-perf", "autoparallel")),
    *(f"expect other/published/h100_curves.csv --format {how}" for how in ("text", "json")),
    "expect other/published/h100_curves.csv --published other/published/h100_curves.csv "
    "--save-curve own.csv", "expect results/two_ranks", "expect results/two_ranks --busbw 3GB/s",
    "expect other/nccl-tests/nccl_allreduce.log --op all_reduce", "expect --published own.csv",
    *(f"expect {options}"
      for options in (
          "--gpu h100", "--gpu h100 --format json", "--gpu a100 --op all_to_all --size 1M",
          "--gpu h100 --nodes 2 --nic 8x400G --busbw 430GB/s",
          "--gpu h100 --nodes 2 --nic 8x400G --busbw 430GB/s --format json",
          "--gpu h100 --nodes 2 --nic gcp-a3-mega --size 1G --busbw 430GB/s",
          "--gpu b200 --nodes 4 --nic efa --op all_reduce --size 8G --algorithm ring",
          "--gpu h100 --busbw 340GB/s --size 512M", "--gpu h100 --busbw 350GB/s",
          "--gpu b200 --nodes 2 --nic efa --busbw 600GB/s",
          "--gpu h100 --nodes 4 --nic 8x400G --busbw 430GB/s", "--gpu h100 --busbw 430GiB/s",
          "--gpu h100 --size 1G --time 1us", "--gpu h100 --algbw 100GB/s --nccl 2.12",
          "--gpu unknown", "--gpu unknown --link 450GB/s",
      )),
    # Answers that need no run
    "links", "links h100", "links ib-ndr", "links unknown", "links --published", "ops",
    "links --format markdown", "links h100 --format json", "links h100 -o link.html",
    "ops --format json", "ops --format markdown", "list --format json", "list -o list.html",
    "doctor --json", "doctor --format csv", "env -o env.yaml",
    # Training steps
    *(f"workload show {trace}" for trace in TRACES),
    *(f"workload show {trace} --format json" for trace in TRACES),
    *(f"workload import {trace} -o made.json" for trace in TRACES),
    "workload show other/kineto", "workload show other/kineto --format json",
    "workload show files/trace --verbose", "workload show files/trace --format markdown",
    "workload show results/two_ranks",
    f"workload ddp {DDP} --mesh dp=8", f"workload ddp {DDP} --mesh dp=8 --bucket 50M -o made.json",
    "workload ddp --model resnet-50 --mesh dp=8", f"workload fsdp {DDP} --mesh dp_shard=8",
    f"workload fsdp {DDP} --mesh dp_replicate=2,dp_shard=4 --no-reshard",
    "workload fsdp --model llama-3-8b --mesh dp_shard=64",
    f"workload megatron {DDP} --mesh tp=2,pp=2,dp=2 --seq 1024 --micro-batches 4",
    f"workload megatron {DDP} --mesh tp=2,dp=4,ep=2 --experts 8 --top-k 2 "
    "--no-distributed-optimizer",
    "workload ddp --model unknown --mesh dp=8", "workload ddp --mesh dp=8",
    # Jobs
    "job slurm --nodes 4 --nproc-per-node 8 -- --backend nccl",
    "job slurm --nodes 2 --nproc-per-node 4 --setup 'source venv/bin/activate' --env A=B "
    "--partition p --account a --time 2h --shared --container image -o job.sh -- --op all_gather",
    *(f"job kubernetes --nodes 2 --nproc-per-node 8 --image registry.example/commbench:1 {options}"
      for options in (
          "-- --backend nccl", "--kind pytorchjob -- --backend gloo",
          "--claim results --name a --namespace b --resource cpu=32 --env A=B -- --op all_gather",
          "--preflight --spare 1 --namespace b -- --backend nccl", "--spare 1 -- --op barrier",
      )),
)  # fmt: skip
