"""The tables of communication backends, with their devices and what each is known to refuse; of
kinds of memory; and of what a backend can be told: environment variables, which
`data/variables.csv` has, and the options of an NCCL communicator.

The table holds what a backend always refuses, so that this is known before any rank starts. The
worker finds what else a backend cannot do: it tries each combination once before it measures.
The refusals were observed with torch 2.6 to 2.13. Sources of the variables: NCCL's page; torch's
page on ProcessGroupNCCL; the names in libtorch_cpu of torch 2.13, which holds gloo and libgomp's
callers. TensorPipe's variables (`TP_`) are absent: no collective reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from commbench.errors import UsageError, closest, name_error, value_error, wrong_value
from commbench.plan.links import Loader, read_table
from commbench.validation import by_name


class Backend(NamedTuple):
    """One backend of torch.distributed."""

    name: str
    devices: tuple[str, ...]
    """The device types whose data it moves; the first is the default."""
    refused_dtypes: tuple[str, ...] = ()
    refused_reduce_ops: tuple[str, ...] = ()
    is_nccl: bool = False
    """Whether it is NCCL, which has a log (worker.groups) and can be asked what its communicators
    do (worker.watchdog.hangs)."""
    calls_at_once: int = 1
    """How many calls of one group with async_op=True it works on at once; others wait."""
    launch_spread: float = 0.03
    """The usual standard deviation of the log medians of launches that differ in nothing. Gloo's
    was measured: the median of 120 rows of 24 runs of 2 ranks on 2 cores. The others are
    assumptions, as no run on their devices has been recorded."""


BACKENDS = by_name(
    Backend(
        "gloo", ("cpu", "cuda"), ("int16", "float8_e4m3fn", "float8_e5m2"), ("premul_sum",),
        calls_at_once=2,  # threads of ProcessGroupGloo.Options by default
        launch_spread=0.04,
    ),
    Backend("nccl", ("cuda",), ("int16",), ("band", "bor", "bxor"), is_nccl=True),
    Backend("xccl", ("xpu",), refused_reduce_ops=("band", "bor", "bxor", "premul_sum")),
    Backend("mpi", ("cpu",), refused_reduce_ops=("premul_sum",)),
    Backend("ucc", ("cpu", "cuda"), refused_reduce_ops=("premul_sum",)),
)  # fmt: skip
"""The backends that torch names. Others may be registered with torch; they are not checked."""


def usual_launch_spread(backend: str) -> float:
    """The usual spread of launches of a backend, also of one that torch does not name."""
    known = BACKENDS.get(backend)
    return known.launch_spread if known else Backend._field_defaults["launch_spread"]


class Allocator(NamedTuple):
    """One kind of memory."""

    name: str
    help: str
    """What it is, for `--help`, after its name."""
    make: Callable[[Any, int, Sequence[Any]], Any]
    """`make(device, bytes, groups)` gives a worker.device.Memory, not registered yet, for the
    process groups that use it."""
    devices: tuple[str, ...] = ()
    """The device types that have it; empty: all."""
    needs_nccl: bool = False
    """Whether it is registered with the communicator of NCCL."""
    is_symmetric: bool = False
    """Whether every rank must allocate as many bytes as the others."""
    is_choice: bool = True
    """Whether `--memory` offers it. Otherwise some operations have it, and no others."""
    nccl_tests: str = ""
    """The value of nccl-tests' -R that means it."""

    def why_unavailable(self, backend: str, device: str) -> str:
        """Why buffers of this backend and device cannot be in it; empty where they may, and where
        they are not known."""
        if device and self.devices and device not in self.devices:
            return f"memory of the kind {self.name} needs a {' or '.join(self.devices)} device"
        known = BACKENDS.get(backend)
        if self.needs_nccl and known and not known.is_nccl:
            return f"memory of the kind {self.name} needs NCCL, and {backend} is another backend"
        return ""


DEFAULT_MEMORY = "default"

ALLOCATORS = by_name(
    Allocator(
        DEFAULT_MEMORY, "torch's allocator", nccl_tests="0",
        make=lambda device, size, _: device.plain_memory(size),
    ),
    Allocator(
        "registered", "NCCL's, registered with the communicator", nccl_tests="1",
        make=lambda device, size, groups: device.registered_memory(size, groups, symm=False),
        devices=("cuda",), needs_nccl=True,
    ),
    Allocator(
        "symmetric", "as symmetric windows of all ranks", nccl_tests="2",
        make=lambda device, size, groups: device.registered_memory(size, groups, symm=True),
        devices=("cuda",), needs_nccl=True, is_symmetric=True,
    ),
    Allocator(
        "symm_mem", "symmetric memory of torch",
        make=lambda device, size, groups: device.symm_mem(size, groups),
        devices=("cuda",), is_symmetric=True, is_choice=False,
    ),
)  # fmt: skip

MEMORY_CHOICES = tuple(name for name, entry in ALLOCATORS.items() if entry.is_choice)
REGISTERED = tuple(name for name, entry in ALLOCATORS.items() if entry.needs_nccl)
MEMORY_HELP = "; ".join(f"{name}: {ALLOCATORS[name].help}" for name in MEMORY_CHOICES)


