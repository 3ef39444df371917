"""The formats in which every answer is written, how a command prints or writes one, and results as
JSON: the fields of named tuples and data classes, with their own names.

In JSON, numbers are in SI units, and names say which: `median_s`, `size_bytes`. An Estimate is an
object with `value`, `low` and `high`. Numbers have seven digits; null: what is not known.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from math import isfinite
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from commbench.errors import CommbenchError, UnavailableError, UsageError
from commbench.output.text import runs_in_actions
from commbench.results.files import write_new
from commbench.stats import PASS
from commbench.units import format_bytes, format_share, format_time, seven_digits
from commbench.validation import choose, with_known_keywords
from commbench.views.document import Document, Pictures

if TYPE_CHECKING:
    from pandas import DataFrame

    from commbench.views.draw import Drawn

_EXACT = 1 << 53
"""Integers below it are exact as floats."""


def as_json(value: Any) -> Any:
    """The value as objects, lists, texts and numbers.

    A class whose fields are not what a reader needs has a method `as_json`, which returns what is
    converted instead. Fields that begin with an underscore are left out.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _EXACT:
            return int(value)
        return seven_digits(value) if isfinite(value) else None
    if own := getattr(value, "as_json", None):
        return as_json(own())
    if isinstance(value, Mapping):
        return {str(name): as_json(found) for name, found in value.items()}
    if (names := field_names(value)) is not None:
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Iterable):
        return [*map(as_json, value)]
    return str(value)


def field_names(value: Any) -> list[str] | None:
    """The fields of a named tuple or data class that are not private; None for anything else."""
    names = getattr(value, "_fields", None)
    if names is None and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    return None if names is None else [name for name in names if not name.startswith("_")]


