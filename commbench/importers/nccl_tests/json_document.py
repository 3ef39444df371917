"""The JSON document of nccl-tests as it is written: not always JSON, and cut off by a crash."""

from __future__ import annotations

import json
import re
from typing import Any

from commbench.importers import cells
from commbench.importers.text_source import SourceText

_BARE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\w.])-?(?:nan|inf)(?![\w.])', re.DOTALL)
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_RESULTS = re.compile(r'"results"\s*:\s*\[')


class JsonNumber(str):
    """A JSON number as it was written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(
    parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber, strict=False
)


def document_of(source: SourceText) -> tuple[dict[str, Any], bool]:
    """The document, and whether it is whole; its numbers are Numbers.

    RecordsError, with the line, where it is damaged; where it is cut off, its results until then.
    """
    text = _BARE.sub(_quoted, source.text).strip()
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        results, begin, rest = _results_before(text)
        if begin and _is_cut(rest):
            return _beginning(source, text[:begin]) | {"results": results}, False
        line = source.text[: len(source.text) - len(source.text.lstrip())].count("\n")
        raise source.damaged(line + error.lineno, error.msg, len(results)) from None
    except (RecursionError, ValueError) as error:
        raise source.damaged(1, error, 0) from None
    if not isinstance(document, dict):
        raise source.damaged(1, "it is no JSON object", 0)
    return document, True


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'"{match[0]}"'


def _results_before(text: str) -> tuple[list[Any], int, str]:
    """The whole results before the damage, where their list begins (0: nowhere), and the rest."""
    begin = _RESULTS.search(text)
    if not begin:
        return [], 0, text
    results: list[Any] = []
    at = begin.end()
    while True:
        try:
            between = _BETWEEN.match(text, at)
            result, at = _DECODER.raw_decode(text, between.end() if between else at)
        except (ValueError, RecursionError):
            return results, begin.end(), text[at:]
        results.append(result)


def _is_cut(rest: str) -> bool:
    """Whether a file is whole but for its end, from what follows its whole results."""
    is_ended = '"end_time"' in rest and rest.endswith("}")
    return rest.count('"size"') <= 1 and not is_ended


def _beginning(source: SourceText, text: str) -> dict[str, Any]:
    try:
        document = _DECODER.decode(text + "]}")
    except (ValueError, RecursionError) as error:
        raise source.damaged(1, error, 0) from None
    return document if isinstance(document, dict) else {}


def as_object(value: Any) -> dict[str, Any]:
    """A value that is an object; ValueError if it is none."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} stands where an object has to")
    return value


def as_text(value: Any) -> str:
    """A text, or a number as written; ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} stands where a number or a text has to")
    return value


def object_of(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of a key, empty where it is missing or null."""
    value = values.get(name)
    return {} if value is None else as_object(value)


def list_of(values: dict[str, Any], name: str) -> list[Any]:
    """The list of a key, empty where it is missing or null."""
    value = values.get(name)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"its {name} is {value!r:.40}")
    return value or []


def text_of(values: dict[str, Any], name: str, default: str | None = None) -> str:
    """The text, or the number as written, of a key that has to be there."""
    value = values.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def whole_of(values: dict[str, Any], name: str) -> int | None:
    """The whole number of a key, None where it is missing or null."""
    return None if values.get(name) is None else cells.whole(text_of(values, name))


def is_true(value: object) -> bool:
    """Whether a value means yes: booleans are written as text, or as numbers."""
    return value is True or value == "true" or (isinstance(value, JsonNumber) and value != "0")
