"""Writes commbench/api/keywords.py: the static types of the keywords of `run`, `measure` and
`sweep`, made of RUN_OPTIONS. After a change of the options: `python tests/api_keywords.py`.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from commbench import api
from commbench.api.measuring import find_keywords

FILE = Path(api.__file__).with_name("keywords.py")
USERS = {"measure": ("api", "measure"), "sweep": ("api", "sweep"), "run": ("api",)}
"""Each function with the users of options that it stands for."""
HEAD = '''\
"""The types of the keywords of `run`, `measure` and `sweep`, for type checkers and editors.

Made of RUN_OPTIONS by tests/api_keywords.py; do not change it by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch
    from torch.distributed import ReduceOp
'''


def source() -> str:
    """The content of the file."""
    measure, sweep, run = (find_keywords(*users) for users in USERS.values())
    for name in inspect.signature(api.sweep).parameters:
        sweep.pop(name, None)
    shared = measure.keys() & sweep.keys()
    return HEAD + "".join(
        f"\n\nclass {name}({bases}, total=False):\n"
        f'    """The options of a run that {users} as keywords."""\n\n'
        + "".join(
            f"    {option}: {kind}\n"
            for option, kind in run.items()
            if option in options
        )
        for name, bases, users, options in (
            ("SharedKeywords", "TypedDict", "`measure` and `sweep` take", shared),
            ("MeasureKeywords", "SharedKeywords", "`measure` takes", measure.keys() - shared),
            ("SweepKeywords", "SharedKeywords", "`sweep` takes", sweep.keys() - shared),
            ("RunKeywords", "MeasureKeywords, SweepKeywords", "`run` takes",
             run.keys() - measure.keys() - sweep.keys()),
        )
    )  # fmt: skip


if __name__ == "__main__":
    FILE.write_text(source())
