"""`commbench run`: measure collectives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commbench.cli.options import Format, Peak
from commbench.runner.run_options import request_of
from commbench.spec.timing_modes import DEFAULT_TIMING, TIMING_HELP

if TYPE_CHECKING:
    pass


def run(
    context: typer.Context,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="OP", help="Operation: one, several (OP,OP), or all."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Sizes in bytes: 1K-1G doubles, 1K-1G:x4, 1M-16M:+1M, 8,1K,1M. K, M, G are "
            "powers of 1024.  [default: 1K-64M]",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", "-d", metavar="DTYPE", help="Element type, several, or all."),
    ] = None,
    reduce_op: Annotated[
        list[str] | None,
        typer.Option(
            "--reduce-op",
            "-o",
            metavar="RED",
            help="sum, avg, prod, min, max, band, bor, bxor; several, or all.",
        ),
    ] = None,
    root: Annotated[
        int, typer.Option(metavar="RANK", help="Root of broadcast, reduce, gather, scatter.")
    ] = 0,
    placement: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="in_place, out_of_place, both, or natural: what each operation does by itself.",
        ),
    ] = "natural",
    rounding: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Sizes that do not divide: exact, whole elements per rank; nccl-tests, blocks of "
            "16 bytes.",
        ),
    ] = "exact",
    iters: Annotated[
        int | None,
        typer.Option(
            "--iters",
            "-n",
            metavar="N",
            help="Timed iterations of every case.  [default: until the median is known to 5 %]",
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            "--warmup",
            "-w",
            metavar="N",
            help="Calls before the first timed one.  [default: until their times are stable]",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            metavar="PART",
            help="Measure until the 95 % interval of the median is within this, on either side.",
        ),
    ] = "5%",
    budget: Annotated[
        float, typer.Option(metavar="S", help="Or until a case has been measured for S seconds.")
    ] = 0.2,
    timing: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help=f"{TIMING_HELP}; both.",
        ),
    ] = DEFAULT_TIMING,
    order: Annotated[
        str,
        typer.Option(
            metavar="ORDER",
            help="shuffled: rounds of random order, every case several times; ascending.",
        ),
    ] = "shuffled",
    seed: Annotated[
        int, typer.Option(metavar="N", help="Where the random order and the test data begin.")
    ] = 0,
    launches: Annotated[
        int, typer.Option(metavar="K", help="Repeat the whole run in fresh processes, K in all.")
    ] = 1,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="gloo, nccl, or another that this torch has."),
    ] = None,
    device: Annotated[str | None, typer.Option(metavar="TYPE", help="cpu or cuda.")] = None,
    nproc_per_node: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ranks per node.  [default: one per GPU; 2 on the CPU]"),
    ] = None,
    nnodes: Annotated[
        int, typer.Option(metavar="N", help="Nodes; run the same command on each.")
    ] = 1,
    node_rank: Annotated[
        int, typer.Option(metavar="R", help="This node's number, from 0; node 0 writes results.")
    ] = 0,
    master_addr: Annotated[
        str | None, typer.Option(metavar="HOST", help="Host of node 0, as the others reach it.")
    ] = None,
    master_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="A free port on it.  [default: 29500]")
    ] = None,
    launcher: Annotated[
        str,
        typer.Option(metavar="HOW", help="agent: torchrun's agent as a library; torchrun: it."),
    ] = "agent",
    timeout: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="Seconds that joining, or an operation, may take; bytes at 10 MB/s come on top.",
        ),
    ] = 120.0,
    cpu_mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="CPU ranks: quiet (SCHED_BATCH, a core each), plain (left alone), realtime "
            "(SCHED_FIFO, a core each), batch, pinned (half of quiet).  [default: quiet on the "
            "CPU, plain on GPUs]",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Check every result on every rank against its closed form.")
    ] = True,
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run, in files and plots.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of this run, new or empty.  [default: results/TIME-LABEL]"
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run that was cut off, in its folder and under its plan: folder, or "
            "label.",
        ),
    ] = None,
    format_: Format = "table",
    peak: Peak = None,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no plots.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan, cases and memory; measure nothing."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say how ranks are started, and why.")
    ] = False,
    minbytes: Annotated[
        str | None, typer.Option("--minbytes", "-b", metavar="SIZE", help="As in nccl-tests.")
    ] = None,
    maxbytes: Annotated[
        str | None, typer.Option("--maxbytes", "-e", metavar="SIZE", help="As in nccl-tests.")
    ] = None,
    stepfactor: Annotated[
        str | None, typer.Option("--stepfactor", "-f", metavar="N", help="As in nccl-tests.")
    ] = None,
    stepbytes: Annotated[
        str | None, typer.Option("--stepbytes", "-i", metavar="SIZE", help="As in nccl-tests.")
    ] = None,
    check_count: Annotated[
        int | None, typer.Option("-c", metavar="0|1", help="As in nccl-tests: -c 0 is --no-check.")
    ] = None,
) -> None:
    """Measure collectives: a table here, and a folder with journal, CSV and plots.

    \b
    commbench run --op all_reduce --sizes 1K-1G
    commbench run --op all_gather,reduce_scatter --dtype bfloat16 --sizes 1M-64M:x4
    commbench run --op all --sizes 64K --nproc-per-node 4 --backend gloo
    commbench run -b 8 -e 128M -f 2 -d half          (nccl-tests' flags)
    commbench run --resume results/20261121-120000-all_reduce
    """
    request = request_of(locals())
    from commbench.runner import session

    if resume is not None:
        from commbench.runner import resume as resuming

        resuming.resume(resume, request, _said(context))
    elif dry_run:
        session.rehearse(request)
    else:
        session.run(request)


def _said(context: typer.Context) -> set[str]:
    """The parameters that stand on the command line."""
    return {
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    }
