"""docs/options.md: what `--help` of every command prints, from `expected/`."""

from __future__ import annotations

from textwrap import fill

from golden.cases import COMMANDS
from golden.runner import EXPECTED, HERE, name_of

PAGE = HERE.parent.parent / "docs" / "options.md"
HEAD = """# Commands and options

This is what `commbench COMMAND --help` prints (written by `scripts/golden`).
[README](../README.md#what-do-you-want-to-know) has the commands by question.
"""


PAGES = {
    "advise": "advice", "check": "gates rules", "compare": "comparing", "doctor": "doctor",
    "expect": "expect", "explain": "models", "export": "report", "fleet": "fleet",
    "history": "history", "import": "nccl-tests", "init": "groups", "job": "clusters",
    "model": "models", "pairs": "pairs", "plot": "report", "preflight": "fleet",
    "replay": "replay", "report": "report", "run": "measuring", "show": "measuring columns",
    "smoke": "measuring", "soak": "faults", "sweep": "sweeping", "workload": "replay",
}  # fmt: skip
"""The pages about a command."""


def make_page() -> str:
    """The text of the page."""
    names = [command or "commbench" for command in COMMANDS]
    links = ", ".join(f"[{name}](#{name.replace(' ', '-')})" for name in names)
    parts = [HEAD, f"{fill(links, 120, break_on_hyphens=False)}\n"]
    for name, command in zip(names, COMMANDS, strict=True):
        found = (EXPECTED / f"{name_of(f'{command} --help'.strip())}.txt").read_text()
        printed = found.split("--- standard output\n")[1].strip()
        pages = PAGES.get(name.partition(" ")[0], "").split()
        about = f"More: {', '.join(f'[{page}]({page}.md)' for page in pages)}.\n\n" if pages else ""
        parts.append(f"## {name}\n\n{about}```\n{printed}\n```\n")
    return "\n".join(parts)
