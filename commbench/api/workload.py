"""Workloads from Python: the collective calls of a training step, as `commbench.workload`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.api.runs import ignore
from commbench.errors import RecordsError, UsageError
from commbench.plan import workload
from commbench.plan.dtypes import find_dtype
from commbench.results.files import is_workload, read_workload, write_workload
from commbench.units import parse_size
from commbench.validation import brief, require_known, require_within, with_known_keywords
from commbench.views.formats import Result

if TYPE_CHECKING:
    import torch

    from commbench.workloads.models import Model, Transformer
    from commbench.workloads.trace import TraceAnalysis

__all__ = ["Workload", "analyse", "ddp", "fsdp", "load", "megatron", "save"]
_Report = Callable[[str, float], None]


def __dir__() -> list[str]:
    return __all__


class Workload(Result, workload.Workload, view="workloads.document", rows="operations"):
    """The calls of a training step: names, sizes, groups, gaps."""

    __slots__ = ()


@with_known_keywords
def analyse(*traces: str | Path, report: _Report = lambda _, __: ignore("")) -> TraceAnalysis:
    """What the traces of a job say: the figures of each operation, who waits for whom, and how much
    communication is exposed.

    Each of `traces` is the file of a rank, or a folder of such files: traces of torch.profiler,
    dumps of the flight recorder, Chakra execution traces in JSON, or output of NCCL Inspector.
    `report` is called with the name of a file and the part of all that was read, 0 to 1. Raises
    RecordsError for a file that cannot be read.
    """
    from commbench.readers.trace_formats import read_traces
    from commbench.workloads.trace import analyse_traces

    _require_files(traces)
    return analyse_traces(read_traces([Path(trace) for trace in traces], report))


def _require_files(paths: Sequence[str | Path]) -> None:
    if not paths:
        raise UsageError("no file is given", "give a workload, or traces")


@with_known_keywords
def load(
    *paths: str | Path, name: str | None = None, report: _Report = lambda _, __: ignore("")
) -> Workload:
    """The workload in a file that `commbench workload` wrote, or that of traces, as `analyse` takes
    them. `name` is by default that of the file, or of the folder of several files. Raises
    RecordsError for a file that cannot be read, for traces without a common step, and for those
    of which no call has a size."""
    _require_files(paths)
    first = Path(paths[0])
    if len(paths) == 1 and is_workload(first):
        found = read_workload(first)
        return Workload(*(found._replace(name=name) if name else found))
    named = first if len(paths) == 1 else first.resolve().parent
    default = named.name.partition(".")[0] or named.resolve().name
    analysis = analyse(*paths, report=report)
    found = analysis.workload
    if not found.steps:
        why = "no whole step is in the traces of all ranks"
        raise RecordsError(why, "trace the same steps on all ranks, and let each profiler end")
    if all(call.size_bytes is None for _, _, call in found.calls()):
        cut = next((trace.path for trace in analysis.traces if trace.is_cut), "")
        raise RecordsError(
            "the traces have no call of known size, so there is nothing to replay",
            f"{cut} ends early: let each profiler end" if cut
            else "trace steps with collective calls, and profile with record_shapes=True",
        )  # fmt: skip
    return Workload(*found._replace(name=(name or default)[:200]))


@with_known_keywords
def save(workload: workload.Workload, path: str | Path) -> None:
    """Write a workload into a new file; raises RecordsError where that is not possible."""
    write_workload(Path(path), workload)


@with_known_keywords
def ddp(
    model: torch.nn.Module | Model | Transformer | str,
    *,
    ranks: int,
    ranks_per_node: int | None = None,
    bucket: str | int | None = None,
    dtype: str | None = None,
    broadcast_buffers: bool = True,
    loss: Callable[[torch.nn.Module], torch.Tensor] | None = None,
) -> Workload:
    """The calls of a step with DistributedDataParallel, as from the second step on.

    `bucket` is bucket_cap_mb as a size: `25M`; None is torch's default, with a first bucket of
    1 MiB. `dtype` is that of parameters of a model that is given by name. `loss(module)` computes a
    loss; from its backward pass follows the order of the gradients. Without it, the reverse order
    of the parameters is taken. Raises UsageError for a model or a value that makes no sense.
    """
    from commbench.workloads.frameworks import ddp_workload

    size = parse_size(bucket) if isinstance(bucket, str) else bucket
    return Workload(*ddp_workload(
        _model(model, dtype, ranks, loss=loss), ranks=ranks, ranks_per_node=ranks_per_node,
        bucket_bytes=size, broadcast_buffers=broadcast_buffers,
    ))  # fmt: skip


@with_known_keywords
def fsdp(
    model: torch.nn.Module | Model | Transformer | str,
    *,
    ranks: int,
    replicas: int = 1,
    ranks_per_node: int | None = None,
    dtype: str | None = None,
    reduce_dtype: str | None = None,
    reshard_after_forward: bool = True,
    blocks: Sequence[str] | None = None,
) -> Workload:
    """The calls of a step with FSDP2 (fully_shard).

    `ranks` share the parameters, in each of `replicas` (HSDP). `dtype` and `reduce_dtype` are
    param_dtype and reduce_dtype of MixedPrecisionPolicy; None: those of the parameters and of the
    gradients. `blocks` names the submodules that are gathered on their own; None: those to which
    fully_shard was applied, else the items of every ModuleList. Raises UsageError for a model or a
    value that makes no sense.
    """
    from commbench.workloads.frameworks import fsdp_workload

    require_within("replicas", replicas, 1, 1e7)
    return Workload(*fsdp_workload(
        _model(model, None, ranks, blocks=blocks), ranks=ranks, replicas=replicas,
        ranks_per_node=ranks_per_node, dtype=dtype and find_dtype(dtype).name,
        reduce_dtype=reduce_dtype and find_dtype(reduce_dtype).name,
        reshard=reshard_after_forward,
    ))  # fmt: skip


@with_known_keywords
def megatron(
    model: Transformer | str, *, mesh: str, ranks_per_node: int | None = None, **training: Any
) -> Workload:
    """The calls of a step with Megatron-LM's parallel dimensions.

    `mesh` has the sizes of tp, cp, dp, pp and ep: `tp=4,pp=2,dp=8`. `training` has fields of
    workloads.megatron_calls.Training: sequence, micro_batch, micro_batches, dtype, gradient_dtype,
    sequence_parallel, distributed_optimizer, bucket_bytes. Raises UsageError for sizes that do not
    divide the model.
    """
    from commbench.workloads.frameworks import megatron_workload
    from commbench.workloads.megatron_calls import Training
    from commbench.workloads.models import find_transformer

    require_known("argument", (*training, "dtype"), [*Training._fields])
    shape = find_transformer(model) if isinstance(model, str) else model
    made = megatron_workload(shape, Training(**training), mesh=mesh, ranks_per_node=ranks_per_node)
    return Workload(*made)


def _model(model: Any, dtype: str | None, ranks: int, **how: Any) -> Model:
    """The model that is meant; UsageError for what is none, and for ranks below 1."""
    from commbench.workloads.models import Model, Transformer, find_model, read_module

    require_within("ranks", ranks, 1, 1e7)
    if isinstance(model, Model):
        return model
    if isinstance(model, str | Transformer):
        name = find_dtype(dtype or "float32").name
        return find_model(model, name) if isinstance(model, str) else model.model(name)
    if not hasattr(model, "named_parameters"):
        raise UsageError(f"{brief(model)} is no model", "give a torch module, or a model's name")
    return read_module(model, **how)
