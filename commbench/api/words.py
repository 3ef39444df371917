"""Texts about options and commands in the words of Python: its arguments and calls."""

from __future__ import annotations

import re
from functools import cache

_CALLS = {
    "model fit": "fit_model", "model predict": "predict", "history add": "history.add",
    "history accept": "history.accept", "history list": "history.list_",
    "history show": "history.show", "env": "environment",
    "import": "import_results", "workload import": "workload.load", "expect RUN": "expect_run",
    "workload show": "workload.analyse", "list": "list_runs", "sweep --resume": "resume_sweep",
}  # fmt: skip
"""The calls of commands that have another name in Python."""
_SAME_NAMES = ("advise", "check", "compare", "doctor", "expect", "explain", "export", "fleet",
               "pairs", "plot", "replay", "report", "run", "smoke", "soak", "sweep")  # fmt: skip
"""The commands whose call has the same name."""
SWITCHES = frozenset({"allow_unchecked", "allow_unmatched", "force", "quick"})
"""The arguments that are True or False, beside those of `run`."""
_COMMAND = re.compile(f"`commbench (?P<name>{'|'.join([*_CALLS, *_SAME_NAMES])})(?P<rest>| [^`]*)`")
_GIVEN = re.compile(r" --([a-z-]+)(?:[ =]('[^']*'|[^ '-][^ ]*))?")
_OPTION = re.compile(
    r"""(?P<command>`[^`-][^`]*`|\bcommbench\ [a-z]+\ .*)
    | (?P<verb>\b(?:write|give|add|or|try|leave\ out|did\ you\ mean|:)\ )?
      (?<![\w-])--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*)
      (?:(?P<named>(?=\ cannot\ be\ ))
        |[ =](?P<value>'[^']*'|\[[^]]*\]|[A-Z]{2,}\b|-?[\w.]*\w(?:[:+,/=.-]*\w)*%?))?""",
    re.VERBOSE,
)
"""A command; or an option, perhaps with a word that may be its value, or the one that is wrong."""
_NEXT = re.compile(r"""\b[a-z_]+=("[^"]*"|[^\s,"]+)(?=\ [a-z_]+=)""")
"""An argument before another one."""
_NOT_QUOTED = re.compile(r"'.*'|\[.*|[A-Z]+|-?\d+(\.\d+)?(e-?\d+)?")
_NO_VALUES = ("and", "or", "as", "to", "of", "in", "on", "with", "is", "has", "for", "alone")


def worded(text: str) -> str:
    """A text about options as one about arguments of a Python function: `--root 2` is `root=2`,
    `--no-plots` is `plots=False`. A command in quotes is the call that does the same; one without
    such a call stays as it is."""
    from commbench.runner.call_options import NCCL_TESTS_FLAGS

    for option in NCCL_TESTS_FLAGS:  # the long flag of a letter of nccl-tests
        text = re.sub(rf"(?<![\w-]){option.flag}\b", f"--{option.name.replace('_', '-')}", text)
    text = re.sub(r"(?<=write |ample )\d[\d.]*%", lambda found: f'"{found[0]}"', text)
    text = re.sub("(?<=these can: )[^;]*", lambda found: found[0].replace("-", "_"), text)
    return _NEXT.sub(r"\g<0>,", _OPTION.sub(_as_argument, text))


@cache
def _arguments() -> tuple[dict[str, str], frozenset[str]]:
    """The arguments that options of another name set, and those that are True or False."""
    from commbench.runner.run_options import RUN_OPTIONS

    options = [option for option in RUN_OPTIONS.values() if "api" not in option.refused_by]
    names = {flag[2:]: option.name for option in options for flag in option.all_flags}
    return names, SWITCHES.union(o.name for o in options if o.type is bool)


def _name(flag: str) -> str:
    return _arguments()[0].get(flag, flag.replace("-", "_"))


def _assigned(name: str, value: str) -> str:
    if name in ("env", "vary"):
        varied, _, values = value.strip("'").partition("=")
        key = varied.replace("-", "_") if name == "vary" else varied
        several = values.split(",") if values else "[...]"
        return f"{name}={{{key!r}: {several}}}"
    return f"{name}={value}" if _NOT_QUOTED.fullmatch(value) else f'{name}="{value}"'


def _as_call(command: re.Match[str]) -> str:
    name = _CALLS.get(command["name"], command["name"])
    if command["rest"] == " --help":
        return f"help(commbench.{name})"
    found = [(_name(flag), value) for flag, value in _GIVEN.findall(command["rest"])]
    given = [_assigned(name, value) if value else f"{name}=True" for name, value in found]
    more = _GIVEN.sub("", command["rest"]).strip()
    first = [more if more.isdigit() else "..."] * bool(more or "RUN" in command["name"])
    return f"`commbench.{name}({', '.join(first + given)})`"


def _as_argument(found: re.Match[str]) -> str:
    if command := found["command"]:
        is_whole = found.string[: found.start()].endswith(": ")  # a hint ends with it
        return _COMMAND.sub(_as_call, f"`{command}`" if is_whole and command[0] != "`" else command)
    verb, value, name = found["verb"] or "", found["value"] or "", _name(found["name"])
    if found["no"] or (name in _arguments()[1] and found["named"] is None):
        return f"{verb}{name}={not found['no']} {value}".rstrip()
    is_word = value.isalpha() and not value.isupper()
    if not value or value in _NO_VALUES or (is_word and not verb):
        return f"{verb}{name} {value}".rstrip()
    return verb + _assigned(name, value)
