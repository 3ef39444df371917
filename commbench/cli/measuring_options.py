"""The options of the commands that measure, that prepare it, and that make the workload of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from commbench.cli.commands import JUNIT, NEW_FILE, OUTPUT, Command, argument, switch
from commbench.runner.option import Option, value_text

WHAT = "What to measure"


def all_of_run() -> Mapping[str, Option]:
    """The options of `commbench run`."""
    from commbench.runner.run_options import RUN_OPTIONS

    return RUN_OPTIONS


def of_init() -> Mapping[str, Option]:
    """The options of `commbench init`."""
    from commbench.api.measuring import INIT_DEFAULTS

    return {
        "ranks": Option(
            "N,N", "Numbers of ranks on this host; each is a run.", WHAT, str,
            default_text="that of --nproc-per-node", separator=",",
        ),
        "open_groups": Option(
            "N,N", "Numbers of process groups of all ranks that are open already; each is a run.",
            WHAT, str, default_text="0", separator=",",
        ),
        **_of_run(INIT_DEFAULTS, (
            "mesh", "mesh_order", "over", "groups", "group_size", "group_stride", "backend",
            "device", "nproc_per_node", "budget", "precision", "timeout", "cpu_mode", "label",
            "output", "format", "dry_run",
        )),
    }  # fmt: skip


def of_pairs() -> Mapping[str, Option]:
    """The options of `commbench pairs`."""
    from commbench.api.measuring import PAIRS_DEFAULTS, PAIRS_OPTIONS, QUICK_ITERATIONS

    of_run = _of_run({n: d for n, d in PAIRS_DEFAULTS.items() if n in PAIRS_OPTIONS}, PAIRS_OPTIONS)
    iters = f"{PAIRS_DEFAULTS['iters']}; {QUICK_ITERATIONS} with --quick"
    quick = switch("Look at some rounds, then measure again where a rank or a link looks slow.")
    changed = of_run["iters"]._replace(default_text=iters)
    return {"quick": quick._replace(group=WHAT), **of_run, "iters": changed}


def of_replay() -> Mapping[str, Option]:
    """The options of `commbench replay`."""
    from commbench.api.measuring import REPLAY_DEFAULTS, REPLAY_OPTIONS

    text = "The file of a step that `commbench workload` wrote."
    file = argument("WORKLOAD", text, Path, default=None)
    return {"workload": file, **_of_run(REPLAY_DEFAULTS, REPLAY_OPTIONS)}


def of_soak() -> Mapping[str, Option]:
    """The options of `commbench soak`."""
    from commbench.api.measuring import SOAK_OPTIONS, SOAK_S

    found = _of_run({}, SOAK_OPTIONS)
    usual, flags = f"{SOAK_S:g}s, unless --cycles is given", "--for --duration"
    time = found.pop("duration")._replace(group=WHAT, flags=flags, default_text=usual)
    tolerance = Option(
        "PART", "Smaller drifts, and minutes that are less slow, do not fail.  [default: 5%]",
        WHAT, str,
    )  # fmt: skip
    cycles = found.pop("cycles")._replace(group=WHAT, default_text="as many as fit")
    return {"duration": time, "cycles": cycles, "tolerance": tolerance, **found}


def _of_run(defaults: Mapping[str, Any], names: Iterable[str]) -> dict[str, Option]:
    """Options of a run: those with another default, and then the other ones of these names."""
    from commbench.runner.run_options import RUN_OPTIONS

    texts = {name: value_text(default) for name, default in defaults.items()}
    changed = {n: RUN_OPTIONS[n]._replace(default_text=text) for n, text in texts.items()}
    return changed | {name: RUN_OPTIONS[name] for name in names if name not in changed}


def of_sweep() -> Mapping[str, Option]:
    """The options of `commbench sweep`."""
    from commbench.runner.run_options import VARIED_OPTIONS

    options = ", ".join(VARIED_OPTIONS)
    text = f"Option of `commbench run` and its values: {options}; or python: virtual environments."
    return SWEEP | {"vary": SWEEP["vary"]._replace(help=text)}


SWEEP = {
    "env": Option(
        "NAME=V,V", "Environment variable and its values; '-' leaves it unset. Repeat it for more "
        "variables: every combination is measured. NAME:=VALUE is one value, commas included.",
        type=list[str],
    ),
    "vary": Option("OPTION=V,V", "", type=list[str]),
    "rounds": Option("N", "Measure each setting N times; use 3 or more."),
    "tolerance": Option("PART", "Smaller differences count as ties.  [default: 5%]", type=str),
    "label": Option("NAME", "Name of the sweep."),
    "output": Option(
        "DIR", "Folder of the sweep, new or empty. The folder above it must exist, but A of A/B "
        "is made.  [default: results/TIME-sweep]", flags="--output",
    ),
    "resume": Option(
        "SWEEP", "Continue the sweep in this folder: measure what is missing, or more --rounds. "
        "With it, only --rounds, --tolerance, --export, --format, --verbose and --no-plots are "
        "taken.", type=str,
    ),
    "export": Option("nccl-tuner", "Also write a configuration of NCCL's tuner plugin."),
    "force": switch("Accept variables that the backend does not read."),
    "format": Option("FORMAT", "text, markdown, html or json.", type=str, default="text"),
    "verbose": switch("Print all settings of each case, and explain every warning."),
}  # fmt: skip
SMOKE = {
    "backend": Option("NAME", "gloo, nccl, or another backend of this torch."),
    "device": Option("TYPE", "cpu or cuda.  [default: that of the backend]"),
    "nproc_per_node": Option(
        "N", "Number of ranks.  [default: those of the mesh; else one per GPU, or 2 on the CPU]"
    ),
    "mesh": Option(
        "DIMS", "Measure the groups of a mesh instead: dp=2,tp=2.  [default: none]", separator=","
    ),
    "timeout": Option("S", "Seconds that one collective may take."),
    "junit": JUNIT,
}
VARIABLES = Option("NAME=VALUE", "Environment variable of every rank. May be repeated.")
PREFLIGHT = {
    "hosts": Option(
        "FILE|LIST", "node1,node2, or a file of names.  [default: Slurm's]", type=str, separator=","
    ),
    "need": Option("N", "So many hosts have to be good.  [default: all]", type=int),
    "start": Option(
        "HOW", "What starts a program on a host: srun, ssh, mpirun, kubectl, one of these with "
        "options of its own, or a command with {host}.  [default: srun within Slurm, else ssh]",
        type=str,
    ),
    "nproc_per_node": Option("N", "Ranks on each host.  [default: one per GPU; 2 on the CPU]"),
    "env": VARIABLES,
    "limit": Option("S", "Seconds that everything may take."),
    "stage_limit": Option("S", "Seconds that a run of a stage may take."),
    "at_once": Option("N", "Runs that go at once."),
    "tolerance": Option("PERCENT", "A host that is slower by at most this is good."),
    "output": Option(
        "DIR", "New folder for the lists of hosts, a page, JSON, JUnit XML, journals and logs.  "
        "[default: results/TIME-preflight]", OUTPUT, Path,
    ),
    "format": Option("FORMAT", "text, markdown, html or json.", OUTPUT, str, "text"),
}  # fmt: skip
NODES = {
    "nodes": Option("N", "Nodes to measure on."),
    "nproc_per_node": Option("N", "Ranks per node."),
}
OF_JOBS = {
    "preflight": switch("Test the nodes first, and run on good ones: `commbench preflight`."),
    "spare": Option("N", "Nodes beside those of the run, for --preflight to choose from."),
    "env": VARIABLES,
    "output": NEW_FILE,
}
GPUS_PER_NODE = Option("N", "GPUs of each node.  [default: one per rank that uses one]")
JOB_SLURM = {
    **NODES,
    "gpus_per_node": GPUS_PER_NODE,
    "partition": Option("NAME", "Partition of the cluster."),
    "account": Option("NAME", "Account to charge."),
    "time": Option("T", "Time limit: 30m, 2h, 1d, or in the notation of Slurm."),
    "cpus_per_task": Option("N", "CPUs of each rank.  [default: Slurm's]"),
    "exclusive": Option("", "Whole nodes, or shared ones.", flags="--exclusive/--shared"),
    "container": Option("IMAGE", "Image in which the ranks run; needs the plugin pyxis."),
    "setup": Option("LINE", "Shell command before the run: 'module load cuda'. May be repeated."),
    **OF_JOBS,
}
JOB_KUBERNETES = {
    **NODES,
    "image": Option("IMAGE", "Image of the pods; it contains torch and commbench."),
    "gpus_per_node": GPUS_PER_NODE,
    "kind": Option("KIND", "trainjob, of Kubeflow Trainer; or pytorchjob, of the older operator."),
    "name": Option("NAME", "Name of the job.  [default: commbench-LABEL]"),
    "namespace": Option("NAME", "Namespace.  [default: kubectl's]"),
    "claim": Option("NAME", "PersistentVolumeClaim that keeps the results."),
    "resource": Option(
        "NAME=N", "Other resource of each pod: cpu=32, memory=64Gi, rdma/hca=1. May be repeated.",
        type=list[str],
    ),
    "runtime": Option("NAME", "ClusterTrainingRuntime of a trainjob."),
    **OF_JOBS,
}  # fmt: skip
TRACES = argument(
    "TRACE...",
    "Traces of the ranks, or a folder of them: torch.profiler (.json, .json.gz), flight "
    "recorder (pickle, JSON), Chakra (JSON), NCCL Inspector. Or the file of a workload.",
    list[Path],
)
WORKLOAD_FILE = Option("FILE", "New file to write: step.json.", type=Path)
MESH = Option(
    "DIMENSIONS", "Sizes of tp, cp, dp, pp and ep: tp=4,pp=2,dp=8.", type=str, default=...,
    separator=",",
)  # fmt: skip
GENERATED = {"ranks_per_node": Option("N", "Ranks on each host."), "output": WORKLOAD_FILE}
TRANSFORMER = {
    "model": Option("NAME", "A public model: llama-3-8b; a wrong name lists all.", type=str),
    "params": Option("NUMBER", "Parameters: 350M, 7B, 7e9.", type=str),
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
WORKLOAD_SHOW = {"traces": TRACES, "verbose": switch("Print all steps, and what the columns mean.")}
WORKLOAD_IMPORT = {
    "traces": TRACES,
    "output": WORKLOAD_FILE._replace(default=...),
    "name": Option("NAME", "Name of the workload.  [default: that of the file]", type=str),
}
WORKLOAD_DDP = {
    "mesh": MESH._replace(help="Ranks: dp=8."),
    **TRANSFORMER,
    "dtype": Option("DTYPE", "Element type of parameters and gradients.", default="float32"),
    "bucket": Option("SIZE", "bucket_cap_mb as a size.  [default: 25M, the first 1M]"),
    **GENERATED,
}
WORKLOAD_FSDP = {
    "mesh": MESH._replace(help="Ranks: dp_replicate=2,dp_shard=8."),
    **TRANSFORMER,
    "dtype": Option("DTYPE", "param_dtype of MixedPrecisionPolicy.", default="bfloat16"),
    "reduce_dtype": Option("DTYPE", "reduce_dtype of MixedPrecisionPolicy.", default="float32"),
    "reshard": Option("", "reshard_after_forward of the blocks.", type=bool, default=True),
    **GENERATED,
}  # fmt: skip
WORKLOAD_MEGATRON = {
    "mesh": MESH,
    **TRANSFORMER,
    **EXPERTS,
    "seq": Option("TOKENS", "Tokens of a sequence.", type=int, default=4096),
    "micro_batch": Option("N", "Sequences of a micro-batch."),
    "micro_batches": Option("N", "Micro-batches of a step, on each dp rank."),
    "dtype": Option("DTYPE", "Element type of activations and parameters."),
    "reduce_dtype": Option("DTYPE", "Element type of reductions.", type=str, default="float32"),
    "sequence_parallel": Option("", "Sequence parallelism, with tp."),
    "distributed_optimizer": Option("", "Reduce-scatter gradients, gather parameters."),
    "bucket": Option("SIZE", "A bucket of gradients.  [default: Megatron's]", type=str),
    **GENERATED,
}  # fmt: skip
AFTER_DASHES: Mapping[str, Any] = {
    "context_settings": {"allow_extra_args": True},
    "options_metavar": "[OPTIONS] -- OPTIONS OF RUN",
}
BESIDE_OWN: Mapping[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}
}
_JOBS = "commbench.runner.jobs"
_WORKLOAD, _SHOWN_WORKLOAD = "commbench.api.workload", "workloads.document"
COMMANDS = {
    "run": Command("measuring", all_of_run),
    "replay": Command("measuring", of_replay),
    "pairs": Command("measuring", of_pairs),
    "soak": Command("measuring", of_soak),
    "init": Command("measuring", of_init),
    "sweep": Command("measuring", of_sweep, ("sweep",), "answers.sweep.document", BESIDE_OWN),
    "smoke": Command("measuring", SMOKE, ("smoke",), "runner.smoke"),
    "preflight": Command(
        "measuring", PREFLIGHT, ("preflight",), "answers.preflight.document", AFTER_DASHES
    ),
    "job slurm": Command(
        "measuring", JOB_SLURM, (f"{_JOBS}.SlurmOptions", f"{_JOBS}.make_job"),
        typer_settings=AFTER_DASHES,
    ),
    "job kubernetes": Command(
        "measuring", JOB_KUBERNETES,
        (f"{_JOBS}.KubernetesOptions", f"{_JOBS}.make_job"), typer_settings=AFTER_DASHES,
    ),
    "workload show": Command("subcommands", WORKLOAD_SHOW, view=_SHOWN_WORKLOAD),
    "workload import": Command("subcommands", WORKLOAD_IMPORT, view=_SHOWN_WORKLOAD),
    "workload ddp": Command("subcommands", WORKLOAD_DDP, (f"{_WORKLOAD}.ddp",), _SHOWN_WORKLOAD),
    "workload fsdp": Command("subcommands", WORKLOAD_FSDP, (f"{_WORKLOAD}.fsdp",), _SHOWN_WORKLOAD),
    "workload megatron": Command(
        "subcommands", WORKLOAD_MEGATRON,
        (f"{_WORKLOAD}.megatron", "commbench.workloads.megatron_calls.Training"), _SHOWN_WORKLOAD,
    ),
}  # fmt: skip
"""By the words that call them."""
