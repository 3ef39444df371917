"""Models as lists of tensors: what data parallel training communicates depends on nothing else.

A transformer's tensors follow from a few numbers. PRESETS has public models, each with its source.
Those of a torch module are read; on the device `meta` it needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from commbench.errors import UsageError, name_error
from commbench.plan.dtypes import DTYPES
from commbench.units import LEAST_PARAMETERS, MOST_PARAMETERS, format_count
from commbench.validation import by_name, require_within

if TYPE_CHECKING:
    import torch

MOST_LAYERS = 10_000
ROOT = ""
"""The name of the unit of tensors that are in no block."""


class Tensor(NamedTuple):
    """One parameter or buffer of a model."""

    name: str
    """As torch names it: `layers.0.attention.wq`."""
    shape: tuple[int, ...]
    dtype: str = "float32"
    """torch's name, as in DTYPES."""

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


def cut_buckets(tensors: Iterable[Tensor], limits: Sequence[int]) -> list[list[Tensor]]:
    """Buckets of tensors of one dtype. The first bucket has the first limit in bytes, and so on;
    the last limit is that of all further buckets. Buckets are in the order of their completion,
    and incomplete ones follow."""
    open_buckets: dict[str, list[Tensor]] = {}
    used: dict[str, int] = {}
    done: list[list[Tensor]] = []
    for tensor in tensors:
        bucket = open_buckets.setdefault(tensor.dtype, [])
        bucket.append(tensor)
        if bytes_of(bucket) >= limits[min(used.get(tensor.dtype, 0), len(limits) - 1)]:
            done.append(open_buckets.pop(tensor.dtype))
            used[tensor.dtype] = used.get(tensor.dtype, 0) + 1
    return done + list(open_buckets.values())


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The bytes of tensors."""
    return sum(t.elements * DTYPES[t.dtype].size_bytes for t in tensors)


class Model(NamedTuple):
    """The tensors of a model, in the order in which torch registers them."""

    name: str
    parameters: tuple[Tensor, ...]
    """Those that are trained."""
    blocks: tuple[str, ...] = ()
    """Names of the modules that are repeated, such as `layers.0`; FSDP gathers each on its own."""
    buffers: tuple[Tensor, ...] = ()
    ready: tuple[int, ...] = ()
    """Indices of the parameters in the order in which the backward pass finishes their gradients;
    empty if not known: then the reverse order of `parameters` is taken."""

    @property
    def elements(self) -> int:
        """The number of parameters."""
        return sum(tensor.elements for tensor in self.parameters)

    def gradients(self) -> tuple[Tensor, ...]:
        """The parameters in the order in which their gradients are finished."""
        order = self.ready or range(len(self.parameters))[::-1]
        return tuple(self.parameters[index] for index in order)

    def unit(self, name: str) -> tuple[Tensor, ...]:
        """The parameters of a block; of ROOT those that are in no block."""
        if name != ROOT:
            return tuple(t for t in self.parameters if t.name.startswith(f"{name}."))
        starts = tuple(f"{block}." for block in self.blocks)
        return tuple(t for t in self.parameters if not t.name.startswith(starts))


class Transformer(NamedTuple):
    """The numbers of a decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    """The inner size of a feed-forward network, or of one expert."""
    vocab: int
    gated: bool = True
    """Whether the feed-forward network has three matrices (SwiGLU) and not two, and no tensor has a
    bias, as in Llama; else every matrix has a bias, and every norm, as in GPT-3."""
    tied: bool = False
    """Whether the embedding is the output layer, too."""
    experts: int = 0
    """0: one feed-forward network."""
    top_k: int = 0
    """How many experts a token is sent to."""
    positions: int = 0
    """Rows of a learned embedding of positions."""

    @property
    def kv_hidden(self) -> int:
        """The size of all keys of a token."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def is_moe(self) -> bool:
        """Whether tokens are sent to experts."""
        return self.experts > 1

    @property
    def elements(self) -> int:
        """The number of parameters."""
        before, after = self.outer()
        block = sum(tensor.elements for tensor in self.block())
        return self.layers * block + sum(tensor.elements for tensor in (*before, *after))

    def block(self) -> tuple[Tensor, ...]:
        """The tensors of one layer, in the order of Llama's and GPT-3's own code."""
        h, kv = self.hidden, self.kv_hidden
        attention = {"wq": (h, h), "wk": (kv, h), "wv": (kv, h), "wo": (h, h)}
        if not self.gated:
            attention = {"qkv": (h + 2 * kv, h), "proj": (h, h)}
        ffn = self._tensors("feed_forward.", self._ffn())
        if self.is_moe:
            ffn = (Tensor("moe.gate", (self.experts, h)), *self.expert())
        norm, ffn_norm = (self._tensors("", {n: (h,)}) for n in ("attention_norm", "ffn_norm"))
        return norm + self._tensors("attention.", attention) + ffn_norm + ffn

    def expert(self) -> tuple[Tensor, ...]:
        """The tensors of all experts of a layer."""
        each = (self._tensors(f"moe.experts.{n}.", self._ffn()) for n in range(self.experts))
        return tuple(chain.from_iterable(each))

    def outer(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The tensors before the first layer, and those after the last one."""
        h = self.hidden
        before = [Tensor("embedding", (self.vocab, h))]
        if self.positions:
            before.append(Tensor("positions", (self.positions, h)))
        output = () if self.tied else (Tensor("output", (self.vocab, h)),)
        return tuple(before), (*self._tensors("", {"norm": (h,)}), *output)

    def model(self, dtype: str = "float32") -> Model:
        """The whole model."""
        before, after = self.outer()
        blocks = tuple(f"layers.{layer}" for layer in range(self.layers))
        inner = (t._replace(name=f"{block}.{t.name}") for block in blocks for t in self.block())
        tensors = tuple(t._replace(dtype=dtype) for t in (*before, *inner, *after))
        return Model(self.name, tensors, blocks)

    def _ffn(self) -> Mapping[str, tuple[int, ...]]:
        h, f = self.hidden, self.ffn
        return {"w1": (f, h), "w2": (h, f)} | ({"w3": (f, h)} if self.gated else {})

    def _tensors(self, prefix: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Tensor, ...]:
        """Weights of these shapes, each with its bias if the model has biases."""
        found = []
        for name, shape in shapes.items():
            found.append(Tensor(f"{prefix}{name}.weight", shape))
            found += [] if self.gated else [Tensor(f"{prefix}{name}.bias", shape[:1])]
        return tuple(found)


