"""Reads the tensors of a torch module. On the device `meta` it needs no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from commbench.errors import UsageError
from commbench.training.models import Model, Tensor

if TYPE_CHECKING:
    import torch


def read_module(
    module: torch.nn.Module,
    *,
    blocks: Sequence[str] | None = None,
    loss: Callable[[torch.nn.Module], torch.Tensor] | None = None,
) -> Model:
    """The tensors of a module.

    `blocks` are names of the submodules that FSDP gathers on their own; None: those to which
    fully_shard was applied, else the items of every torch.nn.ModuleList that is in no other one.
    `loss(module)` computes a loss; its backward pass shows in which order gradients are finished.
    Raises UsageError for a block that the module does not have, and for a module without
    parameters.
    """
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not trained:
        raise UsageError("the module has no parameters to train", "set requires_grad")
    found = tuple(blocks) if blocks is not None else _find_blocks(module)
    names = dict(module.named_modules())
    for block in found:
        if block not in names:
            raise UsageError(f"the module has no submodule {block!r}", "see named_modules()")
    return Model(
        type(module).__name__,
        tuple(_tensor(name, p) for name, p in trained),
        found,
        buffers=tuple(_tensor(name, b) for name, b in module.named_buffers()),
        ready=_find_ready_order(module, [p for _, p in trained], loss) if loss else (),
    )


def _tensor(name: str, tensor: Any) -> Tensor:
    return Tensor(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _find_blocks(module: torch.nn.Module) -> tuple[str, ...]:
    from torch.nn import ModuleList

    sharded = [
        name
        for name, each in module.named_modules()
        if name and any(base.__name__ == "FSDPModule" for base in type(each).__mro__)
    ]
    if sharded:
        return tuple(sharded)
    found: list[str] = []
    for name, each in module.named_modules():
        if isinstance(each, ModuleList) and not any(name.startswith(f"{b}.") for b in found):
            found += [f"{name}.{child}" for child, item in each.named_children()
                      if any(True for _ in item.parameters())]  # fmt: skip
    return tuple(found)


def _find_ready_order(
    module: torch.nn.Module,
    parameters: list[torch.nn.Parameter],
    loss: Callable[[torch.nn.Module], torch.Tensor],
) -> tuple[int, ...]:
    """The indices of the parameters in the order in which a backward pass finishes their gradients;
    those without a gradient last."""
    ready: list[int] = []
    before = [parameter.grad for parameter in parameters]
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda _, i=index: ready.append(i))
        for index, parameter in enumerate(parameters)
    ]
    try:
        loss(module).backward()
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
    return (*ready, *(i for i in range(len(parameters)) if i not in ready))
