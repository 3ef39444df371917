"""What an option of a command is, and how given values are parsed and checked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import formatannotation
from numbers import Real
from typing import Any, NamedTuple, get_args, get_origin

from commbench.errors import UsageError, wrong_value
from commbench.plan.operation import Operation
from commbench.units import format_sizes, parse_sizes
from commbench.validation import refuse_type, require_known, require_within

RANKS, USER, HERE = "ranks", "a user's command", "this process"
"""Who gets an option: the ranks that join; a command for the user to run, too; or nobody else."""
SPECIAL_GROUPS = (
    "Groups of ranks", "Forms of a call", "Overlap", "Point to point", "Unequal blocks", "Replay",
)  # fmt: skip
"""The groups of options that most runs do not need."""
_LONGEST_LABEL = 64
_REFUSALS = {
    "resume": "cannot be used with --resume",
    "sweep": "cannot be used in a sweep",
    "job": "cannot be used after the -- of a job",
    "preflight": "cannot be used after the -- of a preflight",
    "api": "is for the command line only",
    "measure": "cannot be used with commbench.measure",
}
"""The users of options that may refuse one, and what they say."""


_TELLS_NOTHING = ("", "none", "no soak", "start a new run")
"""Defaults that the help leaves out."""


class Option(NamedTuple):
    """An option of a command, or an argument; most fields are for those of `commbench run` only."""

    metavar: str
    help: str
    group: str = ""
    """The heading under which the help lists it."""
    type: Any = None
    """By default that of the parameter of the Python function, which then has the default, too."""
    default: Any = None
    """`...` for one that must be given."""
    flags: str = ""
    """Separated by blanks, the one of messages first; by default made of its name."""
    is_argument: bool = False
    separator: str = ""
    """Joins the values of one that takes several in one text, where it is given more than once."""
    default_text: str = ""
    """What the help says of its default, where that is not the value."""
    name: str = ""
    """Its name in Python."""
    plan: str = ""
    """The field of Plan that it sets; empty for none."""
    parse: Callable[[Any], Any] | None = None
    """Makes the value from what was given on the command line or in Python."""
    choices: tuple[str, ...] = ()
    """The values that it may have; the plan checks those of its own fields."""
    limits: tuple[int, int] | None = None
    """Its least and its largest value."""
    require: Callable[[Any], object] | None = None
    """Raises UsageError for another bad value."""
    python_type: str = ""
    """The type that it takes in Python, where that is more than its own."""
    reach: str = RANKS
    """Who gets it: one of RANKS, USER, HERE."""
    is_fixed: bool | None = None
    """Whether a run has one value, also when it is resumed; default: if it is in the plan."""
    may_grow: bool = False
    """Whether a run that is resumed may have a larger value."""
    is_varied: bool = False
    """Whether `commbench sweep --vary` takes it."""
    refused_by: tuple[str, ...] = ()
    """The users (keys of _REFUSALS) that refuse a value other than the default."""
    chooses_calls: bool = False
    """Whether it says what is called, so that a workload does instead."""
    needs: Callable[[Operation], object] | None = None
    """Whether it has an effect on an operation; it is refused where there is no such one."""
    sets: str = ""
    """Another option whose value it gives, in the notation of nccl-tests."""

    @property
    def is_kept(self) -> bool:
        """Whether --resume refuses another value."""
        return bool(self.plan) if self.is_fixed is None else self.is_fixed

    @property
    def all_flags(self) -> list[str]:
        """Its flags; one that is on by default can be turned off."""
        flag = f"--{self.name.replace('_', '-')}"
        return self.flags.split() or [f"{flag}/--no-{flag[2:]}" if self.default is True else flag]

    @property
    def flag(self) -> str:
        """Its flag in messages: `--check` of `--check/--no-check`."""
        return self.all_flags[0].split("/")[0]

    @property
    def help_text(self) -> str:
        """What the help says of it, with its default."""
        text = self.default_text
        if self.default is True:
            text = self.flag
        elif not text and self.default is not False and self.default not in (None, "", (), ...):
            text = value_text(self.default)
        return self.help if text in _TELLS_NOTHING else f"{self.help}  [default: {text}]"

    def argument(self, value: Any) -> str:
        """The option with its value as one word of a command line."""
        if isinstance(value, bool):
            return self.flag if value else f"--no-{self.flag[2:]}"
        return f"{self.flag}={value_text(value)}"

    def require_allowed(self, *users: str) -> None:
        """Raise UsageError if one of these users refuses this option."""
        for user in users:
            if user in self.refused_by:
                raise UsageError(f"{self.flag} {_REFUSALS[user]}", f"leave out {self.flag}")

    def require_valid(self, value: Any) -> None:
        """Raise UsageError for a value that it cannot have."""
        if self.choices:
            require_known(self.name, (value,), list(self.choices))
        if self.limits:
            require_within(self.flag, value, *self.limits)
        if self.require:
            self.require(value)

    def parsed(self, given: Any) -> Any:
        """The value of what was given; UsageError where it is not of the option's type."""
        try:
            value = self.parse(given) if self.parse else given
        except (TypeError, ValueError):
            value = given
        except UsageError as error:
            error.begin_with(self.flag, given)
            raise
        if not _is_of_type(value, self.type):
            refuse_type(self.flag, given, self.annotation, "; help(commbench.run) says what it is")
        return value

    @property
    def annotation(self) -> str:
        """The types that it takes in Python."""
        if self.python_type:
            return self.python_type
        if self.type == tuple[str, ...]:
            return f"str | Sequence[str]{'' if self.default else ' | None'}"
        return formatannotation(self.type).replace("pathlib.", "")


