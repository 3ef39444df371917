"""Every error that is shown to a person, each with its exit code.

    CommbenchError
    ├── UsageError         2   the request is wrong
    ├── UnavailableError   3   this environment cannot do it
    ├── RankError          4   a rank died: HangError where it hung, OwnCallError for a user's call
    ├── WrongResultError   5   a collective gave wrong numbers
    ├── RecordsError       6   a results file cannot be read or written
    └── Interrupted      130   stopped by Ctrl-C (143 by SIGTERM, 129 by SIGHUP)

Code 0 is success, 1 is a check or a comparison that fails, and 7 is a check without a verdict. 70
is an error of commbench itself.
Errors are raised where they are found. `commbench.cli.main` alone prints them, as two lines.
"""

from __future__ import annotations

import errno
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

GATE_FAILS, NO_VERDICT_REACHED, DEFECT = 1, 7, 70
"""Exit codes that are no CommbenchError: a run breaks a rule; too little is known to say so or not;
commbench itself fails (EX_SOFTWARE of sysexits.h)."""
SIGNALLED = 128
"""The exit code of what a signal stopped is this, plus the signal's number."""


class CommbenchError(Exception):
    """An error that a person can act on: what is wrong, and a hint what to do about it.

    Both are written with options, as in `--iters 5`, and read in the words of the front end: in
    Python `iters=5`. `details`, where there are any, are lines printed before those two.
    """

    worded: Callable[[str], str] = str
    """Writes a text in the words of the user of this process. The front end sets it."""
    exit_code = 2
    run: Any = None
    """What was recorded until then: a Run, SweepResult or PreflightResult; None for nothing."""

    def __init__(
        self, message: str, hint: str = "", details: str = "", *, is_reporter: bool = True
    ) -> None:
        super().__init__(message)
        self.texts = message, hint
        self.details = details
        self.is_reporter = is_reporter
        """Whether this process reports it. Of several ranks with the same error, one does."""

    @property
    def message(self) -> str:
        """What is wrong."""
        return CommbenchError.worded(self.texts[0])

    @property
    def hint(self) -> str:
        """What to do about it."""
        return CommbenchError.worded(self.texts[1])

    @property
    def args(self) -> tuple[str]:  # type: ignore[override]
        """The message alone, as exceptions have it."""
        return (self.message,)

    def as_json(self) -> str:
        """What JSON has of it."""
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"

    def __str__(self) -> str:
        return "\nhint: ".join(filter(None, (self.message, self.hint)))


class UsageError(CommbenchError):
    """The request is wrong: an unknown name, a malformed size, contradictory options."""

    about = ""
    """The option, or the field of a record, that is wrong; empty where the message names it."""
    value: object = None
    """The value that is wrong, where `about` is not known where the error is raised."""

    def name_option(self, options: Mapping[str, Any]) -> None:
        """Name the option that is wrong: the only one that has the value, or has it as a part."""
        found = [
            (option, given)
            for option, given in options.items()
            if type(given) in (str, int, float, list, tuple, dict)
            and str(self.value)
            in (*map(str, _parts(given)), *filter(None, re.split("[][{}(),:=' ]+", str(given))))
        ]
        if self.value is not None and len(found) == 1:
            self.begin_with(*found[0])

    def begin_with(self, option: str, given: object) -> None:
        """Put the option that is wrong before the message, unless that names one, and the value as
        it was given."""
        if not (self.about or self.texts[0].startswith(option)):
            own = next((p for p in _parts(given) if str(p).strip("[]()") == self.value), self.value)
            message = self.texts[0].replace(_quoted(self.value), _quoted(own), 1)
            message = message.removeprefix(f"{option[2:].replace('-', ' ')} ")
            joint = " " if message.startswith(_quoted(own)) else ": "
            self.about, self.texts = option, (f"{option}{joint}{message}", self.texts[1])

    def with_option_names(self, options: Mapping[str, str]) -> UsageError:
        """The same error with the option that sets the field in place of the field: the one in
        `options`, or the one that has the field's name."""
        if not self.about:
            return self
        option = options.get(self.about, f"--{self.about}")
        message, hint = self.texts
        return UsageError(option + message.removeprefix(_words(self.about)), hint)


class UnavailableError(CommbenchError):
    """The request is sound, but this machine, torch or permission cannot carry it out."""

    exit_code = 3


