"""A real Slurm whose nodes are hosts made here: munged, slurmctld, and a slurmd on each host.

All of it lives on the hosts and in their folder, and goes with them.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hosts import Cluster, Host, hosts

CPUS = 2
GPUS = ("/dev/null", "/dev/zero")
"""What Slurm counts and gives out as GPUs of a node: files that are on every machine."""
PATIENCE_S = 30
LOGGED = 'exec "$@" >>"$0" 2>&1'
CONFIGURATION = """
ClusterName=commbench
SlurmctldHost={first.name}({first.address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
StateSaveLocation={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""


class Slurm:
    """A Slurm on these nodes; its commands are run on the first."""

    def __init__(self, nodes: Cluster) -> None:
        self.nodes = nodes
        self.folder = nodes.folder
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """Run srun, sinfo and the like, and return what it printed; it has to succeed."""
        return self.nodes[0].run(*command, cwd=cwd, **self.variables)

    def start(self, *command: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start srun and the like."""
        return self.nodes[0].start(*command, cwd=cwd, **self.variables)

    def configure(self) -> None:
        """Write the configuration, and the key that the daemons know each other by."""
        nodes = [
            f"NodeName={n.name} NodeAddr={n.address} CPUs={CPUS} Gres=gpu:{len(GPUS)}"
            for n in self.nodes
        ]
        text = CONFIGURATION.format(first=self.nodes[0], folder=self.folder, nodes="\n".join(nodes))
        self.folder.chmod(0o755)  # munged wants its socket where everybody could reach it
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={f}\n" for f in GPUS))
        # The one cgroup plugin that starts on every machine; nothing here uses it.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))

    def start_daemons(self) -> list[subprocess.Popen[str]]:
        """Start all daemons; they end with their hosts."""
        files = ("key-file=key", "socket=munge", "pid-file=munged.pid", "seed-file=seed")
        options = [f"--{file.replace('=', f'={self.folder}/')}" for file in files]
        return [
            self._start(self.nodes[0], "munged", "--foreground", *options),
            self._start(self.nodes[0], "slurmctld", "-D"),
            *(self._start(node, "slurmd", "-D") for node in self.nodes),
        ]

    def _start(self, host: Host, *command: str) -> subprocess.Popen[str]:
        log = str(self.folder / "log")
        return host.start("sh", "-c", LOGGED, log, *command, **self.variables)

    def wait_until_ready(self) -> None:
        """Wait until every node can take work."""
        deadline = time.monotonic() + PATIENCE_S
        while self._state() != f"{len(self.nodes)} idle":
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.2)

    def _state(self) -> str:
        """Number of nodes and their state; something else while the controller is not there."""
        with self.nodes[0].start(
            "sinfo", "--noheader", "--format=%D %T", **self.variables
        ) as sinfo:
            return sinfo.communicate(timeout=PATIENCE_S)[0].strip()


@contextmanager
def slurm(number: int) -> Iterator[Slurm]:
    """Slurm on so many nodes, ready to run steps."""
    with ExitStack() as daemons, hosts(number) as cluster:
        running = Slurm(cluster)
        running.configure()
        for daemon in running.start_daemons():
            daemons.enter_context(daemon)
        running.wait_until_ready()
        yield running
