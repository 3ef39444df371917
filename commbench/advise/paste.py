"""Lines that choose what is recommended: of a shell, or of Python, where `dist` is
torch.distributed."""

from __future__ import annotations

from shlex import quote

from commbench.advise.buckets import MIB
from commbench.spec.call_forms import CALL_FORMS
from commbench.spec.case import Case
from commbench.spec.operations import OPERATIONS
from commbench.spec.workload_variants import BUCKET, COMPOSED
from commbench.sweep.settings import UNSET, Setting
from commbench.units import parse_size

_FORMS: dict[str, tuple[str, ...]] = {
    "direct": ("dist.{call}",),
    "separate": ("for {tensors}:", "    dist.{call}"),
    "async": (
        "works = [dist.{started} for {tensors}]",
        "for work in works:",
        "    work.wait()",
    ),
    "coalesced": (
        "with dist.distributed_c10d._coalescing_manager(group, device):",
        "    for {tensors}:",
        "        dist.{call}",
    ),
    "flat": ("dist.{call}  # of one tensor, whose parts are the tensors",),
    "reduce_scatter+all_gather": (
        "block = tensor.new_empty(tensor.numel() // dist.get_world_size())",
        "dist.reduce_scatter_tensor(block, tensor)",
        "dist.all_gather_into_tensor(tensor, block)",
    ),
    "scatter+all_gather": (
        "block = tensor.new_empty(tensor.numel() // dist.get_world_size())",
        "blocks = list(tensor.chunk(dist.get_world_size()))",
        "dist.scatter(block, blocks if dist.get_rank() == 0 else None, src=0)",
        "dist.all_gather_into_tensor(tensor, block)",
    ),
    "reduce+broadcast": ("dist.reduce(tensor, dst=0)", "dist.broadcast(tensor, src=0)"),
    "isend+irecv": (
        "calls = [dist.P2POp(dist.isend, send[peer], peer) for peer in peers]",
        "calls += [dist.P2POp(dist.irecv, receive[peer], peer) for peer in peers]",
        "for work in dist.batch_isend_irecv(calls):",
        "    work.wait()",
    ),
}
"""The lines of forms of a call (spec.call_forms). `{call}` is the operation's own call."""
_FLAT_COPY = (
    "flat = torch.cat([tensor.reshape(-1) for tensor in tensors])",
    "dist.all_reduce(flat)",
    "parts = flat.split([tensor.numel() for tensor in tensors])",
    "for tensor, part in zip(tensors, parts):",
    "    tensor.copy_(part.view_as(tensor))",
)


def form_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """The calls of a form."""
    form = dict(setting.options)["form"]
    operation = OPERATIONS[case.operation]
    has_two = operation.torch_call.endswith(("_tensor", "_single"))
    arguments = "output, input" if has_two else "tensor"
    names = {
        "call": f"{operation.torch_call}({arguments})",
        "started": f"{operation.torch_call}({arguments}, async_op=True)",
        "tensors": "output, input in pairs" if has_two else "tensor in tensors",
    }
    if form == "flat_copy" and not operation.blocks:
        return _FLAT_COPY
    if form not in _FORMS:
        return (f"# {CALL_FORMS[form].summary}",)
    return tuple(line.format_map(names) for line in _FORMS[form])


def graph_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """A call that a graph repeats, or one without."""
    (call,) = form_lines(Setting(options=(("form", "direct"),)), case)
    if dict(setting.options)["launch"] == "eager":
        return (call,)
    return (
        "graph = torch.cuda.CUDAGraph()",
        "with torch.cuda.graph(graph):",
        f"    {call}",
        "graph.replay()",
    )


def memory_lines(setting: Setting, case: Case) -> tuple[str, ...]:  # noqa: ARG001
    """How a tensor is allocated in a kind of memory."""
    kind = dict(setting.options)["memory"]
    if kind == "default":
        return ('tensor = torch.empty(count, device="cuda")',)
    symm = ", symm=True" if kind == "symmetric" else ""
    return (
        'backend = dist.group.WORLD._get_backend(torch.device("cuda"))',
        "pool = torch.cuda.MemPool(backend.mem_allocator)",
        "with torch.cuda.use_mem_pool(pool):",
        '    tensor = torch.empty(count, device="cuda")',
        f"backend.register_mem_pool(pool{symm})",
    )


def variant_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """How a program makes the calls of a variant of its step; none for those that it makes."""
    variant = dict(setting.options)["variant"]
    name, _, size = variant.partition(":")
    if name == BUCKET:
        return (bucket_line(parse_size(size)),)
    if variant == COMPOSED.name:
        reduction = case._replace(operation=COMPOSED.operations[0])
        return form_lines(Setting(options=(("form", variant),)), reduction)
    return ()


def setting_lines(setting: Setting, case: Case) -> tuple[str, ...]:  # noqa: ARG001
    """Lines of a shell that make a setting, and what Python must give."""
    lines = [
        f"unset {name}" if value == UNSET else f"export {name}={quote(value)}"
        for name, value in setting.variables
    ]
    for name, value in setting.options:
        if name == "backend":
            lines.append(f"dist.init_process_group({value!r})")
        elif value != UNSET:
            lines.append(f"# options of ProcessGroupNCCL: {value}")
    return tuple(lines)


def bucket_line(bucket_bytes: int) -> str:
    """DistributedDataParallel with buckets of a size."""
    return f"DistributedDataParallel(model, bucket_cap_mb={bucket_bytes / MIB:.6g})"


def grouping_lines(blocks: int) -> tuple[str, ...]:
    """FSDP2 with so many blocks in each group."""
    if blocks == 1:
        return ("for layer in model.layers:", "    fully_shard(layer, mesh=mesh)")
    return (
        f"for first in range(0, len(model.layers), {blocks}):",
        f"    fully_shard(list(model.layers[first : first + {blocks}]), mesh=mesh)",
    )
