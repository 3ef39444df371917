"""`commbench job`: a batch script or a manifest that measures on several nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

job = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Print a job that measures on several nodes, ready to submit.",
)

AFTER_DASHES = {"allow_extra_args": True}
OPTIONS_OF_RUN = "-- OPTIONS OF RUN"
Nodes = Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes to measure on.")]
Ranks = Annotated[int, typer.Option("--nproc-per-node", metavar="N", help="Ranks per node.")]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        metavar="N",
        help="GPUs of each node.  [default: one per rank if nccl or cuda is asked for, else none]",
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="Variable of every rank. May be repeated."),
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file that does not exist.  [default: print it]"),
]


@job.command(context_settings=AFTER_DASHES, options_metavar=f"[OPTIONS] {OPTIONS_OF_RUN}")
def slurm(
    context: typer.Context,
    nodes: Nodes,
    nproc_per_node: Ranks,
    gpus_per_node: Gpus = None,
    partition: Annotated[
        str | None, typer.Option(metavar="NAME", help="Partition to run in.")
    ] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Account to charge.")] = None,
    time: Annotated[
        str, typer.Option(metavar="T", help="Longest time: 30m, 2h, 1d, or as Slurm writes it.")
    ] = "30m",
    cpus_per_task: Annotated[
        int | None, typer.Option(metavar="N", help="CPUs of each rank.  [default: Slurm's]")
    ] = None,
    exclusive: Annotated[
        bool, typer.Option("--exclusive/--shared", help="Whole nodes, or beside other jobs.")
    ] = True,
    container: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Run in this image; needs the plugin pyxis."),
    ] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINE",
            help="Line of shell before the run, such as 'module load cuda'. May be repeated.",
        ),
    ] = None,
    env: Variables = None,
    output: Output = None,
) -> None:
    """Print a batch script for sbatch. What follows -- is for `commbench run`.

    srun starts the ranks. Other options of Slurm go on the line of sbatch, and win.

    \b
    commbench job slurm --nodes 4 --nproc-per-node 8 -- --backend nccl --sizes 1K-1G --label ring
    commbench job slurm --nodes 2 --nproc-per-node 4 --setup 'source venv/bin/activate' \\
        --output job.sh -- --op all_gather
    """
    from commbench.cli.ask_job import job_of
    from commbench.jobs.slurm import Wishes, batch_script

    wishes = Wishes(
        partition=partition, account=account, time=time, cpus_per_task=cpus_per_task,
        exclusive=exclusive, container=container, setup=tuple(setup or ()),
    )  # fmt: skip
    asked = job_of(
        context.args, nodes=nodes, ranks_per_node=nproc_per_node, gpus_per_node=gpus_per_node,
        variables=env or (),
    )  # fmt: skip
    _give(batch_script(asked, wishes), output)


@job.command(context_settings=AFTER_DASHES, options_metavar=f"[OPTIONS] {OPTIONS_OF_RUN}")
def kubernetes(
    context: typer.Context,
    nodes: Nodes,
    nproc_per_node: Ranks,
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image of the pods, with commbench and torch.")
    ],
    gpus_per_node: Gpus = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="trainjob: of Kubeflow Trainer; pytorchjob: of the Training Operator before it.",
        ),
    ] = "trainjob",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the job.  [default: commbench-LABEL]"),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace.  [default: kubectl's]")
    ] = None,
    claim: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="PersistentVolumeClaim to keep the results in."),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Other resource of each pod: cpu=32, memory=64Gi, rdma/hca=1. May be repeated.",
        ),
    ] = None,
    runtime: Annotated[
        str, typer.Option(metavar="NAME", help="ClusterTrainingRuntime of a trainjob.")
    ] = "torch-distributed",
    env: Variables = None,
    output: Output = None,
) -> None:
    """Print a manifest for kubectl. What follows -- is for `commbench run`.

    torchrun starts the ranks in each pod; Kubeflow's operator starts the pods.

    \b
    commbench job kubernetes --nodes 2 --nproc-per-node 8 --image registry.example/commbench:1 \\
        --claim results -- --backend nccl --sizes 1K-1G
    commbench job kubernetes --nodes 2 --nproc-per-node 2 --image registry.example/commbench:1 \\
        --kind pytorchjob --output job.yaml -- --backend gloo
    """
    from commbench.cli.ask_job import job_of
    from commbench.jobs.kubernetes import Wishes, manifest, resources_of

    wishes = Wishes(
        image=image, kind=kind, name=name, namespace=namespace, claim=claim, runtime=runtime,
        resources=resources_of(resource or []),
    )  # fmt: skip
    asked = job_of(
        context.args, nodes=nodes, ranks_per_node=nproc_per_node, gpus_per_node=gpus_per_node,
        variables=env or (),
    )  # fmt: skip
    _give(manifest(asked, wishes), output)


def _give(text: str, output: Path | None) -> None:
    """Print it, or write it where nothing is yet."""
    from commbench.cli.speak import say

    if output is None:
        say(text, end="")
        return
    from commbench.report.files import write_new

    write_new(output, text)
    say(output)