def fields_of(value: Any, *more: str, without: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a value, some left out, and some properties: for a method `as_json`."""
    names = [*(field_names(value) or ()), *more]
    return {name: getattr(value, name) for name in names if name not in {*without}}


def json_text(schema: int | None, result: Any) -> str:
    """A result as a JSON object that begins with the number of its schema."""
    return json.dumps({"schema": schema, **as_json(result)}, indent=1, allow_nan=False) + "\n"


def _seconds(value: float) -> str:
    return f"{value * 1e9:.3g} ns" if value < 1e-6 else format_time(value)


UNITS: dict[str, Callable[[Any], str]] = {
    "_bytes": format_bytes, "_s": _seconds, "_share": format_share, "_hz": "{} Hz".format,
    "_mhz": "{} MHz".format, "_w": "{:.0f} W".format, "_c": "{:.0f} °C".format,
}  # fmt: skip


def facts(found: Any) -> Iterator[tuple[str, str]]:
    """The known facts of a mapping, named tuple or data class: `cache` and `32 MiB` for
    `cache_bytes`. Those of a mapping within keep their own names."""
    named = found if isinstance(found, Mapping) else fields_of(found)
    for name, value in named.items():
        if isinstance(value, Mapping):
            yield from ((str(inner), _text(content)) for inner, content in value.items())
        elif value not in (None, "", (), []):
            unit = next((end for end in UNITS if name.endswith(end)), "")
            shown = name if unit == "_share" else name.removesuffix(unit)
            yield shown.replace("_", " "), UNITS.get(unit, _text)(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        inner = " " if any(isinstance(each, float) for each in value) else ", "
        return inner.join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


TEXT, MARKDOWN, HTML, JSON = "text", "markdown", "html", "json"
OWN_PAGE = re.compile(
    rb'<!doctype html>\s<html lang="en">\s<head>\s<meta charset="utf-8">\s'
    rb'<meta name="generator" content="commbench">'
)
"""How the HTML files of commbench begin."""
ENDINGS = {
    ".txt": TEXT, ".md": MARKDOWN, ".markdown": MARKDOWN, ".html": HTML, ".htm": HTML,
    ".json": JSON,
}  # fmt: skip
"""The format of a file, by the ending of its name."""
WRITERS = {
    TEXT: "commbench.views.terminal", MARKDOWN: "commbench.views.markdown",
    HTML: "commbench.views.html",
}  # fmt: skip
"""The modules that write documents; each takes time to import."""


class View(NamedTuple):
    """How results of one kind are shown."""

    document: Callable[[Any], Document]
    """Describes a result."""
    schema: int | None
    """Version of its JSON; raised when a field changes its meaning or goes. None: it has none."""
    data: Callable[[Any], Any] = lambda result: result
    """What JSON holds of a result; the result itself, where its fields are what a reader needs."""
    more: Mapping[str, Callable[[Any], str]] = {}
    """The formats that only these results have."""
    junit: Callable[[Any], bytes] | None = None
    """Writes JUnit XML, for --junit."""
    annotations: Callable[[Any], Sequence[str]] = lambda _: ()
    """The commands to GitHub's runner; where there are some, the step's summary has the result."""

    @property
    def formats(self) -> tuple[str, ...]:
        """The names of the formats."""
        return (*WRITERS, *([JSON] if self.schema else []), *self.more)

    @property
    def endings(self) -> dict[str, str]:
        """The formats of files, by the endings of their names."""
        return ENDINGS | {f".{name}": name for name in self.more}

    def require(self, format_: str) -> None:
        """Raise UsageError for an unknown format."""
        choose("format", format_, dict.fromkeys(self.formats))

    def write(self, result: Any, format_: str = TEXT, is_verbose: bool = False) -> str:
        """The result in that format. UsageError for an unknown one."""
        self.require(format_)
        if format_ in self.more:
            return self.more[format_](result)
        if format_ == JSON:
            return json_text(self.schema, self.data(result))
        write: Callable[[Document, bool], str] = import_module(WRITERS[format_]).write
        return write(self.document(result), is_verbose)


def find_view(name: str) -> View:
    """The VIEW of a module of commbench, such as `answers.advise.document`; or `module:NAME`."""
    module, _, view = name.partition(":")
    found: View = getattr(import_module(f"commbench.{module}"), view or "VIEW")
    return found


VIEW_OF_DOCUMENT = View(lambda document: document, schema=None)
"""Of a document that is there already."""


def choose_format(
    format_: str | None, output: str | Path | None, usual: str = TEXT,
    endings: Mapping[str, str] = ENDINGS,
) -> str:  # fmt: skip
    """That format; without a name that of the file's ending, else the usual one. Raises UsageError
    for an ending that has none, or the name of another format."""
    ending = Path(output or "").suffix
    of_ending = {**ENDINGS, ".csv": "csv", **endings}.get(ending.lower(), TEXT)
    if format_ in endings.values() and of_ending not in (TEXT, format_):
        trouble = f"--format {format_} contradicts the ending of --output {output}"
        raise UsageError(trouble, "leave out --format, or change the ending")
    if format_ is not None or output is None:
        return format_ or usual
    if ending.lower() not in endings:
        problem = f": {ending!r} is no ending of a format" if ending else " has no ending"
        raise UsageError(
            f"--output {output}{problem}", f"end the name in {', '.join(endings)}, or give --format"
        )
    return endings[ending.lower()]


def print_or_write(content: str | bytes, output: Path | None) -> None:
    """Print a text, or write it or bytes to a file that does not exist yet and print its path."""
    from commbench.output.console import print_result

    if output is None:
        print_result(content, end="")
    else:
        write_new(output, content)
        print_result(output)


def show(
    view: View,
    result: Any,
    format_: str | None = None,
    output: Path | None = None,
    is_verbose: bool = False,
    junit: Path | None = None,
    json: Path | None = None,
) -> None:
    """Print a result, or write it into a new file and print the file's name; and what continuous
    integration reads."""
    from commbench.output.ci import OWN_JUNIT, add_to_summary
    from commbench.output.console import print_workflow_commands

    chosen = choose_format(format_, output, endings=view.endings)
    print_or_write(view.write(result, chosen, is_verbose), output)
    if junit and view.junit:
        write_new(junit, view.junit(result), OWN_JUNIT)
    if json:
        write_new(json, view.write(result, JSON))
    if runs_in_actions() and (lines := view.annotations(result)):
        print_workflow_commands(*lines)
        add_to_summary(view.write(result, MARKDOWN))


_FRAME = '<iframe srcdoc="{}" style="width:100%;height:{:.0f}em;border:0"></iframe>'
"""A page within a notebook; neither changes the style of the other."""
_LINE = re.compile(r"<(?:tr|li|dt)\b")
_VIEW_BOX = re.compile(r'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Result:
    """Prints as its command does; its repr is a line with its title, and one with the answer."""

    __slots__ = ()
    _view: ClassVar[str]
    """What find_view finds."""
    _rows: ClassVar[Sequence[str]]
    """The keys of its JSON that lead to the rows of its frame; none: it is a row itself."""

    def __init_subclass__(cls, view: str = "", rows: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._view, cls._rows = view or cls._view, rows.split()
        cls.__hash__ = Result.__hash__  # type: ignore[method-assign]  # a dataclass has another
        for name, own in [*vars(cls).items()]:
            if isinstance(own, FunctionType) and name[0] != "_":
                setattr(cls, name, with_known_keywords(own))

    def _shown(self) -> tuple[View, Any]:
        """The view, and what it shows."""
        return find_view(self._view), self

    @property
    def answer(self) -> list[str]:
        """The sentences on top: the answer, then what limits it."""
        view, shown = self._shown()
        return [CommbenchError.worded(each) for each in view.document(shown).answer]

    @with_known_keywords
    def text(self, format: str = TEXT, *, verbose: bool = False) -> str:
        """The answer in a format of its command: "text", "markdown", "html", "json" and others."""
        view, shown = self._shown()
        return view.write(shown, format, verbose).rstrip("\n")

    @with_known_keywords
    def frame(self) -> DataFrame:
        """A pandas DataFrame of the rows of its JSON, in SI units; of a value with an interval the
        columns `time_s.value`, `time_s.low` and `time_s.high`, for example."""
        from pandas import json_normalize

        view, shown = self._shown()
        return json_normalize([*_rows_of(as_json(view.data(shown)), self._rows)])

    @with_known_keywords
    def plot(self, output: str | Path | None = None) -> Drawn:
        """Draw it: into a new .png, .svg or .pdf file, or into PNG files of a folder. Without
        `output` nothing is written. A notebook shows the pictures. UnavailableError where there is
        none."""
        from commbench.views.draw import Drawn, write_pictures

        view, shown = self._shown()
        blocks = view.document(shown).blocks
        drawn = [each for b in blocks if isinstance(b, Pictures) for each in b.draw()]
        if not drawn:
            raise UnavailableError("there is no picture of this result", "print it, or use frame()")
        return Drawn(drawn) if output is None else write_pictures(drawn, Path(output))

    def _repr_html_(self) -> str:
        from html import escape

        page = self.text(HTML)
        pictures = sum(64 * float(high) / float(wide) for wide, high in _VIEW_BOX.findall(page))
        height = 14 + 2.3 * len(_LINE.findall(page)) + pictures
        return _FRAME.format(escape(page), min(height, 160))

    def __hash__(self) -> int:
        return hash(type(self))  # what is equal has one hash, and fields may be lists

    def __dir__(self) -> list[str]:
        names = object.__dir__(self)
        return [name for name in names if name[0] != "_" and not hasattr(tuple, name)]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        view, shown = self._shown()
        found = view.document(shown)
        answer = found.answer[found.verdict :] or found.answer
        more = f" (and {len(answer) - 2} more)" * (len(answer) > 2)
        told = CommbenchError.worded(" ".join(answer[:2])) + more
        return f"<{type(self).__name__}: {found.title}>" + f"\n{told}" * bool(told)


def _rows_of(found: Any, keys: Sequence[str], texts: Any = None) -> Iterator[dict[str, Any]]:
    """The objects that the keys lead to, each with the texts of those on the way."""
    for each in found if isinstance(found, list) else [found]:
        if keys:
            own = {n: v for n, v in each.items() if isinstance(v, str)} if texts is not None else {}
            yield from _rows_of(each[keys[0]], keys[1:], {**(texts or {}), **own})
        else:
            yield {**(texts or {}), **each}


def write_verdict_files(
    folder: Path,
    stem: str,
    lists: Mapping[str, Sequence[str]],
    shown: tuple[View, Any],
    nodes: Iterable[tuple[str, str, str]],
    answer: str,
    failed: str,
) -> list[Path]:
    """Write a list for each verdict with a name in each line, and a result in the other formats as
    files named `stem`; their paths. `nodes` are names, verdicts and reasons: in JUnit, with
    `answer` as the title, each is a test case, which passes with the verdict PASS, fails with
    `failed`, and else is an error: it could not be judged."""
    from commbench.output.ci import FAILURE, PASSED, UNJUDGED, JUnitCase, JUnitSuite, junit_xml

    view, result = shown
    ends = {PASS: PASSED, failed: FAILURE}
    cases = [
        JUnitCase(name, ends.get(verdict, UNJUDGED), reason, verdict)
        for name, verdict, reason in nodes
    ]
    files: dict[str, str | bytes] = {
        f"{verdict}.txt": "".join(f"{name}\n" for name in names) for verdict, names in lists.items()
    }
    files |= {f"{stem}.{each}": view.write(result, each) for each in (JSON, HTML)}
    files["junit.xml"] = junit_xml([JUnitSuite(f"commbench {stem}", cases)], answer)
    for name, content in files.items():
        write_new(folder / name, content)
    return [*map(folder.joinpath, files)]