class RankError(CommbenchError):
    """A rank died or hung."""

    exit_code = 4


class HangError(RankError):
    """A rank hung, and may hang again in the same call."""


class OwnCallError(RankError):
    """A user's own call raised an exception, which its code would raise again."""


class WrongResultError(CommbenchError):
    """A collective returned numbers that differ from its closed form."""

    exit_code = 5


class RecordsError(CommbenchError):
    """A results file cannot be read or written."""

    exit_code = 6
    is_unknown = False
    """Whether no file, folder or run has the name that was given."""


class Interrupted(CommbenchError):  # noqa: N818 - an interruption is not an error of anything
    """The run was stopped by the signal `signal_number`; the exit code is 128 plus that number."""

    exit_code = 130

    def __init__(
        self, message: str, hint: str = "", details: str = "", *, signal_number: int = 2
    ) -> None:
        super().__init__(message, hint, details)
        self.signal_number = signal_number
        self.exit_code = SIGNALLED + signal_number


INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class SignalHandler:
    """A handler of signals that raises what `make` makes of the signal, and keeps it: a library may
    drop an exception, as click does while it looks how to write to a stream, and as Python does
    while it forks, in a function of os.register_at_fork."""

    def __init__(self, make: Callable[[signal.Signals], Exception]) -> None:
        self._make = make
        self.raised: Exception | None = None

    def __call__(self, number: int, _: object) -> None:
        self.raised = self._make(signal.Signals(number))
        raise self.raised


def handle_interruptions(handler: SignalHandler | signal.Handlers) -> None:
    """Have the signals in INTERRUPTIONS call this handler from now on."""
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for number in INTERRUPTIONS:
            signal.signal(number, handler)


def raise_at_signals(hint: str) -> None:
    """Have the signals in INTERRUPTIONS raise Interrupted with this hint from now on."""
    handle_interruptions(
        SignalHandler(lambda s: Interrupted(f"stopped by {s.name}", hint, signal_number=s))
    )


def raise_dropped_interruption() -> None:
    """Raise once more what the SignalHandler of INTERRUPTIONS has raised."""
    handler = signal.getsignal(INTERRUPTIONS[0])
    if isinstance(handler, SignalHandler) and handler.raised:
        raise handler.raised


def ignore_interruptions() -> None:
    """Ignore the signals in INTERRUPTIONS from now on: the little work left to do is finished."""
    handle_interruptions(signal.SIG_IGN)


ERRORS_BY_NAME = {
    error.__name__: error
    for error in (*CommbenchError.__subclasses__(), *RankError.__subclasses__())
}


def __dir__() -> list[str]:
    return ["CommbenchError", *ERRORS_BY_NAME]


def to_wire(error: CommbenchError) -> list[str]:
    """The error as text for another process: its class, message, hint and details."""
    return [type(error).__name__, *error.texts, error.details]


def from_wire(texts: list[str]) -> CommbenchError:
    """The error that to_wire wrote; raises KeyError for a class that is not known here."""
    kind, *rest = texts
    return ERRORS_BY_NAME[kind](*rest)


_ENVIRONMENT_HINTS = {
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENFILE: "this host has too many open files",
    errno.ENOMEM: "there is not enough memory",
    errno.EAGAIN: "allow more processes: ulimit -u",
}
"""Error numbers that concern the environment rather than a file, each with what to do."""


def find_interruption(error: BaseException | None) -> Interrupted | None:
    """The interruption that an error is or follows from: Python 3.11 raises a RuntimeError for an
    exception in __set_name__, as while torch is imported."""
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("stopped by SIGINT", "nothing was finished: run the same command again")
    if error is None or isinstance(error, Interrupted):
        return error
    return find_interruption(error.__cause__ or error.__context__)


def from_os_error(error: OSError | MemoryError | ImportError) -> CommbenchError:
    """The error to show for an error of the operating system that was not expected where it was
    raised."""
    if isinstance(error, MemoryError):
        return UnavailableError(
            "there is not enough memory", "measure smaller sizes, or fewer ranks"
        )
    if isinstance(error, ImportError):
        return UnavailableError(
            f"cannot import {error.name or 'a library'}: {first_line(error)}",
            "`pip install .` in the checkout of commbench installs it; check ulimit -n, too",
        )
    why = error.strerror or first_line(error)
    what = f"{why}: {error.filename}" if error.filename is not None else why
    if error.errno in _ENVIRONMENT_HINTS:
        return UnavailableError(what, _ENVIRONMENT_HINTS[error.errno])
    return RecordsError(
        what,
        "free some space or choose another place; COMMBENCH_TRACEBACK=1 shows where it happened",
    )


