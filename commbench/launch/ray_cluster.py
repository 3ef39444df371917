"""Starts the ranks as actors of a Ray cluster (`--launcher ray`), in one placement group with a
bundle for each node.

To the ranks Ray is another launcher: they meet in a TCPStore of rank 0, and their watchdogs find
out which rank was lost or hangs. What they report comes through a queue, because a rank that hangs
ends without a result. Rank 0 writes into the run folder where it sees it, else into a folder on its
node, whose files are copied when the ranks have ended.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from operator import itemgetter
from pathlib import Path
from shutil import rmtree
from typing import Any

from commbench import errors
from commbench.errors import CommbenchError, RankError, UnavailableError, first_line
from commbench.host.environment import DIFFERENT_BY_NATURE, VARIABLE_PREFIXES
from commbench.launch import devices
from commbench.launch.launchers import RAY, NodeConfig, describe_failure
from commbench.launch.supervisor import KILLED_HINT
from commbench.plan.plan import Plan
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.watchdog.rank_state import is_process_alive, read_delays, wait_until

POLL_S = 0.2
ANSWER_S = 60.0
"""How long something may take that is no measurement, such as a copy of files."""
CONNECTS_S = 10.0
ENDS_S = 10.0
"""How long to wait until rank 0 has ended, which Ray kills."""
PASSED_ON = ("COMMBENCH_", "TORCH_", *VARIABLE_PREFIXES)
"""How variables begin that ranks get from the driver, but for those that choose devices."""
Say = Callable[[str], None]


class RankActor:
    """A rank. Ray calls the methods in the main thread of a process of their own."""

    def __init__(self, variables: dict[str, str]) -> None:
        os.environ.update(variables)

    def find_place(self) -> tuple[int, str, str, str, int]:
        """The process of this rank, Ray's id of its node, its host, its address, a free port."""
        import ray

        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]
        node = ray.get_runtime_context().get_node_id()
        return os.getpid(), node, socket.gethostname(), ray.util.get_node_ip_address(), port

    def find_folder(self, folder: Path, identity: tuple[int, int], files: dict[str, bytes]) -> Path:
        """The folder with this identity, if its host sees it; else a new one with these files."""
        if folder.exists() and _identify(folder) == identity:
            return folder
        copy = Path(tempfile.mkdtemp(prefix="commbench-ray-"))
        _write_files(copy, files)
        return copy

    def run(
        self, tasks: Sequence[LaunchTask], context: RankContext, reports: Any
    ) -> tuple[list[str], bool] | None:
        """Take part as a rank. Returns the error that ended it, and whether this rank reports it
        for all; None if all went well."""
        devices.import_torch()
        from commbench.worker.rank import run_rank

        devices.raise_nofile_limit(tasks[0].plan, has_store=not context.rank)
        if not context.rank:
            sys.stderr = _Relay(reports)

        def report(error: RankError) -> None:
            if error.is_reporter:
                reports.put(errors.to_wire(error))

        try:
            run_rank(tasks, context, report)
        except Exception as caught:
            error = describe_failure(caught, context.rank)
            return errors.to_wire(error), error.is_reporter
        return None


class _Relay(io.TextIOBase):
    """Sends what rank 0 prints about its progress to the driver."""

    def __init__(self, reports: Any) -> None:
        self._reports = reports

    def write(self, text: str) -> int:
        self._reports.put(text)
        return len(text)


def ray_capabilities(nodes: int) -> devices.Capabilities:
    """What each of so many nodes of the Ray cluster offers, of those with most GPUs; what this host
    offers where no cluster runs."""
    with _connected() as ray:
        if not ray:
            return devices.detect_capabilities()
        gpus = sorted(int(n["Resources"].get("GPU", 0)) for n in ray.nodes() if n["Alive"])
        least = gpus[-min(nodes, len(gpus))]
        detect = ray.remote(devices.detect_capabilities).options(num_cpus=0, num_gpus=min(least, 1))
        found: devices.Capabilities = _ask(ray, detect.remote())
    numbers = {kind: number if kind == "cpu" else least for kind, number in found.devices.items()}
    return found._replace(devices=numbers)


