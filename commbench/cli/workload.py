"""`commbench workload`: the collective calls of a training step, from its traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

if TYPE_CHECKING:
    from commbench.spec.workload import Workload

workload = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Read the collective calls of a training step from its traces, or generate them.",
)
TRACES = Argument(
    metavar="TRACE...",
    help="Traces of the ranks, or a folder of them: torch.profiler (.json, .json.gz), flight "
    "recorder (pickle, JSON), Chakra (JSON), NCCL Inspector. Or the file of a workload.",
)


@workload.command()
def show(
    traces: list[Path] = TRACES,
    format_: str = Option("table", "--format", metavar="FORMAT", help="table or json."),
) -> None:
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

    as_json = choose("format", format_, {"table": False, "json": True})
    if len(traces) == 1 and is_workload(traces[0]):
        found = api.load(traces[0])
        shown = text.workload_json(found) if as_json else text.workload_text(found)
    else:
        with _progress() as report:
            analysis = api.analyse(*traces, report=report)
        shown = text.trace_json(analysis) if as_json else text.trace_text(analysis)
    print_result(json.dumps(shown, indent=1) if as_json else shown)


@workload.command("import")
def import_(
    traces: list[Path] = TRACES,
    output: Path = Option(..., "--output", "-o", metavar="FILE", help="New file: step.json."),
    name: str | None = Option(
        None, metavar="NAME", help="Name of the workload.  [default: that of the file or folder]"
    ),
) -> None:
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


def _optional(name: str, kind: type, *flags: str, metavar: str = "N", text: str) -> Parameter:
    """An option of several commands; None where it is not given."""
    option = Option(*flags, metavar=metavar, help=text)
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


TRANSFORMER = (
    _optional("model", str, metavar="NAME",
              text="A public model: llama-3-8b and others (docs/replay.md)."),
    _optional("params", str, metavar="NUMBER",
              text="Parameters: 350M, 7B, 7e9. The embedding gets what the layers leave."),
    _optional("layers", int, text="Layers of a transformer."),
    _optional("hidden", int, text="Its hidden size."),
    _optional("ffn", int, text="Inner size of its feed-forward network or of an expert."),
    _optional("heads", int, text="Heads.  [default: hidden size / 128]"),
    _optional("kv_heads", int, text="Heads of keys and values.  [default: as many]"),
    _optional("vocab", int, text="Size of the vocabulary."),
)  # fmt: skip
EXPERTS = (
    _optional("experts", int, text="Experts of a layer.  [default: none]"),
    _optional("top_k", int, metavar="K", text="Experts that get a token."),
)
RANKS_PER_NODE = Option(None, metavar="N", help="Ranks on each host.")
NEW_FILE = _optional("output", Path, "--output", "-o", metavar="FILE", text="New file: step.json.")


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


def _generates(*model: Parameter) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that generates a workload. The command has the options of a
    model, with which it makes the first argument, and prints and stores the workload."""

    def make_command(generate: Callable[..., Any]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            output = given.pop("output")
            chosen = _model(**{option.name: given.pop(option.name) for option in model})
            made = generate(chosen, **given)
            _finish(made, output)

        _, mesh, *own = signature(generate, eval_str=True).parameters.values()
        command.__name__, command.__doc__ = generate.__name__, generate.__doc__
        command.__signature__ = Signature(  # type: ignore[attr-defined]
            [mesh, *model, *own, NEW_FILE]
        )
        return workload.command()(command)

    return make_command


@_generates(*TRANSFORMER)
def ddp(
    model: Any,
    *,
    mesh: str = Option(metavar="DIMENSIONS", help="Ranks: dp=8."),
    dtype: str = Option("float32", metavar="DTYPE", help="Of parameters and gradients."),
    bucket: str | None = Option(
        None,
        metavar="SIZE",
        help="bucket_cap_mb as a size.  [default: 25M, and 1M for the first bucket]",
    ),
    ranks_per_node: int | None = RANKS_PER_NODE,
) -> Any:
    """Generate the calls of a step with DistributedDataParallel.

    The group `world` has all ranks.

    \b
    commbench workload ddp --model resnet-50 --mesh dp=8 -o step.json
    commbench workload ddp --params 7B --layers 32 --hidden 4096 --mesh dp=8
    """
    from commbench.api import workload as api

    ranks = _mesh_sizes(mesh, "dp")["dp"]
    return api.ddp(model, ranks=ranks, ranks_per_node=ranks_per_node, bucket=bucket, dtype=dtype)


@_generates(*TRANSFORMER)
def fsdp(
    model: Any,
    *,
    mesh: str = Option(
        metavar="DIMENSIONS", help="Ranks: dp_shard=8, or dp_replicate=2,dp_shard=8."
    ),
    dtype: str = Option("bfloat16", metavar="DTYPE", help="param_dtype of MixedPrecisionPolicy."),
    reduce_dtype: str = Option(
        "float32", metavar="DTYPE", help="reduce_dtype of MixedPrecisionPolicy."
    ),
    reshard: bool = Option(
        True, "--reshard/--no-reshard", help="reshard_after_forward of the blocks."
    ),
    ranks_per_node: int | None = RANKS_PER_NODE,
) -> Any:
    """Generate the calls of a step with FSDP2 (fully_shard).

    \b
    commbench workload fsdp --model llama-3-8b --mesh dp_shard=64 -o step.json
    """
    from commbench.api import workload as api

    sizes = _mesh_sizes(mesh, "dp_shard", "dp_replicate")
    return api.fsdp(
        model, ranks=sizes["dp_shard"], replicas=sizes["dp_replicate"], dtype=dtype,
        reduce_dtype=reduce_dtype, reshard_after_forward=reshard, ranks_per_node=ranks_per_node,
    )  # fmt: skip


@_generates(*TRANSFORMER, *EXPERTS)
def megatron(
    model: Any,
    *,
    mesh: str = Option(
        metavar="DIMENSIONS", help="Sizes of tp, cp, dp, pp and ep: tp=4,pp=2,dp=8."
    ),
    seq: int = Option(4096, metavar="TOKENS", help="Tokens of a sequence."),
    micro_batch: int = Option(1, metavar="N", help="Sequences of a micro-batch."),
    micro_batches: int = Option(1, metavar="N", help="Micro-batches of a step, on each dp rank."),
    dtype: str = Option("bfloat16", metavar="DTYPE", help="Of activations and parameters."),
    reduce_dtype: str = Option("float32", metavar="DTYPE", help="In which gradients are reduced."),
    sequence_parallel: bool = Option(
        True, "--sequence-parallel/--no-sequence-parallel", help="With tp."
    ),
    distributed_optimizer: bool = Option(
        True,
        "--distributed-optimizer/--no-distributed-optimizer",
        help="Reduce-scatter gradients and gather parameters, or all-reduce gradients.",
    ),
    bucket: str | None = Option(
        None,
        metavar="SIZE",
        help="Bytes of a bucket of gradients.  [default: of max(40e6, 1e6 x dp) parameters]",
    ),
    ranks_per_node: int | None = RANKS_PER_NODE,
) -> Any:
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

    return api.megatron(
        model, mesh=mesh, ranks_per_node=ranks_per_node, sequence=seq, micro_batch=micro_batch,
        micro_batches=micro_batches, dtype=find_dtype(dtype).name,
        gradient_dtype=find_dtype(reduce_dtype).name, sequence_parallel=sequence_parallel,
        distributed_optimizer=distributed_optimizer,
        bucket_bytes=None if bucket is None else parse_size(bucket),
    )  # fmt: skip


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
