"""Writes commbench/api/keywords.py: the types of the keywords of KEYWORDS, made of RUN_OPTIONS.
After a change of the options: `python tests/api_keywords.py`.
"""

from __future__ import annotations

from pathlib import Path

from commbench.api import measuring, sweeping
from commbench.runner.run_options import RUN_OPTIONS

FILE = Path(sweeping.__file__).with_name("keywords.py")
HEAD = '''\
"""The types of the keywords of functions that take options of a run, for type checkers and editors.

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
    """The content of the file: a class for each set of functions that take the same options, and
    one for each function."""
    functions: dict[tuple[str, ...], list[str]] = {}
    for option in RUN_OPTIONS:
        users = tuple(user for user, names in measuring.KEYWORDS.items() if option in names)
        functions.setdefault(users, []).append(option)
    functions.pop((), None)
    parts = {users: f"_{chr(65 + n)}" for n, users in enumerate(functions)}
    text = HEAD
    for users, name in parts.items():
        text += f"\n\nclass {name}(TypedDict, total=False):\n"
        text += f'    """Of {", ".join(users)}."""\n\n'
        text += "".join(f"    {o}: {RUN_OPTIONS[o].annotation}\n" for o in functions[users])
    for user in measuring.KEYWORDS:
        bases = ", ".join(name for users, name in parts.items() if user in users)
        text += f"\n\nclass {user.title()}Keywords({bases}, total=False):\n"
        text += f'    """The options of a run that `{user}` takes as keywords."""\n'
    return text


if __name__ == "__main__":
    FILE.write_text(source())
