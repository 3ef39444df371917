"""Calls of the user's own: other ways to the result of an operation, measured beside its own call.

A call is named by its specification: `package.module:name`, `file.py:name`, or the name under which
a package has installed it in the entry point group `commbench.calls`. What it says about itself is
data of the plan, an OwnCall, so that files can be read without it; the ranks load it themselves.
Importing it may import torch. Only `describe` and `load` do.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from zlib import crc32

from commbench.errors import UnavailableError, UsageError, first_line, name_error
from commbench.plan.call_forms import CALL_FORMS, CallForm
from commbench.plan.operation import BUSBW_FACTORS, Extent, Operation
from commbench.plan.operations import DEFAULT_OPERATION, OPERATIONS
from commbench.validation import brief

ENTRY_POINTS = "commbench.calls"
"""The entry point group in which a package names its calls."""
TORCH = "torch"
"""The specification of the operation's own call only: a setting to compare with in a sweep."""
CLASS = (
    "a class has `operation`, `__call__(self, output, input)` and perhaps "
    "`setup(self, group, device, dtype, count)`"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODULE = re.compile(r"\w+(\.\w+)*")
_SIZES = (Extent.WHOLE.value, Extent.BLOCK.value)


class OwnCall(NamedTuple):
    """What is known of a call without its code; all fields are text."""

    name: str
    """Its `name`, or that of its class: the value of Case.call."""
    operation: str
    source: str
    """Its specification."""
    digest: str = ""
    """Of the file that has its code; empty where there is none."""
    busbw_formula: str = ""
    """Its own factor of bus bandwidth, a key of BUSBW_FACTORS; empty for the operation's."""
    send: str = ""
    """How much of S it sends, as a value of Extent; empty for as much as the operation."""
    receive: str = ""
    divides: str = ""
    """`n` where S must be whole elements for each rank."""

    def extents(self, operation: Operation) -> tuple[Extent, Extent]:
        """How much of S a rank sends, and receives."""
        send, receive = self.send or operation.send.value, self.receive or operation.receive.value
        return Extent(send), Extent(receive)


UNKNOWN = OwnCall("", "", "")
"""The call of a row from a results.csv, which has its name only."""


@lru_cache(maxsize=256)
def own_form(own: OwnCall) -> CallForm:
    """A call as a form of its operation's call: what ranks do is in their buffers."""
    return CallForm(
        own.name, f"the call {own.source}", own.source, lambda _, __, b: b.own.run(),
        lambda _, __, b: b.own.start(), is_divided_by_ranks=bool(own.divides),
    )  # fmt: skip


def find_forms(names: Iterable[str], own: Iterable[OwnCall]) -> tuple[CallForm, ...]:
    """The forms of these names, and own calls: what is measured side by side."""
    return (*(CALL_FORMS[name] for name in names), *map(own_form, own))


def suits(operation: Operation) -> bool:
    """Whether there can be own calls for an operation: it moves tensors of one group of ranks."""
    return operation.has_data and not (operation.prepare or operation.memory or operation.registers)


_registered: dict[str, Any] = {}
"""What was given as an object in Python, by specification; forked ranks have it, too."""


def parse_calls(given: Any) -> tuple[str, ...]:
    """The specifications of texts, which may have commas, and of classes; in order, once each."""
    found: list[str] = []
    for item in given if isinstance(given, (list, tuple)) else [given]:
        texts = item.split(",") if isinstance(item, str) else [_register(item)]
        found += [text.strip() for text in texts]
    if not all(found):
        raise UsageError("--call has an empty item", "write --call ring.py:RingAllReduce")
    return tuple(dict.fromkeys(found))


def _register(entry: Any) -> str:
    """The specification of a class, with which other processes load it, or of an object."""
    kind = entry if isinstance(entry, type) else type(entry)
    if kind.__module__ == "builtins":
        raise UsageError(f"--call cannot be {brief(entry)}", f"give a text or a class; {CLASS}")
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    where = file if kind.__module__ == "__main__" and file else kind.__module__
    source = f"{where}:{kind.__qualname__}{'' if kind is entry else '()'}"
    _registered[source] = entry
    return source


def describe_calls(sources: Iterable[str]) -> dict[str, dict[str, str]]:
    """What calls say about themselves, by specification: the values of Plan.own_calls. Raises
    UsageError for what is no call, UnavailableError for one that cannot be imported."""
    return {source: describe(source)._asdict() for source in sources if source != TORCH}


@lru_cache(maxsize=256)
def describe(source: str) -> OwnCall:
    """What the call of a specification says about itself."""
    entry = _find(source)
    operation = getattr(entry, "operation", None)
    if not isinstance(operation, str):
        hint = f'say whose result it gives, such as operation = "{DEFAULT_OPERATION}"; {CLASS}'
        raise UsageError(f"the call {source} has no `operation`", hint)
    if operation not in (known := [name for name, each in OPERATIONS.items() if suits(each)]):
        raise name_error(f"operation of the call {source}:", operation, known)
    kind = entry if isinstance(entry, type) else type(entry)
    if "__call__" not in dir(kind):
        raise UsageError(f"the call {source} has no `__call__(self, output, input)`", CLASS)
    name = getattr(entry, "name", None) or kind.__name__
    if not (isinstance(name, str) and _NAME.fullmatch(name)) or name == TORCH:
        hint = "use up to 64 letters, digits, '.', '_' and '-'"
        raise UsageError(f"the call {source} has the name {brief(name)}", hint)
    send, receive = _sizes(source, entry, OPERATIONS[operation])
    factor = _one_of(source, "factor", getattr(entry, "factor", ""), ("", *BUSBW_FACTORS))
    is_divided = "n" if getattr(entry, "divided", False) else ""
    return OwnCall(name, operation, source, _digest(kind), factor, send, receive, is_divided)


def _sizes(source: str, entry: Any, operation: Operation) -> tuple[str, str]:
    """What a call says about how much a rank sends and receives; empty texts if nothing."""
    sizes = getattr(entry, "sizes", None)
    if sizes is None:
        return "", ""
    if not isinstance(sizes, tuple) or len(sizes) != 2:
        hint = 'write what a rank sends and what it receives: sizes = ("S", "S/n")'
        raise UsageError(f"the call {source} has the sizes {brief(sizes)}", hint)
    send, receive = (_one_of(source, "sizes", each, _SIZES) for each in sizes)
    if not operation.blocks and Extent.BLOCK.value in sizes:
        blocks = ", ".join(n for n, each in OPERATIONS.items() if each.blocks and suits(each))
        hint = f"name an operation with blocks: {blocks}"
        raise UsageError(f"the call {source} has blocks (S/n), and {operation.name} has not", hint)
    if (send, receive) != (operation.send.value, operation.receive.value) and not hasattr(
        entry, "reference"
    ):
        hint = "add reference(inputs, rank), which gives the result"
        raise UsageError(f"the call {source} has sizes of its own and no `reference`", hint)
    return send, receive


def _one_of(source: str, what: str, value: Any, known: Iterable[str]) -> str:
    if value not in tuple(known):
        words = ", ".join(filter(None, known))
        raise UsageError(f"the call {source} has the {what} {brief(value)}", f"known: {words}")
    return str(value)


def load(own: OwnCall) -> Any:
    """The class or object of a call, as this process imports it. UnavailableError where its code is
    not that of the plan."""
    if describe(own.source) != own:
        why = f"the call {own.name} ({own.source}) is not the one of the plan: its code has changed"
        raise UnavailableError(why, "start a new run, or restore the file")
    return _find(own.source)


def _find(source: str) -> Any:
    """The class or object that a specification names."""
    if source in _registered:
        return _registered[source]
    where, colon, name = source.rpartition(":")
    if not colon:
        if source.endswith(".py"):
            module = _found(source, _import_file, source)
            raise UsageError(f"--call {source} names no call", _names_in(module, f"{source}:"))
        points = {point.name: point for point in _entry_points()}
        if source not in points:
            known = [*points, "package.module:name", "file.py:name"]
            raise name_error("call", source, known, lists="`commbench ops --calls`")
        return _found(source, points[source].load)
    is_file = where.endswith(".py")
    if not name or not (is_file or _MODULE.fullmatch(where)):
        hint = "write file.py:name or package.module:name"
        raise UsageError(f"--call {source} names no call", hint)
    module = _found(source, _import_file if is_file else _import, where)
    entry = module
    for part in name.split("."):
        entry = getattr(entry, part, None)
    if entry is None:
        raise UsageError(
            f"the call {source} does not exist: {where} has no {name}", _names_in(module)
        )
    return entry


def _names_in(module: ModuleType, prefix: str = "") -> str:
    """The hint with the calls of a module."""
    known = [f"{prefix}{n}" for n, each in vars(module).items() if hasattr(each, "operation")]
    return f"it has: {', '.join(known)}" if known else CLASS


def _found(source: str, load: Callable[..., Any], *names: str) -> Any:
    try:
        return load(*names)
    except UsageError:
        raise
    except SyntaxError as error:
        why = f"the call {source} cannot be imported: {first_line(error)}"
        raise UsageError(why, "correct the file") from error
    except (Exception, SystemExit) as error:
        why = f"the call {source} cannot be imported: {type(error).__name__}: {first_line(error)}"
        hint = "import it in Python to see where that happens"
        if isinstance(error, ImportError):
            hint += (
                "; a file ends in .py, and modules of the current folder are found, too. `--vary "
                "python` needs it where this commbench is, too"
            )
        raise UnavailableError(why, hint) from error


def _import(name: str) -> ModuleType:
    """A module, also one of the current folder, as `python -m` finds it."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


@lru_cache(maxsize=256)
def _import_file(text: str) -> ModuleType:
    """The module of a file, which finds other modules beside it."""
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        hint = f"write --call file.py:name, as seen from {Path.cwd()}"
        raise UsageError(f"there is no file {text}", hint)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"commbench_call_{crc32(str(path).encode()):08x}_{path.stem}"
    spec = util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def source_file(kind: type) -> str:
    """The file that has the code of a class; empty where there is none, as in an interpreter."""
    with suppress(TypeError, OSError):
        return inspect.getfile(kind)
    return ""


def _digest(kind: type) -> str:
    import hashlib

    with suppress(OSError):
        return hashlib.sha256(Path(source_file(kind)).read_bytes()).hexdigest()[:16]
    return ""


class InstalledCall(NamedTuple):
    """A call that a package has installed."""

    name: str
    package: str
    """The package, with its version."""
    source: str
    """Its class: `package.module:name`."""
    operation: str
    """Whose result it gives; empty where it cannot be loaded."""
    trouble: str = ""
    """Why it cannot be loaded."""


def _entry_points() -> Iterable[Any]:
    from importlib import metadata

    return metadata.entry_points(group=ENTRY_POINTS)


def installed_calls() -> list[InstalledCall]:
    """The calls of the entry point group; each is loaded."""
    found = []
    for point in sorted(_entry_points(), key=lambda each: each.name):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
        operation = trouble = ""
        try:
            operation = describe(point.name).operation
        except (UsageError, UnavailableError) as error:
            trouble = error.message
        found.append(InstalledCall(point.name, package, point.value, operation, trouble))
    return found