def value_text(value: Any) -> str:
    """A value as it is written on a command line; it parses back to the same value."""
    if isinstance(value, tuple):
        numbers = bool(value) and isinstance(value[0], int)
        return format_sizes(value) if numbers else ",".join(map(str, value))
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def split(given: Any) -> list[str]:
    """The items of a text with commas, of a number, or of several of them."""
    if isinstance(given, (bytes, Mapping)):
        raise TypeError
    items = [given] if isinstance(given, (str, Real)) else given
    return [item.strip() for item in ",".join(map(str, items)).split(",")]


def list_of(parse: Callable[[str], str]) -> Callable[[Any], tuple[str, ...]]:
    """Parses texts that may hold commas; in order, once each."""
    return lambda given: tuple(dict.fromkeys(map(parse, split(given))))


def names_of(
    flag: str,
    find: Callable[[str], Any],
    table: Iterable[str],
    sets: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Any], tuple[str, ...]]:
    """Parses names that `find` knows, or of sets of them; in order, once each. Without `sets`,
    `all` is the whole table."""
    known, several = tuple(table), sets or {"all": tuple(table)}

    def parse(given: Any) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for name in split(given):
            if not name:
                example = f"{flag} {','.join(known[:2])}"
                hint = f"write names with one comma between them, such as {example}"
                raise UsageError(f"{flag} has an empty item", hint)
            found.update(dict.fromkeys(several.get(name) or [find(name).name]))
        return tuple(found)

    return parse


def parse_size_list(given: str | int | Sequence[int | str]) -> tuple[int, ...]:
    """Sizes in bytes from an expression, from a number, or from numbers."""
    return parse_sizes(",".join(split(given)))


def parse_one_size(given: str | int) -> int:
    """A size in bytes; UsageError for several."""
    sizes = parse_sizes(str(given))
    if len(sizes) > 1:
        raise wrong_value(given, "is more than one size", "write one size, such as 8")
    return sizes[0]


def require_label(label: str) -> None:
    """Raise UsageError for a label that cannot be part of a folder's name."""
    is_safe = all(_is_of_label(each) or each in "._-" for each in label)
    if not (label and is_safe and label[0] not in "._-" and len(label) <= _LONGEST_LABEL):
        hint = "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
        raise wrong_value(label, "cannot be part of a folder's name", hint, "--label")
    if label == "history":
        trouble = "would mean the history in `commbench check RUN --against history`"
        raise wrong_value(label, trouble, "choose another label", "--label")


def _is_of_label(character: str) -> bool:
    """Whether it is a letter, a mark on one, or a digit, of any script."""
    return unicodedata.category(character)[0] in "LMN"


def as_label(text: str) -> str:
    """A text with what a label may not contain replaced by dashes."""
    kept = "".join(c if _is_of_label(c) or c in "._" else "-" for c in text)
    return re.sub("-+", "-", kept).strip("-._")[:_LONGEST_LABEL] or "run"


def _is_of_type(value: Any, wanted: Any) -> bool:
    if get_origin(wanted) is tuple:
        return isinstance(value, tuple)
    kinds = tuple(kind for kind in get_args(wanted) or (wanted,) if kind is not type(None))
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, (int, *kinds) if float in kinds else kinds)
