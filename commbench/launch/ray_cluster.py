"""Starts the ranks as actors of a Ray cluster (`--launcher ray`), in one placement group with a
bundle for each node.

To the ranks Ray is another launcher: they meet in a TCPStore of rank 0, and their watchdogs find
out which rank was lost or hangs. What they report comes through a queue, because a rank that hangs
ends without a result. Rank 0 writes into the run folder where it sees it, else into a folder on its
node, whose files are copied when the ranks have ended.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from commbench.errors import (
    CommbenchError,
    RankError,
    UnavailableError,
    first_line,
    from_wire,
    ignore_interruptions,
    to_wire,
)
from commbench.host.environment import DIFFERENT_BY_NATURE, relevant_variables
from commbench.launch.devices import (
    Capabilities,
    detect_capabilities,
    import_torch,
    raise_nofile_limit,
)
from commbench.launch.launchers import NodeConfig, describe_failure
from commbench.launch.supervisor import KILLED_HINT
from commbench.plan.plan import Plan
from commbench.worker.entrypoint import LaunchTask, RankContext
from commbench.worker.watchdog.rank_state import read_delays

POLL_S = 0.2
NEAR_S = 5.0
"""How long to wait for a placement that has rank 0 on this node, before any other is taken."""
ANSWER_S = 60.0
"""How long something may take that is no measurement, such as a copy of files."""
SAME_INSTALLATION = "install the same torch and commbench on every node of the Ray cluster"


class RayPlace(NamedTuple):
    """Where an actor runs."""

    node: str
    """Ray's id of the node."""
    host: str
    address: str
    port: int
    """One that nothing uses."""


class RankActor:
    """A rank. Ray calls the methods in the main thread of a process of their own."""

    def __init__(self, variables: dict[str, str]) -> None:
        os.environ.update(variables)

    def find_place(self) -> RayPlace:
        """Where this rank runs."""
        import ray

        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]
        node = ray.get_runtime_context().get_node_id()
        return RayPlace(node, socket.gethostname(), ray.util.get_node_ip_address(), port)

    def sees(self, folder: Path, identity: tuple[int, int]) -> bool:
        """Whether this is the folder that the driver sees, on one host or a shared file system."""
        with suppress(OSError):
            return _identify(folder) == identity
        return False

    def receive(self, files: dict[str, bytes]) -> Path:
        """Write files into a new folder of this node."""
        folder = Path(tempfile.mkdtemp(prefix="commbench-ray-"))
        _write_files(folder, files)
        return folder

    def run(
        self, tasks: Sequence[LaunchTask], context: RankContext, reports: Any
    ) -> tuple[list[str], bool] | None:
        """Take part as a rank. Returns the error that ended it, and whether this rank reports it
        for all; None if all went well."""
        import sys

        import_torch()
        from commbench.worker.rank import run_rank

        raise_nofile_limit(tasks[0].plan, has_store=not context.rank)
        if not context.rank:
            sys.stderr = _Relay(reports)

        def report(error: RankError, is_reporter: bool) -> None:
            if is_reporter:
                reports.put(to_wire(error))

        try:
            run_rank(tasks, context, report)
        except CommbenchError as error:
            return to_wire(error), error.is_reporter
        except Exception as error:
            return to_wire(describe_failure(error, context.rank)), True
        return None


class _Relay:
    """A text stream that sends what rank 0 prints about its progress to the driver."""

    def __init__(self, reports: Any) -> None:
        self._reports = reports

    def write(self, text: str) -> int:
        self._reports.put(text)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def ray_capabilities(nodes: int) -> Capabilities:
    """What a node of the running Ray cluster offers, of so many nodes with most GPUs; this host's
    where no cluster runs. Raises UnavailableError where none can tell."""
    with connected() as ray:
        if not ray:
            return detect_capabilities()
        gpus = sorted(int(node["Resources"].get("GPU", 0)) for node in _alive_nodes(ray))
        least = gpus[-min(nodes, len(gpus))]
        detect = ray.remote(detect_capabilities).options(num_cpus=0, num_gpus=int(least > 0))
        found: Capabilities = _ask(ray, detect.remote())
    devices = {kind: number if kind == "cpu" else least for kind, number in found.devices.items()}
    return replace(found, devices=devices)


