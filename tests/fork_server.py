"""A process that has imported torch and commbench once, and forks a command for each request.

Importing torch takes longer than most runs of the tests. A forked command is a process like any
other: with a session, a working folder, an environment, streams and limits of its own, and with
ranks that are its children. `commands.py` is the client.

    python fork_server.py DESCRIPTOR ADDRESS

DESCRIPTOR is the open socket that listens at ADDRESS, in a folder of its own. A request is a
connection on which one byte comes with five descriptors: the socket for answers, a file with the
request as JSON, stdin, stdout and stderr. The server answers with the child's process id and, when
the child has ended, with its exit code. A client that closes its end has the command killed; the
server ends when its stdin is closed.

Commands start Python themselves. `sys.executable` of a forked command is therefore `INTERPRETER`,
which has the server fork what it was started for, and a request may ask for the same of processes
that multiprocessing spawns.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import multiprocessing.util
import os
import pkgutil
import resource
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OTHER_PACKAGES = (
    "torch.distributed.launcher.api", "torch.distributed.elastic.multiprocessing.errors", "pandas",
    "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.ticker", "matplotlib.style",
    "matplotlib.patheffects", "xml.etree",
)  # fmt: skip
PR_SET_CHILD_SUBREAPER = 36
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FIRST_COPY = 500
HUGE_PAGE, MADV_COLLAPSE = 2 << 20, 25
INTERPRETER = """#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
while words[0] not in ("-c", "-m"):
    words.pop(0)
request = {{
    "arguments": words[2:], "environment": dict(os.environ), "folder": os.getcwd(),
    "program" if words[0] == "-c" else "module": words[1],
}}
answers, theirs = socket.socketpair()
file = os.memfd_create("request")
os.write(file, json.dumps(request).encode())
os.lseek(file, 0, os.SEEK_SET)
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"!"], [theirs.fileno(), file, 0, 1, 2])
    theirs.close()
    lines = answers.makefile()
    pid = int(lines.readline())
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(lines.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""A Python that starts in 20 ms: it takes `-c PROGRAM` or `-m MODULE`, with arguments, and ends as
the process does that the server forks for it. Other options have no effect."""


def serve(listening: socket.socket, address: str) -> None:
    """Fork a command for each request until stdin is closed."""
    _import_everything()
    interpreter = Path(address).with_name("python")
    new = interpreter.with_suffix(".new")
    new.write_text(INTERPRETER.format(python=sys.executable, address=address))
    new.chmod(0o700)
    new.rename(interpreter)
    sys.executable = str(interpreter)
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is sys.stdin:
                shutil.rmtree(interpreter.parent)
                return
            if key.fileobj is listening:
                with listening.accept()[0] as client:
                    _, descriptors, _, _ = socket.recv_fds(client, 1, 5)
                if descriptors:
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
    _use_huge_pages()


def _use_huge_pages() -> None:
    """Move this process's memory to huge pages, where Linux can (6.1). A fork copies the table of
    pages, and the end of a process removes it: both take half as long."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode, *name = line.split()
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            first, last = (int(address, 16) // HUGE_PAGE for address in addresses.split("-"))
            for number in range(first + 1, last):
                madvise(number * HUGE_PAGE, HUGE_PAGE, MADV_COLLAPSE)


def _become(request_file: int, *streams: int) -> NoReturn:
    """Turn this child of the server into the command that the request describes."""
    with _as_a_process():
        with open(request_file) as file:
            request = json.load(file)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as Python opens them
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for name, limits in request.get("limits", {}).items():
            resource.setrlimit(getattr(resource, name), limits)
        os.chdir(request["folder"])
        _set_environment(request)
        sys.argv = ["commbench", *request["arguments"]]
        if request.get("forks_ranks"):
            _fork_what_is_spawned()
        _run(request.get("program"), request.get("module", "commbench"))


@contextmanager
def _as_a_process() -> Iterator[None]:
    """End this process with the exit code that Python would give it, after what runs within."""
    code: Any = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        yield
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # no space left, closed
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _set_environment(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])


def _run(program: str | None, module: str) -> None:
    """Run a module as `python -m MODULE` does; or the text of a program as `python -c` does. All
    modules of commbench are imported before, so a program that changes a function changes it in
    every module that uses it."""
    if program is None:
        if module != "commbench":
            sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), main.__dict__)


def _fork_what_is_spawned() -> None:
    """Have multiprocessing fork the processes that it spawns from a copy of this process as it is
    now, instead of starting Python anew. They become children of this process: each is forked by a
    process that ends at once, and orphans go to this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        with theirs:
            _fork_for(theirs)
    theirs.close()

    def spawn(_path: str, line: Sequence[Any], descriptors: Sequence[int]) -> int:
        program = os.fsdecode(line[line.index("-c") + 1])
        request = {"program": program, "numbers": descriptors, "environment": dict(os.environ)}
        with tempfile.TemporaryFile("w+") as file:
            json.dump(request, file)
            file.seek(0)
            socket.send_fds(ours, [b"!"], [file.fileno(), *descriptors])
        return int(ours.recv(20))

    multiprocessing.util.spawnv_passfds = spawn


def _fork_for(requests: socket.socket) -> NoReturn:
    """Fork a child of the parent process for each of its requests, until it ends."""
    for number in (signal.SIGINT, *SIGNALS):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, 1, 20)
        if not message:
            os._exit(0)
        answer, ours = os.pipe()
        between = os.fork()
        if not between:
            child = os.fork()
            if child:
                os.write(ours, b"%d" % child)
                os._exit(0)
            while os.getppid() != parent:
                time.sleep(0.001)
            _become_spawned(*descriptors)
        os.waitpid(between, 0)
        requests.sendall(os.read(answer, 20))
        for descriptor in (answer, ours, *descriptors):
            os.close(descriptor)


def _become_spawned(request_file: int, *descriptors: int) -> NoReturn:
    """Turn this process into one that multiprocessing spawns."""
    with _as_a_process():
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        with open(request_file, closefd=False) as file:
            request = json.load(file)
        copies = [fcntl.fcntl(each, fcntl.F_DUPFD, FIRST_COPY) for each in descriptors]
        os.closerange(3, FIRST_COPY)
        for copy, number in zip(copies, request["numbers"], strict=True):
            os.dup2(copy, number)
            os.close(copy)
        _set_environment(request)
        sys.argv = ["-c", "--multiprocessing-fork"]
        exec(request["program"], {})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
