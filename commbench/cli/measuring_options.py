"""The options of the commands that measure, that prepare it, and that make the workload of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from commbench.cli.options import (
    AS_DOCUMENT,
    JUNIT,
    NEW_FILE,
    OfRun,
    Option,
    argument,
    switch,
)

WHAT = "What to measure"


def all_of_run() -> Mapping[str, OfRun]:
    """The options of `commbench run`."""
    from commbench.runner.run_options import RUN_OPTIONS

    return dict.fromkeys(RUN_OPTIONS, OfRun())


def of_init() -> Mapping[str, Option | OfRun]:
    """The options of `commbench init`."""
    from commbench.api.measuring import INIT_DEFAULTS

    return {
        "ranks": Option(
            "N,N", "Numbers of ranks on this host; each is a run.  [default: that of "
            "--nproc-per-node]", WHAT, str,
        ),
        "open_groups": Option(
            "N,N", "Numbers of process groups of all ranks that are open already; each is a run.  "
            "[default: 0]", WHAT, str,
        ),
        **_of_run(INIT_DEFAULTS, (
            "mesh", "mesh_order", "over", "groups", "group_size", "group_stride", "backend",
            "device", "nproc_per_node", "budget", "precision", "timeout", "cpu_mode", "label",
            "output", "format", "dry_run",
        )),
    }  # fmt: skip


def of_pairs() -> Mapping[str, Option | OfRun]:
    """The options of `commbench pairs`."""
    from commbench.api.measuring import PAIRS_DEFAULTS, PAIRS_OPTIONS, QUICK_ITERATIONS

    of_run = _of_run({n: d for n, d in PAIRS_DEFAULTS.items() if n in PAIRS_OPTIONS}, PAIRS_OPTIONS)
    iters = f"{PAIRS_DEFAULTS['iters']}; {QUICK_ITERATIONS} with --quick"
    return {
        "quick": switch(
            "Look at some rounds, then measure again where a rank or a link looks slow.  "
            "[default: off]", WHAT,
        ),
        **of_run,
        "iters": OfRun({**of_run["iters"].changes, "cli_default": iters}),
    }  # fmt: skip


def of_replay() -> Mapping[str, Option | OfRun]:
    """The options of `commbench replay`."""
    from commbench.api.measuring import REPLAY_DEFAULTS, REPLAY_OPTIONS

    return {
        "workload": argument(
            "WORKLOAD", "The file of a step that `commbench workload` wrote.", Path, default=None
        ),
        **_of_run(REPLAY_DEFAULTS, REPLAY_OPTIONS),
    }


def _of_run(defaults: Mapping[str, Any], names: Iterable[str]) -> dict[str, OfRun]:
    """Options of a run: those with another default, and then the other ones of these names."""
    changed = {
        name: OfRun(
            {"default": (), "default_text": ", ".join(value)}
            if isinstance(value, tuple)
            else {"default": value, "cli_default": value}
        )
        for name, value in defaults.items()
    }
    return changed | {name: OfRun() for name in names if name not in defaults}


def _varied() -> str:
    from commbench.runner.run_options import VARIED_OPTIONS

    return f"Option of `commbench run` and its values: {', '.join(VARIED_OPTIONS)}."


SWEEP = {
    "env": Option(
        "NAME=V,V", "Environment variable and its values; '-' leaves it unset. Repeat it for more "
        "variables: every combination is measured. NAME:=VALUE is one value, commas included.",
        type=list[str],
    ),
    "vary": Option("OPTION=V,V", _varied, type=list[str]),
    "rounds": Option("N", "Measure each setting N times; use 3 or more."),
    "tolerance": Option("PART", "Smaller differences count as ties.  [default: 5%]", type=str),
    "label": Option("NAME", "Name of the sweep."),
    "output": Option("DIR", "Folder of the sweep, new or empty.  [default: results/TIME-sweep]"),
    "resume": Option(
        "SWEEP", "Continue the sweep in this folder: measure what is missing. With it, only "
        "--tolerance, --export, --format and --verbose are accepted.", type=str,
    ),
    "export": Option(
        "nccl-tuner", "Also write the best settings as a configuration of NCCL's tuner plugin."
    ),
    "force": switch("Accept variables that the backend does not read."),
    "format": Option("FORMAT", "text, markdown, html or json.", type=str, default="text"),
    "verbose": switch("Print all settings of each case, and explain every warning."),
}  # fmt: skip
SMOKE: Mapping[str, Option | OfRun] = {
    "backend": OfRun({"default": "gloo"}),
    "device": OfRun(),
    "nproc_per_node": OfRun(
        {"help": "Number of ranks.", "default_text": "one per GPU; 2 on the CPU"}
    ),
    "mesh": OfRun({"group": "", "help": "Measure the groups of a mesh instead: dp=2,tp=2."}),
    "timeout": OfRun({"default": 60.0, "help": "Seconds that one collective may take."}),
    "junit": JUNIT,
    **AS_DOCUMENT,
}
NODES = {
    "nodes": Option("N", "Nodes to measure on."),
    "nproc_per_node": Option("N", "Ranks per node."),
}
GPUS_PER_NODE = Option(
    "N", "GPUs of each node.  [default: one per rank if it uses nccl or cuda, else 0]"
)
VARIABLES = Option("NAME=VALUE", "Environment variable of every rank. May be repeated.")
JOB_SLURM = {
    **NODES,
    "gpus_per_node": GPUS_PER_NODE,
    "partition": Option("NAME", "Partition of the cluster."),
    "account": Option("NAME", "Account to charge."),
    "time": Option("T", "Time limit: 30m, 2h, 1d, or in the notation of Slurm."),
    "cpus_per_task": Option("N", "CPUs of each rank.  [default: Slurm's]"),
    "exclusive": Option(
        "", "Whole nodes, or nodes that other jobs use too.", flags="--exclusive/--shared"
    ),
    "container": Option("IMAGE", "Image in which the ranks run; needs the plugin pyxis."),
    "setup": Option(
        "LINE", "Shell command before the run, such as 'module load cuda'. May be repeated."
    ),
    "env": VARIABLES,
    "output": NEW_FILE,
}
JOB_KUBERNETES = {
    **NODES,
    "image": Option("IMAGE", "Image of the pods; it contains torch and commbench."),
    "gpus_per_node": GPUS_PER_NODE,
    "kind": Option(
        "KIND", "trainjob, of Kubeflow Trainer; or pytorchjob, of the older Training Operator."
    ),
    "name": Option("NAME", "Name of the job.  [default: commbench-LABEL]"),
    "namespace": Option("NAME", "Namespace.  [default: kubectl's]"),
    "claim": Option("NAME", "PersistentVolumeClaim that keeps the results."),
    "resource": Option(
        "NAME=N", "Other resource of each pod: cpu=32, memory=64Gi, rdma/hca=1. May be repeated.",
        type=list[str],
    ),
    "runtime": Option("NAME", "ClusterTrainingRuntime of a trainjob."),
    "env": VARIABLES,
    "output": NEW_FILE,
}  # fmt: skip
TRACES = argument(
    "TRACE...",
    "Traces of the ranks, or a folder of them: torch.profiler (.json, .json.gz), flight "
    "recorder (pickle, JSON), Chakra (JSON), NCCL Inspector. Or the file of a workload.",
    list[Path],
)
WORKLOAD_FILE = Option("FILE", "New file: step.json.", type=Path, flags="--output -o")
RANKS_PER_NODE = Option("N", "Ranks on each host.")
TRANSFORMER = {
    "model": Option("NAME", "A public model: llama-3-8b and others (docs/replay.md).", type=str),
    "params": Option(
        "NUMBER", "Parameters: 350M, 7B, 7e9. The embedding gets what the layers leave.", type=str
    ),
    "layers": Option("N", "Layers of a transformer.", type=int),
    "hidden": Option("N", "Its hidden size.", type=int),
    "ffn": Option("N", "Inner size of its feed-forward network or of an expert.", type=int),
    "heads": Option("N", "Heads.  [default: hidden size / 128]", type=int),
    "kv_heads": Option("N", "Heads of keys and values.  [default: as many]", type=int),
    "vocab": Option("N", "Size of the vocabulary.", type=int),
}
EXPERTS = {
    "experts": Option("N", "Experts of a layer.  [default: none]", type=int),
    "top_k": Option("K", "Experts that get a token.", type=int),
}
WORKLOAD_SHOW = {
    "traces": TRACES,
    "format": Option("FORMAT", "table or json.", type=str, default="table"),
}
WORKLOAD_IMPORT = {
    "traces": TRACES,
    "output": WORKLOAD_FILE._replace(default=...),
    "name": Option(
        "NAME", "Name of the workload.  [default: that of the file or folder]", type=str
    ),
}
WORKLOAD_DDP = {
    "mesh": Option("DIMENSIONS", "Ranks: dp=8.", type=str, default=...),
    **TRANSFORMER,
    "dtype": Option("DTYPE", "Of parameters and gradients.", default="float32"),
    "bucket": Option(
        "SIZE", "bucket_cap_mb as a size.  [default: 25M, and 1M for the first bucket]"
    ),
    "ranks_per_node": RANKS_PER_NODE,
    "output": WORKLOAD_FILE,
}
WORKLOAD_FSDP = {
    "mesh": Option(
        "DIMENSIONS", "Ranks: dp_shard=8, or dp_replicate=2,dp_shard=8.", type=str, default=...
    ),
    **TRANSFORMER,
    "dtype": Option("DTYPE", "param_dtype of MixedPrecisionPolicy.", default="bfloat16"),
    "reduce_dtype": Option("DTYPE", "reduce_dtype of MixedPrecisionPolicy.", default="float32"),
    "reshard": Option(
        "", "reshard_after_forward of the blocks.",
        type=bool, default=True, flags="--reshard/--no-reshard",
    ),
    "ranks_per_node": RANKS_PER_NODE,
    "output": WORKLOAD_FILE,
}  # fmt: skip
WORKLOAD_MEGATRON = {
    "mesh": Option("DIMENSIONS", "Sizes of tp, cp, dp, pp and ep: tp=4,pp=2,dp=8."),
    **TRANSFORMER,
    **EXPERTS,
    "seq": Option("TOKENS", "Tokens of a sequence.", type=int, default=4096),
    "micro_batch": Option("N", "Sequences of a micro-batch."),
    "micro_batches": Option("N", "Micro-batches of a step, on each dp rank."),
    "dtype": Option("DTYPE", "Of activations and parameters."),
    "reduce_dtype": Option("DTYPE", "In which gradients are reduced.", type=str, default="float32"),
    "sequence_parallel": Option("", "With tp.", flags="--sequence-parallel/--no-sequence-parallel"),
    "distributed_optimizer": Option(
        "", "Reduce-scatter gradients and gather parameters, or all-reduce gradients.",
        flags="--distributed-optimizer/--no-distributed-optimizer",
    ),
    "bucket": Option(
        "SIZE", "Bytes of a bucket of gradients.  [default: of max(40e6, 1e6 x dp) parameters]",
        type=str,
    ),
    "ranks_per_node": RANKS_PER_NODE,
    "output": WORKLOAD_FILE,
}  # fmt: skip
