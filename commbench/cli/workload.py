"""`commbench workload`: the collective calls of a training step, from its traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.cli.measuring_options import EXPERTS, TRANSFORMER

if TYPE_CHECKING:
    from commbench.spec.workload import Workload


def show(traces: list[Path], format: str) -> None:
    """Print how long the calls of a step take and wait.

    For each group and operation: calls, bytes, time without and with waiting. Then which rank
    waited for whom, and how much communication was not hidden behind computation.

    \b
    commbench workload show traces/
    commbench workload show rank0.json.gz rank1.json.gz --format json
    commbench workload show step.json
    """
    from commbench.api import workload as api
    from commbench.output.console import print_result
    from commbench.report import workload_text as text
    from commbench.results.workload_file import is_workload
    from commbench.validation import choose

    as_json = choose("format", format, {"table": False, "json": True})
    if len(traces) == 1 and is_workload(traces[0]):
        found = api.load(traces[0])
        shown = text.workload_json(found) if as_json else text.workload_text(found)
    else:
        with _progress() as report:
            analysis = api.analyse(*traces, report=report)
        shown = text.trace_json(analysis) if as_json else text.trace_text(analysis)
    print_result(json.dumps(shown, indent=1) if as_json else shown)


def import_(traces: list[Path], output: Path, name: str | None) -> None:
    """Write the calls of a step into a JSON file.

    The file has their groups, sizes, order and gaps.

    \b
    commbench workload import traces/ -o step.json
    """
    from commbench.api import workload as api
    from commbench.results.files import require_new

    require_new(output)
    with _progress() as report:
        found = api.load(*traces, name=name, report=report)
    _finish(found, output)


def _finish(made: Workload, output: Path | None) -> None:
    """Print a workload, and write it where a file is given."""
    from commbench.api import workload as api
    from commbench.output.console import print_result, print_status
    from commbench.report.workload_text import workload_text

    if output:
        api.save(made, output)
    print_result(workload_text(made))
    if output:
        print_status(f"the workload is in {output}")


def ddp(mesh: str, output: Path | None, **given: Any) -> None:
    """Generate the calls of a step with DistributedDataParallel.

    The group `world` has all ranks.

    \b
    commbench workload ddp --model resnet-50 --mesh dp=8 -o step.json
    commbench workload ddp --params 7B --layers 32 --hidden 4096 --mesh dp=8
    """
    from commbench.api import workload as api

    model, own = _split_model(given)
    _finish(api.ddp(model, ranks=_mesh_sizes(mesh, "dp")["dp"], **own), output)


def fsdp(mesh: str, reshard: bool, output: Path | None, **given: Any) -> None:
    """Generate the calls of a step with FSDP2 (fully_shard).

    \b
    commbench workload fsdp --model llama-3-8b --mesh dp_shard=64 -o step.json
    """
    from commbench.api import workload as api

    model, own = _split_model(given)
    sizes = _mesh_sizes(mesh, "dp_shard", "dp_replicate")
    made = api.fsdp(
        model, ranks=sizes["dp_shard"], replicas=sizes["dp_replicate"],
        reshard_after_forward=reshard, **own,
    )  # fmt: skip
    _finish(made, output)


def megatron(
    seq: int, dtype: str, reduce_dtype: str, bucket: str | None, output: Path | None, **given: Any
) -> None:
    """Generate the calls of a step with Megatron-LM.

    Groups of the table: `world` has all ranks, `edp` the ranks with the same experts, `embd` the
    first and the last stage of a pipeline, `pp+tp` the ranks of one copy of the model.

    \b
    commbench workload megatron --model llama-3-70b --mesh tp=8,pp=4,dp=2 \\
        --seq 8192 --micro-batches 16 -o step.json
    """
    from commbench.api import workload as api
    from commbench.spec.dtypes import find_dtype
    from commbench.units import parse_size

    model, own = _split_model(given)
    made = api.megatron(
        model, sequence=seq, dtype=find_dtype(dtype).name,
        gradient_dtype=find_dtype(reduce_dtype).name,
        bucket_bytes=None if bucket is None else parse_size(bucket), **own,
    )  # fmt: skip
    _finish(made, output)


def _split_model(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model that options describe, and the other options."""
    names = {**TRANSFORMER, **EXPERTS}.keys() & given.keys()
    model = _model(**{name: given[name] for name in names})
    return model, {name: value for name, value in given.items() if name not in names}


def _model(model: str | None, params: str | None, **numbers: int | None) -> Any:
    """The name of a public model, or the transformer of these numbers."""
    from commbench.errors import UsageError
    from commbench.training.models import find_transformer, make_transformer
    from commbench.units import parse_parameters

    given: dict[str, Any] = {key: value for key, value in numbers.items() if value is not None}
    if model is None:
        parameters = None if params is None else parse_parameters(params)
        return make_transformer(parameters=parameters, **given)
    if params is not None:
        raise UsageError("--model and --params both choose a model", "give one of them")
    return find_transformer(model)._replace(**given) if given else model


def _mesh_sizes(mesh: str, *names: str) -> dict[str, int]:
    """The sizes of these dimensions; the first one must be given, the others are 1."""
    from commbench.errors import UsageError
    from commbench.spec.groups import parse_mesh

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
