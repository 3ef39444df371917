"""Result: what every answer offers a Python program, made of its document and its JSON."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from commbench.errors import UnavailableError
from commbench.views.as_json import as_json
from commbench.views.document import Pictures
from commbench.views.formats import HTML, TEXT, View

if TYPE_CHECKING:
    from pandas import DataFrame

    from commbench.views.draw import Drawn

_FRAME = '<iframe srcdoc="{}" style="width:100%;height:{:.0f}em;border:0"></iframe>'
"""A page within a notebook; neither changes the style of the other."""
_LINE = re.compile(r"<(?:tr|li|dt)\b")
_VIEW_BOX = re.compile(r'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Result:
    """Prints as its command does; its repr is a line with its title, and one with the answer."""

    __slots__ = ()
    _view: ClassVar[str]
    """The module whose VIEW shows it, in commbench/."""
    _rows: ClassVar[Sequence[str]]
    """The keys of its JSON that lead to the rows of its frame; none: it is a row itself."""

    def __init_subclass__(cls, view: str = "", rows: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._view, cls._rows = view or cls._view, rows.split()

    def _shown(self) -> tuple[View, Any]:
        """The view, and what it shows."""
        view: View = import_module(f"commbench.{self._view}").VIEW
        return view, self

    def text(self, format: str = TEXT, *, verbose: bool = False) -> str:
        """The answer in a format of its command: "text", "markdown", "html", "json" and others."""
        view, shown = self._shown()
        return view.write(shown, format, verbose).rstrip("\n")

    def frame(self) -> DataFrame:
        """A pandas DataFrame of the rows of its JSON, in SI units; of a value with an interval the
        columns `time_s.value`, `time_s.low` and `time_s.high`, for example."""
        from pandas import json_normalize

        view, shown = self._shown()
        return json_normalize([*_rows_of(as_json(view.data(shown)), self._rows)])

    def plot(self, output: str | Path | None = None) -> Drawn:
        """Draw it: into a new .png, .svg or .pdf file, or into PNG files of a folder. Without
        `output` nothing is written. A notebook shows the pictures. UnavailableError where there is
        none."""
        from commbench.views.draw import Drawn, write_pictures

        view, shown = self._shown()
        blocks = view.document(shown).blocks
        drawn = [each for b in blocks if isinstance(b, Pictures) for each in b.draw()]
        if not drawn:
            raise UnavailableError(
                f"there is no picture of this {type(self).__name__}", "print it, or use frame()"
            )
        return Drawn(drawn) if output is None else write_pictures(drawn, Path(output))

    def _repr_html_(self) -> str:
        page = self.text(HTML)
        pictures = sum(64 * float(high) / float(wide) for wide, high in _VIEW_BOX.findall(page))
        height = 14 + 2.3 * len(_LINE.findall(page)) + pictures
        return _FRAME.format(html.escape(page), min(height, 160))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        view, shown = self._shown()
        found = view.document(shown)
        answer = " ".join(found.answer[:2])
        return f"<{type(self).__name__}: {found.title}>" + f"\n{answer}" * bool(answer)


def _rows_of(found: Any, keys: Sequence[str], texts: Any = None) -> Iterator[dict[str, Any]]:
    """The objects that the keys lead to, each with the texts of those on the way."""
    for each in found if isinstance(found, list) else [found]:
        if keys:
            own = {n: v for n, v in each.items() if isinstance(v, str)} if texts is not None else {}
            yield from _rows_of(each[keys[0]], keys[1:], {**(texts or {}), **own})
        else:
            yield {**(texts or {}), **each}
