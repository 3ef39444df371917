"""The sentences of a document."""

from __future__ import annotations

from commbench.answers.compare.comparison import Comparison
from commbench.answers.compare.document import document
from commbench.views.document import Items


def item_texts(found: Comparison) -> list[str]:
    """The sentences below the answer of a comparison."""
    lists = [block for block in document(found).blocks if isinstance(block, Items)]
    return [text for items in lists for text in items.texts]
