"""A process that has imported torch and commbench once, and forks a command for each request.

Importing torch takes longer than most runs of the tests. A forked command is a process like any
other: with a session, a working folder, an environment, streams and limits of its own, and with
ranks that are its children. `commands.py` is the client.

    python fork_server.py DESCRIPTOR

DESCRIPTOR is an open socket. A request is one byte on it with five descriptors: the socket for
answers, a file with the request as JSON, stdin, stdout and stderr. The server answers with the
child's process id and, when the child has ended, with its exit code. A client that closes its end
has the command killed; the server ends when the first socket is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OTHER_PACKAGES = (
    "torch.distributed.launcher.api", "torch.distributed.elastic.multiprocessing.errors", "pandas",
    "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.ticker", "xml.etree",
)  # fmt: skip


def serve(control: socket.socket) -> None:
    """Fork a command for each request until the other end of `control` is closed."""
    _import_everything()
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is control:
                message, descriptors, _, _ = socket.recv_fds(control, 1, 5)
                if not message:
                    return
                _start(waiting, descriptors)
            elif key.data in waiting.get_map():
                _finish(waiting, key.data)


def _start(waiting: selectors.BaseSelector, descriptors: list[int]) -> None:
    """Fork a command, and wait for its end and for the end of its client."""
    answers, *files = descriptors
    child = os.fork()
    if not child:
        _become(*files)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    connection = socket.socket(fileno=answers)
    connection.sendall(b"%d\n" % child)
    waiting.register(ended, selectors.EVENT_READ, ended)
    waiting.register(connection, selectors.EVENT_READ, ended)
    _commands[ended] = (child, connection)


_commands: dict[int, tuple[int, socket.socket]] = {}
"""By its descriptor the process and the answers' socket of each running command."""


def _finish(waiting: selectors.BaseSelector, ended: int) -> None:
    """Report the exit code of a command, which has ended or whose client has gone."""
    child, connection = _commands.pop(ended)
    finished, status = os.waitpid(child, os.WNOHANG)
    if not finished:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    waiting.unregister(ended)
    waiting.unregister(connection)
    os.close(ended)
    with suppress(OSError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    connection.close()


def _import_everything() -> None:
    """Import what commands need. The process must keep a single thread: it forks."""
    for name in THREAD_VARIABLES:
        os.environ[name] = "1"
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    commbench = importlib.import_module("commbench")
    found = pkgutil.walk_packages(commbench.__path__, "commbench.")
    own = [module.name for module in found if module.name != "commbench.__main__"]
    gc.disable()
    for name in (*OTHER_PACKAGES, *own):
        importlib.import_module(name)
    gc.enable()
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    assert len(threads) == 1, f"{len(threads)} threads after imports: forking is not safe"
    gc.collect()
    gc.freeze()


def _become(request_file: int, *streams: int) -> NoReturn:
    """Turn this child of the server into the command that the request describes."""
    code: Any = 1
    try:
        with open(request_file) as file:
            request = json.load(file)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as Python opens them
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for name, limits in request["limits"].items():
            resource.setrlimit(getattr(resource, name), limits)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["commbench", *request["arguments"]]
        _run(request["program"])
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _run(program: str | None) -> None:
    """Run commbench as `python -m commbench` does; or the text of a program as `python -c` does,
    which imports commbench anew to change it."""
    if program is not None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "commbench"]:
            del sys.modules[name]
    sys.modules["__main__"] = module = ModuleType("__main__")
    text = program or "from commbench.cli.main import main\nmain()\n"
    exec(compile(text, "<string>", "exec"), module.__dict__)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests
    serve(socket.socket(fileno=int(sys.argv[1])))
