"""The commands with subcommands: `history`, runs over time; `model`, cost models of a machine;
`workload`, the collective calls of a training step, from its traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commbench import api
from commbench.cli.commands import Show
from commbench.cli.measuring_options import EXPERTS, TRANSFORMER
from commbench.errors import UsageError
from commbench.output.console import print_result, print_status
from commbench.output.text import fill, list_some
from commbench.plan.dtypes import find_dtype
from commbench.plan.groups import parse_mesh
from commbench.plan.workload import TOTALS, Workload
from commbench.results.files import is_workload, require_new
from commbench.units import format_count, parse_parameters, parse_size
from commbench.views.formats import choose_format, print_or_write


def history_add(runs: list[str], **given: Any) -> None:
    """Add runs to the history; a folder of runs is taken in at once.

    A run that is there already stays. `commbench run --history` adds its run itself.

    \b
    commbench history add results
    commbench history add mine
    commbench history add mine --node cluster-a      # where its nodes change
    """
    from commbench.answers.history.store import KNOWN

    added = api.history.add(*runs, **given, notify=print_status)
    new = [each for each in added if each.outcome != KNOWN]
    rows = format_count(sum(each.rows for each in new), "row")
    waited = sum(each.waited for each in new)
    rows += f"; {waited} do not count: their ranks waited for a core" * bool(waited)
    print_result(f"{format_count(len(new), 'run')} added, with {rows}")


def history_list(show: Show, **given: Any) -> None:
    """List the runs of the history, the newest first.

    \b
    commbench history list
    """
    show(api.history.list_(**given))


def history_show(show: Show, format: str | None, output: Path | None, **given: Any) -> None:
    """Say what became slower or faster, when, and what changed then.

    A step is a lasting change of the time of a row, beyond the noise of its history.

    \b
    commbench history show
    commbench history show --op all_reduce --size 1M,4M --node node1
    commbench history show -o history.html  # with pictures over time
    commbench history show -o history.png   # only the picture
    """
    from commbench.views.draw import is_drawn

    if is_drawn(output, format):
        print_result(api.history.show(**given).plot(output).paths[0])
    else:
        show(api.history.show(**given), format_=format, output=output)


def history_export(output: Path | None, **given: Any) -> None:
    """Write all points as CSV, in SI units, for another program.

    \b
    commbench history export -o history.csv
    commbench history export --op all_reduce
    """
    print_or_write(api.history.export(**given), output)


def history_accept(run: str, **given: Any) -> None:
    """Make the times of a run, and of those after it, the usual ones.

    A check against the history compares with what was usual before calls became slower, so it fails
    until you accept the new times. To undo that, accept the first run of the same system.

    \b
    commbench history accept 17
    """
    found = api.history.accept(run, **given)
    said = f"the usual level begins with run {found.id} ({found.time:%Y-%m-%d %H:%M} UTC)"
    if found.id not in api.history.list_(db=given["db"]).accepted:
        said += ", its first one: nothing is accepted any more"
    print_result(fill(f"{found.system.name}: {said}"))


def history_forget(runs: list[str], **given: Any) -> None:
    """Remove runs from the history, such as those of a trial. Run folders stay.

    \b
    commbench history forget 17 18  # numbers of `commbench history list`
    commbench history forget trial  # all runs of this label
    commbench history forget --node node7
    """
    accepted: list[str] = []
    found = api.history.forget(*runs, **given, notify=accepted.append)
    nodes, labels = (
        list_some([*dict.fromkeys(names)], 4)
        for names in ([run.system.node for run in found], [run.label for run in found])
    )
    removed = f"{format_count(len(found), 'run')} of {nodes} removed: {labels}"
    print_result(fill("; ".join([removed, *accepted])))


def model_fit(show: Show, runs: list[str], output: Path | None, **given: Any) -> None:
    """Fit cost models to measured times, and choose the best one.

    It has the least error at times that were left out of the fit. Prints, for each operation within
    a host and across hosts, the model, its parameters with 95 % intervals, its error, and the
    models that the data cannot tell from it.

    \b
    commbench model fit two four six -o machine.json
    commbench model fit published.csv -o h100.json --leave-out ranks=512-
    """
    show(api.fit_model(*runs, output=output, **given, notify=print_status), output=None)
    if output is not None:
        print_status(output)
        print_status(output.with_suffix(".png"))


def model_show(show: Show, machine: str) -> None:
    """Show the models of a machine, as text or as a page.

    \b
    commbench model show machine.json
    commbench model show machine.json -o machine.html
    commbench model show published:h100
    """
    from commbench.api.foresee import load_machine

    show(load_machine(machine))


def model_predict(
    show: Show, machine: str, format: str | None, output: Path | None, **given: Any
) -> None:
    """Predict times, with intervals, for other ranks and sizes.

    \b
    commbench model predict machine.json --op all_reduce --ranks 512 \\
        --ranks-per-node 8 --sizes 1M-1G
    commbench model predict published:h100 --ranks 8 --sizes 1M-512M
    commbench model predict machine.json --ranks 8-4096 --format csv -o p.csv
    commbench model predict machine.json --ranks 8-4096 -o predicted.png
    """
    from commbench.answers.cost.predict_document import warnings_beside
    from commbench.views.draw import is_drawn

    has_picture = is_drawn(output, format)
    found = api.predict(machine, **given)
    if has_picture:
        print_result(found.plot(output).paths[0])
        format = "csv"  # which has no warnings either
    else:
        show(found, format_=format, output=output)
    for warning in warnings_beside(found, choose_format(format, output)):
        print_status(f"warning: {warning}")


def workload_show(show: Show, traces: list[Path], output: Path | None) -> None:
    """Print how long the calls of a step take and wait.

    For each group and operation: calls, bytes, time without and with waiting. Then which rank
    waited for whom, and how much communication was not hidden behind computation.

    \b
    commbench workload show traces/
    commbench workload show rank0.json.gz rank1.json.gz --format json
    commbench workload show step.json -o step.html
    """
    if output is not None:
        require_new(output)
    if len(traces) == 1 and is_workload(traces[0]):
        show(api.workload.load(traces[0]), output=output)
    else:
        with _progress() as report:
            analysis = api.workload.analyse(*traces, report=report)
        show(analysis, output=output)
    if output is not None and output.suffix == ".json":
        print_status(f"It has the {TOTALS}: `commbench workload import` writes those.")


def workload_import(show: Show, traces: list[Path], output: Path, name: str | None) -> None:
    """Write the calls of a step into a JSON file.

    The file has their groups, sizes, order and gaps.

    \b
    commbench workload import traces/ -o step.json
    """
    require_new(output)
    with _progress() as report:
        found = api.workload.load(*traces, name=name, report=report)
    _finish(show, found, output)


def _finish(show: Show, made: Workload, output: Path | None) -> None:
    """Print a workload, and write it where a file is given."""
    if output:
        api.workload.save(made, output)
    show(made)
    if output:
        print_status(f"the workload is in {output}")


def workload_ddp(show: Show, mesh: str, output: Path | None, **given: Any) -> None:
    """Generate the calls of a step with DistributedDataParallel.

    The group `world` has all ranks.

    \b
    commbench workload ddp --model resnet-50 --mesh dp=8 -o step.json
    commbench workload ddp --params 7B --layers 32 --hidden 4096 --mesh dp=8
    """
    model = _model(given)
    _finish(show, api.workload.ddp(model, ranks=_mesh_sizes(mesh, "dp")["dp"], **given), output)


def workload_fsdp(show: Show, mesh: str, reshard: bool, output: Path | None, **given: Any) -> None:
    """Generate the calls of a step with FSDP2 (fully_shard).

    \b
    commbench workload fsdp --model llama-3-8b --mesh dp_shard=64 -o step.json
    """
    model = _model(given)
    sizes = _mesh_sizes(mesh, "dp_shard", "dp_replicate")
    made = api.workload.fsdp(
        model, ranks=sizes["dp_shard"], replicas=sizes["dp_replicate"],
        reshard_after_forward=reshard, **given,
    )  # fmt: skip
    _finish(show, made, output)


def workload_megatron(
    show: Show, seq: int, dtype: str, reduce_dtype: str, bucket: str | None, output: Path | None,
    **given: Any,
) -> None:  # fmt: skip
    """Generate the calls of a step with Megatron-LM.

    Groups of the table: `world` has all ranks, `edp` the ranks with the same experts, `embd` the
    first and the last stage of a pipeline, `pp+tp` the ranks of one copy of the model.

    \b
    commbench workload megatron --model llama-3-70b --mesh tp=8,pp=4,dp=2 \\
        --seq 8192 --micro-batches 16 -o step.json
    """
    model = _model(given)
    made = api.workload.megatron(
        model, sequence=seq, dtype=find_dtype(dtype).name,
        gradient_dtype=find_dtype(reduce_dtype).name,
        bucket_bytes=None if bucket is None else parse_size(bucket), **given,
    )  # fmt: skip
    _finish(show, made, output)


def _model(given: dict[str, Any]) -> Any:
    """The name of a public model, or the transformer, that options describe; takes these out of
    `given`."""
    from commbench.workloads.models import find_transformer, make_transformer

    own = {name: given.pop(name) for name in (*TRANSFORMER, *EXPERTS) if name in given}
    model, params = own.pop("model"), own.pop("params")
    numbers = {name: value for name, value in own.items() if value is not None}
    if model is None:
        return make_transformer(parameters=params and parse_parameters(params), **numbers)
    if params is not None:
        raise UsageError("--model and --params both choose a model", "give one of them")
    return find_transformer(model)._replace(**numbers) if numbers else model


def _mesh_sizes(mesh: str, *names: str) -> dict[str, int]:
    """The sizes of these dimensions; the first one must be given, the others are 1."""
    sizes = parse_mesh(mesh)
    if others := [name for name in sizes if name not in names]:
        hint = f"write --mesh {names[0]}=8"
        if others[0] in ("tp", "cp", "pp", "ep"):
            hint += "; commbench workload megatron takes tp, cp, dp, pp and ep"
        raise UsageError(f"--mesh {mesh}: {others[0]} is not a dimension here", hint)
    if sizes.get(names[0], -1) < 1 or min(sizes.values()) < 1:
        raise UsageError(f"--mesh {mesh} does not say all sizes", f"write --mesh {names[0]}=8")
    return dict.fromkeys(names, 1) | sizes


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """What reports the reading of traces: nothing is shown for those that are read at once."""
    from commbench.output.progress import work_listener

    listener = work_listener(0, 1, has_cases=False, doing="reading")

    def report(name: str, done: float) -> None:
        listener.started(name)
        listener.advanced(done)

    try:
        yield report
    finally:
        listener.close()
