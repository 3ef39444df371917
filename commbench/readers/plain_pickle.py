"""Reads a pickle of plain values: dicts, lists, tuples, sets, texts, bytes, numbers, None.

It does not use Python's unpickler. It interprets the opcodes of plain values, and ends with an
error at any other opcode: no code here can import a module, make an object of a class or call
anything. torch writes the dumps of its flight recorder with these opcodes only.
"""

from __future__ import annotations

from pickletools import genops
from typing import Any

_MOST_OPCODES = 20_000_000
_MARK = object()
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
"""Opcodes with a value, which genops has decoded."""
_NEW: dict[str, Any] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_DICT": dict,
    "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set, "MARK": lambda: _MARK,
}  # fmt: skip
"""What makes the value of an opcode that has none."""
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
_TAKES = {
    "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "TUPLE": None, "LIST": None, "DICT": None, "APPEND": 1,
    "APPENDS": None, "SETITEM": 2, "SETITEMS": None, "ADDITEMS": None, "POP": 1, "POP_MARK": None,
}  # fmt: skip
"""How many values an opcode takes from the stack; None: those above the last mark."""
_NOTHING = {"PROTO", "FRAME", "STOP"}


def read_plain_pickle(data: bytes) -> Any:
    """The value that was pickled. Raises ValueError for bytes that are no pickle of plain values,
    with the opcode that is not plain."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for count, (opcode, argument, _) in enumerate(genops(data)):
            if count > _MOST_OPCODES:
                raise NotImplementedError("it has too many values")
            _run(opcode.name, argument, stack, memo)
        (value,) = stack
        if value is _MARK:
            raise IndexError
    except NotImplementedError as error:
        raise ValueError(str(error)) from None
    except (LookupError, TypeError, AttributeError, OverflowError, ValueError, EOFError):
        raise ValueError("it is damaged, or was cut off") from None
    return value


def _run(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Run one opcode."""
    if name in _VALUES:
        stack.append(argument)
    elif name in _NEW:
        stack.append(_NEW[name]())
    elif name in _GETS:
        stack.append(memo[argument])
    elif name in _PUTS:
        memo[len(memo) if argument is None else argument] = stack[-1]
    elif name in _TAKES:
        _combine(name, _take(stack, _TAKES[name]), stack)
    elif name not in _NOTHING:
        raise NotImplementedError(f"it holds more than plain values ({name})")


def _take(stack: list[Any], count: int | None) -> list[Any]:
    """Remove and return the last values, or those above the last mark."""
    at = len(stack) - (count or 1)
    while count is None and stack[at] is not _MARK:
        at -= 1
    if at < 0:
        raise IndexError
    values = stack[at + (count is None) :]
    del stack[at:]
    return values


def _combine(name: str, values: list[Any], stack: list[Any]) -> None:
    """Do with values what an opcode does with those that it takes."""
    if name.startswith("TUPLE"):
        stack.append(tuple(values))
    elif name in ("LIST", "DICT"):
        stack.append(values if name == "LIST" else _pairs(values))
    elif name.startswith("APPEND"):
        _last(stack, list).extend(values)
    elif name.startswith("SETITEM"):
        _last(stack, dict).update(_pairs(values))
    elif name == "ADDITEMS":
        _last(stack, set).update(values)


def _last(stack: list[Any], kind: type) -> Any:
    """The last value, which must be exactly of a type."""
    if type(stack[-1]) is not kind:
        raise TypeError
    return stack[-1]


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))