def unwritable_error(
    path: object, error: OSError, hint: str = "choose a writable place with --output"
) -> RecordsError:
    """The error for a file that cannot be written."""
    return RecordsError(f"cannot write {path}: {error.strerror}", hint)


NCCL_ERROR = re.compile(r"NCCL error in: [^,]*, ([^,(]+)")
"""What torch prints of an error of NCCL: the place in torch's source, and the class of error."""


def reason_of(error: BaseException) -> str:
    """Why an operation of torch.distributed failed, in one line: of an error of NCCL its class and
    what NCCL itself says, which torch prints after "Last error:" (NCCLUtils.cpp of torch 2.6-2.13).
    """
    line = first_line(error)
    if found := re.search("Unable to find address for: (.*)", line):  # what gloo prints
        known = ", ".join(name for _, name in socket.if_nameindex())
        return f"GLOO_SOCKET_IFNAME: {found[1]} is no interface with an address; there are: {known}"
    kind = NCCL_ERROR.search(line)
    detail = next(filter(str.strip, str(error).partition("Last error:")[2].splitlines()), "")
    return f"NCCL {kind[1].strip()}: {detail.strip()}" if kind and detail else line


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    is_refusal = isinstance(error, NotImplementedError)
    kind = "it does not say why" if is_refusal else type(error).__name__
    return (str(error).strip() or kind).splitlines()[0]


def closest(name: str, known: Iterable[str], *, similarity: float = 0.6) -> str:
    """The known name that begins with `name`, else the one that resembles it most, with at least
    that similarity (difflib's ratio, from 0 to 1); empty if there is none. Upper and lower case
    are the same."""
    import difflib

    names = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=similarity)
    longer = [each for each in names if len(name) > 2 and each.startswith(name.lower())]
    found = [*(each for each in close if each in longer), *longer, *close]
    return names[found[0]] if found else ""


MOST_NAMES = 12
"""Names that a hint lists, at most."""


def name_error(
    kind: str, name: str, known: list[str], synonyms: Mapping[str, str] | None = None,
    lists: str = "",
) -> UsageError:  # fmt: skip
    """The error for an unknown `name`. The hint has the one that was probably meant: that of
    `synonyms`, which other libraries use, else the closest one. Then the known names follow, or,
    of many, what `lists` them."""
    close = (synonyms or {}).get(name.lower()) or closest(name, known)
    guess = f"did you mean {close}? " if close else ""
    is_long = lists and len(known) > MOST_NAMES
    some = "" if close else f"known: {', '.join(known[:4])} and others; "
    rest = f"{some}{lists} lists all" if is_long else f"known: {', '.join(known)}"
    hint = "only one name is taken here" if "," in name else f"{guess}{rest}"
    error = UsageError(f"unknown {kind} {name!r:.60}", hint)
    error.value, error.about = name, kind if kind.startswith("--") else ""
    return error


def wrong_value(value: object, trouble: str, hint: str, kind: str = "") -> UsageError:
    """The error for a value of an option that a caller knows; the message is the `kind` of the
    value, or its option, the value and `trouble`."""
    error = UsageError(f"{kind} {_quoted(value)} {trouble}".lstrip(), hint)
    error.value = value
    error.about = kind if kind.startswith("--") else ""
    return error


def _quoted(value: object) -> str:
    """A value of any kind in one short line."""
    first, more, _ = repr(value).partition("\n")
    return f"{first:.80}{' …' * bool(more)}"


def _parts(given: Any) -> list[Any]:
    """What was given, and its items."""
    return [given, *(given if isinstance(given, list | tuple) else ())]


def value_error(field: str, trouble: str, hint: str) -> UsageError:
    """The error for a wrong value of a `field`; the message is the field's name and `trouble`."""
    error = UsageError(f"{_words(field)} {trouble}", hint)
    error.about = field
    return error


def _words(field: str) -> str:
    """The name of a field as it is written in a sentence: `timeout_s` is `timeout`."""
    return field.removesuffix("_s").replace("_", " ")
