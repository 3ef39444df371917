"""What a communication library can be told: environment variables, which `data/variables.csv` has,
and the options of an NCCL communicator.

Sources: NCCL's page on environment variables; torch's page on variables of ProcessGroupNCCL; the
names in libtorch_cpu of torch 2.13, which holds gloo and libgomp's callers. TensorPipe's variables
(`TP_`) are absent: torch.distributed.rpc reads them, and no collective does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from commbench.errors import UsageError, closest, name_error
from commbench.plan.backends import BACKENDS
from commbench.plan.links import read_table
from commbench.validation import by_name


class VariableFamily(NamedTuple):
    """The variables whose names begin alike."""

    prefix: str
    backends: tuple[str, ...] = ()
    """The backends that read them; empty: any backend may."""
    names: tuple[str, ...] = ()
    """Known names, without the prefix."""
    is_complete: bool = False
    """Whether no other name with this prefix is read."""


@cache
def variable_families() -> tuple[VariableFamily, ...]:
    """Every family in `data/variables.csv`. The first one whose prefix begins a name counts."""
    return read_table(
        "variables.csv", VariableFamily, backends=lambda text: tuple(text.split()),
        names=lambda text: tuple(text.split()), is_complete=bool,
    )  # fmt: skip


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
    help: str
    values: Mapping[str, int] | None = None
    """The values that it has, by the words for them; None: any whole number from 0."""
    is_text: bool = False
    is_of_group: bool = False
    """Whether it is a field of Options itself, not of its `config`."""


NCCL_OPTIONS = by_name(
    NcclOption(
        "cta_policy", "what NCCL saves: default, efficiency, zero",
        {"default": 0, "efficiency": 1, "zero": 2},
    ),
    NcclOption("min_ctas", "fewest thread blocks of a kernel"),
    NcclOption("max_ctas", "most thread blocks of a kernel"),
    NcclOption("cga_cluster_size", "thread blocks of a cluster"),
    NcclOption("nvls_ctas", "thread blocks of NVLS kernels"),
    NcclOption("collnet_enable", "in-network reduction", _SWITCH),
    NcclOption("traffic_class", "traffic class of the network"),
    NcclOption("net_name", "the network plugin", is_text=True),
    NcclOption("split_share", "share resources with communicators split off", _SWITCH),
    NcclOption(
        "is_high_priority_stream", "streams of high priority", {"0": False, "1": True},
        is_of_group=True,
    ),
)  # fmt: skip


def parse_nccl_options(given: str | Sequence[str]) -> tuple[str, ...]:
    """Texts `NAME=VALUE` from texts that may hold several with commas; each name once. NONE gives
    none. Raises UsageError for unknown names and values."""
    found: dict[str, str] = {}
    for text in (given if isinstance(given, str) else ",".join(given)).split(","):
        if text.strip() == NONE:
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UsageError(
                f"--nccl-option {text.strip()!r} is not NAME=VALUE",
                "write for example --nccl-option cta_policy=zero",
            )
        name = name.lower().replace("-", "_")
        if name not in NCCL_OPTIONS:
            raise name_error("NCCL option", name, list(NCCL_OPTIONS))
        if found.setdefault(name, value) != value:
            raise UsageError(
                f"--nccl-option gives {name} twice: {found[name]} and {value}", "leave out one"
            )
        read_value(name, value)
    return tuple(f"{name}={value}" for name, value in found.items())


def read_value(name: str, text: str) -> int | str:
    """The value of an option that a text means; UsageError where it has no such value."""
    option = NCCL_OPTIONS[name]
    if option.is_text:
        return text
    if option.values is None:
        if not text.isdecimal():
            raise UsageError(f"--nccl-option {name} cannot be {text!r}", "give a whole number")
        return int(text)
    if text not in option.values:
        raise UsageError(
            f"--nccl-option {name} cannot be {text!r}", f"it is one of {', '.join(option.values)}"
        )
    return option.values[text]


def require_nccl(backend: str, nccl_options: Sequence[str]) -> None:
    """Raise UsageError where there are options of NCCL for another backend."""
    known = BACKENDS.get(backend)
    if nccl_options and not (known and known.is_nccl):
        raise UsageError(
            f"--nccl-option {','.join(nccl_options)} needs the backend nccl, and this is {backend}",
            "leave it out, or add --backend nccl",
        )
