"""Imports run downwards through the layers of CONTRIBUTING.md, and never in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "commbench"
HEAVY = ("torch", "numpy", "pandas", "matplotlib")


class Import(NamedTuple):
    """One import statement, of one module."""

    path: str
    """The importing file, relative to the package: `spec/plan.py`."""
    line: int
    target: str
    """The imported module: `commbench.plan.case`, `torch.distributed`."""
    at_import: bool
    """Whether it runs when the importing module is imported: it stands in no function, and is not
    for type checkers only."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.target}"


def tables() -> list[list[list[str]]]:
    """The tables of the section `Layers` as cells, without their heads."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Layers\n")
    blocks = re.findall(r"(?:^\|.*\n)+", section.partition("\n## ")[0], re.MULTILINE)
    return [[line.split("|")[1:-1] for line in block.splitlines()[2:]] for block in blocks]


def layers() -> list[list[str]]:
    """The rooms of each layer, the lowest first."""
    return [re.findall(r"`([^`]+)`", cells[0]) for cells in tables()[0]]


def may_import_heavy(path: str) -> tuple[str, ...]:
    """The libraries that a file may import at its top."""
    allowed = {re.findall(r"`([^`]+)`", room)[0]: what for room, what in tables()[1]}
    what = allowed.get(path, allowed.get(path.partition("/")[0], ""))
    return tuple(name for name in HEAVY if name in what)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, packages included, by its dotted name."""
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for path in modules().values() for found in _imports_of(path))


def _imports_of(path: Path) -> Iterator[Import]:
    shown = str(path.relative_to(PACKAGE))

    def visit(node: ast.AST, at_import: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(shown, node.lineno, name.name, at_import)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{shown}:{node.lineno}: a relative import"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                target = inner if inner in modules() else node.module
                if inner != "commbench.__version__":
                    yield Import(shown, node.lineno, target, at_import)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_import and not is_function and not is_for_types)

    yield from visit(ast.parse(path.read_text()), at_import=True)


def room(module: str) -> str:
    """The folder or file of the package that a module lies in, and in `answers` the folder there;
    `__init__` for the package."""
    _, first, second, *_ = [*module.split("."), "__init__", "__init__"]
    return f"{first}/{second}" if first == "answers" and second != "__init__" else first


def test_every_folder_and_file_of_the_package_has_one_layer() -> None:
    named = [name for layer in layers() for name in layer]
    there = {room(module) for module in modules()}
    assert len(named) == len(set(named))
    assert there - set(named) == set()
    assert set(named) - there <= {"api"}


def test_every_folder_says_in_a_sentence_what_lives_there() -> None:
    folders = [path for path in modules().values() if path.name == "__init__.py"]
    silent = [path for path in folders if not ast.get_docstring(ast.parse(path.read_text()))]
    assert [str(path) for path in silent] == []


def test_no_import_runs_upwards_or_sideways() -> None:
    height = {name: number for number, layer in enumerate(layers()) for name in layer}
    wrong = [
        str(found)
        for found in imports()
        if found.target.partition(".")[0] == "commbench"
        and room(found.target) != (mine := room(module_name(PACKAGE / found.path)))
        and height[room(found.target)] >= height[mine]
    ]
    assert wrong == []


MAKES_DATA = re.compile(
    r"commbench\.(analysis|worker|launch|readers|runner\.(session|planning)"
    r"|answers\.(doctor\.checkup|show\.plots)|results\.(journal|journal_reader))\b"
)
"""What a command gets by the Python functions, so that there is no second way to the same data."""


def test_a_command_gets_its_data_from_the_python_functions() -> None:
    wrong = [
        str(found)
        for found in imports()
        if found.path.startswith("cli/") and MAKES_DATA.match(found.target)
    ]
    assert wrong == []


def test_no_module_needs_itself_to_be_imported() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.at_import and found.target in graph:
            graph[module_name(PACKAGE / found.path)].add(found.target)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("library", HEAVY)
def test_what_is_slow_to_import_is_imported_where_it_is_needed(library: str) -> None:
    wrong = [
        str(found)
        for found in imports()
        if found.at_import
        and found.target.partition(".")[0] == library
        and library not in may_import_heavy(found.path)
    ]
    assert wrong == []


def test_the_reader_of_imports_sees_what_stands_in_functions_and_for_types_only() -> None:
    seen = {(found.path, found.target): found.at_import for found in imports()}
    assert seen["plan/plan.py", "commbench.plan.case"]
    assert not seen["plan/plan.py", "commbench.plan.links"]
    assert not seen["plan/dimensions.py", "commbench.plan.plan"]
