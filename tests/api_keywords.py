"""Writes commbench/api/keywords.py: the static types of the keywords of `run`, `measure` and
`sweep`, made of RUN_OPTIONS. After a change of the options: `python tests/api_keywords.py`.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from commbench import api
from commbench.api.measuring import find_keywords

FILE = Path(api.__file__).with_name("keywords.py")
USERS = {
    "MeasureKeywords": ("measure", ("api", "measure"), ""),
    "RunKeywords": ("run", ("api",), "MeasureKeywords"),
    "SweepKeywords": ("sweep", ("api", "sweep"), ""),
}
"""Each class with its function, the users of options that the function stands for, and the class
that it extends."""
HEAD = '''\
"""The types of the keywords of `run`, `measure` and `sweep`, for type checkers and editors.

Made of RUN_OPTIONS by tests/api_keywords.py; do not change it by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict
'''


def source() -> str:
    """The content of the file."""
    text = HEAD
    for name, (function, users, base) in USERS.items():
        text += f"\n\nclass {name}({base or 'TypedDict'}, total=False):\n"
        text += f'    """The options of a run that `{function}` takes as keywords."""\n\n'
        inherited = find_keywords(*USERS[base][1]) if base else {}
        own = inspect.signature(api.sweep).parameters if function == "sweep" else {}
        for option, kind in find_keywords(*users).items():
            if option not in inherited and option not in own:
                text += f"    {option}: {kind.replace('pathlib.', '')}\n"
    return text


if __name__ == "__main__":
    FILE.write_text(source())