class VariableFamily(NamedTuple):
    """The variables whose names begin alike."""

    prefix: str
    backends: tuple[str, ...] = ()
    """The backends that read them; empty: any backend may."""
    names: tuple[str, ...] = ()
    """Known names, without the prefix."""
    is_complete: bool = False
    """Whether no other name with this prefix is read."""


variable_families: Loader[VariableFamily] = partial(read_table, "variables.csv", VariableFamily)
"""The first one whose prefix begins a name counts."""


def find_family(name: str) -> VariableFamily | None:
    """The family of a variable; None where nothing is known to read it."""
    return next((f for f in variable_families() if name.startswith(f.prefix)), None)


def find_unread(names: Iterable[str], backend: str) -> tuple[str, ...]:
    """The names that only other backends read."""
    families = {name: find_family(name) for name in names}
    return tuple(n for n, f in families.items() if f and f.backends and backend not in f.backends)


def suggest_variable(name: str, backend: str) -> str | None:
    """For a variable that nothing is known to read: the most similar name that the backend reads,
    empty text if no name is similar. None for a variable that something reads.

    Some families are open: NCCL has more variables than its page lists. There an unknown name
    counts as one that nothing reads only where one edit makes it a known name.
    """
    family = find_family(name)
    known = [
        each.prefix + rest
        for each in variable_families()
        for rest in each.names
        if each == family or not each.backends or backend in each.backends
    ]
    if name in known:
        return None
    if family and not family.is_complete:
        from difflib import get_close_matches

        # In n letters one edit leaves n - 1 as they are.
        return next(iter(get_close_matches(name, known, 1, 1 - 1.01 / len(name))), None)
    return closest(name, known, similarity=0.75)


NONE = "-"
"""The value of --nccl-option that stands for none: a setting of a sweep that changes nothing."""
_SWITCH = {"0": 0, "1": 1}


class NcclOption(NamedTuple):
    """One option."""

    name: str
    values: Mapping[str, int] | None = None
    """The values that it has, by the words for them; None: any whole number from 0."""
    is_text: bool = False
    is_of_group: bool = False
    """Whether it is a field of Options itself, not of its `config`."""


NCCL_OPTIONS = by_name(
    NcclOption("cta_policy", {"default": 0, "efficiency": 1, "zero": 2}),  # what NCCL saves
    NcclOption("min_ctas"),  # fewest thread blocks of a kernel
    NcclOption("max_ctas"),  # most thread blocks of a kernel
    NcclOption("cga_cluster_size"),  # thread blocks of a cluster
    NcclOption("nvls_ctas"),  # thread blocks of NVLS kernels
    NcclOption("collnet_enable", _SWITCH),  # in-network reduction
    NcclOption("traffic_class"),  # of the network
    NcclOption("net_name", is_text=True),  # the network plugin
    NcclOption("split_share", _SWITCH),  # share resources with communicators split off
    NcclOption("is_high_priority_stream", {"0": False, "1": True}, is_of_group=True),
)


def parse_nccl_options(given: str | Sequence[str]) -> tuple[str, ...]:
    """Texts `NAME=VALUE` from texts that may hold several with commas; each name once. NONE gives
    none. Raises UsageError for unknown names and values."""
    found: dict[str, str] = {}
    texts = map(str.strip, (given if isinstance(given, str) else ",".join(given)).split(","))
    for text in (text for text in texts if text != NONE):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            hint = "write for example --nccl-option cta_policy=zero"
            raise wrong_value(text, "is not NAME=VALUE", hint, "--nccl-option")
        name = name.lower().replace("-", "_")
        if name not in NCCL_OPTIONS:
            raise name_error("NCCL option", name, list(NCCL_OPTIONS))
        if found.setdefault(name, value) != value:
            trouble = f"gives {name} twice: {found[name]} and {value}"
            raise value_error("--nccl-option", trouble, "leave out one")
        read_value(name, value)
    return tuple(f"{name}={value}" for name, value in found.items())


def read_value(name: str, text: str) -> int | str:
    """The value of an option that a text means; UsageError where it has no such value."""
    option = NCCL_OPTIONS[name]
    if option.is_text:
        return text
    if option.values is None:
        if not text.isdecimal():
            raise value_error("--nccl-option", f"{name} cannot be {text!r}", "give a whole number")
        return int(text)
    if text not in option.values:
        hint = f"it is one of {', '.join(option.values)}"
        raise value_error("--nccl-option", f"{name} cannot be {text!r}", hint)
    return option.values[text]


def require_nccl(backend: str, nccl_options: Sequence[str]) -> None:
    """Raise UsageError where there are options of NCCL for another backend."""
    known = BACKENDS.get(backend)
    if nccl_options and not (known and known.is_nccl):
        raise UsageError(
            f"--nccl-option {','.join(nccl_options)} needs the backend nccl, and this is {backend}",
            "leave it out, or add --backend nccl",
        )
