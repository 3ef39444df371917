"""What nccl-tests' JSON tells about the run: program, ranks, options, environment."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, NamedTuple

from commbench.errors import RecordsError
from commbench.records.environment import VARIABLE_PREFIXES
from commbench.records.importers import cells
from commbench.records.importers.nccl_document import (
    Number,
    as_object,
    is_true,
    list_of,
    object_of,
    text_of,
    whole_of,
)
from commbench.records.importers.nccl_names import library_version, programs_in
from commbench.records.importers.nccl_preamble import Device, ranks_of, statistic
from commbench.records.importers.source import Source

NEWEST = 3

_AVERAGES = {"0": "rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}
_MOST_DEVICES = 1024


class Config(NamedTuple):
    """What is told about a run."""

    program: str | None
    devices: tuple[Device, ...]
    """The first device of each process: others are not listed."""
    ranks: int | None
    iterations: int | None
    statistic: str
    blocking: bool
    graphs: bool
    skipped: int
    """Iterations that percentiles leave out."""
    environment: dict[str, Any]


def config_of(document: dict[str, Any], source: Source) -> Config:
    """What a document tells; ValueError where it is damaged, RecordsError where it is newer."""
    version = whole_of(document, "version")
    if version is not None and version > NEWEST:
        raise RecordsError(
            f"{source.path} was written by a newer nccl-tests: its version is {version}",
            f"this commbench reads up to {NEWEST}; the text output may be readable",
        )
    config = object_of(document, "config")
    devices = tuple(_device(as_object(device)) for device in list_of(config, "devices"))
    each = (whole_of(config, "nthreads") or 1) * (whole_of(config, "ngpus") or 1)
    arguments = [text for text in list_of(document, "args") if isinstance(text, str)]
    iterations = whole_of(config, "iterations")
    grouped = whole_of(config, "aggregated_iterations") or 1
    programs = programs_in(PurePath(arguments[0]).name) if arguments else []
    return Config(
        program=programs[0] if programs else None,
        devices=devices,
        ranks=_world(devices, each),
        iterations=iterations,
        statistic=statistic(iterations, grouped, _average(arguments)),
        blocking=is_true(config.get("blocking_collectives")),
        graphs=bool(whole_of(config, "graph")),
        skipped=whole_of(config, "per_iter_skip") or 0,
        environment=_environment(document),
    )


def _device(device: dict[str, Any]) -> Device:
    return Device(
        cells.whole(text_of(device, "rank")),
        cells.whole(text_of(device, "group", "0")),
        text_of(device, "hostname", ""),
        text_of(device, "device_info", ""),
    )


def _world(devices: tuple[Device, ...], each: int) -> int | None:
    """Ranks of the group that reports, where every process has `each` devices."""
    if not devices or each > _MOST_DEVICES:
        return None
    listed = [(device.rank + i, device.group) for device in devices for i in range(each)]
    return ranks_of(listed, each)


def _average(arguments: list[str]) -> str:
    """How times of ranks are combined: option -a, by default the mean."""
    value = "1"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument in ("-a", "--average"):
            value = following
        elif argument.startswith(("-a", "--average=")):
            value = argument.removeprefix("-a").removeprefix("--average=")
    return _AVERAGES.get(value, f"combined over ranks by -a {value!r:.20}")


def _environment(document: dict[str, Any]) -> dict[str, Any]:
    """NCCL's version, and the variables that libraries read: the file holds all, secrets too."""
    texts = (entry for entry in list_of(document, "env") if isinstance(entry, str))
    pairs = (entry.partition("=") for entry in texts)
    variables = {name: value for name, _, value in pairs if name.startswith(VARIABLE_PREFIXES)}
    code = document.get("nccl_version")
    known = {"nccl": library_version(code)} if isinstance(code, Number) else {}
    return {**known, "variables": variables}
