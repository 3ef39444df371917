"""`commbench job`: a batch script or a manifest that measures on several nodes."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from commbench.cli.options import Output, print_or_write

job = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Print a batch script for Slurm, or a manifest for Kubernetes.",
)

AFTER_DASHES = {"allow_extra_args": True}
METAVAR = "[OPTIONS] -- OPTIONS OF RUN"
Nodes = Annotated[int, Option("--nodes", metavar="N", help="Nodes to measure on.")]
Ranks = Annotated[int, Option("--nproc-per-node", metavar="N", help="Ranks per node.")]
Gpus = Annotated[
    int | None,
    Option(
        "--gpus-per-node",
        metavar="N",
        help="GPUs of each node.  [default: one per rank if it uses nccl or cuda, else 0]",
    ),
]
Variables = Annotated[
    list[str] | None,
    Option(
        "--env", metavar="NAME=VALUE", help="Environment variable of every rank. May be repeated."
    ),
]


@job.command(context_settings=AFTER_DASHES, options_metavar=METAVAR)
def slurm(
    context: typer.Context,
    nodes: Nodes,
    nproc_per_node: Ranks,
    gpus_per_node: Gpus = None,
    partition: str | None = Option(None, metavar="NAME", help="Partition of the cluster."),
    account: str | None = Option(None, metavar="NAME", help="Account to charge."),
    time: str = Option(
        "30m", metavar="T", help="Time limit: 30m, 2h, 1d, or in the notation of Slurm."
    ),
    cpus_per_task: int | None = Option(
        None, metavar="N", help="CPUs of each rank.  [default: Slurm's]"
    ),
    exclusive: bool = Option(
        True, "--exclusive/--shared", help="Whole nodes, or nodes that other jobs use too."
    ),
    container: str | None = Option(
        None, metavar="IMAGE", help="Image in which the ranks run; needs the plugin pyxis."
    ),
    setup: list[str] | None = Option(
        None,
        metavar="LINE",
        help="Shell command before the run, such as 'module load cuda'. May be repeated.",
    ),
    env: Variables = None,
    output: Output = None,
) -> None:
    """Print a batch script for sbatch. The options after -- are those of `commbench run`.

    srun starts the ranks. Other options of Slurm are given to sbatch; they replace those of the
    script.

    \b
    commbench job slurm --nodes 4 --nproc-per-node 8 -- --backend nccl
    commbench job slurm --nodes 2 --nproc-per-node 4 \\
        --setup 'source venv/bin/activate' --output job.sh -- --op all_gather
    """
    from commbench import api
    from commbench.cli.run_parameters import parse_words
    from commbench.jobs.slurm import SlurmOptions

    options = SlurmOptions(
        partition=partition, account=account, time=time, cpus_per_task=cpus_per_task,
        exclusive=exclusive, container=container, setup=tuple(setup or ()),
    )  # fmt: skip
    script = api.job_script(
        parse_words(context.args, "job"), context.args, options, nodes=nodes,
        nproc_per_node=nproc_per_node, gpus_per_node=gpus_per_node, env=env or (),
    )  # fmt: skip
    print_or_write(script, output)


@job.command(context_settings=AFTER_DASHES, options_metavar=METAVAR)
def kubernetes(
    context: typer.Context,
    nodes: Nodes,
    nproc_per_node: Ranks,
    image: str = Option(
        metavar="IMAGE", help="Image of the pods; it contains torch and commbench."
    ),
    gpus_per_node: Gpus = None,
    kind: str = Option(
        "trainjob",
        metavar="KIND",
        help="trainjob, of Kubeflow Trainer; or pytorchjob, of the older Training Operator.",
    ),
    name: str | None = Option(
        None, metavar="NAME", help="Name of the job.  [default: commbench-LABEL]"
    ),
    namespace: str | None = Option(None, metavar="NAME", help="Namespace.  [default: kubectl's]"),
    claim: str | None = Option(
        None, metavar="NAME", help="PersistentVolumeClaim that keeps the results."
    ),
    resource: list[str] | None = Option(
        None,
        metavar="NAME=N",
        help="Other resource of each pod: cpu=32, memory=64Gi, rdma/hca=1. May be repeated.",
    ),
    runtime: str = Option(
        "torch-distributed", metavar="NAME", help="ClusterTrainingRuntime of a trainjob."
    ),
    env: Variables = None,
    output: Output = None,
) -> None:
    """Print a manifest for kubectl. The options after -- are those of `commbench run`.

    torchrun starts the ranks in each pod; Kubeflow's operator starts the pods.

    \b
    commbench job kubernetes --nodes 2 --nproc-per-node 8 \\
        --image registry.example/commbench:1 --claim results -- --backend nccl
    commbench job kubernetes --nodes 2 --nproc-per-node 2 \\
        --image registry.example/commbench:1 --kind pytorchjob -- --backend gloo
    """
    from commbench import api
    from commbench.cli.run_parameters import parse_words
    from commbench.jobs.kubernetes import KubernetesOptions, parse_resources

    options = KubernetesOptions(
        image=image, kind=kind, name=name, namespace=namespace, claim=claim, runtime=runtime,
        resources=parse_resources(resource or []),
    )  # fmt: skip
    script = api.job_script(
        parse_words(context.args, "job"), context.args, options, nodes=nodes,
        nproc_per_node=nproc_per_node, gpus_per_node=gpus_per_node, env=env or (),
    )  # fmt: skip
    print_or_write(script, output)