def launch_on_ray(
    tasks: Sequence[LaunchTask], nodes: NodeConfig, port: int | None, say: Say
) -> None:
    """Run tasks, one after another, on ranks of a Ray cluster, and wait for them. The files of the
    run are in its folder on this host then.

    Raises what a rank reported, RankError for one that died, UnavailableError where there is no
    place for them.
    """
    plan, per_node = tasks[0].plan, nodes.ranks_per_node
    with _connected(per_node, say) as ray, _reserved(ray, nodes, plan) as group:
        from ray.util.queue import Queue

        actors = _start_actors(ray, group, plan, per_node)
        places = _ask(ray, [actor.find_place.remote() for actor in actors])
        _, _, hosts, addresses, ports = zip(*places, strict=True)
        reports = Queue(actor_options={"num_cpus": 0})
        with _folder_of_rank_0(ray, actors[0], places[0], tasks[0].folder.resolve(), say) as folder:
            tasks = [task._replace(folder=folder) for task in tasks]
            running, where = {}, f"tcp://{addresses[0]}:{port or ports[0]}"
            for rank, actor in enumerate(actors):
                numbers = rank, plan.world_size, rank % per_node, per_node
                context = RankContext(*numbers, RAY, where)
                running[actor.run.remote(tasks, context, reports)] = rank
            if error := _await_ranks(ray, running, hosts, reports):
                raise error


@contextmanager
def _connected(local_cpus: int = 0, say: Say = lambda _: None) -> Iterator[Any]:
    """The package ray, connected to the cluster that runs: the program's, that of RAY_ADDRESS, or
    this host's. Where none runs, a new one with at least `local_cpus`, for so long; None for 0.

    Meanwhile nothing goes to standard output: Ray writes messages there. Raises UnavailableError.
    """
    try:
        import ray
    except ImportError:
        why = "--launcher ray needs the package ray, which is not installed"
        raise UnavailableError(why, "pip install 'commbench[ray]'") from None
    if ray.is_initialized():
        yield ray
        return
    handler = signal.getsignal(signal.SIGTERM)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            is_there = _connect(ray, local_cpus, say)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray has installed its own
            yield ray if is_there else None
        except SystemError as error:  # Python makes one of what a signal raised in Ray's own code
            raise error.__cause__ or error from None
        finally:
            ray.shutdown()


def _connect(ray: Any, local_cpus: int, say: Say) -> bool:
    settings = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), CONNECTS_S).close()
        ray.init("auto", **settings)
        return True
    except (OSError, RuntimeError, ValueError) as error:
        if address or not isinstance(error, ConnectionError):
            raise UnavailableError(
                f"the Ray cluster {address or 'of this host'} cannot be used: {first_line(error)}",
                "check RAY_ADDRESS and `ray status`; without a cluster, commbench starts one here",
            ) from None
    if local_cpus:
        say("no Ray cluster runs here: a local one is started for this run")
        cpus = max(local_cpus, os.cpu_count() or 1)
        ray.init("local", num_cpus=cpus, include_dashboard=False, **settings)
    return bool(local_cpus)


@contextmanager
def _reserved(ray: Any, nodes: NodeConfig, plan: Plan) -> Iterator[Any]:
    """A placement group with a bundle on each node. Ray ends its actors when it is removed."""
    bundle = dict.fromkeys(["CPU", "GPU"][: 1 + (plan.device != "cpu")], nodes.ranks_per_node)
    strategy = "STRICT_SPREAD" if nodes.count > 1 else "STRICT_PACK"
    group = ray.util.placement_group([bundle] * nodes.count, strategy)
    try:
        deadline = time.monotonic() + plan.timeout_s
        while not group.wait(1):
            if time.monotonic() > deadline:
                wanted = " and ".join(f"{number} {name}" for name, number in bundle.items())
                raise UnavailableError(
                    f"the Ray cluster did not give {wanted} on each of {nodes.count} nodes within "
                    f"{plan.timeout_s:g} s; it has {sum(node['Alive'] for node in ray.nodes())}",
                    "`ray status` shows what is free; give other --nnodes and --nproc-per-node",
                )
        yield group
    finally:
        ray.util.remove_placement_group(group)


