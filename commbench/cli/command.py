"""Makes of an entry of COMMANDS the function that Typer calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from commbench.cli.commands import COMMANDS
from commbench.cli.options import OfRun, Option

NAMES = {"import": "import_", "list": "list_"}
"""Functions of commands whose own name Python uses itself."""
_TYPES = {
    "Sequence[str]": list[str], "tuple[str": list[str], "Path": Path, "AnyRun": str, "str": str,
    "float": float, "int": int, "bool": bool,
}  # fmt: skip
"""The type on the command line, by the first word that the annotation in Python contains."""
Show = Callable[..., None]
"""Shows the result of a command, as its options ask for; of a command that has an --output of its
own, into `output` if that is given."""
_SHOWN = ("format", "output", "verbose")


def make_function(name: str) -> Callable[..., None]:
    """The function of a command, such as `job slurm`, with the parameters that Typer reads."""
    entry = COMMANDS[name]
    word = name.split()[-1]
    carry_out = getattr(import_module(f"commbench.cli.{entry.module}"), NAMES.get(word, word))
    own = inspect.signature(carry_out).parameters

    def function(**given: Any) -> None:
        if entry.view:
            for_view = {key: given.pop(key, None) for key in _SHOWN if key not in own}
            carry_out(_shown_by(entry.view, **for_view), **given)
        else:
            carry_out(**given)

    options = entry.options() if callable(entry.options) else entry.options
    known = _python_parameters(entry.api)
    parameters = [
        _of_run(key, option) if isinstance(option, OfRun) else _make(key, option, known.get(key))
        for key, option in options.items()
    ]
    if "context" in own:
        parameters.insert(0, _parameter("context", inspect.Parameter.empty, typer.Context))
    function.__name__, function.__doc__ = carry_out.__name__, carry_out.__doc__
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _shown_by(
    view_module: str,
    format: str | None = None,
    output: Path | None = None,
    verbose: bool | None = False,
) -> Show:
    """What shows a result of a command in that way. UsageError or RecordsError, before anything is
    computed, where that is not possible."""
    from commbench.results.files import require_new
    from commbench.views.formats import choose_format, show

    view = import_module(f"commbench.{view_module}").VIEW
    view.require(choose_format(format, output))
    if output is not None:
        require_new(output)
    return partial(show, view, format_=format, output=output, is_verbose=bool(verbose))


def _python_parameters(functions: tuple[str, ...]) -> Mapping[str, inspect.Parameter]:
    """The parameters of Python functions; those of the first one win."""
    found: dict[str, inspect.Parameter] = {}
    for dotted in functions:
        module, _, name = dotted.rpartition(".")
        function = getattr(import_module(module or "commbench.api"), name)
        found = {**inspect.signature(function).parameters, **found}
    return found


def _make(name: str, option: Option, python: inspect.Parameter | None) -> inspect.Parameter:
    """The parameter that declares an option or an argument to Typer."""
    default, kind = option.default, option.type
    if kind is None:
        assert python, f"{name} is no parameter of the Python function, and has no type"
        kind = next(kind for text, kind in _TYPES.items() if text in str(python.annotation))
        default = python.default if default is None else default
    is_required = default in (..., inspect.Parameter.empty)
    if kind == list[str] and not default:
        default = []
    declare: Any = typer.Argument if option.is_argument else typer.Option
    flags = option.flags.split() or [f"--{name.replace('_', '-')}"]
    declaration = declare(
        *([] if option.is_argument else flags),
        metavar=option.metavar or None,
        help=option.help() if callable(option.help) else option.help,
        show_default=default not in (None, "", []),
        rich_help_panel=option.panel or None,
    )
    return _parameter(
        name,
        inspect.Parameter.empty if is_required else default,
        Annotated[kind | None if default is None else kind, declaration],
    )


def _of_run(name: str, option: OfRun) -> inspect.Parameter:
    from commbench.cli.run_parameters import make_parameter

    return make_parameter(name, **option.changes)


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
