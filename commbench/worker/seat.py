"""Where one rank sits: its number among the others, and how it meets them. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOCAL = "local"
"""The launcher of ranks that commbench started itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of one rank."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launcher: str
    """Who started it: `local`, `torchrun`, `srun`, `mpirun`."""
    meeting_point: str
    """`file:PATH` (one host), `tcp://HOST:PORT`, or `env://` (torchrun's variables)."""
    desk: Path | None = None
    """Where a rank leaves word of what went wrong; None where nobody would read it."""

    @property
    def joined(self) -> bool:
        """Whether only the ranks themselves can see how the others end."""
        return self.launcher != LOCAL and self.desk is None

    @property
    def one_host(self) -> bool:
        """Whether all ranks share this host."""
        return self.local_world_size == self.world_size
