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
    by the others, and one for each function. A class has those of the options of larger sets as
    its bases."""
    users = sorted(measuring.KEYWORDS, key=lambda user: len(measuring.KEYWORDS[user]))
    content: dict[frozenset[str], dict[str, str]] = {}
    for option, entry in RUN_OPTIONS.items():
        if own := frozenset(user for user in users if option in measuring.KEYWORDS[user]):
            content.setdefault(own, {})[option] = entry.annotation
    text, names = HEAD, {}
    for own in sorted(content, key=len, reverse=True):
        others = "".join(user.title() for user in users if user not in own)
        name = f"_Not{others}" if others else "_All"
        text += _head(name, _bases(own, names))
        text += "".join(f"    {option}: {kind}\n" for option, kind in content[own].items())
        names[own] = name
    for user in users:
        text += _head(user.title(), _bases(frozenset([user]), names))
        text += f'    """The options of a run that `{user}` takes as keywords."""\n'
    return text


def _bases(own: frozenset[str], names: dict[frozenset[str], str]) -> list[str]:
    """The classes of options that all these functions take, without the bases of such classes."""
    wider = [users for users in names if own <= users]
    return [names[users] for users in wider if not any(other < users for other in wider)]


def _head(name: str, bases: list[str]) -> str:
    return f"\n\nclass {name}({', '.join([*bases] or ['TypedDict'])}, total=False):\n"


if __name__ == "__main__":
    FILE.write_text(source())
