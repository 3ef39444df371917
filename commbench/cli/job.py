"""`commbench job`: a batch script or a manifest that measures on several nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commbench.errors import UsageError
from commbench.jobs.job import Job, variables_of
from commbench.spec.backends import BACKENDS

if TYPE_CHECKING:
    from commbench.runner.run_options import RunOptions

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

    from commbench.jobs.slurm import SlurmOptions, batch_script

    wishes = SlurmOptions(
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

    from commbench.jobs.kubernetes import KubernetesOptions, manifest, resources_of

    wishes = KubernetesOptions(
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
    from commbench.output.console import print_result

    if output is None:
        print_result(text, end="")
        return
    from commbench.results.files import write_new

    write_new(output, text)
    print_result(output)


def job_of(
    words: Sequence[str],
    *,
    nodes: int,
    ranks_per_node: int,
    gpus_per_node: int | None,
    variables: Sequence[str],
) -> Job:
    """The job that runs `commbench run WORDS`; refuses what that would refuse on every rank."""
    from commbench.cli.lazy_group import command
    from commbench.runner.run_options import request_of

    said: dict[str, Any] = command("run").make_context("commbench run", list(words)).params
    _refuse_what_the_job_says(said)
    request = request_of(said)
    job = Job(
        title=request.name,
        words=tuple(words),
        output=None if request.output is None else str(request.output),
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        gpus_per_node=_gpus(request, ranks_per_node) if gpus_per_node is None else gpus_per_node,
        variables=variables_of(list(variables)),
    )
    _refuse_in_vain(request, job.nodes * job.ranks_per_node)
    return job


def _refuse_what_the_job_says(said: dict[str, Any]) -> None:
    for option, wrong, why in (
        ("--nnodes", said["nnodes"] != 1, "say --nodes before the --"),
        ("--node-rank", said["node_rank"], "leave it out: the cluster numbers the nodes"),
        ("--nproc-per-node", said["nproc_per_node"] is not None, "say it before the --"),
        ("--master-addr", said["master_addr"], "leave it out: the ranks find each other"),
        ("--master-port", said["master_port"], "leave it out: the ranks find each other"),
        ("--launcher", said["launcher"] != "agent", "leave it out: the cluster starts the ranks"),
        ("--launches", said["launches"] > 1, "submit the job several times"),
        ("--dry-run", said["dry_run"], "leave it out: nothing is measured here"),
    ):
        if wrong:
            raise UsageError(f"{option} after the -- does not go with a job", why)


def _device(request: RunOptions) -> str:
    """The device type that the request names or its backend implies; cpu where nothing does."""
    known = BACKENDS.get(request.backend or "")
    return request.device or (known.devices[0] if known else "cpu")


def _gpus(request: RunOptions, ranks_per_node: int) -> int:
    return 0 if _device(request) == "cpu" else ranks_per_node


def _refuse_in_vain(request: RunOptions, world_size: int) -> None:
    """Refuse what is known to be impossible now, not after a time in the queue."""
    from commbench.spec.plan import require_ready_case

    plan = request.plan(request.backend or "gloo", _device(request), world_size)
    if request.backend:
        require_ready_case(plan)
