"""Writes commbench/api/keywords.py: the types of the keywords of KEYWORDS, made of RUN_OPTIONS.
After a change of the options: `python tests/api_keywords.py`.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from commbench.api import measuring, sweeping
from commbench.runner.run_options import RUN_OPTIONS

FILE = Path(sweeping.__file__).with_name("keywords.py")
INDENTS = {"initial_indent": "    ", "subsequent_indent": "    "}
HEAD = '''\
"""The types of the keywords of functions that take options of a run, for type checkers and editors.

Made of RUN_OPTIONS by tests/api_keywords.py; do not change it by hand.
`_NotPairs` has what all of them take but `pairs`.
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
    """The content of the file: a class for each set of functions that take the same options, named
    by the others, and one for each function."""
    users = sorted(measuring.KEYWORDS, key=lambda user: len(measuring.KEYWORDS[user]))
    content: dict[str, dict[str, str]] = {}
    for option, entry in RUN_OPTIONS.items():
        others = [user for user in users if option not in measuring.KEYWORDS[user]]
        if len(others) < len(users):
            name = f"_Not{''.join(map(str.title, others))}" if others else "_All"
            content.setdefault(name, {})[option] = entry.annotation
    text = HEAD
    for name, options in content.items():
        text += f"\n\nclass {name}(TypedDict, total=False):\n"
        text += "".join(f"    {option}: {kind}\n" for option, kind in options.items())
    for user in users:
        made = user.title()
        rest, bases = {*measuring.KEYWORDS[user]}, []
        for name in reversed(content):  # first the classes of functions
            if rest.issuperset(content[name]):
                bases.append(name)
                rest -= content[name].keys()
        content[made] = dict.fromkeys(measuring.KEYWORDS[user], "")
        head = f"class {made}({', '.join(bases)}, total=False):"
        if len(head) > 100:
            head = textwrap.fill(f"{', '.join(bases)}, total=False", 100, **INDENTS)
            head = f"class {made}(\n{head}\n):  # fmt: skip"
        text += f'\n\n{head}\n    """The options of a run that `{user}` takes as keywords."""\n'
    return text


if __name__ == "__main__":
    FILE.write_text(source())
