"""Settings to compare: every combination of values, their names and the order of the rounds."""

from __future__ import annotations

import re
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from random import Random
from typing import NamedTuple

from commbench.errors import UnavailableError, UsageError, closest
from commbench.output.text import short_repr
from commbench.plan.backends import find_unread, suggest_variable
from commbench.plan.operations import OPERATIONS
from commbench.results.files import is_file
from commbench.stats import collect

PYTHON = "python"
"""`--vary python=old,new`: which Python runs a setting. It is no option of `commbench run`."""
CALL = "call"
"""`--vary call=old/mine.py:Call,new/mine.py:Call`: own calls."""
IMPORT_S = 60.0
"""How long such a Python may take to import commbench."""
UNSET = "-"
"""The value that stands for a variable that is not set."""
MOST_SETTINGS = 256
MOST_ROUNDS = 1000
ALGORITHM = "NCCL_ALGO"
FUNCTIONS_SINCE = (2, 24)
"""The first version of NCCL in which a value of NCCL_ALGO may name its function. From this version
on, a function fails where the value names no algorithm that it has."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@short_repr("name")
class Setting(NamedTuple):
    """One combination of values."""

    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables and their values; UNSET removes one."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of `commbench run`, without dashes, and their values."""
    interpreter: str = ""
    """The Python that runs it, where that is varied; empty for the one that runs commbench."""
    call: str = ""
    """The own call, where that is varied: its option has what tells it apart."""

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """Names and values, of variables first."""
        return self.variables + self.options

    @property
    def name(self) -> str:
        """Its values in words: `NCCL_ALGO=RING NCCL_PROTO unset`."""
        return " ".join(_assignment(*each) for each in self.values)

    @property
    def run_options(self) -> tuple[tuple[str, str], ...]:
        """The options that `commbench run` takes."""
        return tuple(each for each in self.vary_options if each[0] != PYTHON)

    @property
    def vary_options(self) -> tuple[tuple[str, str], ...]:
        """The options that `commbench sweep --vary` takes from any folder."""
        whole = {PYTHON: self.interpreter, CALL: self.call}
        return tuple((name, whole.get(name) or value) for name, value in self.options)

    def as_json(self) -> str:
        """Its name."""
        return self.name

    @property
    def slug(self) -> str:
        """Its name as a unique folder name of letters, digits, `.`, `_`, `=`, `+` and `-`; with a
        checksum where the name is long or holds other characters."""
        parts = [f"{name}={value}" for name, value in self.values]
        plain = "+".join(re.sub(r"[^A-Za-z0-9._=-]+", "+", part) for part in parts)[:120]
        if plain != "+".join(parts) or any("+" in part for part in parts):
            checksum = zlib.crc32(" ".join(parts).encode("utf-8", "surrogateescape"))
            return f"{plain}-{checksum:08x}"
        return plain or "as-it-is"


def make_settings(
    variables: Mapping[str, Sequence[str]], options: Mapping[str, Sequence[str]]
) -> tuple[Setting, ...]:
    """Every combination of the values of variables and of run options.

    Raises UsageError for what is no variable or cannot be varied, and for too many settings.
    """
    from commbench.runner.run_options import RUN_OPTIONS, VARIED_OPTIONS

    for name, values in variables.items():
        if not NAME.fullmatch(name) or any("\0" in value for value in values):
            hint = "a name has letters, digits and '_', and a value has no NUL byte"
            raise UsageError(f"{name!r} cannot be an environment variable", hint)
    known = (*VARIED_OPTIONS, PYTHON)
    flags = {name: option.flag[2:] for name, option in RUN_OPTIONS.items()}
    options = {flags.get(name.replace("-", "_"), name): texts for name, texts in options.items()}
    if fixed := [name for name in options if name not in known]:
        hint = f"these can: {', '.join(known)}; --env varies environment variables"
        if fixed[0] in flags.values():
            raise UsageError(f"--vary {fixed[0]}: this option cannot be varied", hint)
        if close := closest(fixed[0], known):
            hint = f"did you mean --vary {close}? `commbench sweep --help` lists those that can"
        raise UsageError(f"unknown option to vary {fixed[0]!r}", hint)
    count = prod(map(len, [*variables.values(), *options.values()]))
    if count > MOST_SETTINGS:
        why = f"these make {count} settings, more than {MOST_SETTINGS}"
        raise UsageError(why, "use fewer values")
    paths, given = options.get(PYTHON, ()), options.get(CALL, ())
    pythons = dict(zip(_ends_of_paths(paths), map(find_interpreter, paths), strict=True))
    calls = dict(zip(tell_apart(given), given, strict=True))
    named = {PYTHON: tuple(pythons), CALL: tuple(calls)}
    options = options | {name: found for name, found in named.items() if found}
    of_variables, of_options = (
        product(*([(name, value) for value in values] for name, values in given.items()))
        for given in (variables, options)
    )
    return tuple(
        Setting(
            own,
            chosen,
            pythons.get(dict(chosen).get(PYTHON, ""), ""),
            calls.get(dict(chosen).get(CALL, ""), ""),
        )
        for own, chosen in product(of_variables, of_options)
    )