def launch_on_ray(
    tasks: Sequence[LaunchTask], nodes: NodeConfig, port: int | None, say: Callable[[str], None]
) -> None:
    """Run tasks, one after another, on ranks of a Ray cluster, and wait for them.

    Raises what a rank reported, RankError for one that died, UnavailableError where there is no
    place for them. The files of the run are in its folder on this host then.
    """
    with connected(nodes.ranks_per_node, say) as ray:
        group = _reserve(ray, nodes, tasks[0].plan)
        actors: list[Any] = []
        try:
            _run_actors(ray, tasks, nodes, port, say, group, actors)
        except CommbenchError:
            ignore_interruptions()
            raise
        finally:
            for actor in actors:
                ray.kill(actor)
            ray.util.remove_placement_group(group)


@contextmanager
def connected(local_cpus: int = 0, say: Callable[[str], None] = lambda _: None) -> Iterator[Any]:
    """The package ray, connected to the cluster that runs: the program's, that of RAY_ADDRESS, or
    this host's. Where none runs, a new one with at least `local_cpus`, for so long; None for 0.

    Meanwhile nothing goes to standard output: Ray writes messages there. Raises UnavailableError.
    """
    try:
        import ray
    except ImportError:
        raise UnavailableError(
            "--launcher ray needs the package ray, which is not installed",
            "pip install 'commbench[ray]'",
        ) from None
    if ray.is_initialized():
        yield ray
        return
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            is_there = _connect(ray, local_cpus, say)
            if is_main:  # Ray has installed its own
                signal.signal(signal.SIGTERM, handler)
            yield ray if is_there else None
        finally:
            ray.shutdown()


def _connect(ray: Any, local_cpus: int, say: Callable[[str], None]) -> bool:
    settings = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init("auto", **settings)
        return True
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address or not isinstance(error, ConnectionError):
            raise UnavailableError(
                f"the Ray cluster {address or 'of this host'} cannot be used: {first_line(error)}",
                "check RAY_ADDRESS and `ray status`; without RAY_ADDRESS, commbench uses the "
                "cluster of this host, or starts one",
            ) from None
    if local_cpus:
        say("no Ray cluster runs here: a local one is started for this run")
        cpus = max(local_cpus, os.cpu_count() or 1)
        ray.init("local", num_cpus=cpus, include_dashboard=False, **settings)
    return bool(local_cpus)


def _reserve(ray: Any, nodes: NodeConfig, plan: Plan) -> Any:
    """A placement group with a bundle on each node; rank 0's on this node, if there is room."""
    bundle = {"CPU": nodes.ranks_per_node}
    bundle |= {"GPU": nodes.ranks_per_node} if plan.device != "cpu" else {}
    alive = _alive_nodes(ray)
    tries: list[tuple[dict[str, float], float]] = [({}, plan.timeout_s)]
    for node in alive:
        is_here = node["NodeID"] == ray.get_runtime_context().get_node_id()
        if is_here and all(node["Resources"].get(name, 0) >= bundle[name] for name in bundle):
            tries.insert(0, ({f"node:{node['NodeManagerAddress']}": 0.001}, NEAR_S))
    strategy = "STRICT_SPREAD" if nodes.count > 1 else "STRICT_PACK"
    for more, limit_s in tries:
        bundles = [bundle | more, *[bundle] * (nodes.count - 1)]
        group = ray.util.placement_group(bundles, strategy)
        try:
            deadline = time.monotonic() + limit_s
            while time.monotonic() < deadline:
                if group.wait(1):
                    return group
        except BaseException:
            ray.util.remove_placement_group(group)
            raise
        ray.util.remove_placement_group(group)
    wanted = " and ".join(f"{number} {name}" for name, number in bundle.items())
    raise UnavailableError(
        f"the Ray cluster did not give {wanted} on each of {nodes.count} nodes within "
        f"{plan.timeout_s:g} s; it has {len(alive)}",
        "`ray status` shows what is free; give other --nnodes and --nproc-per-node",
    )


