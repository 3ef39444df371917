"""`commbench job`: a batch script or a manifest that measures on several nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commbench.cli.options import print_or_write

if TYPE_CHECKING:
    from commbench.jobs.kubernetes import KubernetesOptions
    from commbench.jobs.slurm import SlurmOptions

_OF_ANY_JOB = ("nodes", "nproc_per_node", "gpus_per_node", "env")


def slurm(context: typer.Context, setup: list[str], output: Path | None, **given: Any) -> None:
    """Print a batch script for sbatch. The options after -- are those of `commbench run`.

    srun starts the ranks. Other options of Slurm are given to sbatch; they replace those of the
    script.

    \b
    commbench job slurm --nodes 4 --nproc-per-node 8 -- --backend nccl
    commbench job slurm --nodes 2 --nproc-per-node 4 \\
        --setup 'source venv/bin/activate' --output job.sh -- --op all_gather
    """
    from commbench.jobs.slurm import SlurmOptions

    job = {name: given.pop(name) for name in _OF_ANY_JOB}
    _print(context.args, SlurmOptions(setup=tuple(setup), **given), output, job)


def kubernetes(
    context: typer.Context, resource: list[str], output: Path | None, **given: Any
) -> None:
    """Print a manifest for kubectl. The options after -- are those of `commbench run`.

    torchrun starts the ranks in each pod; Kubeflow's operator starts the pods.

    \b
    commbench job kubernetes --nodes 2 --nproc-per-node 8 \\
        --image registry.example/commbench:1 --claim results -- --backend nccl
    commbench job kubernetes --nodes 2 --nproc-per-node 2 \\
        --image registry.example/commbench:1 --kind pytorchjob -- --backend gloo
    """
    from commbench.jobs.kubernetes import KubernetesOptions, parse_resources

    job = {name: given.pop(name) for name in _OF_ANY_JOB}
    options = KubernetesOptions(resources=parse_resources(resource), **given)
    _print(context.args, options, output, job)


def _print(
    words: list[str],
    options: SlurmOptions | KubernetesOptions,
    output: Path | None,
    job: dict[str, Any],
) -> None:
    from commbench import api
    from commbench.cli.run_parameters import parse_words

    print_or_write(api.job_script(parse_words(words, "job"), words, options, **job), output)