def find_interpreter(value: str) -> str:
    """The absolute path of a Python, or of that in the folder of a virtual environment; the value
    itself where there is none, as of a name that is looked up in PATH."""
    paths = (Path(value, "bin", "python"), Path(value)) if value else ()
    return next((str(path.absolute()) for path in paths if is_file(path)), value)


def tell_apart(calls: Sequence[str]) -> tuple[str, ...]:
    """What tells own calls apart: `old` and `new` of old/mine.py:Call and new/mine.py:Call."""
    return _ends_of_paths([call.replace(":", "/") for call in calls])


def _ends_of_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """The shortest parts of paths that tell them apart, the last such: `new` and `old` of
    `/env/new/bin/python` and `/env/old/bin/python`."""
    parts = [Path(path).parts[::-1] for path in paths]
    longest = max(map(len, parts), default=0)
    for length, start in product(range(1, longest + 1), range(longest)):
        ends = tuple("/".join(each[start : start + length][::-1]) for each in parts)
        if len({*ends}) == len(paths) and all(ends):
            return ends
    return tuple(paths)


_ENVIRONMENT = """
import commbench, importlib.util, os, sys
print(os.path.realpath(sys.prefix))
sys.exit(not importlib.util.find_spec("torch"))
"""


def require_interpreters(
    settings: Sequence[Setting], notify: Callable[[str], None], more: str = ""
) -> None:
    """Raise UsageError for a varied Python that is none, with `more` in its hint, UnavailableError
    for one without commbench or torch. `notify` gets a line where two are the same."""
    found: dict[str, str] = {}
    for setting in settings:
        value = dict(setting.options).get(PYTHON)
        if value is None or value in found:
            continue
        named = f"--vary {PYTHON}={value}"
        try:
            command = [setting.interpreter, "-c", _ENVIRONMENT]
            ended = subprocess.run(
                command, capture_output=True, check=True, timeout=IMPORT_S, text=True
            )
            same = [other for other, prefix in found.items() if prefix == ended.stdout]
            if same:
                own = f"{ended.stdout.strip()}: only variables that they set can differ"
                notify(f"{same[0]} and {value} run the same Python, {own}")
            found[value] = ended.stdout
        except OSError as error:
            is_folder = Path(setting.interpreter).is_dir()
            problem = "it has no bin/python" if is_folder else error.strerror
            why = f"{named}: cannot run {setting.interpreter}: {problem}"
            hint = f"name the folder of a virtual environment, or a Python{more}"
            raise UsageError(why, hint) from None
        except subprocess.SubprocessError:
            why = f"{named} cannot import commbench and torch"
            hint = f"install both: {setting.interpreter} -m pip install ..."
            raise UnavailableError(why, hint) from None


def parse_values(texts: Sequence[str], option: str) -> dict[str, tuple[str, ...]]:
    """The values of each name in texts `NAME=V1,V2` of `--env` or `--vary`.

    A name may be given several times. `NAME:=VALUE` gives one value that may hold commas. Raises
    UsageError for any other text.
    """
    found: list[tuple[str, str]] = []
    for text in texts:
        name, equals, values = text.partition("=")
        keeps_commas = name.endswith(":")
        name = name.removesuffix(":").strip()
        word = name.replace("-", "_") if option == "vary" else name
        if not equals or not NAME.fullmatch(word) or not values:
            hint = "'-' as a value leaves a variable unset; NAME:=VALUE keeps the commas of a value"
            if not equals:
                example = "cpu-mode=quiet,plain" if option == "vary" else "NCCL_ALGO=RING,TREE"
                hint = f"write --{option} {example}"
            raise UsageError(f"--{option} {text!r} is not NAME=VALUE,VALUE", hint)
        several = [values] if keeps_commas else [value.strip() for value in values.split(",")]
        if not all(several):
            why = f"--{option} {text!r} has an empty value"
            raise UsageError(why, "'-' leaves a variable unset")
        found += [(name, value) for value in several]
    return {name: tuple(values) for name, values in collect(dict.fromkeys(found)).items()}


