"""The commands that measure: run, init, pairs, replay, soak, sweep, smoke, preflight; and job,
which prepares it."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from commbench import api
from commbench.api import measuring
from commbench.cli.commands import Show, given_options, parse_words
from commbench.errors import GATE_FAILS, CommbenchError, Interrupted, UsageError
from commbench.output.console import print_error, print_status
from commbench.output.text import list_some
from commbench.results.files import make_folder
from commbench.results.schema import Run
from commbench.runner.run_options import RunOptions, parse_options
from commbench.stats import TOLERANCE
from commbench.units import format_count, parse_tolerance
from commbench.views.formats import TEXT, VIEW_OF_DOCUMENT, print_or_write, show


def run(context: typer.Context, **_: object) -> None:
    """Measure collectives: a table here, and a folder with journal, CSV and plots.

    \b
    commbench run --op all_reduce --sizes 1K-1G
    commbench run --op all_gather,reduce_scatter --dtype bfloat16 --sizes 1M-64M
    commbench run --op all --sizes 64K --nproc-per-node 4 --backend gloo
    commbench run -b 8 -e 128M -f 2 -d half        # nccl-tests' flags
    commbench run --resume results/20261121-120000-all_reduce
    """
    _carry_out(parse_options(given_options(context)))


def init(context: typer.Context, **_: object) -> None:
    """Time what a job does before it trains: init_process_group, new groups, first calls.

    Measures how long the ranks take to join, to make a process group, and to make the first and the
    second call of each operation on a new group, and the memory of a group. Each number of --ranks
    is a run of its own, with a journal in results/.

    \b
    commbench init
    commbench init --ranks 2,4,8
    commbench init --open-groups 0,16,64   # beside so many groups
    commbench init --mesh dp=2,tp=4        # new groups of each dimension
    commbench init --op new_group,all_reduce --iters 30
    commbench init --ranks 2,64 --dry-run  # what would be measured
    """
    from commbench.answers.show.start_up import VIEW, StartUps

    lists = {name: context.params.pop(name) for name in ("ranks", "open_groups")}
    format_ = context.params.get("format") or "text"
    VIEW.require(format_)
    every = measuring.init_options(**lists, **given_options(context))
    if context.params.get("dry_run"):
        for options in every:
            print_plan(options)
        return
    if every[1:] and (folder := every[0].output):
        make_folder(folder.parent)
    found = (measuring.run_options(options, _InitPrinter(options)) for options in every)
    if runs := [run for run in found if run]:
        show(VIEW, StartUps(runs), format_)


def pairs(context: typer.Context, **_: object) -> None:
    """Find a slow rank, host or link: latency and bandwidth of every pair of ranks.

    The pairs are measured in rounds, in which each rank has one pair: n - 1 rounds of n ranks. All
    pairs of a round call at once, first from the lower rank to the higher one, then back. It is an
    ordinary run, and all commands read it. Its folder also has pairs.csv, the matrices
    latency.csv and bandwidth.csv, and heat maps.

    \b
    commbench pairs --nproc-per-node 8
    commbench pairs --nproc-per-node 8 --quick  # some of the rounds
    commbench pairs --sizes 64M                 # fast links: NVLink
    commbench pairs --groups 0-28:4 --nproc-per-node 32  one rank of each 4
    commbench pairs --pairs 0-5+1-7             # these pairs only
    commbench pairs --pairs 0-5,5-0             # one pair, both directions
    """
    is_quick = context.params.pop("quick")
    _carry_out(measuring.pairs_options(is_quick=is_quick, **given_options(context)))


def replay(context: typer.Context, **_: object) -> None:
    """Replay the collectives of your training step: what the network needs, what can be saved.

    Each different call is measured alone, and then the whole step, in order, with and without the
    gaps between its calls, with buckets of other sizes, and with reduce_scatter + all_gather. The
    result is compared with the trace. It is an ordinary run, and all commands read it.

    \b
    commbench workload import traces/ -o step.json  # the step of your trace
    commbench replay step.json                      # on as many ranks
    commbench replay step.json --variant calls,gaps,bucket:50M
    commbench replay step.json --fit shrink --nproc-per-node 2
    commbench replay step.json --peak 400Gbit/s     # what the network allows
    """
    _carry_out(measuring.replay_options(**given_options(context)))


def soak(context: typer.Context, tolerance: str | None, **_: object) -> None:
    """Measure and check for hours: find wrong results, drift, and minutes that were slow.

    Goes round all cases in cycles: a short batch of each, then checks of calls with new data, which
    take 20 % of the time. It is an ordinary run, and all commands read it; `commbench run --resume`
    continues it. Exit code 0: steady and right. 1: drift, or slow minutes. 5: wrong results.

    \b
    commbench soak --for 1h
    commbench soak --for 8h --op all_reduce,all_gather --sizes 1M,64M
    commbench soak --cycles 100 --check-share 50%
    commbench soak --resume results/20261121-120000-soak
    """
    within = TOLERANCE if tolerance is None else parse_tolerance(tolerance)
    given = {name: value for name, value in given_options(context).items() if name != "tolerance"}
    _carry_out(measuring.soak_options(**given), within)


def _carry_out(options: RunOptions, tolerance: float | None = None) -> None:
    """Measure, or print what would be measured. `tolerance` is that of a soak."""
    if options.dry_run:
        print_plan(options)
        return
    recorded = measuring.run_options(options, RunPrinter(options, tolerance))
    if recorded and recorded.header.plan.is_soak and recorded.soak(tolerance).exit_code:
        raise typer.Exit(GATE_FAILS)


class RunPrinter(measuring.RunListener):
    """Prints the messages of a run: the table on standard output, the rest on standard error."""

    def __init__(self, options: RunOptions, tolerance: float | None = None) -> None:
        self._options, self._tolerance = options, tolerance

    def status(self, line: str) -> None:
        print_status(line)

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        if error is None or run.measurements:
            from commbench.answers.show.run_document import VIEW, ShownRun

            if error:  # it follows, and gives the reason
                run = run._replace(end=run.end and run.end._replace(reason=""))
            options = self._options
            shown = ShownRun(
                run, options.peak, has_calls=options.verbose, is_brief=True,
                tolerance=self._tolerance,
            )  # fmt: skip
            show(VIEW, shown, "text" if error else options.format, is_verbose=options.verbose)


def print_plan(options: RunOptions, runs: int = 1) -> None:
    """Print what a run would do, of several such `runs`, and start nothing."""
    from commbench.answers.report import shell_lines
    from commbench.answers.show.plan import HostMemory, plan_document
    from commbench.host.procfs import read_free_bytes
    from commbench.plan.case import READY
    from commbench.plan.cases import find_oversized, nothing_left, require_ready_case

    planned = api.plan_run(options)
    own, plan = planned.nodes, planned.plan
    require_ready_case(plan)
    first = own.rank * own.ranks_per_node
    host = HostMemory(
        ranks=range(first, first + own.ranks_per_node),
        free_bytes=read_free_bytes() if plan.device == "cpu" else None,
        cores=len(os.sched_getaffinity(0)),
    )
    described = plan_document(plan, shell_lines(planned.torchrun_line), host, planned.summary, runs)
    show(VIEW_OF_DOCUMENT, described, TEXT, is_verbose=options.verbose)
    if host.free_bytes is not None:
        ready = [case for case in plan.cases() if case.status == READY]
        large = find_oversized(plan, ready, "this host", host.ranks, host.free_bytes)
        if len(large) == len(ready):
            cases = [case._replace(reason=large[case.index]) for case in ready]
            raise nothing_left(cases, host.free_bytes)


class _InitPrinter(RunPrinter):
    """Prints the messages of a run. One table of all runs follows the last one."""

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        if error:
            super().ended(run, error)


def sweep(
    show: Show, context: typer.Context, env: list[str], vary: list[str], tolerance: str | None,
    output: Path | None, resume: str | None, export: str | None, **given: Any,
) -> None:  # fmt: skip
    """Measure the same cases under several settings, and print which setting is the fastest.

    Every combination of values is a setting. Each setting is measured in processes of its own, in
    several rounds of random order. All other options are those of `commbench run`.

    \b
    commbench sweep --env NCCL_ALGO=RING,TREE --op all_reduce --sizes 1K-1G
    commbench sweep --vary cpu-mode=quiet,plain --sizes 1K-1M --backend gloo
    commbench sweep --vary python=old,new --sizes 1K-1M   # two environments
    commbench sweep --env NCCL_ALGO=RING,TREE --workload step.json
    commbench sweep --resume results/20261121-120000-sweep
    """
    from commbench.answers.sweep.session import SweepOptions, make_sweep
    from commbench.answers.sweep.settings import make_settings, parse_values

    within = None if tolerance is None else parse_tolerance(tolerance)
    measure: Any
    if resume is not None:
        asked = given_options(context)
        allowed = {"resume", "rounds", "tolerance", "export", "format", "verbose"}
        of_run = parse_words(context.args, "sweep")
        if of_run.given - {"plots"} or {*asked} - allowed:
            why = "--resume continues with the settings that the folder describes"
            hint = "take only --rounds, --tolerance, --export, --format, --verbose, --no-plots"
            raise UsageError(why, hint)
        more: Any = {"tolerance": within, "export": export, "rounds": asked.get("rounds")}
        measure = partial(api.resume_sweep, resume, plots=of_run.plots, **more)
    else:
        settings = make_settings(parse_values(env, "env"), parse_values(vary, "vary"))
        options = SweepOptions(
            settings=settings,
            runs=tuple(
                parse_words(
                    context.args, "sweep", varied=[f"--{n}={v}" for n, v in each.run_options]
                )
                for each in settings
            ),
            tolerance=TOLERANCE if within is None else within, output=output, export=export,
            **given,
        )  # fmt: skip
        if options.runs[0].dry_run:
            made = make_sweep(options, print_status)
            names, rounds = [each.name for each in settings], format_count(made.rounds, "round")
            number = format_count(len(names), "setting")
            print_status(f"{number} x {rounds}, {list_some(names, 8)}; one run:")
            print_plan(replace(options.runs[0], launches=1), len(names) * made.rounds)
            return
        measure = partial(api.run_sweep, options)
    try:
        result = measure(notify=print_status)
    except CommbenchError as error:
        if error.run:
            show(error.run)
        raise
    show(result)
    if failed := result.failures:
        print_error(
            f"{len(failed)} of {len(result.settings)} settings failed: {', '.join(failed)}",
            f"`commbench sweep --resume {result.path}` tries again",
        )
        raise typer.Exit(1)


def smoke(show: Show, **given: Any) -> None:
    """Run every operation with three dtypes and three sizes, and check its results.

    Of each case, as many calls are checked as take 20 ms, and at least two. With two ranks on two
    cores this takes about 15 s, longer where other programs use the cores. Prints a row per
    operation. Exit code 0: all work. 3: an operation cannot be run here. 4: a rank died or hung.
    5: wrong results.

    \b
    commbench smoke
    commbench smoke --nproc-per-node 4 --junit report.xml
    commbench smoke --mesh dp=2,tp=2                # groups of ranks, on 4 ranks
    """
    result = api.smoke(**given, notify=print_status)
    show(result)
    if result.error:
        raise result.error


def preflight(show: Show, context: typer.Context, output: Path | None, **given: Any) -> None:
    """Say which hosts of an allocation may take part in a job, before it starts.

    Stages: each host alone, pairs, groups of 4, 8, ..., all that remain. A host that fails is
    retried once, with other hosts. Options of `commbench run` may follow --, such as --sizes.
    commbench drains nothing. Exit code 0: enough hosts are good (--need). 1: too few, and hosts are
    to be drained. 7: too few otherwise.

    \b
    commbench preflight --need 60 -o checked  # in Slurm's salloc or sbatch
    commbench preflight --hosts hosts.txt     # over ssh
    commbench preflight --hosts a,b --start 'ssh -p 2222 {host}' -- --backend nccl
    """
    words = context.args
    try:
        run = parse_words(words, "preflight")
        found = api.preflight(run, words, output=output, **given, notify=print_status)
    except Interrupted as error:
        show(error.run)
        raise
    show(found)
    raise typer.Exit(found.exit_code)


def job_slurm(context: typer.Context, setup: list[str], **given: Any) -> None:
    """Print a batch script for sbatch. The options after -- are those of `commbench run`.

    srun starts the ranks. Other options of Slurm are given to sbatch; they replace those of the
    script.

    \b
    commbench job slurm --nodes 4 --nproc-per-node 8 -- --backend nccl
    commbench job slurm --nodes 2 --nproc-per-node 4 \\
        --setup 'source venv/bin/activate' --output job.sh -- --op all_gather
    """
    from commbench.runner.jobs import SlurmOptions

    _print_job(context.args, SlurmOptions, setup=tuple(setup), **given)


def job_kubernetes(context: typer.Context, resource: list[str], **given: Any) -> None:
    """Print a manifest for kubectl. The options after -- are those of `commbench run`.

    torchrun starts the ranks in each pod; Kubeflow's operator starts the pods.

    \b
    commbench job kubernetes --nodes 2 --nproc-per-node 8 \\
        --image registry.example/commbench:1 --claim results -- --backend nccl
    commbench job kubernetes --nodes 2 --nproc-per-node 2 \\
        --image registry.example/commbench:1 --kind pytorchjob -- --backend gloo
    commbench job kubernetes --nodes 60 --spare 4 --preflight --nproc-per-node 8 \\
        --image registry.example/commbench:1 --output job.sh -- --backend nccl
    bash job.sh                       tests 64 nodes, and runs on 60 good ones
    """
    from commbench.runner.jobs import KubernetesOptions, parse_resources

    _print_job(context.args, KubernetesOptions, resources=parse_resources(resource), **given)


def _print_job(words: list[str], of: type[Any], output: Path | None, **given: Any) -> None:
    job = {n: given.pop(n) for n in ("nodes", "nproc_per_node", "gpus_per_node", "env")}
    from commbench.runner.jobs import make_job

    made = make_job(parse_words(words, "job"), words, **job, resources=given.get("resources", ()))
    print_or_write(of(**given).script(made), output)
    if made.note:
        print_status(made.note)