TRANSFORMERS = by_name(
    # Llama Team: The Llama 3 Herd of Models, arXiv 2407.21783, table 3
    Transformer("llama-3-8b", 32, 4096, 32, 8, 14336, 128256),
    Transformer("llama-3-70b", 80, 8192, 64, 8, 28672, 128256),
    Transformer("llama-3-405b", 126, 16384, 128, 8, 53248, 128256),
    # Jiang et al.: Mixtral of Experts, arXiv 2401.04088, table 1
    Transformer("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, experts=8, top_k=2),
    # Brown et al.: Language Models are Few-Shot Learners, arXiv 2005.14165
    Transformer(
        "gpt-3-175b", 96, 12288, 96, 96, 49152, 50257, gated=False, tied=True, positions=2048
    ),
    # Radford et al.: Language Models are Unsupervised Multitask Learners, 2019
    Transformer("gpt-2-xl", 48, 1600, 25, 25, 6400, 50257, gated=False, tied=True, positions=1024),
)
"""Public transformers."""
RESNET_50 = "resnet-50"
PRESETS = (*TRANSFORMERS, RESNET_50)
"""Names of public models."""


def find_transformer(name: str) -> Transformer:
    """The transformer of that name; UsageError where there is none."""
    if name.lower() == RESNET_50:
        raise UsageError(f"{name} is no transformer", f"transformers: {', '.join(TRANSFORMERS)}")
    if name.lower() not in TRANSFORMERS:
        raise name_error("model", name, list(PRESETS))
    return TRANSFORMERS[name.lower()]


def find_model(name: str, dtype: str = "float32") -> Model:
    """The public model of that name; UsageError where there is none."""
    return resnet_50(dtype) if name.lower() == RESNET_50 else find_transformer(name).model(dtype)


def make_transformer(
    *, parameters: float | None = None, layers: int | None = None, hidden: int | None = None,
    **numbers: int,
) -> Transformer:  # fmt: skip
    """A transformer of these numbers; `numbers` are other ones of Transformer. Where a number of
    parameters is given and no vocabulary, the embedding has what the layers leave. Raises
    UsageError for numbers that make no model.

    Without `ffn`, a layer is that of Llama with 12 x hidden^2 parameters: ffn = 8/3 hidden.
    """
    if layers is None or hidden is None:
        missing = [n for n, v in (("--layers", layers), ("--hidden", hidden)) if v is None]
        hint = "give --model, or --layers and --hidden: --params 7B --layers 32 --hidden 4096"
        raise UsageError(f"a model cannot be made without {' and '.join(missing)}", hint)
    require_within("params", parameters, LEAST_PARAMETERS, MOST_PARAMETERS)
    for name, number in {"layers": layers, "hidden": hidden, **numbers}.items():
        if number < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {number}", "it must be at least 1")
    heads = numbers.get("heads", max(1, hidden // 128))
    usual: dict[str, Any] = {
        "heads": heads, "kv_heads": heads, "ffn": -(-8 * hidden // (3 * 64)) * 64, "vocab": 0,
        "top_k": 2 if "experts" in numbers else 0,
    }  # fmt: skip
    made = Transformer("transformer", layers, hidden, **usual | numbers)
    if parameters is not None and "vocab" not in numbers:
        left = int(parameters) - layers * sum(t.elements for t in made.block()) - hidden
        made = made._replace(vocab=left // (2 * hidden))
    _require_possible(made)
    return made


def _require_possible(made: Transformer) -> None:
    """Raise UsageError for numbers that do not go together."""
    share = "--hidden must be a multiple of --heads, and --heads of --kv-heads"
    for is_wrong, why, hint in (
        (made.hidden % made.heads,
         f"{format_count(made.hidden, 'number')} cannot be shared by {made.heads} heads", share),
        (made.heads % made.kv_heads,
         f"{made.heads} heads cannot share {made.kv_heads} key heads", share),
        (made.top_k > max(1, made.experts),
         f"a token cannot be sent to {made.top_k} of {made.experts} experts",
         "--top-k is at most --experts"),
        (made.vocab < 0,
         f"{made.layers} layers of hidden size {made.hidden} have more parameters than --params",
         "give --ffn, or other numbers"),
        (made.layers > MOST_LAYERS or made.elements > MOST_PARAMETERS,
         f"a model of {made.elements:.3g} parameters in {made.layers} layers is too large",
         f"at most {MOST_PARAMETERS:.0e} in {MOST_LAYERS} layers"),
    ):  # fmt: skip
        if is_wrong:
            raise UsageError(why, hint)


def resnet_50(dtype: str = "float32") -> Model:
    """ResNet-50 with 1,000 classes, in the order in which torchvision registers its tensors.

    Source: He et al.: Deep Residual Learning for Image Recognition, CVPR 2016, table 1.
    """
    tensors = [t if t.dtype == "int64" else t._replace(dtype=dtype) for t in _resnet()]
    buffers = tuple(t for t in tensors if t.name.rpartition(".")[2] in _BUFFERS)
    return Model(RESNET_50, tuple(t for t in tensors if t not in buffers), buffers=buffers)


_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def _resnet() -> Iterator[Tensor]:
    def convolution(name: str, norm: str, out: int, into: int, width: int) -> Iterator[Tensor]:
        yield Tensor(f"{name}.weight", (out, into, width, width))
        for own in ("weight", "bias", *_BUFFERS[:2]):
            yield Tensor(f"{norm}.{own}", (out,))
        yield Tensor(f"{norm}.{_BUFFERS[2]}", (), "int64")

    yield from convolution("conv1", "bn1", 64, 3, 7)
    channels = 64
    for stage, (planes, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for index in range(blocks):
            block = f"layer{stage}.{index}"
            yield from convolution(f"{block}.conv1", f"{block}.bn1", planes, channels, 1)
            yield from convolution(f"{block}.conv2", f"{block}.bn2", planes, planes, 3)
            yield from convolution(f"{block}.conv3", f"{block}.bn3", 4 * planes, planes, 1)
            if not index:
                down = f"{block}.downsample"
                yield from convolution(f"{down}.0", f"{down}.1", 4 * planes, channels, 1)
            channels = 4 * planes
    yield Tensor("fc.weight", (1000, channels))
    yield Tensor("fc.bias", (1000,))


# Modules of torch.


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
