"""Settings to compare: every combination of the values asked for, and which backend reads what."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import NamedTuple

from commbench.errors import UsageError

UNSET = "-"
"""As a value of a variable: leave it out."""
VARIED_OPTIONS = ("nproc-per-node", "dtype", "backend", "cpu-mode", "timing", "placement")
"""Options of `commbench run` that can be varied like a variable."""
MOST_SETTINGS = 256
MOST_ROUNDS = 1000
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

READERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("TORCH_NCCL_", ("nccl",)),
    ("NCCL_", ("nccl",)),
    ("RCCL_", ("nccl",)),
    ("FI_", ("nccl", "mpi")),
    ("TORCH_GLOO_", ("gloo",)),
    ("GLOO_", ("gloo",)),
    ("UCX_", ("ucc", "mpi")),
    ("UCC_", ("ucc",)),
)
"""Backends that read variables with a prefix; the first that fits counts. Others: anybody may."""


class Setting(NamedTuple):
    """One combination of values."""

    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables and their values; UNSET removes one."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of `commbench run`, without dashes, and their values."""

    @property
    def name(self) -> str:
        """What it is called: `NCCL_ALGO=RING NCCL_PROTO=LL`."""
        return " ".join(f"{name}={value}" for name, value in self.variables + self.options)

    @property
    def slug(self) -> str:
        """Its name as that of a folder: letters, digits, `.`, `_`, `=`, `+` and `-`. Where it
        holds anything else, or is long, a sum of it follows, so that no two share a folder."""
        parts = [f"{name}={value}" for name, value in self.variables + self.options]
        plain = "+".join(re.sub(r"[^A-Za-z0-9._=-]+", "+", part) for part in parts)[:120]
        if plain != "+".join(parts) or any("+" in part for part in parts):
            return f"{plain}-{zlib.crc32(self.name.encode('utf-8', 'surrogateescape')):08x}"
        return plain or "as-it-is"


def settings_of(variables: Sequence[str], options: Sequence[str]) -> tuple[Setting, ...]:
    """Every combination of `NAME=V1,V2` for variables and for options of a run.

    A name may be given again for more values: each text's commas separate, so a value that holds a
    comma is given as `NAME:=VALUE`, whole. Raises UsageError for what is none of this.
    """
    of_variables = _choices(variables, "env")
    of_options = _choices(options, "vary")
    for name in of_options:
        if name not in VARIED_OPTIONS:
            raise UsageError(
                f"--vary {name} is not an option that can be varied",
                f"known: {', '.join(VARIED_OPTIONS)}; variables go with --env",
            )
    count = 1
    for values in [*of_variables.values(), *of_options.values()]:
        count *= len(values)
    if count < 2:
        raise UsageError(
            "there is only one setting: nothing to compare",
            "give several values, such as --env NCCL_ALGO=RING,TREE ('-' leaves a variable unset)",
        )
    if count > MOST_SETTINGS:
        raise UsageError(
            f"these make {count} settings, more than {MOST_SETTINGS}", "sweep fewer at a time"
        )
    return tuple(
        Setting(
            tuple(zip(of_variables, chosen, strict=True)), tuple(zip(of_options, more, strict=True))
        )
        for chosen in product(*of_variables.values())
        for more in product(*of_options.values())
    )


def _choices(texts: Sequence[str], option: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        whole = name.endswith(":")
        name = name.removesuffix(":").strip()
        fits = name.replace("-", "_") if option == "vary" else name
        if not equals or not NAME.fullmatch(fits) or not values:
            raise UsageError(
                f"--{option} {text!r} does not say which values to try",
                "write NAME=VALUE,VALUE; '-' leaves a variable unset; NAME:=VALUE keeps its commas",
            )
        several = [values] if whole else [value.strip() for value in values.split(",")]
        if not all(several):
            raise UsageError(f"--{option} {text!r} has an empty value", "'-' leaves it unset")
        kept = found.setdefault(name, [])
        kept += [value for value in several if value not in kept]
    return {name: tuple(values) for name, values in found.items()}


def unread(settings: Sequence[Setting], backend: str) -> tuple[str, ...]:
    """Variables that differ between settings and that the backend does not read."""
    names = dict.fromkeys(name for setting in settings for name, _ in setting.variables)
    return tuple(name for name in names if backend not in _readers(name, backend))


def _readers(variable: str, backend: str) -> tuple[str, ...]:
    for prefix, backends in READERS:
        if variable.startswith(prefix):
            return backends
    return (backend,)


def rounds_of(
    settings: Sequence[Setting], rounds: int, seed: int
) -> tuple[tuple[int, Setting], ...]:
    """Round and setting in the order of measuring: every round holds each once, in an order of its
    own, so that what drifts meanwhile hits all alike."""
    chance = Random(seed)
    order: list[tuple[int, Setting]] = []
    for number in range(1, rounds + 1):
        order += [(number, setting) for setting in chance.sample(list(settings), len(settings))]
    return tuple(order)
