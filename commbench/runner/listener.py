"""What a run tells whoever started it, while it goes on and at its end."""

from __future__ import annotations

from typing import Protocol

from commbench.errors import CommbenchError
from commbench.results.schema import Run


class RunListener(Protocol):
    """Receives what a run tells. Its progress is not among it: rank 0 shows that by itself."""

    def status(self, line: str) -> None:
        """One line about what happens now."""

    def ended(self, run: Run, error: CommbenchError | None) -> None:
        """The run has ended, with all its cases or with an error that is raised next."""

    def hung(self, error: CommbenchError) -> None:
        """All ranks hang, this one too; called by another thread, before this process is ended."""