def shown_value(value: str) -> str:
    """A value as a reader sees it."""
    return "unset" if value == UNSET else value


def make_axes(settings: Sequence[Setting]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What varies between settings: each name that has several values, with its values in order.
    The settings are every combination of them."""
    values = collect(dict.fromkeys(each for setting in settings for each in setting.values))
    return tuple((name, tuple(found)) for name, found in values.items() if len(found) > 1)


def short_names(settings: Sequence[Setting]) -> dict[Setting, str]:
    """A name for each setting that leaves out what all settings share: `RING`, `RING LL`.

    A value that is no word of its own is preceded by its name: `NCCL_MIN_NCHANNELS=2`. The name
    also stands where two variables have a value in common.
    """
    axes = dict(make_axes(settings))
    shared = Counter(value for values in axes.values() for value in values)
    plain = {
        name
        for name, values in axes.items()
        if all(v == UNSET or (v[:1].isalpha() and shared[v] == 1) for v in values)
        and (UNSET not in values or shared[UNSET] == 1)
    }
    found = {}
    for setting in settings:
        own = [(name, value) for name, value in setting.values if name in axes]
        words = [v if n in plain and v != UNSET else _assignment(n, v) for n, v in own]
        found[setting] = " ".join(words) or setting.name
    return found


def _assignment(name: str, value: str) -> str:
    return f"{name} unset" if value == UNSET else f"{name}={value}"


def require_read(settings: Sequence[Setting], backend: str) -> None:
    """Raise UsageError for a variable that nothing reads, or that this backend does not read: the
    settings would not differ."""
    names = dict.fromkeys(name for setting in settings for name, _ in setting.variables)
    for name in names:
        if (suggestion := suggest_variable(name, backend)) is not None:
            why = f"--env {name}: nothing in torch or its backends is known to read {name}"
            guess = f"did you mean {suggestion}? " if suggestion else ""
            raise UsageError(why, f"{guess}--force sweeps it anyway")
    if unread := find_unread(names, backend):
        why = f"{backend} does not read {', '.join(unread)}: the settings would not differ"
        raise UsageError(why, "choose the --backend that reads it; --force sweeps it anyway")


def make_value(
    operations: Sequence[str], value: str, version: tuple[int, ...]
) -> tuple[str, tuple[str, ...]]:
    """The value of NCCL_ALGO to set for these operations, and the operations that it applies to.

    Sources: NCCL's documentation of NCCL_ALGO, its src/graph/tuning.cc and src/enqueue.cc (2.30).
    `TREE` becomes `allreduce:tree`: from 2.24 on a bare TREE makes every function without a tree
    algorithm fail. A value that already names or excludes functions stays as it is.
    """
    algorithms = [part.strip().lower().replace("_", "") for part in value.split(",")]
    known = {name for operation in OPERATIONS.values() for name in operation.nccl_algorithms}
    if set(value) & set(":;^") or not set(algorithms) <= known:
        return value, tuple(operations)
    fitting = {
        operation: [a for a in algorithms if a in OPERATIONS[operation].nccl_algorithms]
        for operation in operations
    }
    applies = tuple(operation for operation, found in fitting.items() if found)
    if version < FUNCTIONS_SINCE:
        return value, applies
    functions = [OPERATIONS[operation].nccl_function.lower() for operation in applies]
    parts = (f"{name}:{','.join(fitting[o])}" for name, o in zip(functions, applies, strict=True))
    return ";".join(dict.fromkeys(parts)), applies


def order_rounds(
    settings: Sequence[Setting], rounds: int, seed: int
) -> tuple[tuple[int, Setting], ...]:
    """Round numbers, from 1, and settings in the order of measuring: each round has each setting
    once, in a random order, so that a drift of the machine affects all settings alike."""
    generator = Random(seed)
    numbers = range(1, rounds + 1)
    return tuple((n, each) for n in numbers for each in generator.sample(settings, len(settings)))