def _alive_nodes(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _run_actors(
    ray: Any, tasks: Sequence[LaunchTask], nodes: NodeConfig, port: int | None,
    say: Callable[[str], None], group: Any, actors: list[Any],
) -> None:  # fmt: skip
    """Start an actor for each rank, appended to `actors`, and wait for them."""
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    plan, per_node = tasks[0].plan, nodes.ranks_per_node
    found = {n: v for n, v in os.environ.items() if n.startswith(("COMMBENCH_", "TORCH_"))}
    found |= {n: v for n, v in relevant_variables().items() if n not in DIFFERENT_BY_NATURE}
    for rank in range(plan.world_size):
        options = ray.remote(RankActor).options(
            num_cpus=1, num_gpus=int(plan.device != "cpu"),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank // per_node),
        )  # fmt: skip
        actors.append(options.remote(found))
    places = _ask(ray, [actor.find_place.remote() for actor in actors], plan.timeout_s)
    reports = Queue(actor_options={"num_cpus": 0})
    address = f"tcp://{places[0].address}:{port or places[0].port}"
    with _folder_of_rank_0(ray, actors[0], places[0], tasks[0].folder.resolve(), say) as folder:
        tasks = [replace(task, folder=folder) for task in tasks]
        running = {}
        for rank, actor in enumerate(actors):
            context = RankContext(
                rank=rank, world_size=plan.world_size, local_rank=rank % per_node,
                local_world_size=per_node, launcher="ray", init_method=address,
            )  # fmt: skip
            running[actor.run.remote(tasks, context, reports)] = rank
        if error := _await_ranks(ray, running, [place.host for place in places], reports):
            raise error


@contextmanager
def _folder_of_rank_0(
    ray: Any, actor: Any, place: RayPlace, folder: Path, say: Callable[[str], None]
) -> Iterator[Path]:
    """The run folder if rank 0 sees it, else a copy on its node, which is copied back at the end;
    `say` tells where it is if that fails."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if _ask(ray, actor.sees.remote(folder, _identify(folder))):
        yield folder
        return
    copy = _ask(ray, actor.receive.remote(_read_files(folder)))
    say(f"rank 0 runs on {place.host}, which does not see {folder}: the files are copied here")
    try:
        yield copy
    except CommbenchError:
        ignore_interruptions()
        raise
    finally:
        # The actor may be dead.
        there = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(
            place.node, soft=False)}  # fmt: skip
        try:
            _write_files(folder, _ask(ray, ray.remote(_read_files).options(**there).remote(copy)))
            ray.remote(rmtree).options(**there).remote(copy, ignore_errors=True)
        except (UnavailableError, OSError) as error:
            why = first_line(error)
            say(f"the files of the run could not be copied from {place.host}:{copy}: {why}")


def _await_ranks(
    ray: Any, running: dict[Any, int], hosts: Sequence[str], reports: Any
) -> CommbenchError | None:
    """Wait until all ranks have ended. Returns the error to show: one that a rank reported for all,
    else that of a rank, else one about a rank that died without a word; None if there was none.

    When a rank has failed, the others have as long as their watchdogs need to find out.
    """
    import sys

    delays = read_delays()
    patience_s = 2 * (delays.listen_s + delays.stay_s + delays.store_s)
    reported: list[CommbenchError] = []
    found: list[CommbenchError] = []
    died: list[CommbenchError] = []
    deadline = float("inf")
    while True:
        done, _ = ray.wait(list(running), timeout=POLL_S)
        for report in reports.get_nowait_batch(reports.qsize()):
            if isinstance(report, str):
                sys.stderr.write(report)
            else:
                reported.append(from_wire(report))
        for future in done:
            rank = running.pop(future)
            try:
                if result := ray.get(future):
                    texts, is_reporter = result
                    (reported if is_reporter else found).append(from_wire(texts))
            except ray.exceptions.RayError as error:
                died.append(_describe_death(error, rank, hosts[rank]))
        if reported or found or died:
            deadline = min(deadline, time.monotonic() + patience_s)
        if not running or time.monotonic() > deadline:
            return next(iter([*reported, *died, *found]), None)


def _describe_death(error: Exception, rank: int, host: str) -> RankError:
    # Ray lists common causes after what it knows.
    detail = str(error).rpartition("exit detail: ")[2].partition(" Some common causes")[0]
    return RankError(f"rank {rank} on {host} ended; Ray: {detail.splitlines()[0]}", KILLED_HINT)


def _ask(ray: Any, futures: Any, timeout_s: float = ANSWER_S) -> Any:
    """The results of actors or tasks. Raises UnavailableError where they fail."""
    try:
        return ray.get(futures, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        raise UnavailableError(
            f"a process of Ray did not answer within {timeout_s:g} s",
            "`ray status` shows the nodes and what is free; --timeout allows more time",
        ) from None
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UnavailableError(
            f"a process of Ray could not be started: {lines[-1]:.300}", SAME_INSTALLATION
        ) from None


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
