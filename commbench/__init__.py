"""commbench measures the collectives of torch.distributed.

The names are described in docs/python.md. Each is imported at its first use, so that
`import commbench` and `commbench --help` are fast.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commbench.api import Run as Run
    from commbench.api import advise as advise
    from commbench.api import check as check
    from commbench.api import compare as compare
    from commbench.api import doctor as doctor
    from commbench.api import environment as environment
    from commbench.api import expect as expect
    from commbench.api import explain as explain
    from commbench.api import export as export
    from commbench.api import fit_model as fit_model
    from commbench.api import frame as frame
    from commbench.api import import_results as import_results
    from commbench.api import load as load
    from commbench.api import load_sweep as load_sweep
    from commbench.api import measure as measure
    from commbench.api import pairs as pairs
    from commbench.api import plot as plot
    from commbench.api import predict as predict
    from commbench.api import replay as replay
    from commbench.api import report as report
    from commbench.api import resume_sweep as resume_sweep
    from commbench.api import run as run
    from commbench.api import smoke as smoke
    from commbench.api import sweep as sweep
    from commbench.api import workload as workload
    from commbench.errors import CommbenchError as CommbenchError
    from commbench.spec.plan import Plan as Plan

__version__ = "0.1.0"

_IN_API = (
    "run", "measure", "load", "frame", "advise", "compare", "check", "sweep", "load_sweep",
    "resume_sweep", "fit_model", "predict", "replay", "report", "pairs", "plot", "export",
    "import_results", "expect", "explain", "smoke", "workload", "doctor", "environment", "Run",
)  # fmt: skip
_MODULES = dict.fromkeys(_IN_API, "commbench.api") | {
    "Plan": "commbench.spec.plan", "CommbenchError": "commbench.errors",
}  # fmt: skip
"""Where each public name is defined."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'commbench' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]


class _Package(ModuleType):
    """Keeps `commbench.compare` the function when the folder of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _MODULES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
