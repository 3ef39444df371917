"""docs/options.md: what `--help` of every command prints, from `expected/`."""

from __future__ import annotations

from textwrap import fill

from golden.cases import COMMANDS
from golden.runner import EXPECTED, HERE, name_of

PAGE = HERE.parent.parent / "docs" / "options.md"
HEAD = """# Commands and options

This is what `commbench COMMAND --help` prints (written by `scripts/golden`). [All
questions](README.md) has the commands by question.
"""


def make_page() -> str:
    """The text of the page."""
    names = ["commbench", *filter(None, COMMANDS)]
    links = ", ".join(f"[{name}](#{name.replace(' ', '-')})" for name in names)
    parts = [HEAD, f"{fill(links, 120, break_on_hyphens=False)}\n"]
    for name, command in zip(names, ("", *filter(None, COMMANDS)), strict=True):
        found = (EXPECTED / f"{name_of(f'{command} --help'.strip())}.txt").read_text()
        printed = found.split("--- standard output\n")[1].strip()
        parts.append(f"## {name}\n\n```\n{printed}\n```\n")
    return "\n".join(parts)
