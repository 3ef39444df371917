"""commbench measures the collectives of torch.distributed.

The names are described in docs/python.md. Each is imported at its first use, so that
`import commbench` and `commbench --help` are fast.
"""

# ruff: noqa: F405 - names are imported when they are used
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commbench import errors
    from commbench.answers.preflight.preflight import PreflightResult
    from commbench.answers.sweep.result import SweepResult
    from commbench.api import *  # noqa: F403
    from commbench.plan.plan import Plan

    class CommbenchError(errors.CommbenchError):
        """The same class; its `run` has a type here that errors must not import."""

        run: Run | SweepResult | PreflightResult | None


__version__ = "0.2.0"
__all__ = [
    "CommbenchError", "Plan", "Run", "advise", "check", "compare", "doctor", "environment",
    "expect", "expect_run", "explain", "export", "fit_model", "fleet", "frame", "history",
    "import_results", "list_runs", "load", "load_sweep", "measure", "pairs", "plot", "predict",
    "replay", "report", "resume_sweep", "run", "smoke", "soak", "sweep", "workload",
]  # fmt: skip
_MODULES = dict.fromkeys(__all__, "commbench.api") | {
    "Plan": "commbench.plan.plan", "CommbenchError": "commbench.errors", "errors": "commbench",
}  # fmt: skip
"""Where each public name is defined."""


if not TYPE_CHECKING:  # a type checker reads the imports above

    def __getattr__(name: str) -> Any:
        from importlib import import_module
        from types import FunctionType

        from commbench.errors import CommbenchError, closest

        if name not in _MODULES:
            guess = f": did you mean {close!r}?" if (close := closest(name, _MODULES)) else ""
            raise AttributeError(f"module 'commbench' has no attribute {name!r}{guess}", name=name)
        if CommbenchError.worded is str:  # the command line has set it otherwise
            CommbenchError.worded = import_module("commbench.api.words").worded
        found = getattr(import_module(_MODULES[name]), name)
        if isinstance(found, FunctionType):
            from commbench.validation import public

            return public(found, __name__)
        return found


def __dir__() -> list[str]:
    return [*_MODULES, "__version__"]
