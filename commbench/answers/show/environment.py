"""What a document of this machine says, of the facts of `commbench.environment()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commbench.host.gpu_system import describe_gpu_facts
from commbench.output.paragraphs import join_words
from commbench.views.as_json import facts
from commbench.views.document import Document, Facts
from commbench.views.formats import View


def document(found: Mapping[str, Any]) -> Document:
    """Versions, devices, backends, facts of the host, and variables."""
    devices = join_words(found["devices"] or ["no GPU"])
    answer = (
        f"{found['host']} has torch {found['torch']} with {join_words(found['backends'])}, and "
        f"{devices}."
    )
    shown = {**found, **describe_gpu_facts(dict(found))}
    return Document("This machine", (), [answer], [Facts([*facts(shown)])])


VIEW = View(document, schema=1)