def _start_actors(ray: Any, group: Any, plan: Plan, per_node: int) -> list[Any]:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    names = [n for n in os.environ if n.startswith(PASSED_ON) and n not in DIFFERENT_BY_NATURE]
    passed = {name: os.environ[name] for name in names}
    make = ray.remote(RankActor).options
    needs = {"num_cpus": 1, "num_gpus": int(plan.device != "cpu")}
    bundles = [rank // per_node for rank in range(plan.world_size)]
    places = [PlacementGroupSchedulingStrategy(group, bundle) for bundle in bundles]
    return [make(scheduling_strategy=place, **needs).remote(passed) for place in places]


@contextmanager
def _folder_of_rank_0(
    ray: Any, actor: Any, place: tuple[int, str, str, str, int], folder: Path, say: Say
) -> Iterator[Path]:
    """The run folder if rank 0 sees it, else a copy on its node, which is copied back at the end;
    `say` tells where it is if that fails. Rank 0 has ended then, and writes no more."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    pid, node, host, *_ = place
    copy = _ask(ray, actor.find_folder.remote(folder, _identify(folder), _read_files(folder)))
    if copy != folder:
        say(f"rank 0 runs on {host} and does not see {folder}: its files are copied at the end")
    try:
        yield copy
    finally:
        if sys.exc_info()[0]:
            errors.ignore_interruptions()
        ray.kill(actor)
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": there}
        finish, remove = (ray.remote(each).options(**options) for each in (_finish, rmtree))
        try:
            _write_files(folder, _ask(ray, finish.remote(pid, copy, copy == folder)))
            if copy != folder:
                _ask(ray, remove.remote(copy))
        except (UnavailableError, OSError) as error:
            say(f"the files of the run are in {copy} on {host}: {first_line(error)}")


def _finish(pid: int, folder: Path, is_seen: bool) -> dict[str, bytes]:
    """Wait until rank 0 has ended. Returns the files of a folder that the driver does not see."""
    wait_until(lambda: not is_process_alive(pid), ENDS_S, POLL_S)
    return {} if is_seen else _read_files(folder)


def _await_ranks(
    ray: Any, running: dict[Any, int], hosts: Sequence[str], reports: Any
) -> CommbenchError | None:
    """Wait until all ranks have ended. Returns the error to show: one that a rank reported for all,
    else one about a rank that died, else that of a rank; None if there was none.

    When a rank has failed, the others have as long as their watchdogs need to find out.
    """
    delays = read_delays()
    patience_s = 2 * (delays.listen_s + delays.stay_s + delays.store_s)
    found: list[tuple[int, CommbenchError]] = []
    deadline = float("inf")
    while running and time.monotonic() < deadline:
        time.sleep(POLL_S)
        done, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        for future in done:
            rank = running.pop(future)
            try:
                if result := ray.get(future):
                    found.append((0 if result[1] else 2, errors.from_wire(result[0])))
            except ray.exceptions.RayError:
                found.append((1, RankError(f"rank {rank} on {hosts[rank]} ended", KILLED_HINT)))
        for report in reports.get_nowait_batch(reports.qsize()):
            if isinstance(report, str):
                sys.stderr.write(report)
            else:
                found.append((0, errors.from_wire(report)))
        if found:
            deadline = min(deadline, time.monotonic() + patience_s)
    return min(found, key=itemgetter(0))[1] if found else None


def _ask(ray: Any, futures: Any) -> Any:
    """The results of actors or tasks. Raises UnavailableError where they fail."""
    try:
        return ray.get(futures, timeout=ANSWER_S)
    except ray.exceptions.RayError as error:
        *_, reason = filter(str.strip, str(error).splitlines())
        hint = "every node needs the same torch and commbench; `ray status` shows what is free"
        raise UnavailableError(f"a process of Ray failed: {reason.strip():.300}", hint) from None


def _identify(folder: Path) -> tuple[int, int]:
    """Tells a folder from any other, also on other hosts."""
    status = folder.stat()
    return status.st_ino, status.st_mtime_ns


def _read_files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
