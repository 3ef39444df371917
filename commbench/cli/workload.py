"""`commbench workload`: the collective calls of a training step, from its traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

if TYPE_CHECKING:
    from commbench.spec.workload import Workload

workload = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Read the collective calls of a training step from its traces, and store them.",
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
    """Print what the calls of a step took and waited.

    For each group and operation: calls, bytes, time without and with waiting. Then which rank
    waited for whom, and how much communication was not hidden behind computation.

    \b
    commbench workload show traces/
    commbench workload show rank0.json.gz rank1.json.gz --format json
    commbench workload show step.json
    """
    from commbench.api import workload as api
    from commbench.output.console import print_result
    from commbench.report.workload_text import trace_json, trace_text, workload_text
    from commbench.results.workload_file import is_workload
    from commbench.spec.workload import workload_values
    from commbench.validation import choose

    as_json = choose("format", format_, {"table": False, "json": True})
    if len(traces) == 1 and is_workload(traces[0]):
        found = api.load(traces[0])
        print_result(json.dumps(workload_values(found)) if as_json else workload_text(found))
        return
    with _progress() as report:
        analysis = api.analyse(*traces, report=report)
    print_result(json.dumps(trace_json(analysis), indent=1) if as_json else trace_text(analysis))


@workload.command("import")
def import_(
    traces: list[Path] = TRACES,
    output: Path = Option(..., "--output", "-o", metavar="FILE", help="New file: step.json."),
    name: str | None = Option(
        None, metavar="NAME", help="Name of the workload.  [default: that of the file or folder]"
    ),
) -> None:
    """Write the calls of a step into a JSON file.

    It has their groups, sizes, order and gaps.

    \b
    commbench workload import traces/ -o step.json
    """
    from commbench.api import workload as api
    from commbench.output.console import print_result, print_status
    from commbench.report.workload_text import workload_text
    from commbench.results.files import require_new

    require_new(output)
    with _progress() as report:
        found = api.load(*traces, name=name, report=report)
    api.save(found, output)
    print_result(workload_text(found))
    print_status(f"the workload is in {output}")


MODEL = Option(
    None, "--model", metavar="NAME", help="A public model: llama-3-8b and others (docs/replay.md)."
)
PARAMS = Option(
    None,
    "--params",
    metavar="N",
    help="Number of parameters: 7e9. The embedding gets what the layers leave.",
)
LAYERS = Option(None, metavar="N", help="Layers of a transformer.")
HIDDEN = Option(None, metavar="N", help="Its hidden size.")
FFN = Option(None, metavar="N", help="Inner size of its feed-forward network or of an expert.")
HEADS = Option(None, metavar="N", help="Heads.  [default: hidden size / 128]")
KV_HEADS = Option(None, metavar="N", help="Heads of keys and values.  [default: as many]")
VOCAB = Option(None, metavar="N", help="Size of the vocabulary.")
EXPERTS = Option(None, metavar="N", help="Experts of a layer.  [default: none]")
TOP_K = Option(None, "--top-k", metavar="K", help="Experts that get a token.")
RANKS_PER_NODE = Option(None, "--ranks-per-node", metavar="N", help="Ranks on each host.")
NEW_FILE = Option(None, "--output", "-o", metavar="FILE", help="New file: step.json.")


@workload.command()
def ddp(
    mesh: str = Option(metavar="DIMENSIONS", help="Ranks: dp=8."),
    model: str | None = MODEL,
    params: float | None = PARAMS,
    layers: int | None = LAYERS,
    hidden: int | None = HIDDEN,
    ffn: int | None = FFN,
    heads: int | None = HEADS,
    kv_heads: int | None = KV_HEADS,
    vocab: int | None = VOCAB,
    dtype: str = Option("float32", metavar="DTYPE", help="Of parameters and gradients."),
    bucket: str | None = Option(
        None,
        metavar="SIZE",
        help="bucket_cap_mb as a size.  [default: 25M, and 1M for the first bucket]",
    ),
    ranks_per_node: int | None = RANKS_PER_NODE,
    output: Path | None = NEW_FILE,
) -> None:
    """Generate the calls of a step with DistributedDataParallel.

    \b
    commbench workload ddp --model resnet-50 --mesh dp=8 -o step.json
    commbench workload ddp --params 7e9 --layers 32 --hidden 4096 --mesh dp=8
    """
    from commbench.api import workload as api

    chosen = _model(model, params, layers=layers, hidden=hidden, ffn=ffn, heads=heads,
                    kv_heads=kv_heads, vocab=vocab)  # fmt: skip
    sizes = _mesh_sizes(mesh, "dp")
    _finish(
        api.ddp(chosen, ranks=sizes["dp"], ranks_per_node=ranks_per_node, bucket=bucket,
                dtype=dtype),
        output,
    )  # fmt: skip


@workload.command()
def fsdp(
    mesh: str = Option(
        metavar="DIMENSIONS", help="Ranks: dp_shard=8, or dp_replicate=2,dp_shard=8."
    ),
    model: str | None = MODEL,
    params: float | None = PARAMS,
    layers: int | None = LAYERS,
    hidden: int | None = HIDDEN,
    ffn: int | None = FFN,
    heads: int | None = HEADS,
    kv_heads: int | None = KV_HEADS,
    vocab: int | None = VOCAB,
    dtype: str = Option("bfloat16", metavar="DTYPE", help="param_dtype of MixedPrecisionPolicy."),
    reduce_dtype: str = Option(
        "float32", "--reduce-dtype", metavar="DTYPE", help="reduce_dtype of MixedPrecisionPolicy."
    ),
    reshard: bool = Option(
        True, "--reshard/--no-reshard", help="reshard_after_forward of the blocks."
    ),
    ranks_per_node: int | None = RANKS_PER_NODE,
    output: Path | None = NEW_FILE,
) -> None:
    """Generate the calls of a step with FSDP2 (fully_shard).

    \b
    commbench workload fsdp --model llama-3-8b --mesh dp_shard=64 -o step.json
    """
    from commbench.api import workload as api

    chosen = _model(model, params, layers=layers, hidden=hidden, ffn=ffn, heads=heads,
                    kv_heads=kv_heads, vocab=vocab)  # fmt: skip
    sizes = _mesh_sizes(mesh, "dp_shard", "dp_replicate")
    _finish(
        api.fsdp(chosen, ranks=sizes["dp_shard"], replicas=sizes["dp_replicate"], dtype=dtype,
                 reduce_dtype=reduce_dtype, reshard_after_forward=reshard,
                 ranks_per_node=ranks_per_node),
        output,
    )  # fmt: skip


@workload.command()
def megatron(
    mesh: str = Option(
        metavar="DIMENSIONS", help="Sizes of tp, cp, dp, pp and ep: tp=4,pp=2,dp=8."
    ),
    model: str | None = MODEL,
    params: float | None = PARAMS,
    layers: int | None = LAYERS,
    hidden: int | None = HIDDEN,
    ffn: int | None = FFN,
    heads: int | None = HEADS,
    kv_heads: int | None = KV_HEADS,
    vocab: int | None = VOCAB,
    experts: int | None = EXPERTS,
    top_k: int | None = TOP_K,
    seq: int = Option(4096, metavar="TOKENS", help="Tokens of a sequence."),
    micro_batch: int = Option(1, "--micro-batch", metavar="N", help="Sequences of a micro-batch."),
    micro_batches: int = Option(
        1, "--micro-batches", metavar="N", help="Micro-batches of a step, on each dp rank."
    ),
    dtype: str = Option("bfloat16", metavar="DTYPE", help="Of activations and parameters."),
    reduce_dtype: str = Option(
        "float32", "--reduce-dtype", metavar="DTYPE", help="In which gradients are reduced."
    ),
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
    output: Path | None = NEW_FILE,
) -> None:
    """Generate the calls of a step with Megatron-LM's parallel dimensions.

    \b
    commbench workload megatron --model llama-3-70b --mesh tp=8,pp=4,dp=2 \\
        --seq 8192 --micro-batches 16 -o step.json
    """
    from commbench.api import workload as api
    from commbench.spec.dtypes import find_dtype
    from commbench.training.models import Transformer, find_transformer
    from commbench.units import parse_size

    chosen = _model(model, params, layers=layers, hidden=hidden, ffn=ffn, heads=heads,
                    kv_heads=kv_heads, vocab=vocab, experts=experts, top_k=top_k)  # fmt: skip
    made = api.megatron(
        chosen if isinstance(chosen, Transformer) else find_transformer(chosen),
        mesh=mesh, ranks_per_node=ranks_per_node, sequence=seq, micro_batch=micro_batch,
        micro_batches=micro_batches, dtype=find_dtype(dtype).name,
        gradient_dtype=find_dtype(reduce_dtype).name, sequence_parallel=sequence_parallel,
        distributed_optimizer=distributed_optimizer,
        bucket_bytes=None if bucket is None else parse_size(bucket),
    )  # fmt: skip
    _finish(made, output)


def _model(name: str | None, parameters: float | None, **numbers: int | None) -> Any:
    """The name of a public model, or the transformer of these numbers."""
    from commbench.errors import UsageError
    from commbench.training.models import find_transformer, make_transformer

    given: dict[str, Any] = {key: value for key, value in numbers.items() if value is not None}
    if name is None:
        return make_transformer(parameters=parameters, **given)
    if parameters is not None:
        raise UsageError("--model and --params both choose a model", "give one of them")
    return find_transformer(name)._replace(**given) if given else name


def _mesh_sizes(mesh: str, *names: str) -> dict[str, int]:
    """The sizes of these dimensions; the first one must be given, the others are 1."""
    from commbench.errors import UsageError
    from commbench.spec.groups import parse_mesh

    sizes = parse_mesh(mesh)
    if others := [name for name in sizes if name not in names]:
        raise UsageError(
            f"--mesh {mesh}: {others[0]} is not a dimension here",
            f"write --mesh {names[0]}=8; commbench workload megatron takes tp, cp, dp, pp and ep",
        )
    if sizes.get(names[0], -1) < 1 or min(sizes.values()) < 1:
        raise UsageError(f"--mesh {mesh} does not say all sizes", f"write --mesh {names[0]}=8")
    return dict.fromkeys(names, 1) | sizes


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
