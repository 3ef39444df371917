"""The sentences of a document, whatever block they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from commbench.compare.comparison import Comparison
from commbench.compare.document import document
from commbench.views.document import Block, Items, Section, Text


def item_texts(found: Comparison) -> list[str]:
    """The sentences below the answer of a comparison."""
    return [*_texts(document(found).blocks)]


def _texts(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Text(text):
                yield text
            case Items(texts):
                yield from texts
            case Section(_, inner):
                yield from _texts(inner)
