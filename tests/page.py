"""Reads an HTML page strictly, for tests of reports."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}
KNOWN = {
    "html", "head", "meta", "link", "title", "style", "body", "header", "main", "footer", "nav",
    "section", "h1", "h2", "h3", "h4", "p", "ul", "li", "a", "dl", "div", "dt", "dd", "strong",
    "span", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "pre", "code",
    "details", "summary", "svg", "desc", "defs", "g", "path", "use", "clippath", "rect", "image",
    "pattern",
}  # fmt: skip
"""Every element that a report has; `script` is not one of them."""


class Page(HTMLParser):
    """The elements and texts of a page. Raises AssertionError for one that is not well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        """The texts directly within the elements of each name, those of one element joined."""
        self.drawings: list[list[str]] = []
        """For each drawing the names of the elements directly within it, in order."""
        self._open: list[str] = []
        assert text.startswith("<!doctype html>")
        self.feed(text)
        self.close()
        assert self._open == [], "not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN, tag
        assert len(attrs) == len(dict(attrs)), f"an attribute of {tag} is there twice"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if self._open and self._open[-1] == "svg":
            self.drawings[-1].append(tag)
        if tag == "svg":
            self.drawings.append([])
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of each element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def require_accessible(self) -> None:
        """Raise AssertionError where a reader of the page's elements would miss something."""
        assert self.named("html")[0]["lang"] == "en"
        for landmark in ("header", "nav", "main", "footer", "h1", "title"):
            assert len(self.named(landmark)) >= 1, landmark
        ids = Counter(a["id"] for _, a in self.elements if "id" in a)
        assert [name for name, number in ids.items() if number > 1] == []
        for _, attributes in self.elements:
            for name in attributes.get("aria-labelledby", "").split():
                assert name in ids, name
            if (link := attributes.get("href", "")).startswith("#"):
                assert link[1:] in ids, link
        for inner in self.drawings:
            assert inner[:2] == ["title", "desc"]
        for attributes in self.named("svg"):
            assert attributes["role"] == "img"
        scopes = {attributes.get("scope") for attributes in self.named("th")}
        assert scopes <= {"row", "rowgroup", "col"}
        assert len(self.named("caption")) == len(self.named("table"))

    def require_closed(self) -> None:
        """Raise AssertionError where the page could run something or ask something of a network."""
        policy = next(a["content"] for a in self.named("meta") if "http-equiv" in a)
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        for tag, attributes in self.elements:
            for name, value in attributes.items():
                assert not name.startswith("on"), (tag, name)
                assert name != "style", tag
                if name in ("href", "src", "srcset", "data", "action", "background"):
                    assert value.startswith(("#", "data:")), (tag, value[:80])
                    assert not value.startswith("data:text"), (tag, value[:80])
        assert all("url(" not in style and "@import" not in style for style in self.texts["style"])
